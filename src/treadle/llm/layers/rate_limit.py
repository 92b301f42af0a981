"""Limits on the rate of requests and tokens, shared by all tasks of the process."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable

from treadle.core.model import ModelAnswer, ModelDelta, ModelRequest
from treadle.core.tokens import estimated_usage
from treadle.core.unknown_names import explains_arguments
from treadle.errors import ConfigurationError, ModelError
from treadle.llm.layers.layer import Layer, close, count, function, number, ready_in
from treadle.llm.layers.rate_window import RateWindow, rate_window_of
from treadle.ports import Model


@explains_arguments
class RateLimit(Layer):
    """A model with a limit on its requests, or tokens, in any second or minute.

    The limits hold for every sliding window: no second sees more than `requests_per_second` requests, even after a
    pause. Requests of a second are spread evenly; those of a minute leave as they come. Both limits may be set. The
    model call whose first attempt is oldest goes first. A request that would wait longer than `hold` fails at once with
    a `ModelError` of the kind `not_sent`. It has `again_in`, so the wait is journalled and blocks nothing.

    All rate limits of a process with the same arguments around models of one account are one. They share it between all
    runners, agents, event loops and threads. An account is a service and its key.

    Args:
        model: the model inside.
        requests_per_second: how many requests may be sent in any second.
        requests_per_minute: how many requests may be sent in any minute.
        tokens_per_minute: how many tokens the requests of any minute may use, answers included. A request is estimated
            by its size and its longest allowed answer, and corrected by its usage. A larger request is sent alone.
        hold: the longest time in seconds that a request waits inside the layer.
        clock: returns the time in seconds, the same for all threads.
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
                "RateLimit: set at least one of requests_per_second, requests_per_minute, tokens_per_minute"
            )
        self.hold = number("RateLimit", "hold", hold, least=0.0)
        self._clock = function("RateLimit", "clock", clock)
        self._shared: RateWindow | None = None
        self._is_prepared = False

    def _shown(self) -> list[str]:
        return [shown for shown in super()._shown() if not shown.endswith("=None")]

    def ready_in(self) -> float:
        wait = self._rate_window().ready_in()
        return max(0.0 if wait <= self.hold else wait, ready_in(self.model))

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelAnswer]:
        if not self._is_prepared:  # loading packages after the request was let through would delay it
            await self.prepare()
            self._is_prepared = True
        if (wait := ready_in(self.model)) > 0.0:
            message = f"not sent: {self.name} takes no requests for {wait:.1f} s more"
            raise ModelError(message, kind="not_sent", retry_after=wait)
        window, limit = self._rate_window(), self.tokens_per_minute
        tokens = 0 if limit is None else min(limit, _estimated(request))
        slots = window.try_acquire(tokens) or await window.acquire(tokens, request.asked_at, self.hold)
        inner = self.model.stream(request)
        item: ModelDelta | ModelAnswer | None = None
        try:
            async for item in inner:
                yield item
        except ModelError as error:
            if error.kind == "not_sent":
                window.refund(slots)
            raise
        finally:
            if tokens and type(item) is ModelAnswer:
                window.correct(slots, item.usage.total_tokens)
            await close(inner)

    def _rate_window(self) -> RateWindow:
        # Looked up at first use: a key may be set in the environment after the model was made.
        if self._shared is None:
            self._shared = rate_window_of(
                self.account,
                self.requests_per_second,
                self.requests_per_minute,
                self.tokens_per_minute,
                self._clock,
            )
        return self._shared


ANSWER_TOKENS = 1_000
"""The estimated tokens of an answer, if the request sets no limit."""


def _estimated(request: ModelRequest) -> int:
    return estimated_usage(request, None).input_tokens + (request.settings.max_tokens or ANSWER_TOKENS)


def _count(field: str, value: int | None) -> int | None:
    return None if value is None else count("RateLimit", field, value)
