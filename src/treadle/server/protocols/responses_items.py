"""The input items of a response, from the events of its task. Pure."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from typing import Any, Final, cast

from treadle.core import events as e
from treadle.core.ids import approval_id
from treadle.core.messages import Content, Image, Text
from treadle.core.observation import as_text
from treadle.server.protocols.agui import tool_call_id
from treadle.server.protocols.responses import COMMAND, mark_of
from treadle.server.protocols.responses_object import Frame, approval_item_id

KINDS: Final = ("task_created", "input_received", "question_answered", "approval_given", "approval_denied")
"""The kinds of the events that bring input."""

_FIRST: Final = f"{COMMAND}-"
"""The beginning of the commands that the request of a task's first response sends."""


def input_items(
    events: Iterable[e.Event], task_id: str, part: str = "", *, forked_at: int = 0
) -> list[Frame]:
    """Return the items of a response's input, the first one first.

    Args:
        events: the events of the task, or those of `KINDS`.
        task_id: the task.
        part: the name of the response's part; empty for the first.
        forked_at: the last event that the task shares with the one that it was forked from; 0 if it is no fork.
    """
    items: list[Frame] = []
    for stored in events:
        event: Any = e.known_part(stored)
        inbox: str = getattr(event, "inbox", None) or ""
        if stored.seq <= forked_at:
            continue
        if isinstance(event, e.TaskCreated) and not part:
            items.append(_message(task_id, stored.seq, "user", event.input))
        elif isinstance(event, e.InputReceived) and stored.seq == forked_at + 2 and forked_at and not part:
            items.append(_message(task_id, stored.seq, event.role, event.parts))  # it follows the fork
        elif not (mark_of(inbox) == part if part else _FIRST in inbox):
            continue
        elif isinstance(event, e.InputReceived):
            items.append(_message(task_id, stored.seq, event.role, event.parts))
        elif isinstance(event, e.QuestionAnswered):
            items.append(_result(task_id, event))
        elif isinstance(event, (e.ApprovalGiven, e.ApprovalDenied)):
            request = approval_id(event.call, event.number)
            item = {
                "id": f"mcpa_{task_id}:{request}",
                "type": "mcp_approval_response",
                "approval_request_id": approval_item_id(task_id, request),
                "approve": isinstance(event, e.ApprovalGiven),
                "reason": getattr(event, "reason", None),
            }
            items.append(item)
    return items


def _message(task_id: str, seq: int, role: str, parts: Sequence[Content]) -> Frame:
    content = [shown for part in parts if (shown := _part(part)) is not None]
    return {
        "id": f"msg_{task_id}/in{seq}",
        "type": "message",
        "role": role,
        "status": "completed",
        "content": content,
    }


def _result(task_id: str, event: e.QuestionAnswered) -> Frame:
    known = tool_call_id(task_id, event.call)
    given: Any = event.value
    value = cast("dict[str, Any]", given) if isinstance(given, dict) else {"output": given}
    output = value.get("output", value.get("error"))
    return {
        "id": f"fco_{known}",
        "type": "function_call_output",
        "call_id": known,
        "output": as_text(output),
        "status": "completed",
    }


def _part(part: Content) -> Frame | None:
    if isinstance(part, Text):
        return {"type": "input_text", "text": part.text}
    url = part.url
    if part.data is not None:
        data = base64.b64encode(part.data).decode()
        url = f"data:{part.media_type or 'application/octet-stream'};base64,{data}"
    if url is None:
        return None
    if isinstance(part, Image):
        return {"type": "input_image", "detail": "auto", "image_url": url, "file_id": None}
    name = "file_data" if part.data is not None else "file_url"
    return {"type": "input_file", name: url, "filename": part.name}
