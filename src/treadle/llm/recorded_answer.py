"""Answers sent again, from a cache, a recording or a script: a copy of the message, and its deltas."""

from __future__ import annotations

import json
from dataclasses import replace

from treadle.core.messages import Message, Reasoning, Text, ToolCall, copied
from treadle.core.model import ModelDelta, ReasoningDelta, TextDelta, ToolCallDelta


def own_copy(message: Message) -> Message:
    """Return a copy of a message whose arguments its receiver may change."""
    parts = [
        replace(p, arguments=copied(p.arguments)) if isinstance(p, ToolCall) else p for p in message.parts
    ]
    return replace(message, parts=tuple(parts))


def deltas_of(message: Message) -> list[ModelDelta]:
    """Return the deltas in which a message is streamed, one for each part."""
    deltas: list[ModelDelta] = []
    index = 0
    for part in message.parts:
        if isinstance(part, Text):
            deltas.append(TextDelta(part.text))
        elif isinstance(part, Reasoning):
            deltas.append(ReasoningDelta(part.text))
        elif isinstance(part, ToolCall):
            deltas.append(ToolCallDelta(index, part.name, arguments_text(part)))
            index += 1
    return deltas


def arguments_text(call: ToolCall) -> str:
    """Return the arguments of a call as a model writes them."""
    return json.dumps(call.arguments) if call.raw is None else call.raw
