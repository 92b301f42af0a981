"""Answers that are given once more, from a cache or a recording: a message of one's own, and the pieces it comes in."""

from __future__ import annotations

import json
from dataclasses import replace

from treadle.core.messages import Message, Part, Reasoning, Text, ToolCall, copied
from treadle.core.model import ModelDelta, ReasoningDelta, TextDelta, ToolCallDelta


def own(message: Message) -> Message:
    """Return a message whose data nobody else may change."""
    return replace(message, parts=tuple(map(_own_part, message.parts)))


def _own_part(part: Part) -> Part:
    return replace(part, arguments=copied(part.arguments)) if isinstance(part, ToolCall) else part


def pieces(message: Message) -> list[ModelDelta]:
    """Return a message in the pieces a watcher is told."""
    told: list[ModelDelta] = []
    index = 0
    for part in message.parts:
        if isinstance(part, Text):
            told.append(TextDelta(part.text))
        elif isinstance(part, Reasoning):
            told.append(ReasoningDelta(part.text))
        elif isinstance(part, ToolCall):
            arguments = json.dumps(part.arguments) if part.raw is None else part.raw
            told.append(ToolCallDelta(index, part.name, arguments))
            index += 1
    return told
