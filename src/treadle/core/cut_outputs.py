"""The tool `read_output`, with which a model reads the rest of cut outputs.

A cut observation names the tool, and from then on requests offer it. It reads the whole output from the journal, page
by page. A page is as long as an observation may be, and has the label of the output. If an agent has its own tool of
that name, this one is not offered.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from treadle.core.ids import base_call_id
from treadle.core.messages import Text
from treadle.core.observation import READ_OUTPUT, as_text, scrubbed
from treadle.core.state import TaskState
from treadle.core.steps import CallState
from treadle.core.tools import ToolSpec
from treadle.core.unknown_names import near_name

SPEC: Final = ToolSpec(
    name=READ_OUTPUT,
    description="Read more of the output of an earlier call, of which you were shown only a part.",
    parameters={
        "type": "object",
        "properties": {
            "call_id": {"type": "string", "description": "the call, as the cut output names it"},
            "offset": {
                "type": "integer",
                "minimum": 0,
                "description": "the first character to read; by default 0",
            },
            "limit": {
                "type": "integer",
                "minimum": 1,
                "description": "how many characters; by default all that fit",
            },
        },
        "required": ["call_id"],
        "additionalProperties": False,
    },
    read_only=True,
    declared=True,
    trusted=True,  # its own messages; a page has the label of the output
)

_NOTE_ROOM: Final = 100
"""Characters of a long page that are reserved for the note on the rest."""


def is_offered(state: TaskState) -> bool:
    """Return whether the tool is offered: an output was cut on the present branch."""
    return bool(state.cut)


def find_output(state: TaskState, call_id: str) -> CallState | None:
    """Return the ended call on the present branch whose result the model knows by this id."""
    if (call := state.cut.get(call_id)) is not None:
        return call
    return next((call for call in _ended_calls(state) if base_call_id(call.id) == call_id), None)


def _ended_calls(state: TaskState) -> Iterator[CallState]:
    for step in (*state.under_way(), *reversed(state.steps)):
        yield from [call for call in step.calls if call.status == "ended"]


def unknown_output_text(state: TaskState, call_id: str) -> str:
    """Return the error for a call that has no output to read."""
    cut = list(state.cut)
    near = near_name(call_id, cut)
    hint = f" Did you mean {near!r}?" if near else ""
    outputs = ", ".join(cut[-20:])
    return f"There is no output of a call {scrubbed(call_id[:64])!r} in this task.{hint} Cut were those of: {outputs}."


def whole_text(call: CallState) -> str:
    """Return the whole text of an output that a model saw at least in part."""
    if call.whole is not None:
        return call.whole
    if call.observation is not None and not call.cut:
        return "".join([part.text for part in call.observation if isinstance(part, Text)])
    return call.error.message if call.error is not None else as_text(call.output)


def page(text: str, offset: int, limit: int | None, most: int) -> str:
    """Return a part of a text and a note on the rest, together at most `most` characters.

    Args:
        text: the whole text.
        offset: the first character of the part.
        limit: the most characters of the part; None for all that fit.
        most: the most characters that a model may see of a call.
    """
    if offset >= len(text):
        return f"[there is nothing at {offset:,}: the output has {len(text):,} characters]"[:most]
    room = most if most < 2 * _NOTE_ROOM or len(text) - offset <= most else most - _NOTE_ROOM
    end = min(len(text), offset + min(room, limit or room))
    note = f"\n[... {len(text) - end:,} characters follow, from offset={end} ...]" if end < len(text) else ""
    part = text[offset:end]
    return part + note if len(part) + len(note) <= most else part
