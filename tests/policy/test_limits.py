"""Which limit forbids the next request, as a table: what is allowed, what is used, what is kept back."""

from decimal import Decimal
from typing import Any

import pytest

from treadle import Breakpoint, Limits
from treadle.core.spending import PICODOLLARS, Spending
from treadle.errors import ConfigurationError
from treadle.policy.limits import forbidden

DOLLAR = PICODOLLARS


@pytest.mark.parametrize(
    ("limits", "used", "reserved", "name"),
    [
        ({}, Spending(10**6, 10**6, 10**9, 10**18), Spending(), None),
        ({"model_calls": 3}, Spending(2), Spending(), None),
        ({"model_calls": 3}, Spending(3), Spending(), "model_calls"),
        ({"model_calls": 3}, Spending(2), Spending(1), "model_calls"),
        ({"model_calls": 0}, Spending(), Spending(), "model_calls"),
        ({"tokens": 100}, Spending(tokens=99), Spending(), None),
        ({"tokens": 100}, Spending(tokens=60), Spending(tokens=40), "tokens"),
        ({"cost": 1}, Spending(cost=DOLLAR - 1), Spending(), None),
        ({"cost": 1}, Spending(cost=DOLLAR), Spending(), "cost"),
        ({"cost": 1}, Spending(cost=DOLLAR // 2), Spending(cost=DOLLAR // 2), "cost"),
        ({"cost": Decimal("0.000000000002")}, Spending(cost=1), Spending(), None),
        ({"cost": 0.1}, Spending(cost=DOLLAR // 10 - 1), Spending(), None),
        ({"cost": 0.1}, Spending(cost=DOLLAR // 10), Spending(), "cost"),
        ({"cost": 0}, Spending(), Spending(), "cost"),
        ({"cost": 5}, Spending(cost=None), Spending(), "cost"),
        ({"cost": 5}, Spending(), Spending(cost=None), "cost"),
        ({"tokens": 5}, Spending(cost=None), Spending(), None),
        ({"model_calls": 1, "tokens": 1, "cost": 1}, Spending(1, 0, 1, DOLLAR), Spending(), "model_calls"),
        ({"model_calls": 2, "tokens": 1, "cost": 1}, Spending(1, 0, 1, DOLLAR), Spending(), "tokens"),
    ],
)
def test_a_request_starts_only_while_used_and_reserved_amounts_are_below_every_limit(
    limits: dict[str, Any], used: Spending, reserved: Spending, name: str | None
) -> None:
    reached = forbidden(Limits(**limits), used, reserved)
    assert (reached.limit if reached else None) == name
    if reached is not None:
        assert reached.allowed == float(limits[reached.limit])


@pytest.mark.parametrize("wrong", ["1", True, -1, Decimal(-1), float("nan"), Decimal("nan"), float("inf")])
def test_a_limit_on_cost_is_an_amount_of_dollars(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"Limits\.cost"):
        Limits(cost=wrong)


def test_of_two_limits_on_cost_the_smaller_counts() -> None:
    assert Limits(cost=0.5).tightest(Limits(cost=Decimal("0.25"))).cost == Decimal("0.25")
    assert Limits(cost=0.5).tightest(Limits()).cost == 0.5


@pytest.mark.parametrize("name", ["steps", "model_calls", "tool_calls", "tokens", "seconds"])
@pytest.mark.parametrize("value", [-1, True, "5", float("nan")])
def test_a_limit_that_is_no_amount_is_named(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"Limits.{name}"):
        Limits(**{name: value})


def test_a_limit_on_calls_is_a_whole_number_and_a_limit_on_time_may_be_a_fraction() -> None:
    with pytest.raises(ConfigurationError, match="whole number"):
        Limits(steps=1.5)  # type: ignore[arg-type]
    assert Limits(seconds=0.5).seconds == 0.5


def test_of_two_limits_the_smaller_counts_and_zero_is_a_limit() -> None:
    both = Limits(steps=5, tokens=0).tightest(Limits(steps=3, tokens=9, seconds=1))
    assert both == Limits(steps=3, tokens=0, seconds=1)
    assert (Limits().allowed_steps, Limits(steps=0).allowed_steps) == (200, 0)


def test_an_integer_that_no_clock_or_price_can_reckon_with_is_refused() -> None:
    """A task under such a limit raised `OverflowError` in each drive."""
    for limits in ({"seconds": 10**400}, {"cost": 10**400}):
        with pytest.raises(ConfigurationError, match="must be finite"):
            Limits(**limits)
    with pytest.raises(ConfigurationError, match=r"Breakpoint.cost"):
        Breakpoint(cost=10**400)
    assert Limits(tokens=10**400).tokens == 10**400
