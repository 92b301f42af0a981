"""Verdicts of several rules on one effect: the strictest holds."""

from itertools import permutations

import pytest

from treadle.policy.verdicts import Allow, AskPerson, Deny, PolicyVerdict, Replace, strictest

ALLOW, ASK, DENY = Allow("open"), AskPerson("big"), Deny("never")
REPLACE = Replace({"amount": 1}, "capped")


@pytest.mark.parametrize(
    ("verdicts", "holds"),
    [
        ((), None),
        ((None, None), None),
        ((None, ALLOW), ALLOW),
        ((ALLOW, ASK), ASK),
        ((ALLOW, ASK, REPLACE), REPLACE),
        ((ALLOW, ASK, REPLACE, DENY), DENY),
        ((ASK, None, DENY), DENY),
    ],
)
def test_the_strictest_verdict_holds_in_any_order(
    verdicts: tuple[PolicyVerdict | None, ...], holds: PolicyVerdict | None
):
    assert {strictest(order) is holds for order in permutations(verdicts)} == {True}


def test_the_first_of_two_equally_strict_verdicts_names_the_rule():
    assert strictest([Allow("a"), Deny("first"), Deny("second")]) == Deny("first")
