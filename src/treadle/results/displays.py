"""The parts that the displays of several results share: times, labels, errors, outputs and messages as text."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from treadle.core import events as e
from treadle.core.display import Table
from treadle.core.messages import Content, File, Image, Message, Text, ToolResult
from treadle.core.observation import as_text


def if_repeated(attempt: int) -> int | None:
    """Return the number of an attempt that is not the first."""
    return attempt if attempt > 1 else None


def labels_text(labels: dict[str, str]) -> str:
    """Return labels as text, such as `room=4, day=monday`."""
    return ", ".join([f"{name}={value}" for name, value in labels.items()])


def parts_text(parts: Iterable[Content]) -> str:
    """Return the text of content; other parts appear as the names of their types."""
    return " ".join([part.text if isinstance(part, Text) else f"[{type(part).__name__}]" for part in parts])


def output_text(output: Any) -> str:
    """Return an output for people to read: text, JSON, or the `repr` of an object of the output type."""
    try:
        return as_text(output)
    except TypeError:
        return repr(output)


def error_text(error: e.Failure | None) -> str:
    """Return the kind and the message of a failure; empty if there is none."""
    return f"{error.kind}: {error.message}" if error is not None else ""


def messages_table(messages: tuple[Message, ...]) -> Table:
    """Return messages as a table."""
    return Table("messages", ("role", "text", "calls"), messages, _message_row)


def _message_row(message: Message) -> tuple[Any, ...]:
    results = [part.text for part in message.parts if isinstance(part, ToolResult)]
    calls = [f"{call.name}({as_text(call.arguments)})" for call in message.tool_calls]
    written = parts_text([part for part in message.parts if isinstance(part, (Text, Image, File))])
    return message.role, " ".join([written, *results]).strip(), "\n".join(calls)


def moment(time: int) -> str:
    """Return a time in microseconds since 1970, UTC, as readable text."""
    return datetime.fromtimestamp(time / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
