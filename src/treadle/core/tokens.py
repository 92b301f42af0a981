"""Estimate the tokens of text, without any provider's tokenizer.

It counts one token for three bytes of UTF-8. English prose has about four bytes a token, and code and JSON about three.
Chinese and Japanese have about one character of three bytes. So the estimate tends to be too high.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from treadle.core.messages import File, Message, Part, Reasoning, Text, ToolCall, ToolResult
from treadle.core.model import ModelRequest, Usage
from treadle.core.tools import ToolSpec

BYTES_PER_TOKEN: Final = 3
PER_MESSAGE: Final = 4
"""The overhead of a message, in tokens."""

PER_PICTURE: Final = 1_600
"""Tokens of a picture, or of a document whose size is not known."""


def text_tokens(text: str) -> int:
    """Estimate the tokens of a text."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
    return -(-size // BYTES_PER_TOKEN)


def message_tokens(message: Message) -> int:
    """Estimate the tokens of a message. This is the default of `Runner(count_tokens=)`."""
    return PER_MESSAGE + sum([_part_tokens(part) for part in message.parts])


def request_tokens(instructions: str, tools: Sequence[ToolSpec]) -> int:
    """Estimate the fixed tokens of every request: instructions and the tools' schemas."""
    described = [text_tokens(f"{tool.name}{tool.description}{_json(tool.parameters)}") for tool in tools]
    return PER_MESSAGE + text_tokens(instructions) + sum(described) + PER_MESSAGE * len(tools)


def estimated_usage(request: ModelRequest, answer: Message | None) -> Usage:
    """Estimate the usage of a request whose model reported none. Without an answer, only its input counts."""
    input_tokens = request_tokens(request.instructions, request.tools)
    input_tokens += sum([message_tokens(message) for message in request.messages])
    return Usage(input_tokens, message_tokens(answer) if answer is not None else 0, estimated=True)


def _part_tokens(part: Part) -> int:
    if isinstance(part, (Text, Reasoning)):
        return text_tokens(part.text)
    if isinstance(part, ToolCall):
        return PER_MESSAGE + text_tokens(f"{part.name}{_json(part.arguments)}{part.raw or ''}")
    if isinstance(part, ToolResult):
        return PER_MESSAGE + sum([_part_tokens(inner) for inner in part.parts])
    if isinstance(part, File) and part.data is not None:
        return max(PER_PICTURE, len(part.data) // BYTES_PER_TOKEN)
    return PER_PICTURE


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
