"""Rules that fit no tool: a misspelt name is told with the one that was meant."""

from typing import Any

import pytest

from tests.policy.requests import REFUND
from treadle import Policy, Rule, ToolSpec
from treadle.policy.fitting import misfits

TOOLS = {"refund": REFUND, "look": ToolSpec(name="look"), "helper": ToolSpec(name="helper")}


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, []),
        ({"tool": "refund", "when": {"arguments.amount": 5, "cost": {"above": 1}}}, []),
        ({"tool": ["ref*", "look"], "when": {"arguments.order.total": 5}}, []),
        ({"when": {"arguments.amount": 5}}, []),
        ({"subagent": "helper", "model": "openai:*"}, []),
        ({"tool": "reund"}, ["no tool is called 'reund'; did you mean 'refund'?"]),
        ({"tool": ["look", "bash_*"]}, ["no tool is called 'bash_*'"]),
        ({"tool": "reund", "enabled": False}, []),
        (
            {"tool": "refund", "when": {"arguments.ammount": {"above": 5}}},
            ["no tool that it is about has an argument 'ammount'; did you mean 'amount'?"],
        ),
        (
            {"tool": "look", "when": {"arguments.amount": 5}},
            ["no tool that it is about has an argument 'amount'"],
        ),
        ({"when": {"arguments.zzz": 5}}, ["no tool that it is about has an argument 'zzz'"]),
        (
            {"verdict": "replace", "tool": "refund", "arguments": {"nots": "x"}},
            ["no tool that it is about has an argument 'nots'; did you mean 'note'?"],
        ),
    ],
)
def test_a_rule_that_fits_no_tool_is_told_with_what_was_meant(fields: dict[str, Any], told: list[str]):
    policy = Policy(Rule(**{"id": "r", "verdict": "deny", **fields}))
    assert misfits(policy, TOOLS) == [f"rule r: {text}" for text in told]


def test_a_handoff_to_an_agent_that_takes_none_over_is_told() -> None:
    policy = Policy(Rule("a", "ask", handoff="billing"), Rule("b", "deny", handoff="biling"))
    taking = {"billing": ToolSpec(name="transfer_to_billing")}
    assert misfits(policy, TOOLS, taking) == [
        "rule b: no conversation is handed over to an agent called 'biling'; did you mean 'billing'?"
    ]
    assert misfits(policy, TOOLS) == []


def test_a_tool_that_hands_over_is_judged_by_the_name_of_the_agent_only() -> None:
    policy = Policy(Rule("a", "deny", tool="transfer_to_billing"))
    assert misfits(policy, TOOLS, {"billing": ToolSpec(name="transfer_to_billing")}) == [
        "rule a: no tool is called 'transfer_to_billing'"
    ]
