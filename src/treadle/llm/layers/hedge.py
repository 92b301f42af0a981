"""A second request when the first is slow to begin: the sooner one is the answer, both are paid for."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Literal

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
from treadle.errors import ModelError
from treadle.llm.layers.cancel_scope import Cut
from treadle.llm.layers.layer import Layer, closed, common_mode, inner_model, limit_waits, number, require
from treadle.ports import Model


class Hedge(Layer):
    """A model that is asked a second time when it has not begun to answer after a while; who begins first, answers.

    The other one is cancelled, and counted and paid for like every request: what it cost is estimated, and said to be.
    No second request is sent when the limits on model calls leave no room for it.

    Args:
        model: what is asked.
        after: seconds without a sign of an answer after which the second request is sent.
        other: what the second request goes to; None: the same model.
    """

    numbers = ("after",)

    def __init__(self, model: Model | str, *, after: float, other: Model | str | None = None) -> None:
        super().__init__(model)
        self.after = number("Hedge", "after", after)
        self.other = None if other is None else inner_model("Hedge", other)

    @property
    def output_mode(self) -> Literal["native", "tool", "prompt"]:
        """What both models can do."""
        return common_mode([self.model] if self.other is None else [self.model, self.other])

    def require(self) -> None:
        super().require()
        if self.other is not None:
            require(self.other)

    def limit_waits(self, connect: float | None, silence: float | None) -> None:
        super().limit_waits(connect, silence)
        if self.other is not None:
            limit_waits(self.other, connect, silence)

    def _shown(self) -> list[str]:
        return super()._shown() + ([] if self.other is None else [f"other={self.other!r}"])

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelAnswer]:
        inner = self.model.stream(request)
        cut, lost, early = Cut(), None, list[RawDelta]()
        side = _Side(self.other or self.model, request, cut)
        if request.spare_calls is None or request.spare_calls > 0:
            side.send_in(self.after)
        try:
            async for item in inner:
                if cut.waiting:
                    if request.raw and type(item) is RawDelta:
                        early.append(item)  # being watched does not make it begin sooner
                        continue
                    cut.waiting = False
                    cut.was_ours()
                    await side.end()
                    for piece in early:
                        yield piece
                if type(item) is ModelAnswer:
                    item.also += side.calls()
                yield item
        except (Exception, asyncio.CancelledError) as error:
            began, cut.waiting = not cut.waiting, False
            if cut.was_ours():
                lost = (SideCall(self.name, _spent(request)),)
            elif isinstance(error, ModelError):
                if began or not side.is_under_way:
                    error.also += side.calls()
                    raise
                lost = _failed(self.name, error)
            else:
                raise
        finally:
            if lost is None:
                await side.end()
            await closed(inner)
        if lost is None:
            return
        items = side.items()
        try:
            async for item in items:
                if type(item) is ModelAnswer:
                    item.model = item.model or side.model.name
                    item.also += lost
                yield item
        except ModelError as error:
            error.model = error.model or side.model.name
            error.also += lost
            raise
        finally:
            await side.end()
            await closed(items)


class _Side:
    """The second request: sent by a timer, in a task of its own. When it begins to answer, the first is cut off."""

    def __init__(self, model: Model, request: ModelRequest, cut: Cut) -> None:
        self.model = model
        self._request = request
        self._cut = cut
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._items: deque[ModelDelta | ModelAnswer] = deque()
        self._error: Exception | None = None
        self._more = asyncio.Event()
        self._said: list[str] = []

    def send_in(self, seconds: float) -> None:
        """Send it after some time, unless it is ended before."""
        self._timer = asyncio.get_running_loop().call_later(seconds, self._send)

    @property
    def is_under_way(self) -> bool:
        """Whether it was sent and has not come to its end."""
        return self._task is not None and not self._task.done() and self._error is None

    def calls(self) -> tuple[SideCall, ...]:
        """Return what it is counted for, once it has lost."""
        if self._task is None:
            return ()
        if isinstance(self._error, ModelError):
            return _failed(self.model.name, self._error)
        return (SideCall(self.model.name, _spent(self._request, "".join(self._said))),)

    async def items(self) -> AsyncIterator[ModelDelta | ModelAnswer]:
        """Yield what it answers; raises what it fails with."""
        while True:
            while self._items:
                yield self._items.popleft()
            if self._task is None or self._task.done():
                break
            self._more.clear()
            await self._more.wait()
        if self._error is not None:
            raise self._error

    async def end(self) -> None:
        """Cancel it, and wait until it has ended."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])

    def _send(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(lambda _: self._more.set())

    async def _run(self) -> None:
        spare = self._request.spare_calls
        request = self._request if spare is None else replace(self._request, spare_calls=spare - 1)
        stream = self.model.stream(request)
        try:
            async for item in stream:
                if type(item) is not RawDelta:
                    self._cut.make()
                if isinstance(item, (TextDelta, ReasoningDelta)):
                    self._said.append(item.text)
                self._items.append(item)
                self._more.set()
        except Exception as error:  # noqa: BLE001  whoever takes its items gets it
            self._error = error
        finally:
            await closed(stream)


def _spent(request: ModelRequest, said: str = "") -> Usage:
    return estimated_usage(request, Message("assistant", (Text(said),)) if said else None)


def _failed(model: str, error: ModelError) -> tuple[SideCall, ...]:
    """Return what a request that failed is counted for: nothing, when it was not sent."""
    if error.kind == "not_sent":
        return error.also
    return (SideCall(error.model or model, error.usage or NO_USAGE, str(error)), *error.also)
