"""The response object of the Responses API, its ids, and the form of its parts. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from treadle.core import events as e
from treadle.core.data import frozen
from treadle.core.messages import Content, Json, Text
from treadle.core.model import NO_USAGE, Usage
from treadle.core.observation import as_text
from treadle.results.pending import Pending
from treadle.server.protocols.stops import Stop, waits_for_client

Frame: TypeAlias = dict[str, Json]
"""An event of the stream, or a part of a response."""

OWN: Final = "treadle"
"""The prefix of Treadle's own labels, metadata and events."""

PREVIOUS, NOT_STORED, IN_BACKGROUND = f"{OWN}.previous", f"{OWN}.not_stored", f"{OWN}.background"
"""The labels of a task for the fields of its request that no option holds."""

WITH_THREAD: Final = "thread"
"""The value of `NOT_STORED` for a task whose thread is deleted with it, since it has no other task."""

_MOST_NAMED: Final = 8
"""The most open requests that metadata names."""

_LONGEST: Final = 512
"""The most characters of a value in metadata."""


@frozen
class Facts:
    """The facts about a task that its events do not hold.

    Args:
        thread_id: its conversation.
        labels: its labels.
        is_queued: whether no driver has begun it.
        forked_at: the last event that it shares with the task that it was forked from; 0 if it is no fork.
    """

    thread_id: str
    labels: Mapping[str, str]
    is_queued: bool = False
    forked_at: int = 0


# ---------------------------------------------------------------------------------------------------- ids


def response_id(task_id: str, part: str = "") -> str:
    """Return the id of a response: a task, and the name of its part."""
    return f"resp_{task_id}~{part}" if part else f"resp_{task_id}"


def part_in(identifier: str) -> tuple[str, str]:
    """Return the task and the part in the id of a response; the task is empty for any other id."""
    task_id, _, part = identifier.removeprefix("resp_").partition("~")
    return (task_id, part) if identifier.startswith("resp_") else ("", "")


def approval_item_id(task_id: str, request_id: str) -> str:
    """Return the id of an item that asks for an approval."""
    return f"mcpr_{task_id}:{request_id}"


def approval_in(identifier: str) -> tuple[str, str]:
    """Return the task and the request of an item that asks for an approval; the task is empty for any other id."""
    task_id, _, request = identifier.removeprefix("mcpr_").rpartition(":")
    return (task_id, request) if identifier.startswith("mcpr_") else ("", "")


# --------------------------------------------------------------------------------------------- the object


def response_of(
    facts: Facts, options: Mapping[str, Any], status: str, stop: Stop | None, ended: e.TaskEnded | None
) -> Frame:
    """Return the fields of a response that do not depend on its output.

    Args:
        facts: the facts about its task.
        options: the task's options, as they are stored.
        status: the status of the response.
        stop: the state in which the task stopped, if it has.
        ended: the end of the task, if it has ended.
    """
    settings: Mapping[str, Any] = options.get("model_settings") or {}
    limits: Mapping[str, Any] = options.get("limits") or {}
    tools: Sequence[Mapping[str, Json]] = options.get("caller_tools") or ()
    temperature = settings.get("temperature")
    return {
        "object": "response",
        "status": status,
        "incomplete_details": {"reason": _why_incomplete(stop)} if status == "incomplete" else None,
        "error": _error(ended) if status == "failed" else None,
        "tools": [_function_tool(each) for each in tools],
        "tool_choice": _tool_choice(settings.get("tool_choice"), tools),
        "truncation": "disabled",
        "parallel_tool_calls": settings.get("parallel_tool_calls") is not False,
        "text": {"format": {"type": "text"}},
        "top_p": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "top_logprobs": 0,
        "temperature": 1.0 if temperature is None else temperature,
        "reasoning": None,
        "max_output_tokens": settings.get("max_tokens"),
        "max_tool_calls": limits.get("tool_calls"),
        "store": NOT_STORED not in facts.labels,
        "background": IN_BACKGROUND in facts.labels,
        "service_tier": "default",
        "metadata": _metadata(facts, stop, ended),
        "safety_identifier": None,
        "prompt_cache_key": None,
        "conversation": {"id": facts.thread_id},
    }


def _error(ended: e.TaskEnded | None) -> Json:
    failure = ended.error if ended is not None else None
    if failure is None:
        return {"code": "server_error", "message": "the task failed"}
    return {"code": failure.kind, "message": failure.message}


def _metadata(facts: Facts, stop: Stop | None, ended: e.TaskEnded | None) -> Frame:
    """Return the labels of the task, and the names of the requests that clients of this protocol cannot answer."""
    metadata: Frame = {name: value for name, value in facts.labels.items() if not name.startswith(f"{OWN}.")}
    if stop is None:
        return metadata
    waits = [item for item in stop.pending if item.kind not in ("approval", "call")]
    for number, item in enumerate(waits[:_MOST_NAMED], 1):
        text = f"{item.kind} {item.task_id}:{item.request_id} {item.text}"
        metadata[f"{OWN}.pending.{number}"] = text[:_LONGEST]
    if stop.state in ("paused", "interrupted", "running"):
        metadata[f"{OWN}.state"] = stop.state
    if ended is not None and ended.reasons:
        metadata[f"{OWN}.reasons"] = "; ".join(ended.reasons)[:_LONGEST]
    return metadata


def status_of(stop: Stop) -> str:
    """Return the status of a response whose task stopped in a state."""
    if stop.state in e.END_STATES:
        return "incomplete" if stop.state == "degraded" else stop.state
    if not waits_for_client(stop):
        return "in_progress"
    kinds = {item.kind for item in stop.pending} & {"question", "settlement"}
    return "completed" if stop.state == "waiting" and not kinds else "incomplete"


def _why_incomplete(stop: Stop | None) -> str:
    if stop is None or stop.state != "waiting":
        return "degraded" if stop is None else stop.state
    waits: Sequence[Pending] = [item for item in stop.pending if item.kind in ("question", "settlement")]
    return waits[0].kind if waits else stop.state


def usage_of(usage: Usage) -> Json:
    """Return the tokens of a response; None if no model answered."""
    if usage is NO_USAGE:
        return None
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }


def _function_tool(stored: Mapping[str, Json]) -> Frame:
    return {
        "type": "function",
        "name": stored["name"],
        "description": stored.get("description") or None,
        "parameters": stored.get("parameters"),
        "strict": False,
    }


def _tool_choice(choice: str | None, tools: Sequence[Mapping[str, Json]]) -> Json:
    if any(each["name"] == choice for each in tools):
        return {"type": "function", "name": choice}
    return choice or "auto"


# ---------------------------------------------------------------------------------------------- its parts


def json_text(value: Json) -> str:
    """Return a value as JSON text."""
    return json.dumps(value, ensure_ascii=False)


def text_part(text: str) -> Frame:
    """Return the content part of a message."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def output_text(event: e.ToolEnded) -> str:
    """Return the output of a call as text."""
    if event.observation is not None:
        return texts(event.observation)
    return as_text(event.output)


def texts(parts: Sequence[Content]) -> str:
    """Return the texts among content parts, joined."""
    return "".join([part.text for part in parts if isinstance(part, Text)])


def is_same(item: Frame, output: Json, text: str) -> bool:
    """Return whether a message holds the answer of its task, in this or in another form of the same JSON."""
    content: Any = item["content"]
    shown = "".join([part["text"] for part in content])
    if shown.strip() == text.strip():
        return True
    if isinstance(output, str):
        return False
    try:
        return json.loads(shown) == output
    except ValueError:
        return False
