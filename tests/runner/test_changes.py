"""Changes of tasks: each as a list shows it, in this process and in others, coalesced and never replayed."""

import asyncio
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.cast import Gate, gate_agent, look, scripted_agent
from tests.runner.acts import until
from treadle import Agent, Runner, ScriptedModel
from treadle.errors import MisusedVerb
from treadle.llm.scripted import call, text
from treadle.results.tasks import TaskSummary
from treadle.testing.postgres import PostgresServer

pytestmark = pytest.mark.anyio


class Told:
    """The changes of a runner, collected in the background."""

    def __init__(self, runner: Runner) -> None:
        self.tasks: list[TaskSummary] = []
        self._changes = runner.changes()
        self._collecting = asyncio.create_task(self._collect())

    async def _collect(self) -> None:
        async for task in self._changes:
            self.tasks.append(task)

    def states(self, task_id: str) -> list[str]:
        return [task.state_text for task in self.tasks if task.task_id == task_id]

    async def left(self) -> None:
        self._collecting.cancel()
        await asyncio.wait([self._collecting])


def short_agent() -> Agent[Any]:
    return Agent(ScriptedModel([text("Hello.")]), name="greeter")


async def test_a_fork_is_told_of_before_it_is_driven(runner: Runner) -> None:
    before = (await runner.run(short_agent(), "Hi")).task_id
    told = Told(runner)
    await asyncio.sleep(0)
    fork = await runner.fork(before, input="And?")
    await until(lambda: told.states(fork.task_id) == ["created"])
    await told.left()
    assert [change.kind for change in told.tasks[-1].fork_changes] == ["input"]


async def test_changes_tell_of_tasks_as_lists_show_them_and_nothing_from_before(runner: Runner) -> None:
    before = (await runner.run(short_agent(), "Hi")).task_id
    told = Told(runner)
    gate = Gate(read_only=True)
    handle = await runner.start(gate_agent(gate), "go")
    await until(lambda: told.states(handle.task_id)[-1:] == ["running"])
    await gate.entered.wait()
    await handle.interrupt()
    await until(lambda: told.states(handle.task_id)[-1:] == ["interrupted"])
    gate.let_go.set()
    await runner.resume(handle.task_id, agent=gate_agent(gate))
    await until(lambda: told.states(handle.task_id)[-1:] == ["completed"])
    await told.left()
    assert told.states(before) == []
    (listed,) = [task for task in (await runner.list_tasks()).items if task.task_id == handle.task_id]
    assert told.tasks[-1] == listed


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.full)])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where two processes find one store."""
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres")
        return server.in_schema(f"c{sha256(str(tmp_path).encode()).hexdigest()[:20]}")
    return str(tmp_path / "journal.db")


@pytest.mark.parametrize("shared", [False, True])
async def test_changes_tell_of_tasks_that_another_runner_drives(address: str, shared: bool) -> None:
    async with Runner(address) as driver, Runner(driver.store if shared else address) as watcher:
        told = Told(watcher)
        await asyncio.sleep(0.3)
        ids = [(await driver.run(short_agent(), "Hi")).task_id for _ in range(5)]
        await until(lambda: all(told.states(task_id)[-1:] == ["completed"] for task_id in ids))
        await told.left()


async def test_a_task_that_changes_often_is_told_of_seldom(runner: Runner) -> None:
    told = Told(runner)
    task = await runner.create_task(Agent(ScriptedModel([text(f"{n}") for n in range(40)])), "Hi")
    for n in range(20):
        await runner.run_step(task, input=f"And {n}?")
    await until(lambda: told.states(task.task_id)[-1:] == ["answered"])
    await told.left()
    assert len(told.tasks) < 20


async def test_what_changed_while_the_store_was_not_heard_is_told_after_the_gap(runner: Runner) -> None:
    """A store that lost its connection cannot name what changed: what is driven, or newest, is looked at."""
    old = await runner.create_task(short_agent(), "Hi")
    told = Told(runner)
    await asyncio.sleep(0.05)
    new = await runner.create_task(short_agent(), "Hi")
    await until(lambda: told.states(new.task_id)[-1:] == ["created"])
    told.tasks.clear()
    runner._driver.owned._report_changes(None)  # pyright: ignore[reportPrivateUsage]
    await asyncio.sleep(0.3)
    await told.left()
    assert told.tasks == [], f"{old} did not change, and {new} was told before"


async def test_what_other_processes_changed_in_a_gap_is_told_also_of_old_tasks(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Runner(address) as driver, Runner(address) as watcher:
        old = [await driver.create_task(short_agent(), "Hi") for _ in range(3)]
        monkeypatch.setattr(watcher.store, "watch", lambda wake: lambda: None)  # it hears nothing
        told = Told(watcher)
        await asyncio.sleep(0.05)
        await driver.resume(old[0], agent=short_agent())
        await asyncio.sleep(0.3)
        assert told.tasks == []
        watcher._driver.owned._report_changes(None)  # pyright: ignore[reportPrivateUsage]
        await until(lambda: told.states(old[0].task_id) == ["completed"])
        await asyncio.sleep(0.3)
        watcher._driver.owned._report_changes(None)  # pyright: ignore[reportPrivateUsage]
        await asyncio.sleep(0.3)
        await told.left()
    assert [(task.task_id, task.state) for task in told.tasks] == [(old[0].task_id, "completed")]


async def test_a_deletion_was_not_told_and_is_told_once_like_a_task_that_is_made_anew(runner: Runner) -> None:
    told = Told(runner)
    for times in (1, 2):
        await runner.create_task(short_agent(), "Hi", task_id="again")
        await until(lambda times=times: told.states("again").count("created") == times)
        await runner.delete_task("again")
        await until(lambda times=times: told.states("again").count("deleted") == times)
    await told.left()
    states = [state for state in told.states("again") if state != "running"]
    assert states == ["created", "deleted"] * 2
    assert told.tasks[-1].agent == "greeter"


@pytest.mark.parametrize("by", ["delete_task", "delete_thread", "prune"])
async def test_a_deletion_of_a_task_from_before_is_told_with_its_id(runner: Runner, by: str) -> None:
    old = await runner.run(short_agent(), "Hi")
    told = Told(runner)
    if by == "delete_task":
        await runner.delete_task(old.task_id)
    elif by == "delete_thread":
        await runner.delete_thread(old.thread_id)
    else:
        await runner.prune(older_than=0)
    await until(lambda: told.states(old.task_id) == ["deleted"])
    await told.left()


async def test_a_deletion_in_a_tenant_is_told_there_alone(runner: Runner) -> None:
    acme = runner.scoped(tenant="acme")
    ours, theirs = Told(acme), Told(runner)
    task = await acme.run(short_agent(), "Hi")
    await acme.delete_task(task.task_id)
    mine = await runner.run(short_agent(), "Hi")
    await until(lambda: ours.states(task.task_id)[-1:] == ["deleted"])
    await until(lambda: theirs.states(mine.task_id)[-1:] == ["completed"])
    await ours.left()
    await theirs.left()
    assert ours.tasks[-1].tenant == "acme"
    assert theirs.states(task.task_id) == []


async def test_a_deletion_by_another_runner_on_the_store_is_told(runner: Runner) -> None:
    async with Runner(runner.store) as watcher:
        driver = runner
        told = Told(watcher)
        task = await driver.run(short_agent(), "Hi")
        await until(lambda: told.states(task.task_id)[-1:] == ["completed"])
        await driver.delete_task(task.task_id)
        await until(lambda: told.states(task.task_id)[-1:] == ["deleted"])
        await told.left()


@pytest.mark.parametrize("by", ["delete_task", "delete_thread"])
async def test_a_deletion_by_another_process_was_not_told_of_a_file(address: str, by: str) -> None:
    async with Runner(address) as driver, Runner(address) as watcher:
        told = Told(watcher)
        tasks = [await driver.run(short_agent(), "Hi", thread_id=f"talk{n}") for n in range(3)]
        await until(lambda: all(told.states(task.task_id)[-1:] == ["completed"] for task in tasks))
        if by == "delete_task":
            await driver.delete_task(tasks[1].task_id)
        else:
            await driver.delete_thread(tasks[1].thread_id)
        await until(lambda: told.states(tasks[1].task_id)[-1:] == ["deleted"])
        last = await driver.run(short_agent(), "Hi")
        await until(lambda: told.states(last.task_id)[-1:] == ["completed"])
        await told.left()
        assert [task.task_id for task in told.tasks if task.deleted] == [tasks[1].task_id]


def test_changes_without_asyncio(tmp_path: Any) -> None:
    with Runner(tmp_path / "journal.db").sync as runner:
        changes = runner.changes()
        task_id = runner.run(short_agent(), "Hi").task_id
        assert next(changes).task_id == task_id


def test_changes_need_an_event_loop(tmp_path: Any) -> None:
    with pytest.raises(MisusedVerb, match=r"runner\.sync\.changes\(\)"):
        Runner(tmp_path / "journal.db").changes()


async def test_changes_of_the_tenant_without_a_name_told_of_the_tasks_of_the_others(runner: Runner) -> None:
    told = Told(runner)
    await runner.scoped(tenant="acme").run(short_agent(), "Hi")
    mine = (await runner.run(short_agent(), "Hi")).task_id
    await until(lambda: told.states(mine)[-1:] == ["completed"])
    await asyncio.sleep(0.3)
    await told.left()
    assert {task.task_id for task in told.tasks} == {mine}


async def test_the_row_of_a_driven_task_shows_the_figures_of_its_last_seconds(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list showed a task of nine minutes with 0 steps and no cost, and no change of it was reported."""
    monkeypatch.setattr("treadle.engine.journal_writer.UPDATE_SECONDS", 0.05)
    gate = Gate(read_only=True)
    agent = scripted_agent(call("look"), call(gate.name), "The end.", tools=[look, gate.tool])
    async with Runner(address) as driver, Runner(address) as watcher:
        here, elsewhere = Told(driver), Told(watcher)
        await asyncio.sleep(0.1)
        handle = await driver.start(agent, "go")
        await gate.entered.wait()
        tokens = (await driver.get_task(handle.task_id)).usage.total_tokens
        for told in (here, elsewhere):
            await until(lambda told=told: bool(told.tasks) and spent(told.tasks[-1]) == tokens)
            assert (told.tasks[-1].driven, told.tasks[-1].steps) == (True, 1)
        assert (await watcher.count_tasks()).tokens == tokens
        assert (await watcher.usage()).total.tokens == tokens
        gate.let_go.set()
        await handle.result()
        await here.left()
        await elsewhere.left()


def spent(task: TaskSummary) -> int:
    return (task.input_tokens or 0) + (task.output_tokens or 0)
