"""The defaults of a strict policy: what a tool declares, what the model has seen, and the verdict."""

from typing import Any

import pytest

from tests.policy.requests import an_effect
from treadle import Allow, AskPerson, Deny, Policy, Rule, ToolSpec
from treadle.policy.verdicts import PolicyVerdict

WORDS = {Allow: "allow", AskPerson: "ask", Deny: "deny"}


def verdict_on(policy: Policy, exposed: tuple[str, ...] = (), **declared: Any) -> PolicyVerdict | None:
    spec = ToolSpec(name="act", declared=bool(declared), **declared)
    return policy.judge(an_effect("tool", "act", spec=spec, exposed=frozenset(exposed)))


@pytest.mark.parametrize(
    ("declared", "exposed", "verdict", "rule"),
    [
        ({"read_only": True}, (), "allow", "read"),
        ({"read_only": True, "open_world": True}, ("private", "open_world"), "allow", "read"),
        ({"read_only": True, "private": True}, ("open_world",), "allow", "read_private"),
        ({"undoable": True}, ("open_world",), "allow", "write_local"),
        ({"undoable": True, "open_world": True}, (), "ask", "write"),
        ({"undoable": True, "destructive": True}, (), "ask", "spend"),
        ({}, (), "ask", "write"),
        ({"idempotent": True}, (), "ask", "write"),
        ({"sends": True}, (), "ask", "send"),
        ({"sends": True}, ("open_world",), "ask", "send"),
        ({"sends": True}, ("private",), "deny", "send"),
        ({"read_only": True, "sends": True}, ("private",), "deny", "send"),
        ({"spends": True}, (), "ask", "spend"),
        ({"destructive": True}, ("private", "open_world"), "ask", "spend"),
        ({"executes": True}, (), "ask", "execute"),
        ({"executes": True}, ("private",), "ask", "execute"),
        ({"executes": True}, ("open_world",), "deny", "execute"),
        ({"executes": True}, ("undeclared",), "deny", "execute"),
        ({"executes": True, "sends": True}, ("private",), "deny", "send"),
    ],
)
def test_what_a_tool_declares_decides_where_no_rule_does(
    declared: dict[str, Any], exposed: tuple[str, ...], verdict: str, rule: str
):
    found = verdict_on(Policy.strict(), exposed, **declared)
    assert found is not None
    assert (WORDS[type(found)], found.rule) == (verdict, f"strict:{rule}")


def test_a_rule_decides_before_the_defaults_do():
    assert verdict_on(Policy.strict(Rule("mail", "allow", tool="act")), ("private",), sends=True) == Allow(
        "mail"
    )
    assert verdict_on(Policy.strict(Rule("no", "deny", reason="No.")), read_only=True) == Deny("no", "No.")


@pytest.mark.parametrize(
    ("tool", "allowed"), [("act", True), (["x", "act"], True), ("a*", False), (None, False)]
)
def test_no_pattern_allows_what_spends_or_destroys(tool: Any, allowed: bool):
    policy = Policy.strict(Rule("auto", "allow", tool=tool))
    declared: tuple[dict[str, Any], ...] = ({"spends": True}, {"destructive": True, "sends": True})
    for effects in declared:
        assert (verdict_on(policy, (), **effects) == Allow("auto")) is allowed
    assert verdict_on(policy, sends=True) == Allow("auto"), "other classes are allowed by a pattern too"


@pytest.mark.parametrize(
    ("declared", "every_call"),
    [({"spends": True}, True), ({"destructive": True}, True), ({"executes": True}, True), ({}, False)],
)
def test_what_cannot_be_taken_back_is_asked_about_in_every_call(declared: dict[str, Any], every_call: bool):
    question = verdict_on(Policy.strict(), **declared)
    assert isinstance(question, AskPerson)
    assert question.every_call is every_call


def test_requests_to_models_and_calls_of_agents_are_allowed():
    policy = Policy.strict()
    assert policy.judge(an_effect("model", "openai:gpt-5")) is None
    assert policy.judge(an_effect("subagent", "researcher")) is None, "its own calls are judged"
    assert not policy.concerns("model", "openai:gpt-5", "desk")
