"""How the demonstration looks: plain lines within 80 columns, slowly for a person, at once for a pipe."""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, cast

from rich.console import Console
from rich.table import Table
from rich.text import Text

from treadle.cli.command import command_line
from treadle.cli.demo_evidence import Call, Claim
from treadle.core import events as e
from treadle.core import messages
from treadle.core.events import Event

WIDTH = 80


class Stage:
    """Where the story is told.

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

    async def claims(self, claims: Iterable[Claim]) -> bool:
        """Print claims with whether they hold, and return whether all do."""
        all_hold = True
        for claim in claims:
            all_hold &= claim.holds
            word, style = ("holds ", "green") if claim.holds else ("BROKEN", "bold red")
            first, *others = textwrap.wrap(claim.text, WIDTH - 10)
            self.console.print(Text.assemble("  ", (word, style), "  ", first))
            for line in others:
                self.console.print(Text(f"          {line}"))
            await asyncio.sleep(self.pace * 0.4)
        return all_hold

    def calls(self, calls: Sequence[Call]) -> None:
        """Print what log and journal say of each call, side by side."""
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 2), header_style="dim")
        for name in ("call", "tool", "starts (log)", "ends (journal)", "in process"):
            table.add_column(name, justify="left" if name in ("call", "tool", "in process") else "right")
        for call in calls:
            pids = " ".join(map(str, call.pids))
            table.add_row(call.id, call.tool, str(len(call.starts)), str(len(call.ends)), pids)
        self.console.print(table)

    async def tell(self, event: Event) -> None:
        """Print what happened, as far as a watcher of the story wants to know."""
        line = self._line(event)
        if line is not None:
            where = getattr(event, "call", None) or getattr(event, "step", "")
            await self.say(cut(f"  {where:<6} {line}"), style=_STYLES.get(type(event), ""))

    def _line(self, event: Event) -> str | None:
        match event:
            case e.ModelReturned():
                self._tools |= {call.id: call.name for call in event.message.tool_calls}
                return f"the model asks for {_asked(event.message)}" if event.message.tool_calls else None
            case e.ModelFailed():
                return f"the model failed: {event.error.message}"
            case e.ToolEnded():
                return f"{self._tool(event.call)}: {_seen(event)}"
            case e.ToolStopped() if event.reason == "crash":
                return f"{self._tool(event.call)}: begun, and no end in the journal. Did it happen?"
            case e.OutcomeSettled():
                found = "it happened; not started again"
                return f"{event.by}= looked: {found if event.verdict == 'happened' else 'it did not happen'}"
            case e.StepCompleted():
                return "step completed, durable"
            case e.InputReceived():
                return f"a person: {_words(event.parts)}"
            case e.TaskEnded():
                return f"{event.state}: {event.error.message if event.error else event.output}"
            case _:
                return None

    def _tool(self, call_id: str) -> str:
        return self._tools.get(call_id.removesuffix("-undo"), "a tool")

    def know(self, calls: Iterable[Call]) -> None:
        """Remember which tools earlier calls were for."""
        self._tools |= {call.id: call.tool for call in calls}


_STYLES: dict[type[Event], str] = {
    e.StepCompleted: "dim",
    e.ToolStopped: "yellow",
    e.OutcomeSettled: "yellow",
    e.ModelFailed: "red",
    e.TaskEnded: "bold",
}


def _asked(message: messages.Message) -> str:
    names = [call.name for call in message.tool_calls]
    counted = [(name, names.count(name)) for name in dict.fromkeys(names)]
    return ", ".join(f"{name} x{count}, in parallel" if count > 1 else name for name, count in counted)


def _seen(event: e.ToolEnded) -> str:
    if event.error is not None:
        return f"{event.outcome}: {event.error.message}"
    output: Any = event.output
    if isinstance(output, dict):
        return ", ".join(
            f"{key} {value}" for key, value in cast("dict[str, Any]", output).items() if key != "path"
        )
    if isinstance(output, list):
        return f"{len(cast('list[Any]', output))} files"
    return str(output)


def _words(parts: Any) -> str:
    return "".join(part.text for part in parts if isinstance(part, messages.Text))


def shown(value: Any) -> str:
    """Return a value of a difference in one line."""
    if isinstance(value, tuple):
        value = _words(value) or "nothing"
    return cut(" ".join(str(value).split()), WIDTH - 10)


def cut(text: str, width: int = WIDTH) -> str:
    """Return a text that fits in a line."""
    return text if len(text) <= width else f"{text[: width - 3]}..."


def command(*words: str, store: str | None) -> str:
    """Return a command for a person to type."""
    return command_line(*words, store=store)
