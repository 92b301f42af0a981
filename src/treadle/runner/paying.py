"""What a request came to, worked out once, when it has ended: tokens where a model does not say, and dollars.

It is journalled then and read from there ever after, whatever becomes of prices: a price that changes changes no past.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from decimal import Decimal
from typing import TypeAlias

from treadle.core.messages import Message
from treadle.core.model import NO_USAGE, ModelRequest, SideCall, Usage
from treadle.core.spending import picodollars
from treadle.core.state import TaskState
from treadle.core.tokens import estimated_usage
from treadle.errors import PriceUnknown

Pricing: TypeAlias = Callable[[str, Usage], Decimal | None]
"""From a model's name and the tokens of one answer of it to US dollars; None: nobody knows."""

_A_TOKEN = Usage(1, 1)


def nobody_knows(model: str, usage: Usage) -> Decimal | None:
    """Price nothing."""
    return None


def cost_of(price: Pricing, model: str, usage: Usage) -> int | None:
    """Return what tokens of a model cost, in pico-dollars; None if nobody knows."""
    if usage.total_tokens == 0:
        return 0
    dollars = price(model, usage)
    return None if dollars is None else picodollars(dollars)


def used(usage: Usage, request: ModelRequest, answer: Message) -> Usage:
    """Return the tokens of an answer: as its model says, else an estimate."""
    return estimated_usage(request, answer) if usage is NO_USAGE else usage


def paid(price: Pricing, also: tuple[SideCall, ...], request: ModelRequest) -> tuple[SideCall, ...]:
    """Return other requests that were sent on the way, with what they cost.

    Of one that was given up nobody says what it took: that is estimated. One that failed took nothing, if it does not
    say otherwise.
    """
    settled: list[SideCall] = []
    for side in also:
        usage = side.usage
        if usage is NO_USAGE and side.error is None:
            usage = estimated_usage(request, None)
        settled.append(replace(side, usage=usage, cost=cost_of(price, side.model, usage)))
    return tuple(settled)


async def check_prices(price: Pricing, models: Iterable[str], state: TaskState | None = None) -> None:
    """Raise `PriceUnknown` if no limit on cost can hold: a model has no price, or had none before."""
    for model in models:
        # The published prices take a moment to load, the first time they are asked.
        if await asyncio.to_thread(price, model, _A_TOKEN) is None:
            raise PriceUnknown(
                f"a limit on cost needs a price for every model that may be asked, and nobody knows that of {model!r}: "
                f"state it with Runner(prices={{{model!r}: Price(input, output)}}), in US dollars for a million "
                "tokens (Price is in treadle.models), or limit tokens instead",
                model=model,
            )
    if state is not None and state.unpriced:
        names = ", ".join(map(repr, state.unpriced))
        raise PriceUnknown(
            f"task {state.task_id}: no limit on cost can hold, since nobody knows what its answers from {names} cost: "
            "prices are worked out once, when an answer comes. Limit tokens instead",
            model=state.unpriced[0],
        )
