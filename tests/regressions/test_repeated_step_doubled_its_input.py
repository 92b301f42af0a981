"""A step that was repeated after a crash read its input twice; one that had completed was followed by another."""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest

from tests.cast import Gate, calculator, gate_agent
from tests.client.served import LosingProxy, client, served
from tests.property.mortal import MortalStore, next_life
from treadle import Agent, Node, Pipeline, Runner, ScriptedModel, tool
from treadle.client import connection
from treadle.errors import ConfigurationError, StepFailed, StepNotFound, StoreError, TaskParked
from treadle.llm.scripted import fail
from treadle.ports import InboxItem, JournalStore
from treadle.runner.runner import TaskRunner
from treadle.stores.memory import MemoryStore
from treadle.stores.sqlite.store import SQLiteStore
from treadle.testing.audit import audit_store

pytestmark = pytest.mark.anyio

MOST_WRITES = 15
"""A step takes fewer writes than this."""


class CountingStore(MortalStore):
    """A store whose process crashes at its nth write: a commit, or a note of a command."""

    async def post(self, task_id: str, item: InboxItem) -> bool:
        if self.commits_left is None or self.dead:
            return await super().post(task_id, item)
        self.commits_left -= 1
        if self.commits_left >= 0:
            return await super().post(task_id, item)
        self.dead = True
        if self.dies_after_writing:
            await self.real.post(task_id, item)
        return await super().post(task_id, item)


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgresql", marks=pytest.mark.full)])
def opened(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Callable[[str], Callable[[], JournalStore] | None]:
    """Return for a name how its store is opened; None for one in memory."""

    def of(name: str) -> Callable[[], JournalStore] | None:
        if request.param == "memory":
            return None
        if request.param == "sqlite":
            return lambda: SQLiteStore(tmp_path / f"{name}.db")
        from treadle.stores.postgres import PostgresStore

        url = request.getfixturevalue("postgres").in_schema(f"s{abs(hash(f'{tmp_path}/{name}')):x}")
        return lambda: PostgresStore(url)

    return of


async def counts(runner: TaskRunner, task: Any) -> Counter[str]:
    return Counter([event.kind async for event in await runner.get_events(task, limit=200)])


@pytest.mark.parametrize("after_writing", [False, True], ids=["unwritten", "unanswered"])
@pytest.mark.parametrize("verb", ["run_step", "stream_step"])
@pytest.mark.sampled(3)
async def test_a_step_repeated_after_a_crash_at_any_write_reads_its_input_once_and_runs_once(
    opened: Callable[[str], Callable[[], JournalStore] | None], verb: str, after_writing: bool
) -> None:
    async def step(runner: Runner) -> Any:
        if verb == "run_step":
            return await runner.run_step("t", input="And?", command_id="c1")
        async with runner.stream_step("t", input="And?", command_id="c1") as stream:
            async for _ in stream:
                pass
        return stream.output

    crashes = 0
    for write in range(MOST_WRITES):
        again = opened(f"{write}")
        store = CountingStore(MemoryStore() if again is None else again())  # pyright: ignore[reportAbstractUsage]
        agent = calculator()
        runner = Runner(store, agents=[agent])
        await runner.create_task(agent, "What is (121 * 3) + 42?", task_id="t")
        await runner.run_step("t")
        store.commits_left, store.dies_after_writing = write, after_writing
        try:
            await step(runner)
        except StoreError:
            crashes += 1
        store = await next_life(store, again)
        async with Runner(store, agents=[agent]) as runner:
            outputs = [await step(runner) for _ in range(3)]
            assert [output.step.step_id for output in outputs] == ["s2"] * 3, f"crashed at write {write}"
            assert repr(outputs[1]) == repr(outputs[2])
            tally = await counts(runner, "t")
            assert (tally["input_received"], tally["step_completed"]) == (1, 2), f"crashed at write {write}"
            assert await audit_store(store.real) == []
        await store.real.close()
    assert 0 < crashes < MOST_WRITES


@pytest.mark.sampled(1)
async def test_ready_steps_repeated_after_a_crash_run_once_each_and_no_others(
    opened: Callable[[str], Callable[[], JournalStore] | None],
) -> None:
    ran: Counter[str] = Counter()

    @tool(idempotent=True)
    def note(line: str) -> str:
        """Write a line down."""
        ran[line] += 1
        return "noted"

    nodes = [Node(name, "note", input={"line": name}, after=()) for name in ("first", "here", "there")]
    nodes.append(Node("last", "note", input={"line": "last"}, after=("here", "there")))
    agent = Agent(ScriptedModel([]), name="clerk", tools=[note], worker=Pipeline(nodes))
    crashes = 0
    for write in range(MOST_WRITES):
        again = opened(f"{write}")
        store = CountingStore(MemoryStore() if again is None else again())  # pyright: ignore[reportAbstractUsage]
        runner = Runner(store, agents=[agent])
        await runner.create_task(agent, "Note it.", task_id="t")
        await runner.run_step("t")
        store.commits_left = write
        with suppress(StoreError):
            await runner.run_ready_steps("t", command_id="c1")
        crashes += store.dead
        store = await next_life(store, again)
        async with Runner(store, agents=[agent]) as runner:
            for _ in range(3):
                outputs = await runner.run_ready_steps("t", command_id="c1")
                assert [output.step.status for output in outputs] == ["completed", "completed"]
            assert (await runner.get_task("t")).steps == 3, f"crashed at write {write}"
            assert await audit_store(store.real) == []
        await store.real.close()
    assert crashes
    assert not ran["last"]


async def test_a_repeat_returns_the_step_that_ran_also_when_others_followed(runner: Runner) -> None:
    task = await runner.create_task(calculator(), "What is (121 * 3) + 42?")
    first = await runner.run_step(task, command_id="c1")
    await runner.run_step(task, command_id="c2")
    again = await runner.run_step(task, command_id="c1")
    assert (again.step, again.messages, again.output) == (first.step, first.messages, first.output)
    assert (await runner.get_task(task)).steps == 2


async def test_a_repeat_of_a_step_after_an_answer_returns_that_step(runner: Runner) -> None:
    task = await runner.create_task(Agent(ScriptedModel(["One.", "Two."]), name="sayer"), "Hi")
    await runner.run_step(task)
    for _ in range(2):
        output = await runner.run_step(task, input="And?", command_id="c1")
        assert (output.step.step_id, output.output) == ("s2", "Two.")


async def test_a_repeat_raises_the_failure_of_its_step_and_does_not_try_it_again(runner: Runner) -> None:
    model = ScriptedModel([fail(400), "Here."])
    task = await runner.create_task(Agent(model, name="sayer"), "Hi")
    for _ in range(2):
        with pytest.raises(StepFailed, match="step s1 failed"):
            await runner.run_step(task, input="Now!", command_id="c1")
    assert (await counts(runner, task))["step_failed"] == 1
    assert (await runner.run_step(task, command_id="c2")).output == "Here."


async def test_a_repeat_does_not_lift_a_stop_that_came_after_its_step_began(runner: Runner) -> None:
    gate = Gate(read_only=True)
    task = await runner.create_task(gate_agent(gate), "Go")
    stepping = asyncio.ensure_future(runner.run_step(task, command_id="c1"))
    await gate.entered.wait()
    await runner.interrupt(task)
    for step in (stepping, runner.run_step(task, command_id="c1")):
        with pytest.raises(TaskParked, match="is interrupted"):
            await step


async def test_a_repeat_says_that_its_step_was_taken_back_and_runs_no_other(runner: Runner) -> None:
    task = await runner.create_task(calculator(), "What is (121 * 3) + 42?")
    await runner.run_step(task, command_id="c1")
    await runner.undo_step(task)
    with pytest.raises(StepNotFound, match="'s1', which the command ran, was taken back"):
        await runner.run_step(task, command_id="c1")
    assert (await runner.get_task(task)).steps == 0


async def test_a_repeat_waits_for_the_step_that_is_under_way_in_another_process(store: Any) -> None:
    gate = Gate(read_only=True)
    agent = gate_agent(gate)
    async with Runner(store, agents=[agent]) as one, Runner(store, agents=[agent]) as two:
        task = (await one.create_task(agent, "Go")).task_id
        stepping = asyncio.ensure_future(one.run_step(task, input="Now", command_id="c1"))
        await gate.entered.wait()
        repeats = [
            asyncio.ensure_future(each.run_step(task, input="Now", command_id="c1")) for each in (one, two)
        ]
        gate.let_go.set()
        outputs = [await each for each in (stepping, *repeats)]
        assert {output.step.step_id for output in outputs} == {"s1"}
        assert (await counts(one, task))["input_received"] == 1


@pytest.mark.sampled(1)
@pytest.mark.parametrize("losses", [1, 3])
async def test_a_client_repeats_a_step_by_itself_and_its_input_is_read_once(
    losses: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(connection, "LONGEST_PAUSE", 0.05)
    store = tmp_path / "journal.db"
    with served(calculator(), store=store) as one, served(calculator(), store=store) as other:
        proxy = LosingProxy(one, other)
        async with proxy as url, client(url, patience=30) as remote:
            task = (await remote.create_task(cast("Any", calculator().name), "What is it?")).task_id
            proxy.losses = losses
            assert (await remote.run_step(task, input="And?")).step.step_id == "s1"
            proxy.losses = losses
            async with remote.stream_step(task, input="And now?") as stream:
                async for _ in stream:
                    pass
            assert stream.output.step.step_id == "s2"
            proxy.losses = 0
            tally = await counts(remote, task)
            assert (tally["input_received"], tally["step_completed"]) == (2, 2)
            for _ in range(2):
                assert (await remote.run_step(task, input="Last?", command_id="c1")).step.step_id == "s3"
            with pytest.raises(ConfigurationError, match="'c1' belongs to another command"):
                await remote.run_step(task, input="More?", command_id="c1")
            assert (await counts(remote, task))["input_received"] == 3
    assert proxy.lost == 2 * losses


async def test_a_request_for_a_step_is_repeated_with_its_key() -> None:
    key = {"Idempotency-Key": "c1", "Prefer": "wait=10"}
    with served(calculator()) as url:
        async with httpx2.AsyncClient(base_url=url, headers={"Authorization": "Bearer of-ann"}) as http:
            body = {"agent": calculator().name, "input": "What is it?", "task_id": "t"}
            await http.post("/v1/tasks", json=body)
            path = "/v1/tasks/t/steps"
            steps = [await http.post(path, json={"input": "And?"}, headers=key) for _ in range(3)]
            assert [step.status_code for step in steps] == [200] * 3
            assert {step.text for step in steps} == {steps[0].text}
            other = await http.post(path, json={"input": "Or?"}, headers=key)
            assert other.status_code == 422
            assert len((await http.get(path)).json()["items"]) == 1
