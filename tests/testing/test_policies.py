"""Policies on recorded tasks: each effect as it was proposed, with what its task had done by then."""

import asyncio
from typing import Any

import pytest

from treadle import (
    Agent,
    Allow,
    AskPerson,
    Deny,
    EffectRequest,
    Policy,
    Replace,
    Rule,
    Runner,
    RunOptions,
    ScriptedModel,
    tool,
)
from treadle.llm.scripted import call, text, turn
from treadle.policy.verdicts import PolicyVerdict
from treadle.replay import record
from treadle.testing.policies import JudgedEffect, judged


@tool(read_only=True, private=True)
def look(name: str, depth: int = 7) -> str:
    """Look up a customer."""
    return name


@tool(sends=True)
def send(to: str) -> str:
    """Send mail."""
    return to


@tool
def refund(amount: int) -> str:
    """Pay money back."""
    return f"{amount}"


HELPER = Agent(ScriptedModel([text("helped")]), name="helper")


def desk() -> Agent[Any]:
    turns = [
        turn("a", [call("send", to="before"), call("look", name="ann")]),
        turn("b", [call("send", to="after"), call("refund", amount=500), call("refund", amount="many")]),
        turn("c", [call("helper", input="help")]),
        text("done"),
    ]
    return Agent(ScriptedModel(turns), name="desk", tools=[look, send, refund], subagents=[HELPER])


async def _effects_of(policy: Policy, *, knows_agent: bool = True) -> list[JudgedEffect]:
    agent = desk()
    async with Runner("memory:") as runner:
        result = await runner.run(agent, "go", options=RunOptions(labels={"tier": "gold"}))
        recording = await record(runner, result.task_id)
        assert result.state == "completed"
        return await judged(policy, recording, agent if knows_agent else None, labels={"tier": "gold"})


def effects_of(policy: Policy, *, knows_agent: bool = True) -> list[JudgedEffect]:
    return asyncio.run(_effects_of(policy, knows_agent=knows_agent))


def shown(effects: list[JudgedEffect]) -> list[tuple[str, str, str]]:
    return [(effect.name, effect.verdict, effect.rule) for effect in effects]


def test_each_call_is_judged_with_what_the_model_had_seen_by_then():
    effects = effects_of(Policy.strict())
    assert shown(effects) == [
        ("send", "ask", "strict:send"),
        ("look", "allow", "strict:read_private"),
        ("send", "deny", "strict:send"),
        ("refund", "ask", "strict:write-untrusted"),
        ("refund", "ask", "strict:write-untrusted"),
        ("helper", "none", ""),
    ]
    assert [effect.call for effect in effects] == ["s1-0", "s1-1", "s2-0", "s2-1", "s2-2", "s3-0"]


def test_without_the_agent_the_journal_tells_what_tools_do():
    assert shown(effects_of(Policy.strict(), knows_agent=False)) == [
        ("send", "ask", "strict:write"),
        ("look", "allow", "strict:read"),
        ("send", "ask", "strict:write-untrusted"),
        ("refund", "ask", "strict:write-untrusted"),
        ("refund", "ask", "strict:write-untrusted"),
        ("helper", "none", ""),
    ]


def test_rules_see_defaults_labels_spending_and_kinds():
    policy = Policy(
        Rule("deep", "deny", tool="look", when={"arguments.depth": 7}),
        Rule("gold", "allow", tool="send", when={"labels.tier": "gold", "tool_calls": {"at_most": 1}}),
        Rule("agents", "ask", subagent="*"),
        Rule("third", "ask", model="*", when={"model_calls": {"above": 2}}),
    )
    assert [each for each in shown(effects_of(policy)) if each[1] != "none"] == [
        ("send", "allow", "gold"),
        ("look", "deny", "deep"),
        ("helper", "ask", "agents"),
        ("scripted", "ask", "third"),
    ]


def test_changed_arguments_are_judged_anew():
    policy = Policy(
        Rule(
            "cap",
            "replace",
            tool="refund",
            when={"arguments.amount": {"above": 100}},
            arguments={"amount": 100},
        ),
        Rule("big", "ask", tool="refund", when={"arguments.amount": {"at_least": 100}}, reason="Big."),
    )
    capped = [effect for effect in effects_of(policy) if effect.name == "refund"]
    assert [(each.verdict, each.rule, each.replaced) for each in capped] == [
        ("ask", "cap+big", {"amount": 100})
    ] * 2
    assert capped[0].arguments == {"amount": 500}
    assert capped[0].text == (
        "a call of refund is changed by rule cap, as arguments.amount is above 100 (500). "
        "a call of refund is asked about by rule big, as arguments.amount is at least 100 (100): Big; "
        "the model has read untrusted content from tool:send, tool:look."
    )


def growing(request: EffectRequest) -> PolicyVerdict | None:
    if request.name != "refund":
        return None
    return Replace({"amount": str(request.arguments["amount"]) + "0"}, "growing")


async def asking(request: EffectRequest) -> PolicyVerdict | None:
    return AskPerson("asking", "Hm.") if request.name == "send" else None


def raising(request: EffectRequest) -> PolicyVerdict | None:
    raise KeyError("gone")


def wrong(request: EffectRequest) -> Any:
    return "deny"


@pytest.mark.parametrize(
    ("function", "name", "verdict", "says"),
    [
        (growing, "refund", "deny", "were replaced 8 times"),
        (asking, "send", "ask", "Hm."),
        (raising, "look", "deny", "the policy function failed: KeyError"),
        (wrong, "look", "deny", "returned a str, which is no verdict"),
        (lambda request: Allow("yes"), "look", "allow", "allowed"),
        (lambda request: Deny("no", "No."), "look", "deny", "No."),
    ],
)
def test_functions_are_called_and_deny_if_they_fail(function: Any, name: str, verdict: str, says: str):
    effect = next(each for each in effects_of(Policy(Rule("f", function))) if each.name == name)
    assert (effect.verdict, says in effect.text) == (verdict, True), effect
