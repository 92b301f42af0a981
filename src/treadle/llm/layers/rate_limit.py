"""Limits on the rate of requests and tokens, kept by all tasks of the process together."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable

from treadle.core.model import ModelAnswer, ModelDelta, ModelRequest
from treadle.core.tokens import estimated_usage
from treadle.errors import ConfigurationError, ModelError
from treadle.llm.layers.layer import Layer, closed, count, number, prepare, ready_in
from treadle.llm.layers.rate_window import RateWindow, rate_window_of
from treadle.ports import Model


class RateLimit(Layer):
    """A model that is sent no more than so many requests, or tokens, in any stretch of time.

    In any second no more than `requests_per_second` leave, in any minute no more than `requests_per_minute`: also not
    once, not after a pause, and not at the seam of two. Those of a second leave evenly, those of a minute as they come;
    both may be stated. All limits of a process with the same numbers around
    models of one account (the service and its key) are one, for all runners, agents, event loops and threads. Who comes
    first goes first, by when trying began. Who would have to wait for longer than `hold` is told so at once: a
    `ModelError` of the kind `not_sent`, with `again_in`, so that the wait is journalled and holds nothing open.

    Args:
        model: what is asked.
        requests_per_second: how many requests may leave in any second.
        requests_per_minute: how many in any minute.
        tokens_per_minute: how many tokens the requests of any minute may cost, answers included: estimated before a
            request, by its size and the longest answer asked for, and corrected by what it has cost. A
            request larger than that goes alone.
        hold: seconds that a request is held for its turn.
        clock: tells the time in seconds; the same for all threads.
    """

    numbers = ("requests_per_second", "requests_per_minute", "tokens_per_minute", "hold")

    def __init__(
        self,
        model: Model | str,
        *,
        requests_per_second: int | None = None,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        hold: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(model)
        self.requests_per_second = _count("requests_per_second", requests_per_second)
        self.requests_per_minute = _count("requests_per_minute", requests_per_minute)
        self.tokens_per_minute = _count("tokens_per_minute", tokens_per_minute)
        if requests_per_second is None and requests_per_minute is None and tokens_per_minute is None:
            raise ConfigurationError(
                "RateLimit: say at least one of requests_per_second, requests_per_minute, tokens_per_minute"
            )
        self.hold = number("RateLimit", "hold", hold, least=0.0)
        if not callable(clock):
            raise ConfigurationError(f"RateLimit: clock must be a function, got {clock!r}")
        self._clock = clock
        self._found: RateWindow | None = None
        self._is_prepared = False

    def _shown(self) -> list[str]:
        return [shown for shown in super()._shown() if not shown.endswith("=None")]

    def ready_in(self) -> float:
        wait = self._turnstile().ready_in()
        return max(0.0 if wait <= self.hold else wait, ready_in(self.model))

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelAnswer]:
        if not self._is_prepared:  # what a first request waits for would come between its turn and its way
            await prepare(self.model)
            self._is_prepared = True
        if (wait := ready_in(self.model)) > 0.0:
            words = f"not sent: {self.name} takes no requests for {wait:.1f} s more"
            raise ModelError(words, kind="not_sent", retry_after=wait)
        turnstile, most = self._turnstile(), self.tokens_per_minute
        tokens = 0 if most is None else min(most, _estimated(request))
        slots = turnstile.take(tokens) or await turnstile.wait(tokens, request.asked_at, self.hold)
        inner = self.model.stream(request)
        item: ModelDelta | ModelAnswer | None = None
        try:
            async for item in inner:
                yield item
        except ModelError as error:
            if error.kind == "not_sent":
                turnstile.give_back(slots)
            raise
        finally:
            if tokens and type(item) is ModelAnswer:
                turnstile.correct(slots, item.usage.total_tokens)
            await closed(inner)

    def _turnstile(self) -> RateWindow:
        # Found at first use: a key may be said in the environment, after the model was made.
        if self._found is None:
            self._found = rate_window_of(
                self.account,
                self.requests_per_second,
                self.requests_per_minute,
                self.tokens_per_minute,
                self._clock,
            )
        return self._found


ANSWER = 1_000
"""Tokens of an answer, when nothing says how long it may be."""


def _estimated(request: ModelRequest) -> int:
    return estimated_usage(request, None).input_tokens + (request.settings.max_tokens or ANSWER)


def _count(field: str, value: int | None) -> int | None:
    return None if value is None else count("RateLimit", field, value)
