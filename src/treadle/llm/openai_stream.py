"""OpenAI's chat stream as servers really send it: several calls under one index, with or without ids of their own."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from openai.types.chat.chat_completion_chunk import ChatCompletionChunk, Choice, ChoiceDeltaToolCall
from pydantic_ai.messages import ModelResponseStreamEvent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIStreamedResponse
from pydantic_ai.usage import RequestUsage

NEEDED = (
    "pydantic_ai.providers.openai",
    "pydantic_ai.profiles._special_tokens",
    "openai.resources.chat.completions.completions",
    "openai.resources.chat.chat",
)
"""Modules that the client imports at its first request, before which they are better there."""


def prepare_answers() -> None:
    """Build what reads an answer, which would else be built when the first piece of one comes."""
    ChatCompletionChunk.model_rebuild()


@dataclass
class _Open:
    """The call that pieces under an index belong to just now."""

    number: int
    id: str
    written: str = ""


@dataclass
class _Apart(OpenAIStreamedResponse):
    """A stream in which each call has an index of its own, and usage is not counted twice."""

    _open: dict[int, _Open] = field(default_factory=dict[int, _Open], init=False)
    _numbers: set[int] = field(default_factory=set[int], init=False)

    def _map_tool_call_delta(self, choice: Choice) -> Iterable[ModelResponseStreamEvent]:
        for piece in choice.delta.tool_calls or ():
            piece.index = self._number(piece)
        return super()._map_tool_call_delta(choice)

    def _add_usage(self, usage: RequestUsage, *, reported: bool, cumulative: bool = False) -> None:
        # Each report is of the whole answer so far, and some servers report more than once.
        if reported:
            super()._add_usage(usage, reported=True, cumulative=True)

    def _number(self, piece: ChoiceDeltaToolCall) -> int:
        name = (piece.function and piece.function.name) or ""
        more = (piece.function and piece.function.arguments) or ""
        belongs = self._open.get(piece.index)
        if belongs is None or (name and _is_another(belongs, piece.id or "", more)):
            number = piece.index if piece.index not in self._numbers else max(self._numbers) + 1
            self._numbers.add(number)
            belongs = self._open[piece.index] = _Open(number, piece.id or "")
        belongs.written += more
        return belongs.number


def _is_another(belongs: _Open, call_id: str, more: str) -> bool:
    """Whether a piece that names a function begins another call: some servers repeat the name with each piece."""
    if call_id and belongs.id:
        return call_id != belongs.id
    return bool(more) and _is_whole(belongs.written)


def _is_whole(arguments: str) -> bool:
    try:
        return isinstance(json.loads(arguments), dict)
    except ValueError:
        return False


class ChatModel(OpenAIChatModel):
    """OpenAI's chat model, whose streams keep calls apart."""

    @property
    def _streamed_response_cls(self) -> type[OpenAIStreamedResponse]:
        return _Apart
