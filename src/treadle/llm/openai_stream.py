"""OpenAI's chat stream as servers really send it: several calls under one index, with ids or without."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, cast

from openai.types.chat import ChatCompletion
from openai.types.chat.chat_completion_chunk import ChatCompletionChunk, Choice, ChoiceDeltaToolCall
from pydantic_ai.messages import ModelResponseStreamEvent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIStreamedResponse
from pydantic_ai.usage import RequestUsage

from treadle.llm.finish_words import NO_WORD

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

    end: _EventsUntilDone | None = field(default=None, init=False)

    async def _get_event_iterator(self) -> AsyncIterator[ModelResponseStreamEvent]:
        async for event in super()._get_event_iterator():
            yield event
        details = self.provider_details or {}
        if self.end is not None and self.end.done and not self._has_refusal:
            self.provider_details = {"finish_reason": NO_WORD, **details}

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


class _EventsUntilDone:
    """The events of a stream. It knows whether `[DONE]` was one of them, which the SDK does not report.

    Args:
        events: returns the events that the SDK reads.
    """

    def __init__(self, events: Callable[[], AsyncIterator[Any]]) -> None:
        self._events = events
        self.done = False

    async def __call__(self) -> AsyncIterator[Any]:
        async for event in self._events():
            self.done = self.done or event.data.startswith("[DONE]")
            yield event


def _begins_another(call: _OpenCall, call_id: str, more: str) -> bool:
    """Whether a delta that names a function begins another call. Some servers repeat the name in each delta."""
    if call_id and call.id:
        return call_id != call.id
    return bool(more) and _is_complete(call.arguments)


def _is_complete(arguments: str) -> bool:
    try:
        return isinstance(json.loads(arguments), dict)
    except ValueError:
        return False


_OPENAI_WORDS = ("stop", "length", "tool_calls", "content_filter", "function_call")


class ChatModel(OpenAIChatModel):
    """OpenAI's chat model. Its streams separate calls that share an index, and may end without a finish reason."""

    async def _process_streamed_response(self, response: Any, *args: Any, **options: Any) -> Any:
        # The SDK does not pass `[DONE]` on, so its input is watched; there is no public way.
        end = response._iter_events = _EventsUntilDone(response._iter_events)  # noqa: SLF001
        streamed = await super()._process_streamed_response(response, *args, **options)
        cast("_SeparatedCalls", streamed).end = end
        return streamed

    def _validate_completion(self, response: ChatCompletion) -> Any:
        # Not all versions of the parent class let other words than OpenAI's through.
        finish_word: Any = response.choices[0].finish_reason if response.choices else None
        if finish_word is None or finish_word in _OPENAI_WORDS:
            return super()._validate_completion(response)
        response.choices[0].finish_reason = "stop"
        validated: Any = super()._validate_completion(response)
        validated.choices[0].finish_reason = finish_word
        return validated

    def _process_provider_details(self, response: ChatCompletion) -> dict[str, Any] | None:
        return {"finish_reason": NO_WORD, **(super()._process_provider_details(response) or {})}

    @property
    def _streamed_response_cls(self) -> type[OpenAIStreamedResponse]:
        return _SeparatedCalls
