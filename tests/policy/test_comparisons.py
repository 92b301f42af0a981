"""Conditions of rules: which hold, and what is told of those that are written wrong."""

from dataclasses import replace
from typing import Any

import pytest

from tests.policy.requests import a_call
from treadle.policy.comparisons import conditions
from treadle.policy.operators import Mistake


def holds(when: dict[str, Any], *, restricts: bool, **arguments: Any) -> bool:
    request = a_call(**arguments)
    return all(each.holds(request, restricts=restricts) for each in conditions(when))


@pytest.mark.parametrize(
    ("when", "arguments", "of_a_restriction", "of_a_permission"),
    [
        ({}, {}, True, True),
        ({"arguments.amount": {"above": 100}}, {"amount": 101}, True, True),
        ({"arguments.amount": {"above": 100}}, {"amount": 100}, False, False),
        ({"arguments.amount": {"above": 100, "below": 200}}, {"amount": 300}, False, False),
        ({"arguments.amount": {"above": 100}, "arguments.note": "x"}, {"amount": 101}, False, False),
        # An odd or missing value evades no restriction, and earns no permission.
        ({"arguments.amount": {"above": 100}}, {"amount": "101"}, True, False),
        ({"arguments.amount": {"above": 100}}, {"amount": "1"}, True, False),
        ({"arguments.amount": {"above": 100}}, {}, True, False),
        ({"arguments.amount": {"below": 100}}, {}, True, False),
        # Null is no number: the tool gets null too.
        ({"arguments.amount": {"above": 100}}, {"amount": None}, False, False),
        ({"arguments.note": {"is_not": "x"}}, {"note": None}, True, True),
        # The default of the schema is what the tool would use.
        ({"arguments.urgent": True}, {}, False, False),
        ({"arguments.urgent": False}, {}, True, True),
        # What the tool does not have is nothing to compare.
        ({"arguments.unheard": {"is_not": "x"}}, {}, False, False),
        # One bad item of a list is enough for a restriction; a permission wants all of them good.
        ({"arguments.to": {"matches": "*@x.com"}}, {"to": ["a@x.com", "b@y.com"]}, True, False),
        ({"arguments.to": {"not_matches": "*@x.com"}}, {"to": ["a@x.com", "b@y.com"]}, True, False),
        ({"arguments.to": {"matches": "*@x.com"}}, {"to": ["a@x.com", "b@x.com"]}, True, True),
        ({"arguments.to": ["a", "b"]}, {"to": ["a", "b"]}, True, True),
        ({"arguments.to": ["a", "b"]}, {"to": ["a", "c"]}, True, False),
        ({"arguments.to": {"in": ["a"]}}, {"to": []}, False, False),
        ({"arguments.to": {"contains": "a"}}, {"to": ["a", "c"]}, True, True),
        ({"arguments.items.price": {"above": 5}}, {"items": [{"price": 1}, {"price": 9}]}, True, False),
        ({"arguments.items.price": {"above": 5}}, {"items": [{"price": 9}, {}]}, True, False),
        ({"arguments.amount": {"exists": True}}, {"amount": 0}, True, True),
        ({"arguments.amount": {"exists": True}}, {"amount": None}, False, False),
        ({"arguments.amount": {"exists": False}}, {}, True, True),
        ({"arguments.to": {"exists": True}}, {"to": []}, True, True),
        ({"labels.tier": {"is_not": "gold"}}, {}, True, True),
        ({"labels.tier": "gold"}, {}, False, False),
        ({"effect": "undeclared"}, {}, True, True),
        ({"exposed": {"contains": "private"}}, {}, False, False),
    ],
)
def test_a_condition_errs_on_the_safe_side(
    when: dict[str, Any], arguments: dict[str, Any], of_a_restriction: bool, of_a_permission: bool
):
    assert holds(when, restricts=True, **arguments) is of_a_restriction
    assert holds(when, restricts=False, **arguments) is of_a_permission


@pytest.mark.parametrize(
    ("when", "says"),
    [
        ("amount > 100", "must be a table of comparisons"),
        ({"argument.amount": 5}, "did you mean 'arguments.amount'?"),
        ({"amount": 5}, 'an argument is written "arguments.amount"'),
        ({"amount": {"above": 5}}, '"arguments.amount"'),
        ({5: 5}, "cannot compare 5"),
        ({"arguments": {"amount": {"above": 100}}}, 'write "arguments.amount", in quotes'),
        ({"labels": "gold"}, 'write "labels.NAME"'),
        ({"arguments.": 5}, "needs a name"),
        ({"arguments.a..b": 5}, "needs a name"),
        ({"cost.dollars": 5}, "'cost' has no parts"),
        ({"cost": {"over": 5}}, "has no comparison 'over': did you mean 'above'"),
        ({"cost": {"gt": 5}}, "has no comparison 'gt': the comparisons are is, is_not"),
        ({"cost": {"above": "5"}}, "'cost': above takes a number, not '5'"),
        ({"cost": {}}, "has no operand"),
        ({"effect": "send"}, "'effect' knows no 'send': did you mean 'sends'"),
        ({"exposed": {"contains": ["private", "tainted"]}}, "knows no 'tainted'"),
        ({"labels.tier": None}, "takes a text, a number"),
        ({"labels.tier": []}, "takes a list that is not empty"),
    ],
)
def test_a_condition_that_is_written_wrong_is_told_with_what_to_write(when: Any, says: str):
    with pytest.raises(Mistake) as raised:
        conditions(when)
    assert says in str(raised.value)
    assert raised.value.field == "when"


@pytest.mark.parametrize(
    ("when", "says"),
    [
        ({"arguments.amount": {"above": 100}}, "arguments.amount is above 100"),
        ({"labels.tier": "gold"}, "labels.tier is 'gold'"),
        ({"labels.tier": ("gold", "blue")}, "labels.tier is one of 'gold', 'blue'"),
        ({"arguments.urgent": True}, "arguments.urgent is true"),
        ({"arguments.url": {"not_host": "*.x.com"}}, "arguments.url does not lead to the host '*.x.com'"),
        ({"arguments.bcc": {"exists": False}}, "arguments.bcc exists: false"),
    ],
)
def test_a_condition_reads_as_a_clause(when: dict[str, Any], says: str):
    assert [str(each) for each in conditions(when)] == [says]


@pytest.mark.parametrize(
    ("taken", "of_a_restriction", "of_a_permission"),
    [
        (None, False, False),
        ({}, False, False),
        ({"note": "x"}, True, False),
        ({"note": "y"}, False, False),
        ({"note": 5}, False, False),  # not comparable: what the model wrote decides alone
    ],
)
def test_what_the_tool_makes_of_an_argument_is_compared_beside_it(
    taken: Any, of_a_restriction: bool, of_a_permission: bool
) -> None:
    request = replace(a_call(note="X"), taken=taken)
    (comparison,) = conditions({"arguments.note": "x"})
    assert comparison.holds(request, restricts=True) is of_a_restriction
    assert comparison.holds(request, restricts=False) is of_a_permission


@pytest.mark.parametrize("wrong", [False, {"is": True}, [False]])
def test_a_list_of_origins_is_not_compared_with_a_truth(wrong: Any) -> None:
    with pytest.raises(
        Mistake, match=r"'untrusted' is a list of texts, .* write \{\"untrusted\": \{\"exists\": "
    ):
        conditions({"untrusted": wrong})
