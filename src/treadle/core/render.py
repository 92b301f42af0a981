"""Render input and the results of calls as messages of a conversation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from treadle.core.events import InputReceived
from treadle.core.framing import nonce_of
from treadle.core.ids import base_call_id
from treadle.core.labels import OBSERVATION, RUNNER, Label, inside, label_of
from treadle.core.messages import Content, Message, Text, ToolResult
from treadle.core.observation import EMPTY_OUTPUT, as_text
from treadle.core.steps import CallState


def input_message(received: InputReceived, key: str = "") -> Message:
    """Return received input as a message. An observation is untrusted, except for parts from a trusted tool.

    Args:
        received: the input.
        key: the task's key for the nonces of frames.
    """
    role, rule = ("user", OBSERVATION) if received.observation else (received.role, None)
    labels = [part.label or rule for part in received.parts]
    if not any(labels):
        return Message(role, received.parts)
    nonce = nonce_of(key, f"input {received.seq}")
    parts = zip(received.parts, labels, strict=True)
    return Message(
        role, tuple([part if label is None else _in_frame(part, label, nonce) for part, label in parts])
    )


def _in_frame(part: Content, label: Label, nonce: str) -> Content:
    return replace(part, label=label if label.integrity == "trusted" else replace(label, frame=nonce))


def results(calls: Iterable[CallState]) -> Message:
    """Return the message with the results of an answer's calls, in the order of the calls."""
    return Message("tool", tuple([_result(call) for call in calls]))


def late_result(call: CallState) -> tuple[Content, ...]:
    """Return the result of a background call, for a message of its own."""
    text = f"{call.name} ({base_call_id(call.id)}), which went on in the background, ended: {call.outcome}\n"
    result = _result(call)
    label = label_of("tool", result)
    parts = [replace(part, label=inside(label, part.label)) for part in result.parts]
    return (Text(text, label=RUNNER), *parts)


def _result(call: CallState) -> ToolResult:
    parts: tuple[Content, ...]
    if call.observation is not None:
        parts = call.observation
    elif call.error is not None:
        parts = (Text(call.error.message),)
    elif call.status == "deferred":
        text = f"{call.name} goes on in the background. Its result will be sent to you once it is there."
        parts = (Text(text if call.output is None else f"{text} About it: {as_text(call.output)}"),)
        return ToolResult(base_call_id(call.id), call.name, parts, False, call.label, call.frame)
    else:
        parts = (Text(as_text(call.output) or EMPTY_OUTPUT),)
    # A call that never began has no result of its tool. If the tool's own validation failed, it has a label.
    label = call.label if call.attempt or call.label is not None else RUNNER
    return ToolResult(base_call_id(call.id), call.name, parts, call.outcome != "ok", label, call.frame)
