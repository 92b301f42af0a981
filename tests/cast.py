"""The workers, tools and agents that tests share.

A tool, worker or agent is defined in a test only if the test is about how it differs from these. Journals are read with
`tests.runner.acts`; stores, tools and models are wrapped with `treadle.testing.wrappers`.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from treadle import (
    Agent,
    NextStep,
    RunContext,
    ScriptedModel,
    StepContext,
    StepResult,
    ToolContext,
    tool,
)
from treadle.core.messages import ToolCall
from treadle.core.model import ModelRequest
from treadle.llm.scripted import Turn, call, text

# ---- tools that read


@tool(read_only=True)
async def look() -> str:
    """Look around."""
    return "seen"


@tool(read_only=True)
async def repeat(what: str) -> str:
    """Repeat an argument."""
    return what


@tool(read_only=True)
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(name="add", read_only=True)
def add_in_a_thread(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(read_only=True)
async def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


@tool(read_only=True)
async def nap(seconds: float) -> str:
    """Sleep for some seconds; on a virtual clock they take no time."""
    await asyncio.sleep(seconds)
    return "rested"


@tool(read_only=True)
async def broken() -> str:
    """Fail at every call."""
    raise ValueError("broken")


@tool(read_only=True)
async def inquire(ctx: ToolContext[Any]) -> Any:
    """Ask the user a question and return the answer."""
    return await ctx.ask("What?")


# ---- tools that write


@tool
async def save(note: str) -> str:
    """Save a note; what became of a call that was cut off is not known."""
    return f"saved {note}"


@tool(idempotent=True)
async def put(note: str) -> str:
    """Put a note in its place; a second call changes nothing."""
    return f"put {note}"


@tool(undo=lambda booked, ctx: None)
async def book(place: str) -> str:
    """Book a place; an undo cancels it."""
    return f"booked {place}"


@tool(needs_approval=True)
async def pay(amount: int) -> str:
    """Pay an amount, once a person has approved it."""
    return f"paid {amount}"


class Jobs:
    """A tool whose calls go on in the background, with the tickets that it gave out."""

    def __init__(self, name: str = "render", expires: float = 3_600.0, **declared: Any) -> None:
        declared = {"background": True, "idempotent": True, **declared}
        self.tickets: list[str] = []

        async def begin(ctx: ToolContext[Any]) -> Any:
            """Begin a job."""
            self.tickets.append(ctx.ticket)
            return ctx.background("begun", expires=expires)

        self.tool = tool(begin, name=name, **declared)


class Gate:
    """A tool that notes when it was entered and returns when the gate opens."""

    def __init__(self, name: str = "work", result: Any = "done", **declared: Any) -> None:
        self.name = name
        self.entered = asyncio.Event()
        self.let_go = asyncio.Event()
        self.cancelled = 0
        self.contexts: list[ToolContext[Any]] = []

        async def work(ctx: ToolContext[Any]) -> Any:
            """Work until the gate opens."""
            self.contexts.append(ctx)
            self.entered.set()
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
            return result

        self.tool = tool(work, name=name, **declared)

    @property
    def starts(self) -> int:
        return len(self.contexts)


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
        return scripted_agent(*script, name=name, tools=self.tools(), **more)


# ---- agents


def scripted_agent(*script: Any, name: str = "desk", **more: Any) -> Agent[Any]:
    """Return an agent whose model gives these answers in turn; the other arguments are those of `Agent`."""
    return Agent(ScriptedModel(list(script)), name=name, **more)


def sayer(*answers: Any, name: str = "sayer", **more: Any) -> Agent[Any]:
    """Return an agent without tools that gives these answers in turn."""
    return scripted_agent(*(answers or ["Hello."]), name=name, **more)


def calculator(*script: Any, name: str = "math", **more: Any) -> Agent[Any]:
    """Return an agent that computes (121 * 3) + 42, unless the script is another."""
    turns = script or (call("multiply", a=121, b=3), call("add", a=363, b=42), "405")
    return scripted_agent(*turns, name=name, tools=[add, multiply], **more)


def adder(*script: Any) -> Agent[Any]:
    """Return an agent that adds by a function that is not async, unless the script is another."""
    return scripted_agent(*(script or (call("add", a=1, b=2), "3")), name="adder", tools=[add_in_a_thread])


def payer(*amounts: int, name: str = "payer", **more: Any) -> Agent[Any]:
    """Return an agent that asks to pay these amounts in one step, 1 by default, and then answers "Done."."""
    calls = [call("pay", amount=amount) for amount in amounts or (1,)]
    return scripted_agent(calls, "Done.", name=name, tools=[pay], **more)


def asker(*script: Any, name: str = "asker", **more: Any) -> Agent[Any]:
    """Return an agent whose tool asks the user, and that then answers "Done.", unless the script is another."""
    return scripted_agent(*(script or (call("inquire"), "Done.")), name=name, tools=[inquire], **more)


def gate_agent(gate: Gate, *script: Any) -> Agent[Any]:
    """Return an agent whose model calls the gate and then answers, unless the script is another."""
    return scripted_agent(*(script or (call(gate.name), "The end.")), name="worker", tools=[gate.tool])


# ---- workers, and a model for them


def echo(request: ModelRequest) -> Turn:
    """Answer a request with its last message."""
    return text(f"heard {request.messages[-1].text}")


def last(output: Any) -> StepResult:
    """Return the result of a last step."""
    return StepResult(output, is_last=True)


async def one_step(ctx: StepContext[Any]) -> StepResult:
    """Answer "done" in one step, without a model: the smallest worker."""
    return last("done")


class InThreeParts:
    """A worker with all three methods, whose steps are one function; its last look changes no answer."""

    def __init__(self, step: Any = one_step) -> None:
        self.step = step

    def initialize_step(self, task: RunContext[Any]) -> NextStep:
        return NextStep("turn")

    async def run_step(self, ctx: StepContext[Any]) -> StepResult:
        return await self.step(ctx)

    async def finalize_task(self, task: RunContext[Any], output: Any) -> Any:
        return None
