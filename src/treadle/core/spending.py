"""The amounts that limits count. Money is an integer of pico-dollars, so that sums are exact.

One token at a millionth of a dollar per million tokens costs a pico-dollar. Published prices have fewer digits, so the
cost of a request is an integer. Only the display rounds.
"""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from typing import Final

from treadle.core.data import frozen

PICODOLLARS: Final = 10**12
"""The number of pico-dollars in a US dollar."""


def picodollars(dollars: Decimal | float) -> int:
    """Return US dollars as pico-dollars, rounded half up."""
    exact = dollars if isinstance(dollars, Decimal) else Decimal(str(dollars))
    return int((exact * PICODOLLARS).to_integral_value(ROUND_HALF_UP))


def as_dollars(pico: int) -> Decimal:
    """Return pico-dollars as US dollars, without trailing zeros."""
    dollars = Decimal(pico).scaleb(-12)
    return dollars.quantize(Decimal(1)) if dollars == dollars.to_integral_value() else dollars.normalize()


@frozen
class Spending:
    """The amounts that limits count. `cost` is in pico-dollars, and None if a part is not known."""

    model_calls: int = 0
    tool_calls: int = 0
    tokens: int = 0
    cost: int | None = 0

    def __add__(self, other: Spending) -> Spending:
        return Spending(
            self.model_calls + other.model_calls,
            self.tool_calls + other.tool_calls,
            self.tokens + other.tokens,
            None if self.cost is None or other.cost is None else self.cost + other.cost,
        )


NOTHING_SPENT: Final = Spending()
"""The start of sums."""
