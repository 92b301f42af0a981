"""Sums of tokens."""

from treadle.core.model import NO_USAGE, Usage


def test_usage_is_added_field_by_field() -> None:
    total = Usage(1, 2, 3, 4, False, 5, 6, 7, 8) + Usage(10, 20, 30, 40, True, 50, 60, 70, 80)
    assert total == Usage(11, 22, 33, 44, True, 55, 66, 77, 88)
    assert total.total_tokens == 33


def test_a_sum_has_a_tier_only_if_all_have_the_same() -> None:
    flex, other = Usage(1, 1, tier="flex"), Usage(1, 1, tier="priority")
    assert (flex + flex).tier == "flex"
    assert (flex + other).tier == ""
    assert (NO_USAGE + flex).tier == (flex + NO_USAGE).tier == "flex"
