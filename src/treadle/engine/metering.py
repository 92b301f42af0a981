"""The cost of a request, computed once when the request has ended. Missing token counts are estimated.

The cost is journalled and later read from the journal. So a change of prices does not change past costs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import TypeAlias

from treadle.core.messages import Message, MessageView
from treadle.core.model import NO_USAGE, ModelRequest, SideCall, Usage
from treadle.core.spending import picodollars
from treadle.core.state import TaskState
from treadle.core.tokens import estimated_usage, message_tokens, request_tokens
from treadle.core.tools import ToolSpec
from treadle.errors import PriceUnknown

Pricing: TypeAlias = Callable[[str, Usage], Decimal | None]
"""Returns the price of one answer in US dollars from the model's name and the tokens, or None if unknown."""

_A_TOKEN = Usage(1, 1)

_FIRST_SCALE = 0.75
"""Tokens of English text for each counted token, since a token has four characters and three bytes count as one."""

_MOST_SCALE = 1.5
"""Highest number of a model's tokens for each counted token, as in text of digits. A fixed part explains the rest."""

_MOST_COST = 10**17
"""Pico-dollars above which the cost of an answer counts as unknown, since sums of costs are recorded too."""


def no_price(model: str, usage: Usage) -> Decimal | None:
    """Return None for every model."""
    return None


def cost_of(price: Pricing, model: str, usage: Usage) -> int | None:
    """Return the cost of a model's tokens in pico-dollars, or None if it is unknown or implausibly high."""
    if not usage.input_tokens and not usage.output_tokens:
        return 0
    dollars = price(model, usage)
    cost = None if dollars is None else picodollars(dollars)
    return cost if cost is not None and cost <= _MOST_COST else None


class TokenMeter:
    """Estimates the tokens of a task's requests. It counts each message of a growing conversation once."""

    def __init__(self) -> None:
        self._seen = MessageView([])
        self._tokens = 0
        self._frame: tuple[str, Sequence[ToolSpec]] | None = None
        self._frame_tokens = 0
        self._reported: dict[str, tuple[int, Usage]] = {}
        """by model, the tokens counted in its newest request, and the usage it reported"""

    def estimated(self, request: ModelRequest, answer: Message) -> Usage:
        """Return the estimated tokens of a request and its answer, for a model that does not report them."""
        return Usage(self.request_tokens(request), message_tokens(answer), estimated=True)

    def request_tokens(self, request: ModelRequest) -> int:
        """Return the tokens counted in a request, at three bytes a token."""
        frame = self._frame
        if frame is None or request.tools is not frame[1] or request.instructions != frame[0]:
            self._frame = (request.instructions, request.tools)
            self._frame_tokens = request_tokens(*self._frame)
        return self._frame_tokens + self._conversation_tokens(request.messages)

    def learn(self, model: str, counted: int, reported: Usage) -> None:
        """Note a model's reported usage for a request with this number of counted tokens."""
        if reported.input_tokens > 0 and not reported.estimated:
            self._reported[model] = (counted, reported)

    def expected(self, model: str, counted: int) -> Usage:
        """Return the expected report of a model's input for a request with this number of counted tokens.

        The scale is that of the model's newest report. The first request has none, so it counts as English.
        """
        if model not in self._reported:
            return Usage(int(counted * _FIRST_SCALE), estimated=True)
        before, reported = self._reported[model]
        scale = min(reported.input_tokens / max(1, before), _MOST_SCALE)
        tokens = max(0, int(reported.input_tokens + (counted - before) * scale))
        return Usage(tokens, cached_tokens=min(reported.cached_tokens, tokens), estimated=True)

    def _conversation_tokens(self, messages: Sequence[Message]) -> int:
        if not isinstance(messages, MessageView):
            return sum([message_tokens(message) for message in messages])
        new = messages.after(self._seen)
        if new is None:
            self._tokens, new = 0, messages
        self._tokens += sum([message_tokens(message) for message in new])
        self._seen = messages
        return self._tokens


def paid(price: Pricing, also: tuple[SideCall, ...], request: ModelRequest) -> tuple[SideCall, ...]:
    """Return the side calls of layers, with their costs.

    The usage of an abandoned request is estimated. A failed request is free, unless its error reports usage.
    """
    settled: list[SideCall] = []
    for side in also:
        usage = side.usage
        if usage is NO_USAGE and side.error is None:
            usage = estimated_usage(request, None)
        settled.append(replace(side, usage=usage, cost=cost_of(price, side.model, usage)))
    return tuple(settled)


async def check_prices(price: Pricing, models: Iterable[str], state: TaskState | None = None) -> None:
    """Raise `PriceUnknown` if a model or an earlier answer has no price, since a limit on cost cannot hold then."""
    for model in models:
        # Published prices take a moment to load at their first use.
        if await asyncio.to_thread(price, model, _A_TOKEN) is None:
            raise PriceUnknown(
                f"a limit on cost needs the prices of all models, and that of {model!r} is unknown. "
                f"Set Runner(prices={{{model!r}: Price(input, output)}}), in US dollars for a million tokens, "
                "with Price from treadle.models, or limit tokens instead",
                model=model,
            )
    unpriced = _unpriced(state) if state is not None else ()
    if state is not None and unpriced:
        names = ", ".join(map(repr, unpriced))
        raise PriceUnknown(
            f"task {state.task_id} cannot keep a limit on cost, since the cost of its answers from {names} is unknown. "
            "Costs are computed once, when an answer arrives. Limit tokens instead",
            model=unpriced[0],
        )


def _unpriced(state: TaskState) -> tuple[str, ...]:
    """Return the models whose answers have no known cost, in a task and the tasks below it."""
    below = [part for parts in state.children.values() for part in parts]
    return tuple(dict.fromkeys([*state.unpriced, *[name for part in below for name in part.unpriced]]))
