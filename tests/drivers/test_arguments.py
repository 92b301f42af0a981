"""An argument that a verb cannot use is refused by name before anything is done, and the store stays as it was."""

import asyncio
import inspect
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from treadle import Agent, Message, Runner, ScriptedModel, Text, tool
from treadle.errors import (
    ConfigurationError,
    StoreUnavailable,
    TaskNotFound,
    TreadleError,
)
from treadle.llm.scripted import call, text
from treadle.runner.handle import RunHandle
from treadle.runner.runner import TaskRunner

pytestmark = pytest.mark.anyio


@tool(read_only=True)
def look(city: str) -> str:
    """Look."""
    return city


AGENT = Agent(ScriptedModel([call("look", city="Ulm"), text("fine")]), name="agent", tools=[look])


class Unshowable:
    """An object whose `repr` raises."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


HOSTILE: dict[str, Any] = {
    "None": None,
    "a number": 7,
    "a negative number": -1,
    "a huge number": 10**40,
    "a fraction": 0.5,
    "NaN": float("nan"),
    "True": True,
    "a list": [1],
    "an empty list": [],
    "a dict": {"a": 1},
    "bytes": b"x",
    "an object": object(),
    "an object that cannot be shown": Unshowable(),
    "half a character": "a\ud800",
    "a null character": "a\0b",
    "empty text": "",
    "a long text": "x" * 20_000,
    "a deep list": deep(300),
    "a dict of half a character": {"a": "\udfff"},
    "a dict of an object": {"a": object()},
    "a dict of a number": {1: 2},
    "a set": {1},
    "a function": deep,
}

SKIPPED = {
    "hold",
    "enter",
    "at_rest",
    "stopped",
    "typed_of",
    "drive_with",
    "aclose",
    "run_sync",
    "begin_adopting",
}
"""No verbs on tasks: they belong to the runner's own parts, or end it."""

OPEN = {"context", "tell", "how", "follow"}
"""What is handed through, and may be anything; and what goes on for as long as the task exists."""


def verbs(cls: type) -> Iterator[tuple[str, list[inspect.Parameter]]]:
    for name, _ in inspect.getmembers(cls):
        found = next(vars(each)[name] for each in cls.__mro__ if name in vars(each))
        function = getattr(found, "_function", found)
        if not name.startswith("_") and name not in SKIPPED and inspect.isfunction(function):
            yield name, list(inspect.signature(found).parameters.values())[1:]


def usual(runner: Runner, folder: Path) -> dict[str, Any]:
    return {
        "task": "task",
        "a": "task",
        "b": "task",
        "task_id": "fresh",
        "thread_id": "talk",
        "agent": AGENT,
        "input": "go",
        "message": "more",
        "call_id": "s1-0",
        "request_id": "s1-0",
        "arguments": {"city": "Bonn"},
        "artifact_id": "x",
        "step": 1,
        "verdict": None,
        "messages": [],
        "to": folder / "out",
        "source": folder / "in",
        "older_than": 1e9,
        "tasks": "task",
    }


async def done(made: Any) -> None:
    """Await the result of a verb, or iterate over it."""
    async with asyncio.timeout(20):
        if isinstance(made, (RunHandle, TaskRunner)):
            return
        if hasattr(made, "__aenter__"):
            async with made as stream:
                async for _ in stream:
                    pass
        elif hasattr(made, "__anext__"):
            async with aclosing(made) as events:
                async for _ in events:
                    pass
        elif inspect.isawaitable(made):
            await made


CASES = [
    (cls, name, parameter)
    for cls in (TaskRunner, RunHandle)
    for name, parameters in verbs(cls)
    for parameter in parameters
    if parameter.name not in OPEN
]


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_no_verb_raises_but_our_own_errors_and_the_store_stays_usable(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    place = "memory:" if store == "memory" else tmp_path / "journal.db"
    wrong: list[str] = []
    async with Runner(place, agents=[AGENT]) as runner:
        await runner.create_task(AGENT, "go", task_id="task", thread_id="talk")
        for number, (cls, name, parameter) in enumerate(CASES):
            target: Any = runner if cls is TaskRunner else runner.handle("task")
            usual_values = usual(runner, tmp_path)
            parameters = [each for each_name, found in verbs(cls) if each_name == name for each in found]
            for description, value in HOSTILE.items():
                if store == "sqlite" and number % 3:
                    continue  # the door is the same; here it is to be seen that nothing gets behind it
                if parameter.name == "follow" and value is True:
                    continue  # it is valid, and such events do not end
                arguments = {
                    each.name: usual_values.get(each.name)
                    for each in parameters
                    if each.default is each.empty
                }
                if parameter.kind is parameter.VAR_POSITIONAL:
                    arguments.pop(parameter.name, None)
                    args = (arguments.pop("to"), value)
                else:
                    args, arguments = (), {**arguments, parameter.name: value}
                    arguments.pop("tasks", None)
                what = f"{cls.__name__}.{name}({parameter.name}={description})"
                try:
                    await done(getattr(target, name)(*args, **arguments))
                except StoreUnavailable as error:
                    if "too long" not in str(error) and "No such" not in str(error):
                        wrong.append(f"{what}: {error!r:.200}")
                except TreadleError:
                    pass
                except TimeoutError:
                    wrong.append(f"{what}: no end")
                except Exception as error:  # noqa: BLE001  this is what is looked for
                    wrong.append(f"{what}: {error!r:.200}")
            if not [row for row in (await runner.list_tasks()).items if row.task_id == "task"]:
                await runner.create_task(AGENT, "go", task_id=f"task-{number}", thread_id="talk")
        assert not wrong, "\n".join(wrong)
        assert (await runner.run(AGENT, "go", task_id="final")).state == "completed"
        assert (await runner.verify()).findings == ()


@pytest.mark.parametrize("task_id", ["last", "a\n", "\x1b[2J", "a\u2028b", "\x7f"])
async def test_an_id_that_a_person_could_not_type_makes_no_task(runner: Runner, task_id: str) -> None:
    for make in (runner.create_task, runner.run, runner.start):
        with pytest.raises(ConfigurationError, match=r"task_id must not .*take another id"):
            await make(AGENT, "go", task_id=task_id)
    with pytest.raises(ConfigurationError, match="take another id"):
        runner.run_stream(AGENT, "go", task_id=task_id)
    assert (await runner.list_tasks()).items == ()
    assert (await runner.create_task(AGENT, "go", task_id="das letzte, é")).task_id == "das letzte, é"


@pytest.mark.parametrize("dots", [".", ".."])
async def test_an_id_that_no_url_can_name_makes_no_task_and_no_thread(runner: Runner, dots: str) -> None:
    for make in (runner.create_task, runner.run, runner.start, runner.submit):
        with pytest.raises(ConfigurationError, match=r"task_id must not be '\.+': .*take another id"):
            await make(AGENT, "go", task_id=dots)
        with pytest.raises(ConfigurationError, match=r"thread_id must not be '\.+': .*take another id"):
            await make(AGENT, "go", thread_id=dots)
    made = await runner.create_task(AGENT, "go", task_id="...", thread_id="a.b")
    with pytest.raises(ConfigurationError, match="thread_id must not be"):
        await runner.fork(made, thread_id=dots)
    with pytest.raises(ConfigurationError, match="thread_id must not be"):
        await runner.import_thread(dots, [Message("user", (Text("Hi"),))])
    with pytest.raises(TaskNotFound):  # a journal of before may hold such a task
        await runner.get_task(dots)
    assert await runner.get_thread(dots) == ()


async def test_a_task_of_a_list_stands_for_its_id(runner: Runner) -> None:
    await runner.run(AGENT, "go")
    [task] = await runner.list_tasks()
    assert (await runner.result(task)).task_id == task.task_id
    assert (await runner.get_task(task)).task_id == task.task_id
    assert (await runner.diff(task, task)).same
    assert (await runner.fork(task)).forked_from == task.task_id
    assert (await runner.verify(task)).findings == ()
    await runner.delete_task((await runner.list_tasks()).items[0])
    assert len((await runner.list_tasks()).items) == 1
