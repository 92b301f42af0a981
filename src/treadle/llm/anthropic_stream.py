"""Anthropic's Messages of servers that do not say what was used: nothing is then known of it, and nothing is wrong."""

from __future__ import annotations

from typing import Any, cast, get_args

from anthropic.types.beta import BetaMessage, BetaMessageDeltaUsage, BetaRawMessageStreamEvent, BetaUsage
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models.anthropic import AnthropicModel, AnthropicStreamedResponse

NEEDED = ("pydantic_ai.providers.anthropic", "opentelemetry.propagate")
"""Modules that the client imports at its first request, before which they are better there."""


def prepare_answers() -> None:
    """Build what reads an answer, which would else be built when its first event comes."""
    for kind in get_args(get_args(BetaRawMessageStreamEvent)[0]):
        kind.model_rebuild()


class MessagesModel(AnthropicModel):
    """Anthropic's model, which can do without usage."""

    async def _process_streamed_response(
        self, response: Any, *args: Any, **options: Any
    ) -> AnthropicStreamedResponse:
        return await super()._process_streamed_response(cast("Any", _Counted(response)), *args, **options)

    def _process_response(self, response: BetaMessage, *args: Any, **options: Any) -> ModelResponse:
        if getattr(response, "type", None) == "message" and getattr(response, "usage", None) is None:
            response.usage = BetaUsage(input_tokens=0, output_tokens=0)
        return super()._process_response(response, *args, **options)


class _Counted:
    """The events of a stream, with usage in those that should have it."""

    def __init__(self, events: Any) -> None:
        self._events = events

    def __getattr__(self, name: str) -> Any:
        return getattr(self._events, name)

    async def peek(self) -> Any:
        """Return the first event without taking it."""
        return _with_usage(await self._events.peek())

    def __aiter__(self) -> _Counted:
        return self

    async def __anext__(self) -> Any:
        return _with_usage(await self._events.__anext__())


def _with_usage(event: Any) -> Any:
    kind = getattr(event, "type", None)
    message = getattr(event, "message", None)
    if kind == "message_start" and message is not None and getattr(message, "usage", None) is None:
        message.usage = BetaUsage(input_tokens=0, output_tokens=0)
    elif kind == "message_delta" and getattr(event, "usage", None) is None:
        event.usage = BetaMessageDeltaUsage(output_tokens=0)
    return event
