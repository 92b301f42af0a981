"""One rule: which effects it concerns, how it reads, and what is told of fields that are wrong."""

from typing import Any

import pytest

from treadle import EffectRequest, Rule
from treadle.errors import ConfigurationError
from treadle.policy.verdicts import EffectKind


@pytest.mark.parametrize(
    ("fields", "effect", "concerned"),
    [
        ({}, ("tool", "refund", "desk"), True),
        ({}, ("model", "openai:gpt-5", "desk"), True),
        ({}, ("handoff", "billing", "desk"), True),
        ({"tool": "refund"}, ("tool", "refund", "desk"), True),
        ({"tool": "refund"}, ("tool", "refunds", "desk"), False),
        ({"tool": ["send_*", "refund"]}, ("tool", "send_mail", "desk"), True),
        ({"tool": "*"}, ("model", "openai:gpt-5", "desk"), False),
        (
            {"tool": "*"},
            ("subagent", "researcher", "desk"),
            True,
        ),  # a rule on all tools holds for agents as tools
        ({"subagent": "*"}, ("tool", "refund", "desk"), False),
        ({"subagent": "res*"}, ("subagent", "researcher", "desk"), True),
        ({"tool": "*"}, ("handoff", "billing", "desk"), False),
        ({"handoff": "billing"}, ("handoff", "billing", "desk"), True),
        ({"model": "openai:*"}, ("model", "openai:gpt-5", "desk"), True),
        ({"model": "openai:*"}, ("model", "ollama:x", "desk"), False),
        ({"tool": "refund", "model": "*"}, ("model", "ollama:x", "desk"), True),
        ({"agent": "intern*"}, ("tool", "refund", "desk"), False),
        ({"agent": "d*", "tool": "refund"}, ("tool", "refund", "desk"), True),
        ({"agent": "d*", "tool": "refund"}, ("tool", "look", "desk"), False),
        ({"enabled": False}, ("tool", "refund", "desk"), False),
    ],
)
def test_a_rule_concerns_the_effects_that_it_names(
    fields: dict[str, Any], effect: tuple[EffectKind, str, str], concerned: bool
):
    assert Rule("r", "deny", **fields).concerns(*effect) is concerned


def test_only_calls_have_arguments_to_replace():
    rule = Rule("r", "replace", arguments={"dry_run": True})
    kinds: tuple[EffectKind, ...] = ("tool", "subagent", "model", "handoff")
    assert [kind for kind in kinds if rule.concerns(kind, "x", "desk")] == ["tool", "subagent", "handoff"]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"id": "two words"}, "rule 'two words': id: must be 1 to 100 letters"),
        ({"id": "default"}, "not 'default'"),
        ({"id": "a+b"}, "id: must be"),
        ({"id": 5}, "rule 5: id: must be"),
        (
            {"verdict": "denied"},
            "verdict: must be one of deny, replace, ask, allow, or a function, got 'denied'; did you",
        ),
        ({"verdict": None}, "verdict: must be one of"),
        ({"tool": 5}, "tool: must be a name, a pattern or a list of them"),
        ({"tool": []}, "tool: must be a name"),
        ({"agent": ""}, "agent: must be a name"),
        ({"when": {"cost": {"abov": 1}}}, "when: 'cost' has no comparison 'abov'"),
        ({"reason": 5}, "reason: must be a text"),
        ({"enabled": "no"}, "enabled: must be true or false"),
        ({"verdict": "ask", "every_call": 1}, "every_call: must be true or false, got 1"),
        ({"every_call": True}, "every_call: belongs to the verdict 'ask', and this rule's is 'deny'"),
        ({"expires": 5}, "expires: belongs to the verdict 'ask', and this rule's is 'deny'"),
        ({"verdict": "ask", "expires": 0}, "expires: must be a number of seconds above 0"),
        ({"verdict": "ask", "expires": True}, "expires: must be a number of seconds above 0"),
        ({"verdict": "ask", "approvers": "ann"}, "approvers: must be a list of names"),
        ({"verdict": "ask", "excluded": [5]}, "excluded: must be a list of names"),
        ({"verdict": "ask", "arguments": {"x": 1}}, "arguments: belongs to the verdict 'replace'"),
        ({"verdict": "replace"}, "arguments: must name the new values"),
        ({"verdict": "replace", "arguments": {"a.": 1}}, "arguments: 'a.' is not the name of an argument"),
        ({"verdict": "replace", "arguments": {"a": object()}}, "arguments: 'a' must be JSON data"),
        (
            {"verdict": "replace", "arguments": {"a": 1}, "model": "*"},
            "model: has no arguments that could be replaced",
        ),
    ],
)
def test_a_field_that_is_wrong_is_told_with_the_rule_and_the_field(fields: dict[str, Any], says: str):
    with pytest.raises(ConfigurationError) as raised:
        Rule(**{"id": "r", "verdict": "deny", **fields})
    assert says in str(raised.value)


def test_all_mistakes_of_a_rule_are_told_at_once():
    with pytest.raises(ConfigurationError) as raised:
        Rule("r", "dny", tool=5, reason=7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert [part.split(":")[0] for part in str(raised.value).removeprefix("rule 'r': ").split("; ")] == [
        *("verdict", "did you mean 'deny'?", "tool", "reason")
    ]


def test_a_field_that_a_rule_does_not_have_is_told_with_one_that_it_has():
    with pytest.raises(TypeError, match=r"Rule has no argument 'tools'; did you mean 'tool'"):
        Rule("r", "deny", tools="x")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def judge(request: EffectRequest) -> None:
    return None


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        (Rule("r", "deny"), "every effect"),
        (Rule("r", "deny", tool="bash"), "tool bash"),
        (Rule("r", judge, tool=["a", "b"], agent="desk"), "tool a, b of agent desk"),
        (
            Rule("r", "deny", tool="bash", when={"cost": {"above": 5}, "depth": 1}),
            "tool bash when cost is above 5 and depth is 1",
        ),
        (Rule("r", "replace", tool="x", arguments={"n": 1, "o.t": "a"}), "tool x: n = 1, o.t = 'a'"),
    ],
)
def test_a_rule_reads_as_what_it_concerns(rule: Rule, says: str):
    assert str(rule) == says
