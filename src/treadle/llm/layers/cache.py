"""Answers kept in memory, for questions that are asked again word by word."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from hashlib import sha256
from threading import Lock
from typing import Final

from treadle.core.model import (
    ModelAnswer,
    ModelDelta,
    ModelRequest,
    Usage,
)
from treadle.errors import ConfigurationError
from treadle.llm.layers.layer import Layer, account_of, closed, count, optional
from treadle.llm.recorded_answer import own, pieces
from treadle.ports import Model

FREE: Final = Usage()
"""What an answer from memory costs: nothing, which is more than nobody having said."""


class Cache(Layer):
    """A model whose answers are kept in memory: the same question is answered with the same words, at no cost.

    The same is a question only if everything that reaches the model is: messages, instructions, tools, settings, the
    schema of the answer, the model and the account. Only whole answers are kept. A question that is asked again on
    purpose, in a fork or after an undo, is the same question too.

    Args:
        model: what is asked.
        entries: how many answers are kept; the one not used for longest goes first.
        seconds: for how long each is kept; None: until it has to make room.
        clock: tells the time in seconds.
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
        self.seconds = optional("Cache", "seconds", seconds)
        if not callable(clock):
            raise ConfigurationError(f"Cache: clock must be a function, got {clock!r}")
        self._clock = clock
        self._kept: OrderedDict[bytes, tuple[float, ModelAnswer]] = OrderedDict()
        self._lock = Lock()

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelAnswer]:
        key = self._key(request)
        if (found := self._look_up(key)) is not None:
            for delta in pieces(found.message):
                yield delta
            yield found
            return
        inner = self.model.stream(request)
        item: ModelDelta | ModelAnswer | None = None
        try:
            async for item in inner:
                if type(item) is ModelAnswer:
                    self._keep(key, item)
                yield item
        finally:
            await closed(inner)

    def _key(self, request: ModelRequest) -> bytes:
        reaches = (
            self.name,
            account_of(self.model),
            list(request.messages),
            request.instructions,
            list(request.tools),
            request.tool_choice,
            request.settings,
            request.output_schema,
        )
        return sha256(repr(reaches).encode()).digest()

    def _look_up(self, key: bytes) -> ModelAnswer | None:
        with self._lock:
            if (found := self._kept.get(key)) is None:
                return None
            since, answer = found
            if self.seconds is not None and self._clock() - since >= self.seconds:
                del self._kept[key]
                return None
            self._kept.move_to_end(key)
        return replace(answer, message=own(answer.message))

    def _keep(self, key: bytes, answer: ModelAnswer) -> None:
        if answer.finish not in ("stop", "tool_calls") or any(
            call.problem is not None for call in answer.message.tool_calls
        ):
            return
        kept = ModelAnswer(own(answer.message), answer.finish, FREE, answer.model)
        with self._lock:
            self._kept[key] = (self._clock(), kept)
            self._kept.move_to_end(key)
            if len(self._kept) > self.entries:
                self._kept.popitem(last=False)
