"""Deadlines on a model: for its first sign of an answer, for the silence in it, and for the whole of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from treadle.core.model import ModelAnswer, ModelDelta, ModelRequest, RawDelta
from treadle.errors import ModelError
from treadle.llm.layers.cancel_scope import Cut
from treadle.llm.layers.layer import Layer, closed, optional
from treadle.ports import Model


class Timeout(Layer):
    """A model that answers in time, or fails with a `ModelError` of the kind `timeout` that says what it missed.

    The attempt is cancelled and closed first. Only waiting for the model counts, not what is done with its words.

    Args:
        model: what is asked.
        connect: seconds a connection may take; handed down to models that make their own clients, others know best.
        first_byte: seconds until the first words, thoughts or call; a model that thinks in silence needs as long.
        between: seconds of silence within an answer.
        total: seconds for the whole answer. None, for each of the four, sets no such deadline.
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
        self.connect = optional("Timeout", "connect", connect)
        self.first_byte = optional("Timeout", "first_byte", first_byte)
        self.between = optional("Timeout", "between", between)
        self.total = optional("Timeout", "total", total)
        self.limit_waits(self.connect, max(self.first_byte or 0.0, self.between or 0.0) or None)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelAnswer]:
        inner = self.model.stream(request)
        watch = _Watch(self)
        time, between, raw = watch.time, self.between, request.raw
        item: ModelDelta | ModelAnswer | None = None
        try:
            async for item in inner:
                watch.waiting = False
                yield item
                if watch.missed and type(item) is not ModelAnswer:
                    raise watch.error()
                if raw and type(item) is RawDelta:  # being watched changes no deadline
                    watch.waiting = True
                    continue
                watch.since, watch.limit, watch.begun, watch.waiting = time(), between, True, True
            if watch.missed and type(item) is not ModelAnswer:
                raise watch.error()
        except (Exception, asyncio.CancelledError):
            # Some models make an error of their own of the cancellation, or go on in spite of it.
            if not watch.was_ours():
                raise
            raise watch.error() from None
        finally:
            watch.stop()
            await closed(inner)


class _Watch(Cut):
    """One timer for all deadlines of an attempt: a delta only notes the time, to be looked at later."""

    __slots__ = ("_ends", "_timeout", "_timer", "begun", "limit", "loop", "missed", "since", "time")

    def __init__(self, timeout: Timeout) -> None:
        super().__init__()
        self.loop = asyncio.get_running_loop()
        self.time = self.loop.time
        self.since = self.time()
        self.limit = timeout.first_byte
        self.begun, self.missed = False, ""
        self._timeout = timeout
        self._ends = None if timeout.total is None else self.since + timeout.total
        self._timer: asyncio.TimerHandle | None = None
        self._set(self.since, self.since)

    def _set(self, since: float, now: float) -> None:
        due = [] if self._ends is None else [self._ends]
        if self.limit is not None:
            due.append(since + self.limit)
        if not self.begun and self._timeout.between is not None:
            due.append(now + self._timeout.between)  # once it begins, its silence has to be found in time
        self._timer = self.loop.call_at(min(due), self._look) if due else None

    def _look(self) -> None:
        now = self.time()
        if self._ends is not None and now >= self._ends:
            self.missed = "total"
        elif self.waiting and self.limit is not None and now >= self.since + self.limit:
            self.missed = "between" if self.begun else "first_byte"
        else:
            # While something is done with the words so far, nobody waits for more.
            self._set(self.since if self.waiting else now, now)
            return
        self.make()

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
        self.was_ours()  # should the model have answered in spite of it

    def error(self) -> ModelError:
        """Return what the attempt failed with: the deadline it missed."""
        timeout = self._timeout
        if self.missed == "first_byte":
            words = f"did not begin to answer within {timeout.first_byte:g} s"
        elif self.missed == "between":
            words = f"fell silent for {timeout.between:g} s in the middle of its answer"
        else:
            words = f"did not finish its answer within {timeout.total:g} s"
        return ModelError(f"{timeout.name} {words}", kind="timeout")
