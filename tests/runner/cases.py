"""Agents, tools and ways of stepping that the tests of the runner share."""

import asyncio
from collections.abc import Callable
from typing import Any

from treadle import Agent, Message, Runner, RunResult, ScriptedModel, Task, TaskStepOutput, tool
from treadle.core.events import Event
from treadle.core.messages import ToolCall, ToolResult
from treadle.llm.scripted import call, turn
from treadle.runner.views import driver_of


@tool(read_only=True)
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(read_only=True)
async def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


def calculator(*script: Any, name: str = "math", **more: Any) -> Agent[Any]:
    """Return an agent that computes (121 * 3) + 42, unless the script is another."""
    turns = script or (call("multiply", a=121, b=3), call("add", a=363, b=42), "405")
    return Agent(ScriptedModel(list(turns)), name=name, tools=[add, multiply], **more)


@tool(name="add", read_only=True)
def add_in_a_thread(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def adder(*script: Any) -> Agent[Any]:
    """An agent that adds by a function that is not async, unless the script is another."""
    turns = script or (call("add", a=1, b=2), "3")
    return Agent(ScriptedModel(list(turns)), name="adder", tools=[add_in_a_thread])


def sayer(*answers: Any, name: str = "sayer", **more: Any) -> Agent[Any]:
    """Return an agent without tools that gives these answers in turn."""
    return Agent(ScriptedModel(list(answers) or ["Hello."]), name=name, **more)


class Ledger:
    """The world outside: what tools did to it, in order."""

    def __init__(self, fails: Callable[[str], bool] = lambda entry: False) -> None:
        self.entries: list[str] = []
        self.fails = fails

    def enter(self, entry: str) -> None:
        if self.fails(entry):
            raise RuntimeError(f"cannot {entry}")
        self.entries.append(entry)

    def tools(self) -> list[Any]:
        """`look` reads, `book` writes and can be taken back, `mail` writes and cannot."""

        @tool(read_only=True)
        async def look(what: str) -> str:
            """Look something up."""
            self.enter(f"look {what}")
            return f"{what} seen"

        async def unbook(booked: ToolCall, ctx: Any) -> None:
            self.enter(f"unbook {booked.arguments['what']} ({booked.output})")

        @tool(undo=unbook)
        async def book(what: str) -> str:
            """Book something."""
            self.enter(f"book {what}")
            return f"{what} booked"

        @tool
        async def mail(to: str) -> str:
            """Send a mail."""
            self.enter(f"mail {to}")
            return f"mailed {to}"

        return [look, book, mail]

    def agent(self, *script: Any, name: str = "clerk", **more: Any) -> Agent[Any]:
        return Agent(ScriptedModel(list(script)), name=name, tools=self.tools(), **more)


def both(*calls: Any) -> Any:
    """Return a turn that calls several tools at once."""
    return turn(calls=list(calls))


async def step_to_answer(runner: Runner, task: Task | str, **how: Any) -> list[TaskStepOutput]:
    """Run the steps of a task until the last, as the guide does."""
    outputs: list[TaskStepOutput] = []
    while True:
        outputs.append(await runner.run_step(task, **how))
        assert len(outputs) < 20, "the task does not come to an end"
        if outputs[-1].is_last:
            return outputs


async def stepped(runner: Runner, agent: Agent[Any], input: Any, **how: Any) -> RunResult:
    task = await runner.create_task(agent, input, **how)
    await step_to_answer(runner, task)
    return await runner.finalize(task)


async def journal(runner: Runner, task: Task | str) -> list[Event]:
    """Return all durable events of a task."""
    return [event async for event in runner.handle(task).events(deltas=False) if isinstance(event, Event)]


async def kinds(runner: Runner, task: Task | str) -> list[str]:
    return [event.kind for event in await journal(runner, task)]


async def only(runner: Runner, task: Task | str, kind: str) -> list[Any]:
    """Return the events of one kind."""
    return [event for event in await journal(runner, task) if event.kind == kind]


def verdicts(report: Any) -> list[tuple[str, str]]:
    """Return each call that an undo took back, with its verdict."""
    return [(undone.call, undone.verdict) for undone in report.calls]


def roles_and_texts(messages: Any) -> list[tuple[str, str]]:
    """Return messages as (role, text); calls as the names of tools, results as their texts."""
    lines: list[tuple[str, str]] = []
    for message in messages:
        parts = [
            part.name if isinstance(part, ToolCall) else part.text
            for part in message.parts
            if hasattr(part, "text") or isinstance(part, (ToolCall, ToolResult))
        ]
        lines.append((message.role, " ".join(parts)))
    return lines


def assert_well_formed(messages: Any) -> None:
    """Assert that each call has exactly one result, right after it, and that all ids are unique."""
    seen: set[str] = set()
    called: list[str] = []
    for message in messages:
        assert isinstance(message, Message)
        results = [part.call_id for part in message.parts if isinstance(part, ToolResult)]
        assert results == called, f"{message.role} answers {results} where {called} was asked"
        called = [part.id for part in message.tool_calls]
        assert not seen & set(called), f"ids used twice: {seen & set(called)}"
        assert len(set(called)) == len(called)
        seen |= set(called)
    assert not called, f"never answered: {called}"


async def to_pause(runner: Runner, task_id: str) -> None:
    """Return once the driver of a task has read that it is to pause."""
    async with asyncio.timeout(10):
        while not (await driver_of(runner).cache.load(task_id)).state.pausing:  # noqa: ASYNC110  it has no event
            await asyncio.sleep(0.01)
