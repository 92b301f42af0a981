"""Money is counted in whole pico-dollars, so that no sum is rounded."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.spending import NOTHING_SPENT, Spending, as_dollars, picodollars


@pytest.mark.parametrize(
    ("dollars", "pico"),
    [
        (Decimal("0.000001"), 1_000_000),
        (0.1, 100_000_000_000),
        (Decimal("1e-12"), 1),
        (Decimal("5e-13"), 1),
        (Decimal("4e-13"), 0),
        (0.0008625, 862_500_000),
        (Decimal("0.0000000000015"), 2),
        (Decimal("123456.789"), 123_456_789 * 10**9),
    ],
)
def test_dollars_become_whole_picodollars(dollars: Decimal | float, pico: int) -> None:
    assert picodollars(dollars) == pico


def test_picodollars_are_shown_without_trailing_zeros() -> None:
    assert [str(as_dollars(pico)) for pico in (10**12, 15 * 10**11, 0)] == ["1", "1.5", "0"]
    assert as_dollars(picodollars(Decimal("0.123456789012"))) == Decimal("0.123456789012")


@given(st.integers(0, 10**20))
def test_nothing_is_lost_on_the_way_to_dollars_and_back(pico: int) -> None:
    assert picodollars(as_dollars(pico)) == pico


def test_a_sum_with_an_unknown_cost_is_unknown() -> None:
    priced = Spending(1, 2, 3, 4)
    assert priced + NOTHING_SPENT == priced
    assert priced + Spending(1, 0, 0, None) == Spending(2, 2, 3, None)
