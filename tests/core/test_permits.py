"""Digests of JSON values: the same for the same value, another one for any other."""

import pytest

from treadle.core.messages import Json
from treadle.core.permits import digest_of


def test_the_order_of_keys_makes_no_difference() -> None:
    assert digest_of({"a": 1, "b": {"c": 2, "d": 3}}) == digest_of({"b": {"d": 3, "c": 2}, "a": 1})


@pytest.mark.parametrize(
    ("value", "other"),
    [
        ({"a": 1}, {"a": 2}),
        ({"a": 1}, {"a": "1"}),
        ({"a": 1}, {"a": True}),
        ({"a": None}, {}),
        ([1, 2], [2, 1]),
        ("\ud800", "\ud801"),
    ],
)
def test_other_values_have_other_digests(value: Json, other: Json) -> None:
    assert digest_of(value) != digest_of(other)
