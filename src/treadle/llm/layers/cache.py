"""A cache of answers in memory, for requests that are repeated exactly."""

from __future__ import annotations

import time
from asyncio import wrap_future
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from dataclasses import replace
from hashlib import sha256
from threading import Lock
from typing import Final

from treadle.core.model import (
    WHOLE,
    ModelAnswer,
    ModelDelta,
    ModelRequest,
    Usage,
)
from treadle.core.model_answer import is_empty
from treadle.core.unknown_names import explains_arguments
from treadle.llm.layers.layer import Layer, account_of, close, count, function, optional_number
from treadle.llm.recorded_answer import deltas_of, own_copy
from treadle.ports import Model

FREE: Final = Usage()
"""The usage of a cached answer: zero tokens, which is known, unlike `NO_USAGE`."""


@explains_arguments
class Cache(Layer):
    """A model whose answers are cached in memory: the same request gets the same answer, at no cost.

    Of concurrent equal requests one is sent. The others wait, and get its answer whole. If that answer cannot be
    cached, each of them is sent.

    Two requests are the same if everything that reaches the model is equal: messages, instructions, tools, settings,
    answer schema, model and account. Only whole answers are cached. A request that a fork or an undo repeats is the
    same request too. `ModelSettings(use_cache=False)` asks again and replaces the cached answer.

    Args:
        model: the model inside.
        entries: how many answers are cached. The least recently used one goes first.
        seconds: how long each is cached. None: until it has to make room.
        clock: returns the time in seconds.
    """

    numbers = ("entries", "seconds")

    def __init__(
        self,
        model: Model | str,
        *,
        entries: int = 1_000,
        seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(model)
        self.entries = count("Cache", "entries", entries)
        self.seconds = optional_number("Cache", "seconds", seconds)
        self._clock = function("Cache", "clock", clock)
        self._entries: OrderedDict[bytes, tuple[float, ModelAnswer]] = OrderedDict()
        self._sent: dict[bytes, Future[None]] = {}
        """requests whose answer is awaited, from any event loop"""
        self._lock = Lock()

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelAnswer]:
        key = self._key(request)
        reads = request.settings.use_cache is not False
        cached = self._look_up(key) if reads else None
        own: Future[None] | None = None
        if reads and cached is None:
            own, sent = self._sent_or_own(key)
            if sent is not None:
                await wrap_future(sent)
                cached = self._look_up(key)
        if cached is not None:
            for delta in deltas_of(cached.message):
                yield delta
            yield cached
            return
        inner = self.model.stream(request)
        item: ModelDelta | ModelAnswer | None = None
        try:
            async for item in inner:
                if type(item) is ModelAnswer:
                    self._store(key, item)
                yield item
        finally:
            if own is not None:
                self._end(key, own)
            await close(inner)

    def _sent_or_own(self, key: bytes) -> tuple[Future[None] | None, Future[None] | None]:
        """Return a new future that the caller has to end, or that of an equal request under way."""
        with self._lock:
            if (sent := self._sent.get(key)) is not None:
                return None, sent
            own = self._sent[key] = Future[None]()
            own.set_running_or_notify_cancel()  # a waiter that is cancelled does not cancel it
            return own, None

    def _end(self, key: bytes, own: Future[None]) -> None:
        with self._lock:
            del self._sent[key]
        own.set_result(None)

    def _key(self, request: ModelRequest) -> bytes:
        parts = (
            self.name,
            account_of(self.model),
            list(request.messages),
            request.instructions,
            list(request.tools),
            request.tool_choice,
            replace(request.settings, use_cache=None),
            request.output_schema,
        )
        return sha256(repr(parts).encode()).digest()

    def _look_up(self, key: bytes) -> ModelAnswer | None:
        with self._lock:
            if (entry := self._entries.get(key)) is None:
                return None
            since, answer = entry
            if self.seconds is not None and self._clock() - since >= self.seconds:
                del self._entries[key]
                return None
            self._entries.move_to_end(key)
        return replace(answer, message=own_copy(answer.message))

    def _store(self, key: bytes, answer: ModelAnswer) -> None:
        if (
            answer.finish not in WHOLE
            or is_empty(answer)
            or any(call.problem is not None for call in answer.message.tool_calls)
        ):
            return
        free = ModelAnswer(own_copy(answer.message), answer.finish, FREE, answer.model)
        with self._lock:
            self._entries[key] = (self._clock(), free)
            self._entries.move_to_end(key)
            if len(self._entries) > self.entries:
                self._entries.popitem(last=False)
