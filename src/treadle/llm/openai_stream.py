"""OpenAI's chat stream as servers send it in practice: several calls under one index, with ids or without."""

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
"""Modules that the client would import during its first request."""


def prepare_answers() -> None:
    """Build the validator of stream chunks, which would otherwise be built at the first chunk."""
    ChatCompletionChunk.model_rebuild()


@dataclass
class _OpenCall:
    """The call to which deltas under an index belong at present."""

    number: int
    id: str
    arguments: str = ""


@dataclass
class _SeparatedCalls(OpenAIStreamedResponse):
    """A stream in which each call has its own index, and usage is not counted twice."""

    _open_calls: dict[int, _OpenCall] = field(default_factory=dict[int, _OpenCall], init=False)
    _numbers: set[int] = field(default_factory=set[int], init=False)

    def _map_tool_call_delta(self, choice: Choice) -> Iterable[ModelResponseStreamEvent]:
        for delta in choice.delta.tool_calls or ():
            delta.index = self._number(delta)
        return super()._map_tool_call_delta(choice)

    def _add_usage(self, usage: RequestUsage, *, reported: bool, cumulative: bool = False) -> None:
        # Each report covers the whole answer so far, and some servers send several.
        if reported:
            super()._add_usage(usage, reported=True, cumulative=True)

    def _number(self, delta: ChoiceDeltaToolCall) -> int:
        """Return the number of the call to which a delta belongs, or which it begins."""
        name = (delta.function and delta.function.name) or ""
        more = (delta.function and delta.function.arguments) or ""
        call = self._open_calls.get(delta.index)
        if call is None or (name and _begins_another(call, delta.id or "", more)):
            number = delta.index if delta.index not in self._numbers else max(self._numbers) + 1
            self._numbers.add(number)
            call = self._open_calls[delta.index] = _OpenCall(number, delta.id or "")
        call.arguments += more
        return call.number


def _begins_another(call: _OpenCall, call_id: str, more: str) -> bool:
    """Whether a delta that names a function begins another call: some servers repeat the name in each delta."""
    if call_id and call.id:
        return call_id != call.id
    return bool(more) and _is_complete(call.arguments)


def _is_complete(arguments: str) -> bool:
    try:
        return isinstance(json.loads(arguments), dict)
    except ValueError:
        return False


class ChatModel(OpenAIChatModel):
    """OpenAI's chat model; its streams separate calls that share an index."""

    @property
    def _streamed_response_cls(self) -> type[OpenAIStreamedResponse]:
        return _SeparatedCalls
