"""A second request if the first is slow to begin. The faster one is the answer; both are counted and paid."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import replace

from treadle.core.messages import Message, Text
from treadle.core.model import (
    NO_USAGE,
    ModelAnswer,
    ModelDelta,
    ModelRequest,
    RawDelta,
    ReasoningDelta,
    SideCall,
    TextDelta,
    Usage,
)
from treadle.core.tokens import estimated_usage
from treadle.core.unknown_names import explains_arguments
from treadle.errors import ModelError
from treadle.llm.layers.layer import CancelScope, Layer, close, number
from treadle.ports import Model


@explains_arguments
class Hedge(Layer):
    """A model that gets a second request if it is slow to answer; the first to begin answers.

    The other request is cancelled. It is counted and paid for like every request, with an estimated usage. No second
    request is sent if the limits on model calls leave no room for it.

    Args:
        model: the model inside.
        after: seconds without any part of an answer until the second request is sent.
        other: the model that gets the second request. None: the same model.
    """

    numbers = ("after",)

    def __init__(self, model: Model | str, *, after: float, other: Model | str | None = None) -> None:
        super().__init__(model, *(() if other is None else (other,)))
        self.after = number("Hedge", "after", after)
        self.other = None if other is None else self.models[1]

    def _shown(self) -> list[str]:
        return super()._shown() + ([] if self.other is None else [f"other={self.other!r}"])

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelAnswer]:
        scope = CancelScope()
        second = _SecondRequest(self.other or self.model, request, scope)
        if request.spare_calls is None or request.spare_calls > 0:
            second.send_in(self.after)
        lost = None
        inner = self.model.stream(request)
        early: list[RawDelta] = []
        try:
            async for item in inner:
                if scope.waiting:
                    if request.raw and type(item) is RawDelta:
                        early.append(item)  # raw chunks do not belong to the answer
                        continue
                    scope.waiting = False
                    scope.take_back()
                    await second.end()
                    for delta in early:
                        yield delta
                if type(item) is ModelAnswer:
                    item.also += second.calls()
                yield item
        except (Exception, asyncio.CancelledError) as error:
            began, scope.waiting = not scope.waiting, False
            if scope.take_back():
                lost = (SideCall(self.name, _estimated(request)),)
            elif isinstance(error, ModelError):
                if began or not second.is_running:
                    error.also += second.calls()
                    raise
                lost = _failed_calls(self.name, error)
            else:
                raise
        finally:
            if lost is None:
                await second.end()
            await close(inner)
        if lost is not None:
            items = second.answer(lost)
            try:
                async for item in items:
                    yield item
            finally:
                await close(items)


class _SecondRequest:
    """The second request. A timer sends it in a task of its own. When it begins to answer, the first is cancelled."""

    def __init__(self, model: Model, request: ModelRequest, scope: CancelScope) -> None:
        self.model = model
        self._request = request
        self._scope = scope
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._items: deque[ModelDelta | ModelAnswer] = deque()
        self._error: Exception | None = None
        self._changed = asyncio.Event()
        self._texts: list[str] = []

    def send_in(self, seconds: float) -> None:
        """Send the request after some time, unless `end` is called first."""
        self._timer = asyncio.get_running_loop().call_later(seconds, self._send)

    @property
    def is_running(self) -> bool:
        """Whether the request was sent and has not ended."""
        return self._task is not None and not self._task.done() and self._error is None

    def calls(self) -> tuple[SideCall, ...]:
        """Return the calls that are counted for this request once the other one has answered."""
        if self._task is None:
            return ()
        if isinstance(self._error, ModelError):
            return _failed_calls(self.model.name, self._error)
        return (SideCall(self.model.name, _estimated(self._request, "".join(self._texts))),)

    async def answer(self, lost: tuple[SideCall, ...]) -> AsyncIterator[ModelDelta | ModelAnswer]:
        """Yield the stream of this request. Its answer or failure also counts the calls that lost."""
        stream = self._stream()
        try:
            async for item in stream:
                if type(item) is ModelAnswer:
                    item.model = item.model or self.model.name
                    item.also += lost
                yield item
        except ModelError as error:
            error.model = error.model or self.model.name
            error.also += lost
            raise
        finally:
            await self.end()
            await close(stream)

    async def _stream(self) -> AsyncIterator[ModelDelta | ModelAnswer]:
        while True:
            while self._items:
                yield self._items.popleft()
            if self._task is None or self._task.done():
                break
            self._changed.clear()
            await self._changed.wait()
        if self._error is not None:
            raise self._error

    async def end(self) -> None:
        """Cancel the request, and wait until it has ended."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])

    def _send(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(lambda _: self._changed.set())

    async def _run(self) -> None:
        spare = self._request.spare_calls
        request = self._request if spare is None else replace(self._request, spare_calls=spare - 1)
        stream = self.model.stream(request)
        try:
            async for item in stream:
                if type(item) is not RawDelta:
                    self._scope.cancel()
                if isinstance(item, (TextDelta, ReasoningDelta)):
                    self._texts.append(item.text)
                self._items.append(item)
                self._changed.set()
        except Exception as error:  # noqa: BLE001  raised again by `_stream`
            self._error = error
        finally:
            await close(stream)


def _estimated(request: ModelRequest, text: str = "") -> Usage:
    return estimated_usage(request, Message("assistant", (Text(text),)) if text else None)


def _failed_calls(model: str, error: ModelError) -> tuple[SideCall, ...]:
    """Return the calls that are counted for a failed request: none of its own if it was not sent."""
    if error.kind == "not_sent":
        return error.also
    return (SideCall(error.model or model, error.usage or NO_USAGE, str(error)), *error.also)
