"""Lines about events, under the names of their steps and with the names of their calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, cast

from treadle.cli.graph import StepNames
from treadle.cli.screen import Screen, short
from treadle.core import events as e
from treadle.core.ids import base_call_id, content_name, undone_call
from treadle.core.messages import Content, File, Json, ToolCall
from treadle.core.observation import as_text
from treadle.results.usage import content_text as engine_text

DATA_SHOWN: Final = 300
"""Maximum number of characters of arguments and results in a line."""

_INPUT_SHOWN: Final = 10_000
"""Maximum number of characters of an input; a terminal needs seconds for millions, and the driver waits for it."""


def content_text(parts: Iterable[Content]) -> str:
    """Return content parts as text; a long text is cut, and other parts appear by their kind."""
    text = engine_text(parts)
    return text if len(text) <= _INPUT_SHOWN else f"{text[:_INPUT_SHOWN]}… ({len(text):,} characters)"


def call_arguments(arguments: dict[str, Json]) -> str:
    """Return a call's arguments as `name=value, ...`."""
    return short(", ".join(f"{name}={as_text(value)}" for name, value in arguments.items()), DATA_SHOWN)


class EventLines:
    """Prints lines about events.

    Args:
        screen: where to print.
    """

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self.names = StepNames()
        self.calls: dict[str, ToolCall] = {}
        self.step: str | None = None
        """the step of the event that is printed now"""

        self.printed_step: str | None = None
        """the step whose name was printed last"""

    def line(self, *parts: str | tuple[str, str]) -> None:
        """Print a line, after the name of its step if that was not printed yet."""
        self.print_step_name(self.step)
        self._screen.line(*parts)

    def print_step_name(self, step: str | None) -> None:
        """Print the name of the step of the next lines, if it differs from the previous lines' step."""
        node = self.names.of(step)
        if node is not None and step != self.printed_step:
            self._screen.line((f"{node.plan.name}:", "bold"))
            self.printed_step = step

    def name_of(self, call: str) -> str:
        """Return the name of a call, or its id if the call is unknown."""
        requested = self.calls.get(undone_call(call)) or self.calls.get(base_call_id(call))
        return content_name(call) or call if requested is None else requested.name

    def print_changes(self, changes: e.StateChange | None) -> None:
        """Print a call's changes to the task's `extra_state`."""
        if changes is not None:
            removed = ", ".join([f"{key} removed" for key in changes.removed])
            parts = [part for part in (call_arguments(changes.values), removed) if part]
            self.line(("    ctx.state: ", "dim"), ", ".join(parts))

    def print_files(self, event: e.ToolEnded | e.StepCompleted, prefix: str) -> None:
        """Print the sources and artifacts of a result; an artifact's id is `<prefix>-a<number>`."""
        for source in event.sources:
            self.line(("    source: ", "dim"), short(_source(source), DATA_SHOWN))
        for number, file in enumerate(event.artifacts, 1):
            self.line(
                ("    made: ", "dim"), short(_artifact(file), DATA_SHOWN), (f"  {prefix}-a{number}", "dim")
            )


def by_person(person: str | None) -> tuple[str, str]:
    """Return the person who did something, for the end of a line."""
    return (f"  by {person}" if person else "", "dim")


def failure_text(error: e.Failure) -> str:
    """Return the kind and the message of a failure."""
    return f"{error.kind}: {short(error.message, 600)}"


def error_message(error: e.Failure | None) -> str:
    """Return the message of an error; empty if there is none."""
    return short(error.message, 600) if error is not None else ""


def _source(source: Json) -> str:
    """Return a source for people: its title and URL, if it has them."""
    if isinstance(source, dict):
        fields = cast("dict[str, Json]", source)
        facts = [str(fields[key]) for key in ("title", "url") if fields.get(key)]
        if facts:
            return "  ".join(facts)
    return as_text(source)


def _artifact(file: File) -> str:
    """Return the name, type and size of an artifact."""
    size = f"{len(file.data):,} bytes" if file.data is not None else str(file.url)
    return f"{file.name} ({', '.join(filter(None, [file.media_type, size]))})"
