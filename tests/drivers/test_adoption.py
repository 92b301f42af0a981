"""A runner that adopts drives the tasks that need a driver and have none, and leaves stopped tasks alone."""

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import asynccontextmanager
from contextvars import ContextVar

import pytest

from tests.forked import Forked
from tests.runner.acts import until
from treadle import Agent, Limits, NotHappened, Runner, RunOptions, ScriptedModel, tool
from treadle.drivers import adoption as adopting
from treadle.drivers.adoption import PAGE, Adopter
from treadle.errors import ConfigurationError, StoreUnavailable
from treadle.models import call, text
from treadle.ports import InboxItem
from treadle.stores.memory import MemoryStore
from treadle.stores.sqlite import SQLiteStore
from treadle.testing.audit import audit_store
from treadle.testing.conformance.owner import Owner

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def frequent_scans(monkeypatch):
    """Have adopters look for tasks ten times a second: no test waits for the pauses between two looks."""
    monkeypatch.setattr(adopting, "SCAN_SECONDS", 0.1)
    monkeypatch.setattr(adopting, "PAUSE_SECONDS", 0.02)


class Gate:
    """A tool that waits until the gate opens, and an agent that calls it once."""

    def __init__(self, name="porter"):
        self.entered, self.opened, self.times = asyncio.Event(), asyncio.Event(), 0

        @tool(read_only=True)
        async def wait() -> str:
            """Wait."""
            self.times += 1
            self.entered.set()
            await self.opened.wait()
            return "open"

        self.agent = Agent(ScriptedModel([call("wait"), text("Through.")]), name=name, tools=[wait])


async def ended(runner, task_id, state="completed"):
    async with asyncio.timeout(10):
        while (await runner.get_task(task_id)).state != state:  # noqa: ASYNC110  there is no driver here to wait for
            await asyncio.sleep(0.01)


async def nothing_happens(runner, *task_ids):
    rows = [await runner.store.row(task_id) for task_id in task_ids]
    await asyncio.sleep(0.25)
    assert [await runner.store.row(task_id) for task_id in task_ids] == rows


async def test_a_task_interrupted_by_a_shutdown_is_adopted_by_another_runner_and_by_none_that_does_not_adopt(
    store,
):
    gate = Gate()
    one = Runner(store, agents=[gate.agent])
    handle = await one.start(gate.agent, "Through, please", task_id="t")
    await gate.entered.wait()
    two = Runner(store, agents=[gate.agent], adopt=True)
    await one.drain()
    result = await handle.result()
    assert (result.state, (await one.store.row("t")).due_at) == ("interrupted", True)
    gate.opened.set()
    async with two:
        await ended(two, "t")
        assert gate.times == 2
        assert await audit_store(two.store) == []
    if not isinstance(store, MemoryStore):
        await one.aclose()


async def test_a_task_started_just_before_a_shutdown_is_released_too(store):
    gate = Gate()
    async with Runner(store, agents=[gate.agent]) as runner:
        handle = await runner.start(gate.agent, "Through, please", task_id="t")
        await runner.drain()
        assert (await handle.result()).state == "interrupted"
        assert (await runner.store.row("t")).due_at


async def test_a_grace_lets_calls_in_flight_end_and_starts_nothing_new(store):
    gate = Gate()
    async with Runner(store, agents=[gate.agent]) as runner:
        handle = await runner.start(gate.agent, "Through, please", task_id="t")
        await gate.entered.wait()
        draining = asyncio.ensure_future(runner.drain(grace=10))
        await asyncio.sleep(0.05)
        assert not draining.done()
        gate.opened.set()
        await draining
        result = await handle.result()
        assert (result.state, result.error, len(gate.agent.model.requests)) == ("interrupted", None, 1)
        assert [c.outcome for c in result.tool_executions] == ["ok"]
        assert (await runner.resume("t")).state == "completed"
        assert gate.times == 1


async def test_an_adopter_leaves_stopped_tasks_and_tasks_between_steps_alone(store):
    gate = Gate()
    gate.opened.set()
    async with Runner(store, agents=[gate.agent], adopt=True) as runner:
        await runner.create_task(gate.agent, "a", task_id="created")
        for name in ("paused", "interrupted", "stepped", "messaged"):
            await runner.create_task(gate.agent, name, task_id=name)
        await runner.pause("paused")
        await runner.interrupt("interrupted", by="ada")
        await runner.run_step("stepped")
        await runner.run_step("messaged")
        await runner.send("messaged", "a message")
        await nothing_happens(runner, "created", "paused", "interrupted", "stepped", "messaged")
        assert (await runner.resume("messaged")).state == "completed"


async def test_a_task_that_is_interrupted_after_a_shutdown_is_not_adopted(store):
    gate = Gate()
    one = Runner(store, agents=[gate.agent])
    await one.start(gate.agent, "Through, please", task_id="t")
    await gate.entered.wait()
    await one.drain()
    assert (await one.interrupt("t", by="ada")).state == "interrupted"
    async with Runner(store, agents=[gate.agent], adopt=True) as two:
        await nothing_happens(two, "t")


async def test_a_message_to_a_task_that_was_shut_down_does_not_prevent_its_adoption(store):
    gate = Gate()
    one = Runner(store, agents=[gate.agent])
    await one.start(gate.agent, "Through, please", task_id="t")
    await gate.entered.wait()
    await one.drain()
    await one.send("t", "and quickly")
    gate.opened.set()
    async with Runner(store, agents=[gate.agent], adopt=True) as two:
        await ended(two, "t")
        messages = (await two.result("t")).messages
        assert "and quickly" in [message.text for message in messages]


async def test_a_message_to_a_task_whose_driver_died_does_not_prevent_its_adoption(store):
    gate = Gate()
    gate.opened.set()
    died = Runner(store)
    await died.create_task(gate.agent, "Through, please", task_id="t")
    await died.store.claim("t")
    await died.store.close()
    async with Runner(store, agents=[gate.agent]) as one:
        await one.send("t", "and quickly")
        async with Runner(store, agents=[gate.agent], adopt=True) as two:
            await ended(two, "t")


async def test_a_task_being_paused_at_a_shutdown_is_released_at_once_and_not_adopted(
    store,
):
    gate = Gate()
    one = Runner(store, agents=[gate.agent])
    await one.start(gate.agent, "Through, please", task_id="t")
    await gate.entered.wait()
    pausing = asyncio.ensure_future(one.pause("t"))
    await until(lambda: one._driver.owned.tasks["t"].state.pausing)
    async with asyncio.timeout(5):
        await one.drain()  # it does not wait for the call that the pause waits for
    await pausing
    row = await one.store.row("t")
    assert (row.driver, row.due_at) == (None, 0)
    await one.aclose()


class SlowStore(MemoryStore):
    """A store in which claims take their time."""

    def __init__(self):
        super().__init__()
        self.asked, self.go_on = asyncio.Event(), asyncio.Event()

    async def claim(self, task_id, *, enter=False):
        self.asked.set()
        await self.go_on.wait()
        return await super().claim(task_id, enter=enter)


async def test_a_task_about_to_be_adopted_does_not_delay_a_shutdown():
    gate, store = Gate(), SlowStore()
    await Runner(store).create_task(gate.agent, "Through, please", task_id="t")
    await MemoryStore.claim(store, "t")
    await store.close()  # its driver died
    await store.open()
    before = await store.row("t")
    async with Runner(store, agents=[gate.agent], adopt=True) as runner:
        await store.asked.wait()
        draining = asyncio.ensure_future(runner.drain())
        await asyncio.sleep(0.05)
        store.go_on.set()
        async with asyncio.timeout(5):
            await draining
        row = await store.row("t")
        assert (row.driver, row.due_at, row.head, gate.times) == (None, before.due_at, before.head, 0)


async def test_a_message_whose_sender_died_is_read_and_starts_nothing(store):
    gate = Gate()
    gate.opened.set()
    message = {"parts": ["a message"], "by": None, "role": "user", "observation": False}
    async with Runner(store, agents=[gate.agent]) as one:
        for name in ("created", "stepped"):
            await one.create_task(gate.agent, name, task_id=name)
        await one.run_step("stepped")
        for name in ("created", "stepped"):
            await one.store.post(name, InboxItem("message", "send", message, 1_700_000_000_000_000))
        async with Runner(store, agents=[gate.agent], adopt=True) as two:
            async with asyncio.timeout(10):
                for name in ("created", "stepped"):
                    while await two.store.inbox(name) or (await two.store.row(name)).driver is not None:  # noqa: ASYNC110
                        await asyncio.sleep(0.01)
            await nothing_happens(two, "created", "stepped")
            assert [(await two.get_task(name)).steps for name in ("created", "stepped")] == [0, 1]


async def test_a_settled_task_is_adopted_and_driven_at_once(store):
    gate = Gate()
    gate.opened.set()
    runs = []

    @tool
    async def pay() -> str:
        """Pay."""
        runs.append(1)
        if len(runs) == 1:
            await asyncio.sleep(60)
        return "paid"

    agent = Agent(ScriptedModel([call("pay"), text("Done.")]), name="payer", tools=[pay])
    async with Runner(store, agents=[agent]) as one:
        handle = await one.start(agent, "Pay", task_id="t")
        while not runs:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await handle.interrupt()
        assert (await one.resume("t")).state == "waiting"
        async with Runner(store, agents=[agent], adopt=True) as two:
            pending = (await one.result("t")).pending
            await one.settle("t", pending[0].request_id, NotHappened())
            await ended(two, "t")
            assert len(runs) == 2


async def test_options_are_those_the_task_was_begun_with(store):
    gate = Gate()
    one = Runner(store, agents=[gate.agent])
    options = RunOptions(limits=Limits(steps=1), on_limit="fail")
    await one.start(gate.agent, "Through, please", task_id="t", options=options)
    await gate.entered.wait()
    await one.drain()
    gate.opened.set()
    async with Runner(store, agents=[gate.agent], adopt=True) as two:
        await ended(two, "t", "failed")
        error = (await two.result("t")).error
        assert (error.source, error.kind) == ("limit", "steps")


async def test_unknown_agents_are_reported_once_and_block_no_other_task(
    store,
):
    known_gate, unknown, changed = Gate(), Gate("stranger"), Gate("changing")
    one = Runner(store)
    refusing = RunOptions(on_version_change="refuse")
    for number, gate in enumerate((unknown, unknown, changed, known_gate)):
        gate.entered.clear()
        await one.start(gate.agent, "Through, please", task_id=f"t{number}", options=refusing)
        await gate.entered.wait()
    await one.drain()
    known_gate.opened.set()
    notices = []
    newer = changed.agent.replace(instructions="Be another.")
    async with Runner(store, agents=[known_gate.agent, newer]) as two:
        two.begin_adopting(at_most=1, tell=notices.append)
        await ended(two, "t3")
        await asyncio.sleep(0.25)
        kinds_and_agents = [
            (item.kind, item.agent) for item in notices if item.kind not in ("adopted", "stopped")
        ]
        assert kinds_and_agents.count(("unknown_agent", "stranger")) == 1
        assert set(kinds_and_agents) == {("failed", "changing"), ("unknown_agent", "stranger")}
        failed = next(item for item in notices if item.kind == "failed")
        assert "on_version_change='refuse'" in failed.text
        assert (await two.store.row("t2")).due_at, "it is tried again later, here or elsewhere"


class FlakyStore(MemoryStore):
    failures = 1

    async def orphans(self, limit, **page):
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("the network is gone")
        return await super().orphans(limit, **page)


async def test_an_error_during_a_scan_is_reported_and_the_scan_is_repeated():
    gate, notices, store = Gate(), [], FlakyStore()
    one = Runner(store)
    await one.start(gate.agent, "Through, please", task_id="t")
    await gate.entered.wait()
    await one.drain()
    gate.opened.set()
    async with Runner(store, agents=[gate.agent]) as two:
        two.begin_adopting(tell=notices.append)
        await ended(two, "t")
    assert [item.kind for item in notices] == ["scan_failed", "adopted", "stopped"]


async def test_orphans_behind_more_than_a_page_of_strangers_are_adopted():
    gate, store = Gate(), MemoryStore()
    for number in range(PAGE + 50):
        owner = await Owner.create(store, f"a{number:04}", agent="stranger")
        await owner.send(state="interrupted", release=True, due_at=1)
    one = Runner(store)
    await one.start(gate.agent, "Through, please", task_id="t")
    await gate.entered.wait()
    await one.drain()
    gate.opened.set()
    async with Runner(store, agents=[gate.agent], adopt=True) as two:
        await ended(two, "t")


class UnreadableStore(MemoryStore):
    failures = 0

    async def read(self, task_id, *, after=0, upto=None):
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("the network is gone")
        return await super().read(task_id, after=after, upto=upto)


async def test_a_task_that_could_not_be_read_when_it_was_adopted_is_adopted_later(monkeypatch):
    monkeypatch.setattr(adopting, "RETRY_SECONDS", (0.05,))
    gate, notices, store = Gate(), [], UnreadableStore()
    one = Runner(store)
    await one.start(gate.agent, "Through, please", task_id="t")
    await gate.entered.wait()
    await one.drain()
    gate.opened.set()
    store.failures = 1
    async with Runner(store, agents=[gate.agent]) as two:
        two.begin_adopting(tell=notices.append)
        while not notices:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert (await store.row("t")).due_at
        await ended(two, "t")
    assert [item.kind for item in notices] == ["failed", "adopted", "stopped"]


async def test_adopting_needs_agents_and_at_least_room_for_one():
    with pytest.raises(ConfigurationError, match="agents"):
        Runner("memory:", adopt=True)
    with pytest.raises(ConfigurationError, match="adopt"):
        Runner("memory:", agents=[Gate().agent], adopt=1)
    async with Runner("memory:", agents=[Gate().agent]) as runner:
        with pytest.raises(ConfigurationError, match="at_most"):
            runner.begin_adopting(at_most=0)


DRIVER = """
import asyncio, sys
from treadle import Agent, Runner, ScriptedModel, tool
from treadle.models import call, text

@tool(read_only=True)
async def nap() -> str:
    seconds = float(sys.argv[2])  # before any watcher hears of it, and changes it
    print("napping", flush=True)
    await asyncio.sleep(seconds)
    return "slept"

agent = Agent(ScriptedModel([call("nap"), text("Rested.")]), name="napper", tools=[nap])
if __name__ == "__main__":
    Runner(sys.argv[1]).run_sync(agent, "Rest", task_id="t")
"""


async def test_a_task_whose_driver_was_killed_is_adopted_within_one_scan(tmp_path):
    store = SQLiteStore(tmp_path / "journal.db")
    driver = started([sys.executable, "-c", DRIVER, str(store.path), "60"])
    assert driver.stdout is not None
    assert await asyncio.to_thread(driver.stdout.readline) == "napping\n"

    @tool(read_only=True)
    async def nap() -> str:
        return "slept"

    agent = Agent(ScriptedModel([call("nap"), text("Rested.")]), name="napper", tools=[nap])
    with Runner(store, agents=[agent], adopt=True).sync as runner:
        driver.kill()
        driver.communicate()
        begin = asyncio.get_running_loop().time()
        while runner.get_task("t").state != "completed":  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        assert asyncio.get_running_loop().time() - begin < 5


def started(command, folder=None):
    environment = {**os.environ, "TREADLE_DEBUG": "1"}
    return Forked(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


async def napping(process):
    """Return once a process reports that its tool runs."""
    while "napping" not in await asyncio.to_thread(process.stderr.readline):
        assert process.poll() is None


def drive(folder, *options):
    command = [sys.executable, "-m", "treadle", "drive", "--agent", "napper:agent", "--store", "journal.db"]
    return started([*command, "--json", *options], folder)


async def test_treadle_drive_gives_its_tasks_to_the_next_at_sigterm_and_exits_with_0(tmp_path):
    (tmp_path / "napper.py").write_text(DRIVER.replace("sys.argv[2]", "open('seconds').read()"))
    (tmp_path / "seconds").write_text("60")
    first = started([sys.executable, "napper.py", "journal.db"], tmp_path)
    assert first.stdout is not None
    assert await asyncio.to_thread(first.stdout.readline) == "napping\n"
    second = drive(tmp_path, "--grace", "0.2")
    assert second.stdout is not None
    first.kill()
    first.communicate()
    assert '"driving"' in await asyncio.to_thread(second.stdout.readline)
    assert '"adopted"' in await asyncio.to_thread(second.stdout.readline)
    await napping(second)
    async with Runner(tmp_path / "journal.db") as runner:
        assert (await runner.store.row("t")).driver.pid == second.pid
        (tmp_path / "seconds").write_text("0.05")
        await asyncio.sleep(0.3)
        third = drive(tmp_path)
        second.send_signal(signal.SIGTERM)
        output, errors = await asyncio.to_thread(second.communicate)
        assert second.returncode == 0, errors
        assert '"state": "interrupted"' in output
        assert '"drained"' in output
        assert "drained: 1 adopted" in errors
        await ended(runner, "t")
        third.send_signal(signal.SIGINT)
        output, errors = await asyncio.to_thread(third.communicate)
        assert third.returncode == 0, errors
        assert '"completed"' in output
        assert await audit_store(runner.store) == []


async def test_treadle_run_releases_its_task_for_adoption_at_sigterm(tmp_path):
    (tmp_path / "napper.py").write_text(DRIVER.replace("sys.argv[2]", "60"))
    command = [sys.executable, "-m", "treadle", "run", "napper:agent", "Rest", "--store", "journal.db"]
    run = started([*command, "--json"], tmp_path)
    await napping(run)
    run.send_signal(signal.SIGTERM)
    output, errors = await asyncio.to_thread(run.communicate)
    assert run.returncode == 6, errors
    assert '"state": "interrupted"' in output
    async with Runner(tmp_path / "journal.db") as runner:
        assert [row.due_at for row in await runner.store.orphans(2)] == [True]


async def test_a_tenant_with_many_tasks_keeps_no_other_waiting(store):
    gate, notices = Gate(), []
    async with Runner(store, agents=[gate.agent]) as runner:
        for number in range(4):
            await runner.scoped(tenant="many").submit(gate.agent, "Through, please", task_id=f"m{number}")
        await runner.scoped(tenant="few").submit(gate.agent, "Through, please", task_id="f")
        runner.begin_adopting(at_most=3, per_tenant=2, tell=notices.append)
        while gate.times < 3:
            gate.entered.clear()
            await gate.entered.wait()
        adopted = {(item.tenant, item.task_id) for item in notices if item.kind == "adopted"}
        assert adopted == {("many", "m0"), ("many", "m1"), ("few", "f")}
        gate.opened.set()
        for number in range(4):
            await ended(runner.scoped(tenant="many"), f"m{number}")


async def test_an_adopter_drives_at_most_as_many_tasks_as_allowed(store):
    gate = Gate()
    async with Runner(store, agents=[gate.agent]) as one, Runner(store, agents=[gate.agent]) as two:
        for number in range(3):
            gate.entered.clear()
            await one.start(gate.agent, "Through, please", task_id=f"t{number}")
            await gate.entered.wait()
        await one.drain()
        notices, gate.times = [], 0
        two.begin_adopting(at_most=2, tell=notices.append)
        await asyncio.sleep(0.4)
        assert gate.times == 2
        assert sorted((item.kind, item.task_id) for item in notices) == [("adopted", "t0"), ("adopted", "t1")]
        gate.opened.set()
        await ended(two, "t2")
        late = next(item for item in notices if (item.kind, item.task_id) == ("adopted", "t2"))
        assert late.waited > 0.3, "since it was first seen, not since there was room"
        assert max(item.waited for item in notices[:2]) < late.waited


# -------------------------------------------------------------------------------------------- handing over


CALLER: ContextVar[str] = ContextVar("CALLER", default="none")


@asynccontextmanager
async def without_scans(runner, **settings):
    """Adopt what is handed over by name, and scan only on request."""
    notices = []
    adopter = Adopter(runner._drivers, tell=notices.append, **settings)
    adopter._scanning.cancel()
    adopter.adopted = lambda: [item.task_id for item in notices if item.kind == "adopted"]
    adopter.notices = notices
    yield adopter
    await adopter.stop()


async def test_what_a_process_releases_to_be_driven_on_is_driven_there_without_a_scan(store):
    seen = []

    @tool(read_only=True)
    async def look() -> str:
        """Look."""
        seen.append(CALLER.get())
        return "seen"

    agent = Agent(ScriptedModel([call("look"), text("Done.")], keep=1), name="looker", tools=[look])
    async with Runner(store, agents=[agent]) as runner, without_scans(runner) as adopter:
        CALLER.set("of the caller")
        await runner.submit(agent, "Look", task_id="submitted")
        await runner.create_task(agent, "Look", task_id="created")
        await runner.resume("created", drive=False)
        await runner.scoped(tenant="acme").submit(agent, "Look", task_id="scoped")
        await ended(runner, "submitted")
        await ended(runner, "created")
        await ended(runner.scoped(tenant="acme"), "scoped")
        assert seen == ["none"] * 3, "a task does not run in the context of who released it"
        await until(lambda: not adopter._adopting)
        assert not adopter._handed_over
        assert await audit_store(runner.store) == []


async def test_what_is_handed_over_from_another_thread_is_driven_in_the_loop_of_the_adopter(store):
    gate = Gate()
    gate.opened.set()
    async with Runner(store, agents=[gate.agent]) as runner, without_scans(runner):
        await asyncio.to_thread(
            lambda: runner.sync.submit(gate.agent, "Through, please", task_id="t")  # in a loop of its own
        )
        await ended(runner, "t")


@pytest.mark.parametrize("settings", [{"at_most": 1}, {"per_tenant": 1}], ids=str)
async def test_what_is_handed_over_waits_for_room_and_goes_before_no_other(store, settings):
    gate = Gate()
    async with Runner(store, agents=[gate.agent]) as runner, without_scans(runner, **settings) as adopter:
        for number in range(2):
            await runner.submit(gate.agent, "Through, please", task_id=f"t{number}")
            await gate.entered.wait()
        gate.opened.set()
        await ended(runner, "t0")
        await until(lambda: not adopter._adopting)
        await runner.submit(gate.agent, "Through, please", task_id="t2")
        await until(lambda: not adopter._handed_over)
        assert adopter.adopted() == ["t0"], "t1 waits for its place"
        while len(adopter.adopted()) < 3:
            await adopter._scan()
            await asyncio.sleep(0.01)
        await until(lambda: not adopter._adopting)
        assert adopter.adopted() == ["t0", "t1", "t2"]
        await adopter._scan()
        await runner.submit(gate.agent, "Through, please", task_id="t3")
        await ended(runner, "t3")  # a scan found none that waits


async def test_what_is_handed_over_and_has_an_unknown_agent_is_reported_once_and_left_alone(store):
    known, stranger = Gate(), Gate("stranger")
    known.opened.set()
    async with Runner(store, agents=[known.agent, stranger.agent]) as runner:
        for number in range(2):
            await runner.create_task(stranger.agent, "Through, please", task_id=f"s{number}")
    async with Runner(store, agents=[known.agent]) as runner, without_scans(runner) as adopter:
        for number in range(2):
            await runner.resume(f"s{number}", drive=False)
        await runner.submit(known.agent, "Through, please", task_id="t")
        await ended(runner, "t")
        assert [item.kind for item in adopter.notices if item.agent == "stranger"] == ["unknown_agent"]
        assert [row.task_id for row in await runner.store.orphans(3)] == ["s0", "s1"]


async def test_a_runner_that_shuts_down_hands_nothing_over_to_its_own_adopter(store):
    gate = Gate()
    async with Runner(store, agents=[gate.agent]) as runner, without_scans(runner) as adopter:
        handle = await runner.start(gate.agent, "Through, please", task_id="t")
        await gate.entered.wait()
        await runner._driver.stop(runner._driver.owned.tasks["t"], 0.0)
        assert (await handle.result()).state == "interrupted"
        assert not adopter._handed_over
        stopping = asyncio.ensure_future(adopter.stop())
        await asyncio.sleep(0)
        adopter._on_news(("", "t"))  # from a thread that has not heard that it stops
        await stopping
        await asyncio.sleep(0)
        assert (adopter.adopted(), bool((await runner.store.row("t")).due_at)) == ([], True)


async def test_a_scan_that_read_a_task_before_it_was_handed_over_does_not_claim_it_again():
    class Slow(MemoryStore):
        reading, go_on = asyncio.Event(), asyncio.Event()

        async def orphans(self, *arguments, **named):
            rows = await super().orphans(*arguments, **named)
            self.reading.set()
            await self.go_on.wait()
            return rows

    gate, store = Gate(), Slow()
    gate.opened.set()
    other = Runner(store, agents=[gate.agent])
    async with Runner(store, agents=[gate.agent]) as runner, without_scans(runner) as adopter:
        await other.submit(gate.agent, "Through, please", task_id="t")
        scan = asyncio.ensure_future(adopter._scan())
        await store.reading.wait()
        adopter._on_news(("", "t"))
        await ended(runner, "t")
        await until(lambda: not adopter._adopting)
        epoch = (await store.row("t")).epoch
        store.go_on.set()
        await scan
        await until(lambda: not adopter._adopting)
        assert (await store.row("t")).epoch == epoch
