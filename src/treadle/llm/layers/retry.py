"""Retries of a model: which failures are retried, when, and how often."""

from __future__ import annotations

import random
from asyncio import get_running_loop
from collections.abc import AsyncIterator, Callable, Iterable

from treadle.core.model import ModelAnswer, ModelDelta, ModelRequest
from treadle.core.unknown_names import explains_arguments
from treadle.errors import PASSING, ModelError, ModelErrorKind
from treadle.llm.layers.layer import Layer, close, count, function, kinds, no_answer, number
from treadle.ports import Model

DAY = 86_400.0


@explains_arguments
class Retry(Layer):
    """A model that is retried when it fails for a temporary reason.

    The layer does not wait. It sets `ModelError.again_in` to the seconds until the next attempt. The engine journals
    the failed attempt, waits, and sends the request again. Each wait is exponential back-off with full jitter, added to
    the wait that the provider asked for.

    Args:
        model: the model inside.
        attempts: how many requests may be sent for one model call, the first included.
        base: the upper bound of the first wait, in seconds. It doubles with each attempt.
        cap: the highest upper bound of a wait, in seconds.
        max_seconds: seconds after which no attempt starts. They count from the first attempt, or from the end of a
            longer wait that the provider asked for.
        max_wait: the longest wait in seconds that a provider may ask for. If it asks for more, the model has failed.
        on: the kinds of failure, as in `ModelError.kind`, that are retried.
        chance: returns a random number from 0 to 1.
    """

    numbers = ("attempts", "base", "cap", "max_seconds", "max_wait")

    def __init__(
        self,
        model: Model | str,
        *,
        attempts: int = 4,
        base: float = 0.5,
        cap: float = 30.0,
        max_seconds: float = 600.0,
        max_wait: float = DAY,
        on: Iterable[ModelErrorKind] = PASSING,
        chance: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(model)
        self.attempts = count("Retry", "attempts", attempts)
        self.base = number("Retry", "base", base, least=0.0)
        self.cap = number("Retry", "cap", cap, least=0.0)
        self.max_seconds = number("Retry", "max_seconds", max_seconds)
        self.max_wait = number("Retry", "max_wait", max_wait, least=0.0)
        self.on = kinds("Retry", on)
        self._chance = function("Retry", "chance", chance)

    def _shown(self) -> list[str]:
        return super()._shown() + ([f"on={sorted(self.on)}"] if self.on != PASSING else [])

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelAnswer]:
        time = get_running_loop().time
        started = time()
        inner = self.model.stream(request)
        item: ModelDelta | ModelAnswer | None = None
        try:
            async for item in inner:
                yield item
            if type(item) is not ModelAnswer:
                raise no_answer(self.name)
        except ModelError as error:
            if error.again_in is None:
                error.again_in = self.again_in(request, error, time() - started)
            raise
        finally:
            await close(inner)

    def again_in(self, request: ModelRequest, error: ModelError, seconds: float) -> float | None:
        """Return the seconds until the next attempt; None if there is none.

        Args:
            request: the request, with its failed attempts so far.
            error: the failure of the present attempt.
            seconds: how many seconds the present attempt took.
        """
        if error.kind not in self.on:
            return None
        sent = sum(failed.kind != "not_sent" for failed in request.failures) + (error.kind != "not_sent")
        if sent >= self.attempts:
            return None
        spent = _spent(request, self.max_seconds) + seconds
        wait = backoff(self.base, self.cap, len(request.failures) + 1, self._chance())
        if error.retry_after is None:
            return wait if spent + wait <= self.max_seconds else None
        if error.retry_after > self.max_wait or spent > self.max_seconds:
            return None
        return error.retry_after + wait


def backoff(base: float, cap: float, attempt: int, chance: float) -> float:
    """Return the seconds to wait after a failed attempt: exponential back-off with full jitter.

    Args:
        base: the upper bound after the first attempt, in seconds.
        cap: the highest upper bound, in seconds.
        attempt: which attempt failed, counted from 1.
        chance: a random number from 0 to 1.
    """
    return min(cap, base * 2.0 ** min(attempt - 1, 60)) * chance


def _spent(request: ModelRequest, longest: float) -> float:
    """Return the seconds to the newest failure, from the first attempt or the last wait longer than `longest`."""
    if not request.failures or not request.asked_at:
        return 0.0
    first_at = before = request.asked_at
    for failed in request.failures:
        if failed.at - before > longest * 1e6:
            first_at = failed.at
        before = failed.at
    return max(0.0, (before - first_at) / 1e6)
