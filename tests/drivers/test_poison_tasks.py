"""A task that crashes its drivers is paused after some of them; tasks that were driven beside it are not."""

import asyncio
import runpy
import sys
import time

import apsw
import pytest

from tests.cast import Gate
from tests.drivers.agent_trees import calling
from tests.forked import completed
from tests.runner.acts import until
from treadle import Agent, Runner, ScriptedModel, tool
from treadle.core import events as e
from treadle.core.events.control import RUNNER
from treadle.drivers import adoption as adopting
from treadle.engine.inbox import SURVIVED
from treadle.errors import Fenced, StoreUnavailable
from treadle.models import call, text
from treadle.ports import InboxItem
from treadle.stores.sqlite import SQLiteStore
from treadle.testing.audit import audit_store

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def frequent_scans(monkeypatch):
    """Have adopters look for tasks ten times a second: no test waits for the pauses between two looks."""
    monkeypatch.setattr(adopting, "SCAN_SECONDS", 0.1)
    monkeypatch.setattr(adopting, "PAUSE_SECONDS", 0.02)


AGENTS = """
import asyncio, os, signal
from pathlib import Path
from treadle import Agent, ScriptedModel, tool
from treadle.models import call, text

@tool(read_only=True)
async def explode() -> str:
    "Kill the process that runs this, once others run beside it."
    await asyncio.sleep(0.1)
    if Path(__file__).with_name("defused").exists():
        return "nothing happened"
    os.kill(os.getpid(), signal.SIGKILL)

@tool(read_only=True)
async def work() -> str:
    "Work for longer than that."
    await asyncio.sleep(0.3)
    return "done"

bomb = Agent(ScriptedModel([call("explode"), text("Peace.")]), name="bomb", tools=[explode])
worker = Agent(ScriptedModel([call("work"), text("All done.")]), name="worker", tools=[work])
"""

SUPERVISE = """
import asyncio, os
from agents import bomb, worker
from treadle import Runner
from treadle.drivers import adoption

adoption.SUSPECT, adoption.GIVEN_UP = 2, 4  # each death takes a while

async def begin():
    async with Runner("journal.db") as runner:
        for name in ("a", "z"):
            await runner.start(worker, "Work", task_id=name)
        await runner.run(bomb, "Explode", task_id="bomb")

async def drive():
    told = []
    async with Runner("journal.db", agents=[bomb, worker]) as runner:
        runner.begin_adopting(tell=told.append)
        while any(task.state not in ("completed", "paused") for task in (await runner.list_tasks()).items):
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.3)  # it is looked for again, and let be
    for adoption in told:
        if adoption.kind == "given_up":
            print(adoption.task_id, adoption.text, sep=": ", flush=True)

def process(work):
    pid = os.fork()
    if pid == 0:
        asyncio.run(work())
        os._exit(0)
    return os.waitpid(pid, 0)[1]

process(begin)
died = 0
while process(drive) != 0 and died < 20:
    died += 1
print(died)
"""

WHY = "its last 4 drivers crashed, or did not respond, before it made progress"


async def test_a_task_that_kills_its_drivers_is_paused_and_no_other_is(tmp_path):
    (tmp_path / "agents.py").write_text(AGENTS)
    command = [sys.executable, "-c", SUPERVISE]
    supervised = await asyncio.to_thread(completed, command, cwd=tmp_path, check=True)
    given_up, died = supervised.stdout.splitlines()
    assert died == "4", "the one that began it got as far as the model's answer"
    assert given_up == f"bomb: task bomb is paused: {WHY}; find out why before you resume it"

    async with Runner(tmp_path / "journal.db") as runner:
        states = {task.task_id: task.state for task in (await runner.list_tasks()).items}
        assert states == {"a": "completed", "bomb": "paused", "z": "completed"}
        assert await runner.store.orphans(10) == []
        show = [sys.executable, "-m", "treadle", "show", "bomb", "--store", "journal.db"]
        shown = await asyncio.to_thread(completed, show, cwd=tmp_path, check=True)
        assert WHY in shown.stdout
        (tmp_path / "defused").touch()
        bomb = runpy.run_path(str(tmp_path / "agents.py"))["bomb"]
        assert (await runner.resume("bomb", agent=bomb)).state == "completed"
        assert await audit_store(runner.store) == []


# ------------------------------------------------------------------------------------- what is no evidence


def worker(seconds=0.0):
    """Return an agent with a slow model, and the times of its requests."""
    request_times = []

    def answer(request):
        request_times.append(time.monotonic())
        return text("Done.", delay=seconds)

    return Agent(ScriptedModel(answer), name="worker"), request_times


async def orphaned(path, agent, *task_ids):
    """Leave tasks for adoption, by a driver that crashed before it made progress."""
    runner = Runner(path)
    for task_id in task_ids:
        await runner.create_task(agent, "Work", task_id=task_id)
        await runner.store.claim(task_id)
    await runner.store.close()


async def drivers_die(path, task_id, times):
    for _ in range(times):
        store = SQLiteStore(path)
        await store.claim(task_id)
        await store.close()


def sql(path, statement):
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(5_000)
    connection.execute(statement)


async def reached(runner, task_id, state):
    async with asyncio.timeout(10):
        while (await runner.get_task(task_id)).state != state:  # noqa: ASYNC110  there is no driver here to wait for
            await asyncio.sleep(0.01)


async def test_drivers_that_stalled_and_came_back_do_not_count_as_dead_of_the_task(tmp_path):
    path, (agent, _) = tmp_path / "journal.db", worker()
    await orphaned(path, agent, "t")
    stalled = [Runner(path) for _ in range(6)]
    owned = []
    for runner in stalled:
        owned.append(await runner._driver.ownership.claim("t"))
        sql(path, "UPDATE drivers SET lease = 1")
    for runner, own in zip(stalled[:5], owned, strict=False):
        with pytest.raises(Fenced):
            async with runner._driver.ownership.releasing(own):
                pass
    await stalled[5].aclose()

    async with Runner(path, agents=[agent], adopt=True) as runner:
        await reached(runner, "t", "completed")
        events = [event async for event in runner.handle("t").events()]
        survived = [event.epoch for event in events if event.kind == "driver_survived"]
        assert survived == [own.writer.epoch for own in owned[:5]]
        assert await audit_store(runner.store) == []
    for runner in stalled[:5]:
        await runner.aclose()


@pytest.mark.parametrize("died", [adopting.SUSPECT - 1, adopting.GIVEN_UP])
async def test_drivers_that_gave_the_task_back_do_not_count_as_dead_of_it(tmp_path, died):
    path, (agent, _) = tmp_path / "journal.db", worker()
    await orphaned(path, agent, "t")
    await drivers_die(path, "t", died)
    async with Runner(path, agents=[agent]) as runner:
        async with runner._driver.ownership.acquire(
            "t"
        ):  # as one that could not drive it, for want of a key or a server
            pass
        runner.begin_adopting()
        await reached(runner, "t", "completed")


async def test_a_suspect_that_gets_nowhere_does_not_keep_the_next_waiting_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(adopting, "ALONE_SECONDS", 1.5)
    path, (agent, request_times) = tmp_path / "journal.db", worker(seconds=20.0)
    await orphaned(path, agent, "a", "b")
    for task_id in ("a", "b"):
        await drivers_die(path, task_id, adopting.SUSPECT - 1)
    request_times.clear()
    notices = []
    async with Runner(path, agents=[agent]) as runner:
        runner.begin_adopting(tell=notices.append)
        async with asyncio.timeout(10):
            while len(request_times) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    first, second = request_times
    assert second - first >= 0.4, "for a while it is driven alone"
    assert [adoption.task_id for adoption in notices if adoption.kind == "suspect"] == ["b"]


async def test_a_suspect_that_is_done_keeps_no_other_waiting(tmp_path):
    path, (agent, _) = tmp_path / "journal.db", worker()
    await orphaned(path, agent, "a", "b")
    for task_id in ("a", "b"):
        await drivers_die(path, task_id, adopting.SUSPECT - 1)
    async with Runner(path, agents=[agent], adopt=True) as runner:
        for task_id in ("a", "b"):
            await reached(runner, task_id, "completed")


async def test_a_suspect_that_made_progress_keeps_no_other_waiting_though_it_is_still_driven(tmp_path):
    path, entered = tmp_path / "journal.db", []

    @tool(read_only=True)
    async def work() -> str:
        """Work."""
        entered.append(1)
        await asyncio.sleep(20)
        return "done"

    agent = Agent(ScriptedModel([call("work"), text("Done.")]), name="worker", tools=[work])
    await orphaned(path, agent, "a", "b")
    for task_id in ("a", "b"):
        await drivers_die(path, task_id, adopting.SUSPECT - 1)
    async with Runner(path, agents=[agent], adopt=True):
        await until(lambda: len(entered) == 2)


async def test_a_task_that_its_drivers_gave_back_waits_for_no_suspect(tmp_path):
    path, (agent, request_times) = tmp_path / "journal.db", worker(seconds=20.0)
    await orphaned(path, agent, "a", "b")
    await drivers_die(path, "a", adopting.SUSPECT - 1)
    async with Runner(path, agents=[agent]) as runner:
        for _ in range(adopting.SUSPECT):
            async with runner._driver.ownership.acquire("b"):  # as one that could not drive it
                pass
        request_times.clear()
        runner.begin_adopting()
        await until(lambda: len(request_times) == 2)


async def test_drivers_that_died_since_a_task_was_last_seen_at_rest_are_counted(tmp_path):
    path, (agent, request_times) = tmp_path / "journal.db", worker()
    notices = []
    async with Runner(path, agents=[agent]) as runner:
        adopter = adopting.Adopter(runner._drivers, tell=notices.append)
        await adopter.stop()  # it is to look no more
        await orphaned(path, agent, "t")
        async with runner._driver.ownership.acquire("t"):
            pass
        seen = await runner.store.row("t")
        await drivers_die(path, "t", adopting.GIVEN_UP)
        await adopter._drive(runner._driver, seen)
    assert ([adoption.kind for adoption in notices], request_times) == (["given_up"], [])


async def test_tasks_that_ran_beside_a_suspect_are_retried_at_once(tmp_path):
    path, (agent, request_times) = tmp_path / "journal.db", worker(seconds=20.0)
    await orphaned(path, agent, "a", "b")
    for task_id in ("a", "b"):
        await drivers_die(path, task_id, adopting.SUSPECT - 2)
    request_times.clear()
    async with Runner(path, agents=[agent], adopt=True):
        async with asyncio.timeout(10):
            while len(request_times) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("stalls", ["its loop", "its store"])
async def test_a_driver_that_stalled_makes_room_in_the_midst_of_a_call_for_what_was_left_meanwhile(
    tmp_path, monkeypatch, stalls
):
    monkeypatch.setattr(adopting, "SCAN_SECONDS", 0.25)
    monkeypatch.setattr(adopting, "STALL_SECONDS", 0.6)

    async def away(*page, **bounds):
        raise StoreUnavailable("the network is gone")

    path, (agent, request_times) = tmp_path / "journal.db", worker(seconds=20.0)
    await orphaned(path, agent, "t")
    request_times.clear()
    notices = []
    async with Runner(path, agents=[agent]) as runner:
        runner.begin_adopting(at_most=1, tell=notices.append)
        async with asyncio.timeout(10):
            while not request_times:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            sql(path, "UPDATE drivers SET lease = 1")
            other = SQLiteStore(path)
            epoch = (await other.claim("t")).epoch
            sql(path, "UPDATE drivers SET lease = 1e16")
            await other.close()
            if stalls == "its loop":
                time.sleep(adopting.STALL_SECONDS + 0.1)  # noqa: ASYNC251
            else:
                with monkeypatch.context() as stalling:
                    stalling.setattr(runner.store, "adoptable", away)
                    await asyncio.sleep(adopting.STALL_SECONDS + 0.1)
            while len(request_times) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        notices = [adoption for adoption in notices if adoption.kind != "scan_failed"]
        assert [adoption.kind for adoption in notices] == ["adopted", "lost", "adopted"]
        assert notices[-1].epoch == epoch + 1
        assert runner.store.fenced == 1


async def left_with(path, agent, *recorded, steps=0):
    """Leave task `t` for adoption, by a driver that crashed just after it wrote these events."""
    runner = Runner(path)
    await runner.create_task(agent, "Work", task_id="t")
    for _ in range(steps):
        await runner.run_step("t")
    owned = await runner._driver.ownership.claim("t")
    for event in recorded:
        owned.writer.record(event)
    await owned.writer.durable()
    await runner.store.close()


async def adopted(path, agent):
    """Return the state of the task after an adopter has scanned, and the notices of the adopter."""
    notices = []
    async with Runner(path, agents=[agent]) as runner:
        runner.begin_adopting(tell=notices.append)
        async with asyncio.timeout(10):
            while (await runner.store.row("t")).driver is not None or (await runner.store.row("t")).due_at:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await runner.drain()
        assert await audit_store(runner.store) == []
        return await runner.result("t"), [adoption.kind for adoption in notices]


@pytest.mark.parametrize(
    ("times", "state"), [(adopting.GIVEN_UP - 1, "completed"), (adopting.GIVEN_UP, "paused")]
)
async def test_a_task_is_given_up_with_the_tenth_driver_and_not_before(tmp_path, times, state):
    path, (agent, _) = tmp_path / "journal.db", worker()
    await orphaned(path, agent, "t")
    await drivers_die(path, "t", times - 1)
    result, notices = await adopted(path, agent)
    assert (result.state, "given_up" in notices) == (state, state == "paused")


async def test_a_task_is_not_given_up_when_a_driver_that_lost_it_reports_alive(tmp_path):
    path, (agent, _) = tmp_path / "journal.db", worker()
    await orphaned(path, agent, "t")
    await drivers_die(path, "t", adopting.GIVEN_UP)
    store = SQLiteStore(path)
    await store.open()
    await store.post("t", InboxItem("said", SURVIVED, {"epoch": 3}, 1))
    await store.close()
    assert (await adopted(path, agent))[0].state == "completed"


async def test_a_task_is_not_given_up_while_a_task_below_it_makes_progress(tmp_path):
    gate, copy = Gate(read_only=True), tmp_path / "copy.db"
    leaf = Agent(ScriptedModel([call("work"), text("Done.")]), name="leaf", tools=[gate.tool])
    root = calling("root", calling("middle", leaf))
    async with Runner(tmp_path / "journal.db") as runner:
        await runner.start(root, "Work", task_id="t")
        await gate.entered.wait()
        sql(tmp_path / "journal.db", f"VACUUM INTO '{copy}'")  # the store as a crash now would leave it
    sql(copy, "UPDATE drivers SET lease = 1")
    crashing = Runner(copy)  # it recovers the task between them, and gets no further
    await (await crashing._driver.ownership.claim("t.s1-0")).writer.durable()
    await crashing.store.close()
    await drivers_die(copy, "t", adopting.GIVEN_UP)
    gate.let_go.set()
    result, notices = await adopted(copy, root)
    assert (result.state, "given_up" in notices) == ("completed", False)


@pytest.mark.parametrize("died", [1, adopting.GIVEN_UP + 1])
async def test_an_undo_whose_drivers_died_is_finished_and_the_task_is_not_driven_on(tmp_path, died):
    agent = Agent(ScriptedModel(["Hello.", "Hello again."]), name="worker")
    path = tmp_path / "journal.db"
    await left_with(path, agent, e.UndoRequested(0, ("s1",), (), False), steps=1)
    await drivers_die(path, "t", died - 1)
    result, notices = await adopted(path, agent)
    assert (result.state, result.steps, notices) == ("running", 0, ["adopted", "stopped"])
    assert len(agent.model.requests) == 1, "a step that is undone is not done again at once"


@pytest.mark.parametrize(
    ("recorded", "state"),
    [
        ([e.PauseRequested("ann")], "paused"),
        ([e.InterruptRequested("ann")], "interrupted"),
        ([e.PauseRequested("ann"), e.InterruptRequested(RUNNER)], "paused"),
        ([e.InterruptRequested(RUNNER)], "completed"),
        ([e.InterruptRequested(RUNNER, None, "item")], "interrupted"),
    ],
    ids=["paused", "interrupted", "paused and shut down", "shut down", "interrupted by one named runner"],
)
async def test_a_command_sent_just_before_the_driver_died_is_carried_out(tmp_path, recorded, state):
    path, (agent, _) = tmp_path / "journal.db", worker()
    await left_with(path, agent, *recorded)
    assert (await adopted(path, agent))[0].state == state


async def test_an_ended_task_whose_driver_died_is_released_unchanged(tmp_path):
    path, (agent, _) = tmp_path / "journal.db", worker()
    async with Runner(path) as runner:
        await runner.run(agent, "Work", task_id="t")
    await drivers_die(path, "t", 1)
    result, notices = await adopted(path, agent)
    assert (result.state, notices) == ("completed", [])
