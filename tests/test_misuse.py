"""What people get wrong, and what they are told: what it is, of which task or field, and what to do instead.

One table: a name, what is done, the class of the error, and words that its message has to have. Mistakes in one line
are in `test_mistakes.py`.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.cast import Ledger, calculator, sayer
from tests.runner.acts import step_to_answer
from treadle import (
    Agent,
    Happened,
    NotHappened,
    Runner,
    RunOptions,
    ScriptedModel,
    tool,
)
from treadle import errors as err
from treadle.llm import providers
from treadle.llm.scripted import call, fail, text
from treadle.stores.sqlite import SQLiteStore


@dataclass
class Scene:
    """What a misuse has at hand."""

    runner: Any
    folder: Path
    patch: pytest.MonkeyPatch

    async def completed(self, **options: Any) -> Any:
        return await self.runner.run(calculator(), "?", **options)

    async def waiting(self, *answers: Any) -> str:
        """A task with a lost call that a person is to settle."""
        begun = asyncio.Event()

        @tool
        async def book() -> None:
            """Book."""
            begun.set()
            await asyncio.sleep(30)

        agent = Agent(ScriptedModel([call("book"), "done"]), name="clerk", tools=[book])
        handle = await self.runner.start(agent, "?")
        await begun.wait()
        assert (await handle.interrupt()).state == "interrupted"
        return handle.task_id


Misuse = Callable[[Scene], Awaitable[Any]]
TABLE: list[Any] = []


def misuse(name: str, error: type[Exception], *says: str) -> Callable[[Misuse], Misuse]:
    def enter(case: Misuse) -> Misuse:
        TABLE.append(pytest.param(case, error, says, id=name))
        return case

    return enter


# -------------------------------------------------------------------------------------------- a runner


@misuse("the result of a stream that runs", err.TaskUnfinished, "not ended yet", "read it to its end")
async def _(s: Scene) -> None:
    async with s.runner.run_stream(sayer(text("slow", delay=5)), "?") as stream:
        _ = stream.result


# --------------------------------------------------------------------------------------- what is given


@misuse("a model whose package is missing", err.MissingExtra, "pip install '/path/to/treadle[openai]'")
async def _(s: Scene) -> None:
    s.patch.setitem(sys.modules, "openai", None)
    s.patch.setitem(sys.modules, "pydantic_ai.models.openai", None)
    await s.runner.run(Agent("openai:gpt-5.2-mini"), "?")


# ------------------------------------------------------------------------------------------- which task


@misuse("an unknown task", err.TaskNotFound, "'nobody'", "sqlite:///")
async def _(s: Scene) -> None:
    await s.runner.resume("nobody")


@misuse("a result as a task", err.ConfigurationError, "a Task or its id", "task_id")
async def _(s: Scene) -> None:
    await s.runner.fork(await s.completed())


@misuse("a thread id as a task", err.TaskNotFound, "talk is a thread, not a task", "its last task is")
async def _(s: Scene) -> None:
    await s.completed(thread_id="talk")
    await s.runner.get_task("talk")


@misuse(
    "an agent this process does not have",
    err.AgentUnknown,
    "'math'",
    "Runner(agents=[...])",
    "TREADLE_AGENTS",
)
async def _(s: Scene) -> None:
    task = await s.runner.create_task(calculator(), "?")
    await Runner(s.runner.store).resume(task)


@misuse("another agent than the task's", err.TaskConflict, "agent 'math'", "'sayer'", "fork")
async def _(s: Scene) -> None:
    task = await s.runner.create_task(calculator(), "?")
    await s.runner.resume(task, agent=sayer())


@misuse("a task id used with another agent", err.TaskConflict, "task t", "another agent")
async def _(s: Scene) -> None:
    await s.completed(task_id="t")
    await s.runner.run(sayer(), "?", task_id="t")


@misuse("a task id used with another input", err.TaskConflict, "task t", "another input")
async def _(s: Scene) -> None:
    await s.completed(task_id="t")
    await s.runner.run(calculator(), "!", task_id="t")


@misuse("a task id used with another thread", err.TaskConflict, "task t", "another thread")
async def _(s: Scene) -> None:
    await s.completed(task_id="t")
    await s.runner.run(calculator(), "?", task_id="t", thread_id="other")


@misuse("a version that is refused", err.VersionRefused, "agent 'math'", "on_version_change='refuse'")
async def _(s: Scene) -> None:
    task = await s.runner.create_task(calculator(), "?", options=RunOptions(on_version_change="refuse"))
    await s.runner.resume(task, agent=calculator(instructions="Other."))


# ---------------------------------------------------------------------------------------------- steps


@misuse("a step of a completed task", err.TaskFinished, "is completed", "fork it")
async def _(s: Scene) -> None:
    await s.runner.run_step((await s.completed()).task_id)


@misuse("a result in a task's place", err.ConfigurationError, "a RunResult: give its task_id")
async def _(s: Scene) -> None:
    await s.runner.resume(await s.completed())


@misuse("a step after the answer", err.TaskFinished, "has answered", "finalize")
async def _(s: Scene) -> None:
    task = await s.runner.create_task(calculator(), "?")
    await step_to_answer(s.runner, task)
    await s.runner.run_step(task)


@misuse("a step that is not next", err.StepNotFound, "'s7' is not the next step")
async def _(s: Scene) -> None:
    await s.runner.run_step(await s.runner.create_task(calculator(), "?"), step="s7")


@misuse("a step while the task is driven", err.TaskBusy, "is being driven")
async def _(s: Scene) -> None:
    handle = await s.runner.start(sayer(text("slow", delay=30)), "?")
    try:
        await s.runner.run_step(handle.task_id)
    finally:
        await handle.cancel()


@misuse("finalizing before the answer", err.TaskUnfinished, "is created", "step or resume it")
async def _(s: Scene) -> None:
    await s.runner.finalize(await s.runner.create_task(calculator(), "?"))


@misuse("skipping a healthy step", err.StepNotFound, "no failed step to skip")
async def _(s: Scene) -> None:
    await s.runner.skip_step(await s.runner.create_task(calculator(), "?"))


@misuse("editing a call that has ended", err.CallNotFound, "'s1-0'", "not begun")
async def _(s: Scene) -> None:
    task = await s.runner.create_task(calculator(), "?")
    await s.runner.run_step(task)
    await s.runner.edit_call(task, "s1-0", {"a": 1})


@misuse("arguments that are no object", err.ConfigurationError, "arguments must be a dict")
async def _(s: Scene) -> None:
    await s.runner.edit_call(await s.runner.create_task(calculator(), "?"), "s1-0", [1, 2])


@misuse("a message to a cancelled task", err.TaskFinished, "is cancelled", "fork")
async def _(s: Scene) -> None:
    task = await s.runner.create_task(calculator(), "?")
    await s.runner.cancel(task)
    await s.runner.send(task, "hello?")


@misuse("a message from a robot", err.ConfigurationError, "role must be 'user', 'observation' or 'system'")
async def _(s: Scene) -> None:
    await s.runner.send(await s.runner.create_task(calculator(), "?"), "beep", role="robot")


@misuse("a step that does not exist", err.StepNotFound, "has no step 's9'", "present branch")
async def _(s: Scene) -> None:
    await s.runner.get_step((await s.completed()).task_id, "s9")


# --------------------------------------------------------------------------------------- undo and fork


@misuse("undo before the first step", err.StepNotFound, "no step to take back")
async def _(s: Scene) -> None:
    await s.runner.undo_step(await s.runner.create_task(calculator(), "?"))


@misuse("undo to a step that is not there", err.StepNotFound, "has no step 9", "it has 3 steps")
async def _(s: Scene) -> None:
    await s.runner.undo_step((await s.completed()).task_id, to=9)


@misuse("undo of what cannot be taken back", err.IrreversibleStep, "mail (s1-0)", "undo=", "force=True")
async def _(s: Scene) -> None:
    result = await s.runner.run(Ledger().agent(call("mail", to="ann"), "done"), "?")
    await s.runner.undo_step(result.task_id, to=0)


@misuse("undo under newer words", err.AlreadyFinalized, "newer", "fork")
async def _(s: Scene) -> None:
    first = await s.completed(thread_id="talk")
    await s.completed(thread_id="talk")
    await s.runner.undo_step(first.task_id)


@misuse("a step in an unfinished undo", err.UndoUnfinished, "undo to step 0", "undo_step again")
async def _(s: Scene) -> None:
    ledger = Ledger(fails=lambda entry: entry.startswith("unbook"))
    task = await s.runner.create_task(ledger.agent(call("book", what="1"), "done"), "?")
    await s.runner.run_step(task)
    await s.runner.undo_step(task)
    await s.runner.run_step(task)


@misuse("a fork at a busy point", err.ForkPointBusy, "at event", "begun and not ended", "after a step")
async def _(s: Scene) -> None:
    await s.runner.fork((await s.completed()).task_id, at=5)


@misuse("a fork past the end", err.StepNotFound, "has events 1 to", "not 999")
async def _(s: Scene) -> None:
    await s.runner.fork((await s.completed()).task_id, at=999)


@misuse("a fork with a list of results", err.ConfigurationError, "replace", "call id")
async def _(s: Scene) -> None:
    await s.runner.fork((await s.completed()).task_id, replace=[1])


# ------------------------------------------------------------------------------------ people's verdicts


@misuse("settling what nobody asked", err.CallNotFound, "nothing to settle under 's9-0'")
async def _(s: Scene) -> None:
    await s.runner.settle((await s.completed()).task_id, "s9-0", Happened())


@misuse("settling with a word", err.ConfigurationError, "Happened(...) or NotHappened()", "'yes'")
async def _(s: Scene) -> None:
    await s.runner.settle((await s.completed()).task_id, "s1-0", "yes")


@misuse("settling twice, differently", err.AlreadyDecided, "s1-0", "settled")
async def _(s: Scene) -> None:
    task_id = await s.waiting()
    await s.runner.settle(task_id, "s1-0", Happened("booked"))
    await s.runner.settle(task_id, "s1-0", NotHappened())


@misuse("resuming with options of another type", err.ConfigurationError, "options must be RunOptions(...)")
async def _(s: Scene) -> None:
    await s.runner.resume(await s.runner.create_task(calculator(), "?"), options={"limits": 1})


# ------------------------------------------------------------------------------------------------ lists


@misuse("deleting a driven task", err.TaskBusy, "driven")
async def _(s: Scene) -> None:
    handle = await s.runner.start(sayer(text("slow", delay=30)), "?")
    try:
        await s.runner.delete_task(handle.task_id)
    finally:
        await handle.cancel()


@misuse("raising for a failed task", err.TaskFailed, "is failed", "scripted failure: 500")
async def _(s: Scene) -> None:
    (await s.runner.run(sayer(fail(500)), "?")).raise_for_state()


# ----------------------------------------------------------------------------------------------- stores


@misuse(
    "a file of something else", err.StoreFormatError, "notes.txt", "not a SQLite database", "another file"
)
async def _(s: Scene) -> None:
    path = s.folder / "notes.txt"
    path.write_text("Dear diary, " * 1000)
    await Runner(path).list_tasks()


@misuse("a database of another program", err.StoreFormatError, "another program", "another file")
async def _(s: Scene) -> None:
    path = s.folder / "other.db"
    with apsw.Connection(str(path)) as connection:
        connection.execute("create table cats (name text)")
    connection.close()
    await Runner(path).list_tasks()


def of_format(path: Path, change: Callable[[int], int]) -> None:
    connection = apsw.Connection(str(path))
    ((now,),) = list(connection.execute("pragma user_version"))
    connection.execute(f"pragma user_version = {change(now)}")
    connection.execute("update compatible set opens = ?", (change(now),))
    connection.close()


@misuse("a file of a newer version", err.StoreFormatError, "newer", "treadle")
async def _(s: Scene) -> None:
    path = s.folder / "newer.db"
    async with Runner(path) as runner:
        await runner.list_tasks()
    of_format(path, lambda now: now + 1)
    await Runner(path).list_tasks()


@misuse("a folder as a store", err.StoreUnavailable, "journals")
async def _(s: Scene) -> None:
    (s.folder / "journals").mkdir()
    await Runner(s.folder / "journals").list_tasks()


@misuse("a store in a file's place", err.StoreUnavailable, "file.txt")
async def _(s: Scene) -> None:
    (s.folder / "file.txt").write_text("x")
    await Runner(s.folder / "file.txt" / "journal.db").list_tasks()


@misuse("a closed store", err.StoreUnavailable, "is closed", "open() it first")
async def _(s: Scene) -> None:
    store = SQLiteStore(s.folder / "closed.db")
    await store.open()
    await store.close()
    await store.row("x")


# ------------------------------------------------------------------------------------------- the table


@pytest.fixture
async def scene(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_garbage: None, anyio_backend: str
) -> Any:
    async with Runner(tmp_path / "journal.db") as runner:
        yield Scene(runner, tmp_path, monkeypatch)


@pytest.mark.anyio
@pytest.mark.sampled(40)
@pytest.mark.parametrize(("case", "error", "says"), TABLE)
async def test_a_misuse_is_told_what_it_is_and_what_to_do(
    scene: Scene, case: Misuse, error: type[Exception], says: tuple[str, ...]
) -> None:
    with pytest.raises(error) as caught:
        await case(scene)
    message = str(caught.value)
    for phrase in says:
        assert phrase in message, message
    assert type(caught.value) is error
    assert isinstance(caught.value, (err.TreadleError, AttributeError))
    listed = await scene.runner.list_tasks()
    assert not any(task.driven for task in listed.items), "nothing is left driven"


@pytest.mark.anyio
@pytest.mark.parametrize("grace", ["soon", -1, float("nan"), None, True])
async def test_a_grace_that_is_no_time_is_refused_and_does_not_hang_the_shutdown(grace: Any) -> None:
    @tool(read_only=True)
    async def nap() -> None:
        await asyncio.sleep(30)

    async with asyncio.timeout(5), Runner("memory") as runner:
        handle = await runner.start(Agent(ScriptedModel([call("nap"), "done"]), tools=[nap]), "Go.")
        with pytest.raises(err.ConfigurationError, match="drain: grace must be a number of seconds"):
            await runner.drain(grace)
        await runner.drain()
        assert (await handle.result()).state == "interrupted"


@pytest.mark.anyio
@pytest.mark.parametrize(
    "wrong", [{"labels": ""}, {"labels": []}, {"labels": "old"}, {"states": "completed"}]
)
async def test_a_wrong_filter_of_prune_is_refused_and_deletes_nothing(scene: Scene, wrong: Any) -> None:
    await scene.completed()
    with pytest.raises(err.ConfigurationError, match=f"prune: {next(iter(wrong))} must be"):
        await scene.runner.prune(0, **wrong)
    assert len((await scene.runner.list_tasks()).items) == 1


@pytest.mark.anyio
@pytest.mark.parametrize("wrong", [None, 0, "", b"x", "a\0b", "\ud800", []])
async def test_what_is_no_path_is_neither_exported_to_nor_imported_from(scene: Scene, wrong: Any) -> None:
    with pytest.raises(err.ConfigurationError, match="import_tasks: source must be a path, got"):
        await scene.runner.import_tasks(wrong)
    with pytest.raises(err.ConfigurationError, match="export_tasks: to must be a path or a stream of bytes"):
        await scene.runner.export_tasks(wrong)


@pytest.mark.anyio
@pytest.mark.parametrize("wrong", [None, "1", float("inf"), float("nan"), -1, True])
async def test_an_age_that_is_no_time_is_refused_by_prune(scene: Scene, wrong: Any) -> None:
    with pytest.raises(err.ConfigurationError, match="prune: older_than must be a number of seconds"):
        await scene.runner.prune(wrong)


async def drained(opened: Any) -> None:
    async with opened as stream:
        async for _ in stream:
            pass


@pytest.mark.anyio
async def test_a_model_that_is_not_there_leaves_no_task_behind(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(providers, "installed", lambda _: False)
    agent = Agent("groq:llama")
    with pytest.raises(err.MissingExtra):
        await scene.runner.run(agent, "?")
    with pytest.raises(err.MissingExtra):
        await scene.runner.start(agent, "?")
    with pytest.raises(err.MissingExtra):
        await drained(scene.runner.run_stream(agent, "?"))
    assert (await scene.runner.list_tasks()).items == ()
    task = await scene.runner.create_task(agent, "?")
    assert task.state == "created", "another process may have what this one has not"


def test_run_sync_works_inside_a_running_loop() -> None:
    async def main() -> str:
        return Runner("memory:").run_sync(sayer("Hi."), "Hello").final_text

    assert asyncio.run(main()) == "Hi."


def test_the_table_has_every_row_once() -> None:
    names = [row.id for row in TABLE]
    assert len(set(names)) == len(names) >= 43


@pytest.mark.parametrize("name", ["run_sync", "run_stream"])
def test_a_plain_verb_called_on_the_class_says_to_make_a_runner_first(name: str):
    with pytest.raises(
        err.MisusedVerb, match=rf"Runner\.{name} was called on the class: make a runner first"
    ):
        getattr(Runner, name)(Agent("openai:any"), "hello")
