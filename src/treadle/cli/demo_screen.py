"""How the demonstration looks: plain lines within 80 columns, slowly for a person, at once for a pipe."""

from __future__ import annotations

import asyncio
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, cast

from rich.console import Console
from rich.table import Table
from rich.text import Text

from treadle import ToolCall
from treadle.cli.demo_evidence import DemoClaim, DemoTask
from treadle.core import events as e
from treadle.core import messages
from treadle.core.events import Event
from treadle.core.ids import undone_call

WIDTH = 80


class DemoScreen:
    """Prints the story.

    Args:
        console: where to print.
        pace: seconds to wait after a line, on a terminal.
    """

    def __init__(self, console: Console, pace: float) -> None:
        self.console = console
        self.pace = pace
        self._tools: dict[str, str] = {}

    async def say(self, text: str = "", *, style: str = "") -> None:
        """Print a line, and give a person time to read it."""
        self.console.print(Text(text, style=style), soft_wrap=True)
        await asyncio.sleep(self.pace * (0.3 if text else 0))

    async def part(self, title: str) -> None:
        """Begin a part of the story."""
        self.console.print()
        self.console.rule(Text(title, style="bold"), align="left", style="dim")
        await asyncio.sleep(self.pace)

    async def claims(self, claims: Iterable[DemoClaim]) -> bool:
        """Print claims with whether they hold, and return whether all do."""
        all_hold = True
        for claim in claims:
            all_hold &= not claim.problems
            word, style = ("BROKEN", "bold red") if claim.problems else ("holds ", "green")
            first, *others = textwrap.wrap(str(claim), WIDTH - 10)
            self.console.print(Text.assemble("  ", (word, style), "  ", first))
            for line in others:
                self.console.print(Text(f"          {line}"))
            await asyncio.sleep(self.pace * 0.4)
        return all_hold

    def calls(self, task: DemoTask) -> None:
        """Print what log and journal say of each call of a task, side by side."""
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 2), header_style="dim")
        for name in ("call", "tool", "starts (log)", "ends (journal)", "in process"):
            table.add_column(name, justify="left" if name in ("call", "tool", "in process") else "right")
        ends = Counter(event.call for event in task.own if isinstance(event, e.ToolEnded))
        for call in task.calls.values():
            pids = " ".join(map(str, task.pids(call.id)))
            table.add_row(call.id, call.name, str(task.starts[call.id]), str(ends[call.id]), pids)
        self.console.print(table)

    async def tell(self, event: Event) -> None:
        """Print an event, if it is part of the story."""
        line = self._line(event)
        if line is not None:
            subject = getattr(event, "call", None) or getattr(event, "step", "")
            await self.say(cut(f"  {subject:<6} {line}"), style=_STYLES.get(type(event), ""))

    def _line(self, event: Event) -> str | None:
        match event:
            case e.ModelReturned():
                self.know({call.id: call for call in event.message.tool_calls})
                return f"the model asks for {_requested(event.message)}" if event.message.tool_calls else None
            case e.ModelFailed():
                return f"the model failed: {event.error.message}"
            case e.ToolEnded():
                return f"{self._tool(event.call)}: {_result(event)}"
            case e.ToolStopped() if event.reason == "crash":
                return f"{self._tool(event.call)}: begun, and no end in the journal. Did it happen?"
            case e.OutcomeSettled():
                verdict = (
                    "it happened; not started again" if event.verdict == "happened" else "it did not happen"
                )
                return f"{event.by}= looked: {verdict}"
            case e.StepCompleted():
                return "step completed, durable"
            case e.InputReceived():
                return f"a person: {_text_of(event.parts)}"
            case e.TaskEnded():
                return f"{event.state}: {event.error.message if event.error else event.output}"
            case _:
                return None

    def _tool(self, call_id: str) -> str:
        return self._tools.get(undone_call(call_id), "a tool")

    def know(self, calls: Mapping[str, ToolCall]) -> None:
        """Remember which tools calls are for."""
        self._tools |= {call_id: call.name for call_id, call in calls.items()}


_STYLES: dict[type[Event], str] = {
    e.StepCompleted: "dim",
    e.ToolStopped: "yellow",
    e.OutcomeSettled: "yellow",
    e.ModelFailed: "red",
    e.TaskEnded: "bold",
}


def _requested(message: messages.Message) -> str:
    tools = Counter(call.name for call in message.tool_calls)
    return ", ".join(f"{name} x{count}, in parallel" if count > 1 else name for name, count in tools.items())


def _result(event: e.ToolEnded) -> str:
    if event.error is not None:
        return f"{event.outcome}: {event.error.message}"
    output: Any = event.output
    if isinstance(output, dict):
        facts = cast("dict[str, Any]", output)
        return ", ".join(f"{key} {value}" for key, value in facts.items() if key != "path")
    return f"{len(cast('list[Any]', output))} files" if isinstance(output, list) else str(output)


def _text_of(parts: Any) -> str:
    return "".join(part.text for part in parts if isinstance(part, messages.Text))


def in_one_line(value: Any) -> str:
    """Return a value of a difference in one line."""
    if isinstance(value, tuple):
        value = _text_of(value) or "nothing"
    return cut(" ".join(str(value).split()), WIDTH - 10)


def cut(text: str, width: int = WIDTH) -> str:
    """Return a text that fits in a line."""
    return text if len(text) <= width else f"{text[: width - 3]}..."
