"""Deadlines on a model: for the first part of its answer, each silence, and the whole answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from treadle.core.model import ModelAnswer, ModelDelta, ModelRequest, RawDelta
from treadle.core.unknown_names import explains_arguments
from treadle.errors import ModelError
from treadle.llm.layers.layer import CancelScope, Layer, close, optional_number
from treadle.ports import Model


@explains_arguments
class Timeout(Layer):
    """A model that answers in time, or fails with a `ModelError` of the kind `timeout` that names the deadline.

    The attempt is cancelled and closed first. Only the wait for the model counts, not the time in which the caller
    handles its deltas.

    Args:
        model: the model inside.
        connect: seconds a connection may take; passed to models that make their own clients.
        first_byte: seconds until the first text, reasoning or call. Allow for models that think silently.
        between: seconds of silence within an answer.
        total: seconds for the whole answer. For each of the four, None sets no deadline.
    """

    numbers = ("connect", "first_byte", "between", "total")

    def __init__(
        self,
        model: Model | str,
        *,
        connect: float | None = 10.0,
        first_byte: float | None = 120.0,
        between: float | None = 60.0,
        total: float | None = 600.0,
    ) -> None:
        super().__init__(model)
        self.connect = optional_number("Timeout", "connect", connect)
        self.first_byte = optional_number("Timeout", "first_byte", first_byte)
        self.between = optional_number("Timeout", "between", between)
        self.total = optional_number("Timeout", "total", total)
        self.limit_waits(self.connect, max(self.first_byte or 0.0, self.between or 0.0) or None)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelAnswer]:
        inner = self.model.stream(request)
        watch = _Watchdog(self)
        time, between, raw = watch.time, self.between, request.raw
        item: ModelDelta | ModelAnswer | None = None
        try:
            async for item in inner:
                watch.waiting = False
                yield item
                if watch.missed and type(item) is not ModelAnswer:
                    raise watch.error()
                if raw and type(item) is RawDelta:  # raw chunks do not belong to the answer
                    watch.waiting = True
                    continue
                watch.since, watch.limit, watch.has_begun, watch.waiting = time(), between, True, True
            if watch.missed and type(item) is not ModelAnswer:
                raise watch.error()
        except (Exception, asyncio.CancelledError):
            # Some models turn the cancellation into an error of their own, or ignore it.
            if not watch.take_back():
                raise
            raise watch.error() from None
        finally:
            watch.stop()
            await close(inner)


class _Watchdog(CancelScope):
    """One timer for all deadlines of an attempt. A delta only stores its time, which the timer checks later."""

    __slots__ = ("_ends", "_timeout", "_timer", "has_begun", "limit", "loop", "missed", "since", "time")

    def __init__(self, timeout: Timeout) -> None:
        super().__init__()
        self.loop = asyncio.get_running_loop()
        self.time = self.loop.time
        self.since = self.time()
        self.limit = timeout.first_byte
        self.has_begun, self.missed = False, ""
        self._timeout = timeout
        self._ends = None if timeout.total is None else self.since + timeout.total
        self._timer: asyncio.TimerHandle | None = None
        self._schedule(self.since, self.since)

    def _schedule(self, since: float, now: float) -> None:
        deadlines = [] if self._ends is None else [self._ends]
        if self.limit is not None:
            deadlines.append(since + self.limit)
        if not self.has_begun and self._timeout.between is not None:
            # The answer may begin, and fall silent, before then.
            deadlines.append(now + self._timeout.between)
        self._timer = self.loop.call_at(min(deadlines), self._check) if deadlines else None

    def _check(self) -> None:
        now = self.time()
        if self._ends is not None and now >= self._ends:
            self.missed = "total"
        elif self.waiting and self.limit is not None and now >= self.since + self.limit:
            self.missed = "between" if self.has_begun else "first_byte"
        else:
            # Silence does not count while the caller handles a delta.
            self._schedule(self.since if self.waiting else now, now)
            return
        self.cancel()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.take_back()  # the model may have answered in spite of the cancellation

    def error(self) -> ModelError:
        """Return the error that names the missed deadline."""
        timeout = self._timeout
        if self.missed == "first_byte":
            missed = f"did not begin to answer within {timeout.first_byte:g} s"
        elif self.missed == "between":
            missed = f"fell silent for {timeout.between:g} s in the middle of its answer"
        else:
            missed = f"did not finish its answer within {timeout.total:g} s"
        return ModelError(f"{timeout.name} {missed}", kind="timeout")
