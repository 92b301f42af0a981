"""Anthropic's Messages, also from servers that report no usage: the usage is then unknown."""

from __future__ import annotations

from typing import Any, cast, get_args

from anthropic.types.beta import BetaMessage, BetaMessageDeltaUsage, BetaRawMessageStreamEvent, BetaUsage
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.anthropic import AnthropicModel, AnthropicStreamedResponse
from pydantic_ai.settings import ModelSettings

NEEDED = ("pydantic_ai.providers.anthropic", "opentelemetry.propagate")
"""Modules that the client would import during its first request."""


def prepare_answers() -> None:
    """Build the validators of stream events, which would otherwise be built at the first event."""
    for kind in get_args(get_args(BetaRawMessageStreamEvent)[0]):
        kind.model_rebuild()


class MessagesModel(AnthropicModel):
    """Anthropic's model. Its answers may lack usage. A whole answer is requested whole, not streamed internally."""

    async def request(
        self, messages: list[ModelMessage], model_settings: ModelSettings | None, *args: Any, **options: Any
    ) -> ModelResponse:
        # Without a limit the parent class sets its own, and streams the answer if that limit is high.
        longest = self.profile.get("anthropic_max_output_tokens")
        own_limit = self.profile.get("anthropic_rejects_max_tokens_beyond_context_window", False)
        settings: Any = model_settings or {}
        if "max_tokens" not in settings and longest is not None and not own_limit:
            settings = {**settings, "max_tokens": longest}
        return await super().request(messages, settings, *args, **options)

    async def _process_streamed_response(
        self, response: Any, *args: Any, **options: Any
    ) -> AnthropicStreamedResponse:
        return await super()._process_streamed_response(
            cast("Any", _EventsWithUsage(response)), *args, **options
        )

    def _process_response(self, response: BetaMessage, *args: Any, **options: Any) -> ModelResponse:
        if getattr(response, "type", None) == "message" and getattr(response, "usage", None) is None:
            response.usage = BetaUsage(input_tokens=0, output_tokens=0)
        return super()._process_response(response, *args, **options)


class _EventsWithUsage:
    """The events of a stream, with zero usage where it is missing."""

    def __init__(self, events: Any) -> None:
        self._events = events

    def __getattr__(self, name: str) -> Any:
        return getattr(self._events, name)

    async def peek(self) -> Any:
        """Return the first event without taking it."""
        return _with_usage(await self._events.peek())

    def __aiter__(self) -> _EventsWithUsage:
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
