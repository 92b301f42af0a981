"""Agents whose tasks the tests of the task's view show, and how they look at the page."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from threading import Event
from typing import Any

from tests.docs.browser import Browser
from tests.server.inspector.chromium import go, until
from tests.server.inspector.site import Site
from treadle import (
    Agent,
    Message,
    ModelAnswer,
    ModelRequest,
    Policy,
    Rule,
    ScriptedModel,
    Text,
    TextDelta,
    ToolCall,
    ToolContext,
    tool,
)
from treadle.llm.scripted import call, text, turn

BOOKED: list[str] = []
"""What the tool `book` has booked and not taken back."""


@tool(read_only=True)
def look_up(order: str) -> dict[str, object]:
    """Look an order up."""
    return {"order": order, "cents": 4000}


@tool
def refund(order: str, cents: int) -> str:
    """Pay money back."""
    return f"{cents} cents paid back for {order}"


def _take_back(done: ToolCall, ctx: ToolContext) -> None:
    BOOKED.remove(str(done.arguments["memo"]))


@tool(undo=_take_back)
def book(memo: str) -> str:
    """Book an entry."""
    BOOKED.append(memo)
    return f"booked: {memo}"


@tool
def mail(to: str) -> str:
    """Send a mail."""
    return f"sent to {to}"


@tool(idempotent=True)
async def order_tins(item: str, ctx: ToolContext) -> str:
    """Order tins of an item."""
    return f"{await ctx.ask(f'How many tins of {item}?', int)} ordered"


class Gate:
    """Something that a tool or a model waits for in a test."""

    def __init__(self) -> None:
        self._open, self.reached = Event(), Event()

    async def wait(self) -> None:
        self.reached.set()
        await asyncio.to_thread(self._open.wait, 20)

    def open(self) -> None:
        self._open.set()


def waiter(gate: Gate, name: str = "waiter", *, writes: bool = False) -> Agent[Any]:
    """Return an agent whose tool waits for a gate."""

    @tool(read_only=not writes)
    async def wait_for_it(ctx: ToolContext) -> str:
        """Wait."""
        ctx.progress("3 of 9")
        await gate.wait()
        return "it came"

    return Agent(ScriptedModel([call("wait_for_it"), text("It came.")]), name=name, tools=[wait_for_it])


class Writer:
    """A model that writes half of its answer, and the rest after a gate."""

    name = "writer"

    def __init__(self, gate: Gate) -> None:
        self.gate = gate

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelAnswer]:
        yield TextDelta("The first half, ")
        await self.gate.wait()
        yield TextDelta("and the second.")
        yield ModelAnswer(Message("assistant", (Text("The first half, and the second."),)))


RULES = Policy(Rule("second-person", "ask", tool="refund", reason="A second person decides."))

DESK = Agent(
    ScriptedModel(
        [
            turn("I look.", [call("look_up", order="A-17")], reasoning="It needs the order."),
            call("refund", order="A-17", cents=4000),
            text("The refund is settled."),
        ]
    ),
    name="desk",
    instructions="Be fair.",
    tools=[look_up, refund],
    policy=RULES,
)
CLERK = Agent(
    ScriptedModel([call("look_up", order="A-17"), call("look_up", order="B-4"), text("Two are known.")]),
    name="clerk",
    tools=[look_up],
)
BOOKER = Agent(
    ScriptedModel(
        [call("look_up", order="A-17"), call("book", memo="rent"), call("mail", to="ann"), text("Done.")]
    ),
    name="booker",
    tools=[look_up, book, mail],
)
BUYER = Agent(
    ScriptedModel([call("order_tins", item="tea"), text("Ordered.")]), name="buyer", tools=[order_tins]
)
HEAD = Agent(
    ScriptedModel([call("desk", input="Order A-17"), text("The desk has settled it.")]),
    name="head",
    subagents=[DESK],
)


def broken(request: ModelRequest) -> Any:
    """Fail for the first request alone."""
    if len(BREAKING.requests) == 1:
        raise RuntimeError("the prompt misses a field")
    return text("I went on without it.")


BREAKING = ScriptedModel(broken)
BROKEN = Agent(BREAKING, name="broken")

AGENTS: list[Agent[Any]] = [DESK, CLERK, BOOKER, BUYER, HEAD, BROKEN]


# ------------------------------------------------------------------------------------------- the page


def show(browser: Browser, site: Site, task: str, who: str = "ann", query: str = "") -> None:
    """Open a task as a person, in a page that has just been loaded."""
    browser.open("about:blank")
    browser.open(site.link(who))
    until(browser, "document.querySelector('nav')")
    look_at(browser, task, query)


def look_at(browser: Browser, task: str, query: str = "") -> None:
    """Go to a task in the page, and wait until its journal is there."""
    go(browser, f"#/t/{task}{query}")
    shown = f"document.querySelector('.crumb')?.textContent.includes({json.dumps(task)})"
    until(browser, f"{shown} && !document.querySelector('.time')?.innerText.includes('reading')")


def until_text(browser: Browser, selector: str, text: str) -> None:
    """Wait until one of the elements of a selector has a text in it."""
    chosen = f"[...document.querySelectorAll({json.dumps(selector)})]"
    until(browser, f"{chosen}.some((each) => each.textContent.includes({json.dumps(text)}))")


def until_state(browser: Browser, state: str) -> None:
    """Wait until the task has a state."""
    until(
        browser, f"document.querySelector('.task-head .st.pill')?.textContent.trim() === {json.dumps(state)}"
    )


def until_open(browser: Browser, title: str) -> None:
    """Wait until a dialog with a title is open."""
    until_text(browser, "dialog[open] .dialog-t", title)


def until_shut(browser: Browser) -> None:
    """Wait until no dialog is open."""
    until(browser, "!document.querySelector('dialog')")


def count(browser: Browser, selector: str) -> int:
    """Return the number of elements of a selector."""
    return browser.run(f"document.querySelectorAll({json.dumps(selector)}).length")


def text_of(browser: Browser, selector: str) -> str:
    """Return the text of an element; empty without one."""
    return browser.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")


def focused(browser: Browser) -> str:
    """Return the text or the label of the element that has the focus."""
    return browser.run(
        "document.activeElement.getAttribute('aria-label') || document.activeElement.innerText || ''"
    )
