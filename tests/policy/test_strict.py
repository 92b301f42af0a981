"""The defaults of a strict policy: what a tool declares, what the model has seen, and the verdict."""

from typing import Any

import pytest

from tests.policy.requests import an_effect
from treadle import Allow, AskPerson, Deny, Policy, Rule, ToolSpec
from treadle.policy.verdicts import PolicyVerdict

WORDS = {Allow: "allow", AskPerson: "ask", Deny: "deny"}


MAIL = ("tool:read_mail",)


def verdict_on(
    policy: Policy, exposed: tuple[str, ...] = (), untrusted: tuple[str, ...] = (), **declared: Any
) -> PolicyVerdict | None:
    spec = ToolSpec(name="act", declared=bool(declared), **declared)
    about: dict[str, Any] = {"exposed": frozenset(exposed), "untrusted": untrusted}
    return policy.judge(an_effect("tool", "act", spec=spec, **about))


@pytest.mark.parametrize(
    ("declared", "exposed", "untrusted", "verdict", "rule"),
    [
        ({"read_only": True}, (), (), "allow", "read"),
        ({"read_only": True, "open_world": True}, ("private", "open_world"), MAIL, "allow", "read"),
        ({"read_only": True, "private": True}, ("open_world",), MAIL, "allow", "read_private"),
        ({"undoable": True}, ("open_world",), MAIL, "allow", "write_local"),
        ({"undoable": True, "open_world": True}, (), (), "ask", "write"),
        ({"undoable": True, "destructive": True}, (), (), "ask", "spend"),
        ({}, (), (), "ask", "write"),
        ({}, (), MAIL, "ask", "write-untrusted"),
        ({"idempotent": True}, (), (), "ask", "write"),
        ({"sends": True}, (), (), "ask", "send"),
        ({"sends": True}, ("open_world",), MAIL, "ask", "send-untrusted"),
        ({"sends": True}, ("private",), (), "ask", "send"),
        ({"sends": True}, ("private",), MAIL, "deny", "send"),
        ({"read_only": True, "sends": True}, ("private",), MAIL, "deny", "send"),
        ({"spends": True}, (), (), "ask", "spend"),
        ({"destructive": True}, ("private", "open_world"), MAIL, "ask", "spend-untrusted"),
        ({"executes": True}, (), (), "ask", "execute"),
        ({"executes": True}, ("private",), (), "ask", "execute"),
        ({"executes": True}, (), MAIL, "deny", "execute"),
        ({"executes": True, "host": "subprocess"}, (), MAIL, "deny", "execute"),
        ({"executes": True, "host": "sandbox with network"}, (), (), "ask", "execute"),
        ({"executes": True, "host": "sandbox"}, (), (), "allow", "execute"),
        ({"executes": True, "host": "sandbox"}, (), MAIL, "ask", "execute-untrusted"),
        ({"executes": True, "host": "sandbox", "spends": True}, (), (), "ask", "spend"),
        ({"executes": True, "sends": True}, ("private",), MAIL, "deny", "execute"),
        ({"executes": True, "sends": True, "host": "sandbox"}, ("private",), MAIL, "deny", "send"),
    ],
)
def test_what_a_tool_declares_and_what_was_read_decide_where_no_rule_does(
    declared: dict[str, Any], exposed: tuple[str, ...], untrusted: tuple[str, ...], verdict: str, rule: str
):
    found = verdict_on(Policy.strict(), exposed, untrusted, **declared)
    assert found is not None
    assert (WORDS[type(found)], found.rule) == (verdict, f"strict:{rule}")
    if untrusted and verdict != "allow":
        assert "the model has read untrusted content from tool:read_mail." in found.reason


@pytest.mark.parametrize(
    ("host", "where"),
    [
        ("sandbox with network", "in a sandbox with network"),
        ("subprocess", "outside of a sandbox"),
        (None, "outside of a sandbox"),
    ],
)
def test_a_denial_said_of_a_sandbox_with_network_that_it_is_none(host: str | None, where: str):
    found = verdict_on(Policy.strict(), (), MAIL, executes=True, host=host)
    assert isinstance(found, Deny)
    assert f"act executes code {where}; " in found.reason


def test_a_question_says_why_it_is_asked_and_what_was_read():
    spec = ToolSpec(name="send_mail", sends=True, declared=True)
    many = ("tool:read_mail", "web:a.example", "mail", "mcp:files", "observation")
    asked = Policy.strict().explain(an_effect("tool", "send_mail", spec=spec, untrusted=many))
    assert asked.text == (
        "a call of send_mail is asked about by default: send_mail needs a person: it sends data out; the model has "
        "read untrusted content from tool:read_mail, web:a.example, mail and 2 more."
    )
    by_rule = Policy(Rule("mails", "ask", tool="send_mail", reason="Look at it first."))
    assert by_rule.explain(an_effect("tool", "send_mail", untrusted=MAIL)).text == (
        "a call of send_mail is asked about by rule mails: Look at it first; the model has read untrusted content from "
        "tool:read_mail."
    )


@pytest.mark.parametrize(
    ("when", "untrusted", "applies"),
    [
        ({"exists": True}, (), False),
        ({"exists": True}, MAIL, True),
        ({"exists": False}, (), True),
        ({"exists": False}, MAIL, False),
        ({"contains": "tool:read_mail"}, ("web:a.example", *MAIL), True),
        ({"contains": "tool:read_mail"}, ("web:a.example",), False),
        ({"contains": "tool:read_mail"}, (), False),
        ({"not_contains": "mail"}, (), True),
        ({"matches": "web:*"}, ("tool:look", "web:a.example"), True),
        ({"matches": "web:*"}, MAIL, False),
        ({"matches": "web:*"}, (), False),
    ],
)
def test_rules_may_be_about_untrusted_origins(
    when: dict[str, Any], untrusted: tuple[str, ...], applies: bool
):
    policy = Policy(Rule("r", "deny", when={"untrusted": when}))
    assert isinstance(policy.judge(an_effect("tool", "act", untrusted=untrusted)), Deny) is applies


def test_a_rule_that_allows_wants_every_origin_good():
    policy = Policy(
        Rule("own", "allow", when={"untrusted": {"matches": "web:*.own.example"}}), default="deny"
    )
    good = an_effect("tool", "act", untrusted=("web:a.own.example", "web:b.own.example"))
    assert isinstance(policy.judge(good), Allow)
    for other in (("web:a.own.example", "mail"), ()):
        assert isinstance(policy.judge(an_effect("tool", "act", untrusted=other)), Deny)


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
    ("declared", "untrusted", "every_call"),
    [
        ({"spends": True}, (), True),
        ({"destructive": True}, (), True),
        ({"executes": True}, (), True),
        ({"sends": True}, (), False),
        ({"sends": True}, MAIL, True),
        ({}, MAIL, False),
    ],
)
def test_what_cannot_be_taken_back_is_asked_about_in_every_call(
    declared: dict[str, Any], untrusted: tuple[str, ...], every_call: bool
):
    question = verdict_on(Policy.strict(), (), untrusted, **declared)
    assert isinstance(question, AskPerson)
    assert question.every_call is every_call


def test_requests_to_models_and_calls_of_agents_are_allowed():
    policy = Policy.strict()
    assert policy.judge(an_effect("model", "openai:gpt-5")) is None
    assert policy.judge(an_effect("subagent", "researcher")) is None, "its own calls are judged"
    assert not policy.concerns("model", "openai:gpt-5", "desk")
