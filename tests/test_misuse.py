"""What people get wrong, and what they are told: what it is, of which task or field, and what to do instead.

One table: a name, what is done, the class of the error, and words that its message has to have.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.cast import Ledger, add, calculator, sayer
from tests.runner.acts import step_to_answer
from treadle import (
    Agent,
    Breakpoint,
    FailurePolicy,
    File,
    Happened,
    Image,
    Limits,
    NotHappened,
    Runner,
    RunOptions,
    ScriptedModel,
    tool,
)
from treadle import errors as err
from treadle.llm import providers
from treadle.llm.scripted import call, fail, text
from treadle.stores.memory import MemoryStore
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


def plain(name: str, what: Callable[[Scene], Any], error: type[Exception], *says: str) -> None:
    """A misuse that is wrong at once, without a loop."""

    async def done(scene: Scene) -> None:
        made = what(scene)
        if hasattr(made, "__await__"):
            await made

    misuse(name, error, *says)(done)


# ---------------------------------------------------------------------------------------------- agents

plain(
    "an agent without a model, on a runner without one",
    lambda s: s.runner.run(Agent(name="plain"), "Hi"),
    err.ConfigurationError,
    "agent 'plain' names no model, and the runner has none",
)
plain("an empty model name", lambda s: Agent(""), err.ConfigurationError, "model must be like 'openai:")
plain(
    "a model class",
    lambda s: Agent(ScriptedModel),
    err.ConfigurationError,
    "model must be",
    "stream(request)",
)
plain("an agent name with a space", lambda s: sayer(name="my agent"), err.ConfigurationError, "'my agent'")
plain(
    "a plain function as a tool",
    lambda s: sayer(tools=[len]),
    err.ConfigurationError,
    "tools[0]",
    "'len'",
    "@tool",
)
plain("tools that are no list", lambda s: sayer(tools=add), err.ConfigurationError, "tools must be a list")
plain(
    "two tools of one name",
    lambda s: sayer(tools=[add, add]),
    err.ConfigurationError,
    "'add'",
    "@tool(name=...)",
)
plain(
    "an agent changed",
    lambda s: setattr(sayer(), "name", "x"),
    AttributeError,
    "immutable",
    "agent.replace(name=",
)
plain("replace of nothing", lambda s: sayer().replace(nmae="x"), err.ConfigurationError, "no argument 'nmae'")
plain(
    "instructions of a number",
    lambda s: sayer(instructions=3),
    err.ConfigurationError,
    "instructions must be text",
)
plain("an unknown worker", lambda s: sayer(worker="reactor"), err.ConfigurationError, "worker must be")
plain(
    "limits as a dict",
    lambda s: sayer(limits={"steps": 3}),
    err.ConfigurationError,
    "limits must be Limits(...)",
)
plain("a lambda as a tool", lambda s: tool(lambda x: x), err.ToolDefinitionError, "lambda", "name=")
plain(
    "a tool option misspelt",
    lambda s: tool(add, read_onyl=True),
    err.ToolDefinitionError,
    "'add'",
    "read_only=",
)
plain(
    "retries of a writing tool", lambda s: tool(retries=2)(_write), err.ToolDefinitionError, "read_only=True"
)


def _write() -> None:
    """Write."""


# --------------------------------------------------------------------------------------------- options

plain("a negative limit", lambda s: Limits(steps=-1), err.ConfigurationError, "Limits.steps", "-1")
plain(
    "a limit that is a truth value",
    lambda s: Limits(tool_calls=True),
    err.ConfigurationError,
    "Limits.tool_calls",
)
plain("half a step", lambda s: Limits(steps=1.5), err.ConfigurationError, "Limits.steps", "whole number")
plain(
    "a limit that is no number",
    lambda s: Limits(seconds=float("nan")),
    err.ConfigurationError,
    "Limits.seconds",
)
plain(
    "an unlimited limit",
    lambda s: Limits(seconds=float("inf")),
    err.ConfigurationError,
    "Limits.seconds",
    "None",
)
plain(
    "an unknown word",
    lambda s: RunOptions(on_limit="stop"),
    err.ConfigurationError,
    "on_limit",
    "'final_answer'",
)
plain(
    "a failure word misspelt",
    lambda s: FailurePolicy(tool="ignore"),
    err.ConfigurationError,
    "tool",
    "'continue'",
)
plain(
    "retry as a policy", lambda s: FailurePolicy(model="retry"), err.ConfigurationError, "FailurePolicy.model"
)
plain("limits of a run as a dict", lambda s: RunOptions(limits={}), err.ConfigurationError, "Limits(...)")
plain(
    "no parallel calls",
    lambda s: RunOptions(max_parallel_tools=0),
    err.ConfigurationError,
    "max_parallel_tools",
)
plain(
    "labels that are numbers",
    lambda s: RunOptions(labels={"a": 1}),
    err.ConfigurationError,
    "labels",
    "'a': 1",
)
plain("labels as a list", lambda s: RunOptions(labels=["a"]), err.ConfigurationError, "labels must")
plain("a breakpoint of nothing", lambda s: Breakpoint(), err.ConfigurationError, "exactly one of before_tool")
plain(
    "a breakpoint on an unknown event",
    lambda s: Breakpoint(event="tool_end"),
    err.ConfigurationError,
    "tool_ended",
)
plain(
    "a breakpoint after a word", lambda s: Breakpoint(after_step="s1"), err.ConfigurationError, "after_step"
)
plain(
    "a breakpoint as text", lambda s: RunOptions(break_on=["add"]), err.ConfigurationError, "Breakpoint(...)"
)
plain(
    "one breakpoint",
    lambda s: RunOptions(break_on=Breakpoint(event="tool_ended")),
    err.ConfigurationError,
    "list",
)

# -------------------------------------------------------------------------------------------- a runner

plain(
    "one agent as agents", lambda s: Runner(agents=sayer()), err.ConfigurationError, "Runner(agents=[agent])"
)
plain(
    "two agents of one name", lambda s: Runner(agents=[sayer(), sayer()]), err.ConfigurationError, "'sayer'"
)
plain(
    "agents by name", lambda s: Runner(agents=["math"]), err.ConfigurationError, "must be an Agent", "'math'"
)
plain("options as a dict", lambda s: Runner(options={"limits": 3}), err.ConfigurationError, "RunOptions(...)")
plain(
    "a context as its factory", lambda s: Runner(context_factory=3), err.ConfigurationError, "context_factory"
)
plain(
    "a number as a store", lambda s: Runner(7), err.ConfigurationError, "a path, a URL or a JournalStore", "7"
)
plain("a store class", lambda s: Runner(MemoryStore), err.ConfigurationError, "a JournalStore")
plain(
    "an unknown scheme", lambda s: Runner("mysql://u:pw@h/x"), err.ConfigurationError, "mysql", "sqlite:///"
)
plain("two slashes short", lambda s: Runner("sqlite:j.db"), err.ConfigurationError, "sqlite:///path")
plain("an empty path", lambda s: Runner(""), err.ConfigurationError, "store", "path")
plain(
    "run on the class", lambda s: Runner.run(sayer(), "?"), err.MisusedVerb, "on the class", "Runner().run("
)
plain("get_task on the class", lambda s: Runner.get_task("x"), err.MisusedVerb, "Runner().get_task(")
plain(
    "an empty task id of a stream",
    lambda s: drained(s.runner.run_stream(sayer(), "?", task_id="")),
    err.ConfigurationError,
    "task_id must be text",
)
plain(
    "run without await", lambda s: s.runner.run(sayer(), "?").final_text, err.MisusedVerb, "await runner.run("
)
plain(
    "a step without await",
    lambda s: s.runner.run_step("x").is_last,
    err.MisusedVerb,
    "not awaited",
    "runner.sync.",
)


@misuse("a stream that is not opened", err.TaskUnfinished, "async with")
async def _(s: Scene) -> None:
    async for _ in s.runner.run_stream(sayer(), "?"):
        pass


@misuse("the result of a stream that runs", err.TaskUnfinished, "not ended yet", "read it to its end")
async def _(s: Scene) -> None:
    async with s.runner.run_stream(sayer(text("slow", delay=5)), "?") as stream:
        _ = stream.result


# --------------------------------------------------------------------------------------- what is given

plain(
    "text as an agent",
    lambda s: s.runner.run("math", "?"),
    err.ConfigurationError,
    "must be an Agent",
    "'math'",
)
plain("no input", lambda s: s.runner.run(sayer(), ""), err.ConfigurationError, "input", "''")
plain(
    "blank input", lambda s: s.runner.run(sayer(), " \n"), err.ConfigurationError, "input must say something"
)
plain("None as input", lambda s: s.runner.run(sayer(), None), err.ConfigurationError, "input must be text")
plain(
    "bytes as input",
    lambda s: s.runner.run(sayer(), b"hi"),
    err.ConfigurationError,
    "input must be text",
    "b'hi'",
)
plain(
    "a dict as input", lambda s: s.runner.run(sayer(), {"a": 1}), err.ConfigurationError, "input must be text"
)
plain(
    "a number among parts", lambda s: s.runner.run(sayer(), ["a", 7]), err.ConfigurationError, "content parts"
)
plain(
    "an empty task id",
    lambda s: s.runner.run(sayer(), "?", task_id=""),
    err.ConfigurationError,
    "task_id",
    "''",
)
plain(
    "a number as task id",
    lambda s: s.runner.run(sayer(), "?", task_id=7),
    err.ConfigurationError,
    "task_id",
    "7",
)
plain(
    "an endless task id",
    lambda s: s.runner.run(sayer(), "?", task_id="x" * 999),
    err.ConfigurationError,
    "200",
)
plain(
    "a number as thread",
    lambda s: s.runner.run(sayer(), "?", thread_id=7),
    err.ConfigurationError,
    "thread_id",
)
plain(
    "an empty thread", lambda s: s.runner.run(sayer(), "?", thread_id=""), err.ConfigurationError, "thread_id"
)
plain(
    "options of a run as a dict",
    lambda s: s.runner.run(sayer(), "?", options={}),
    err.ConfigurationError,
    "RunOptions",
)
plain(
    "extra state that is no JSON",
    lambda s: s.runner.create_task(sayer(), "?", extra_state={1, 2}),
    err.ConfigurationError,
    "extra_state",
    "JSON",
)
plain(
    "an image of nothing",
    lambda s: s.runner.run(sayer(), [Image()]),
    err.ConfigurationError,
    "path, url and data",
)
plain(
    "an image twice",
    lambda s: s.runner.run(sayer(), [Image(path="a.png", url="http://x/a.png")]),
    err.ConfigurationError,
    "path, url",
)
plain(
    "an image of unknown kind",
    lambda s: s.runner.run(sayer(), [Image(data=b"x")]),
    err.ConfigurationError,
    "media_type",
    "image/png",
)
plain(
    "an image that is missing",
    lambda s: s.runner.run(sayer(), [Image(path="gone.png")]),
    err.ConfigurationError,
    "gone.png",
)
plain(
    "a folder as a file",
    lambda s: s.runner.run(sayer(), [File(path=str(s.folder), media_type="text/plain")]),
    err.ConfigurationError,
    "cannot be read",
)
plain(
    "a model nobody has",
    lambda s: s.runner.run(Agent("opnai:gpt"), "?"),
    err.ModelUnknown,
    "opnai",
    "openai:gpt",
)
plain(
    "a model without a provider",
    lambda s: s.runner.run(Agent("gpt-5"), "?"),
    err.ModelUnknown,
    "openai:gpt-5",
)


@misuse("a model whose package is missing", err.MissingExtra, "pip install '/path/to/treadle[openai]'")
async def _(s: Scene) -> None:
    s.patch.setitem(sys.modules, "openai", None)
    s.patch.setitem(sys.modules, "pydantic_ai.models.openai", None)
    await s.runner.run(Agent("openai:gpt-5.2-mini"), "?")


# ------------------------------------------------------------------------------------------- which task

plain("an unknown task", lambda s: s.runner.resume("nobody"), err.TaskNotFound, "'nobody'", "sqlite:///")
plain("a number as a task", lambda s: s.runner.get_task(7), err.ConfigurationError, "a Task or its id", "7")


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

plain(
    "a page of nothing",
    lambda s: s.runner.list_tasks(limit=0),
    err.ConfigurationError,
    "limit must be 1 to 1000",
)
plain(
    "an unknown state",
    lambda s: s.runner.list_tasks(state="done"),
    err.ConfigurationError,
    "state",
    "completed",
)
plain("a cursor that is a number", lambda s: s.runner.list_tasks(cursor=7), err.ConfigurationError, "cursor")
plain(
    "a time as text",
    lambda s: s.runner.list_tasks(since="today"),
    err.ConfigurationError,
    "since",
    "microseconds",
)


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
    assert len(set(names)) == len(names) >= 45


@pytest.mark.parametrize("name", ["run_sync", "run_stream"])
def test_a_plain_verb_called_on_the_class_says_to_make_a_runner_first(name: str):
    with pytest.raises(
        err.MisusedVerb, match=rf"Runner\.{name} was called on the class: make a runner first"
    ):
        getattr(Runner, name)(Agent("openai:any"), "hello")
