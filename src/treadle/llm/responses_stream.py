"""The stream of OpenAI's Responses in order. Deltas that arrive before their call wait; lost ones are an error."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, cast, get_args

from openai.types.responses import ResponseOutputItem, ResponseStreamEvent
from pydantic_ai.models.openai import OpenAIResponsesModel, OpenAIResponsesStreamedResponse

NEEDED = (
    "pydantic_ai.providers.openai",
    "pydantic_ai.profiles._special_tokens",
    "openai.resources.responses.responses",
)
"""Modules that the client would import during its first request."""

_DELTA = "response.function_call_arguments.delta"
_DONE = "response.function_call_arguments.done"
_ENDS = ("response.completed", "response.incomplete", "response.failed")
_ITEM_ADDED = "response.output_item.added"
_ITEM_DONE = "response.output_item.done"


def prepare_answers() -> None:
    """Build the validators of stream events, which would otherwise take half a second at the first event."""
    for kinds in (ResponseStreamEvent, ResponseOutputItem):
        for kind in get_args(get_args(kinds)[0]):
            kind.model_rebuild()


class ResponsesModel(OpenAIResponsesModel):
    """OpenAI's Responses; the events of its streams are put in order."""

    async def _process_streamed_response(
        self, response: Any, *args: Any, **options: Any
    ) -> OpenAIResponsesStreamedResponse:
        return await super()._process_streamed_response(
            cast("Any", _OrderedEvents(response)), *args, **options
        )


class _OrderedEvents:
    """The events of a stream, with each delta of a call's arguments after the call itself."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._events = self._in_order()

    def __aiter__(self) -> AsyncIterator[ResponseStreamEvent]:
        return self._events

    def __anext__(self) -> Any:
        return self._events.__anext__()

    async def close(self) -> None:
        await self._stream.close()

    async def _in_order(self) -> AsyncGenerator[ResponseStreamEvent]:
        arguments: dict[str, str] = {}
        early: dict[str, list[ResponseStreamEvent]] = {}
        ended = False
        async for event in self._stream:
            if ended:
                continue  # a repeated end would count twice; a connection read to its end can be reused
            ended = event.type in _ENDS
            item_id, full_arguments = _call_of(event)
            if item_id is None:
                yield event
            elif event.type == _ITEM_ADDED:
                yield event
                arguments[item_id] = full_arguments
                for delta in early.pop(item_id, ()):
                    arguments[item_id] += cast("Any", delta).delta
                    yield delta
            elif event.type == _DELTA:
                if item_id not in arguments:
                    early.setdefault(item_id, []).append(event)
                    continue
                arguments[item_id] += event.delta
                yield event
            else:
                if not full_arguments.startswith(arguments.get(item_id, "")):
                    raise ValueError("the deltas of a call's arguments do not add up to the whole arguments")
                yield event


def _call_of(event: Any) -> tuple[str | None, str]:
    """Return the item id of the call that an event is about, or None, and the arguments in the event."""
    if event.type in (_DELTA, _DONE):
        return event.item_id, getattr(event, "arguments", None) or ""
    if event.type in (_ITEM_ADDED, _ITEM_DONE) and event.item.type == "function_call":
        return event.item.id, event.item.arguments or ""
    return None, ""
