"""A policy: its rules together, by force, as tables and in any order; and how it shows itself."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.policy.requests import REFUND, a_call, an_effect
from treadle import Allow, AskPerson, Deny, EffectRequest, Policy, Replace, Rule, tool
from treadle.errors import ConfigurationError
from treadle.policy.policy import MOST_REMEMBERED, Default
from treadle.policy.verdicts import PolicyVerdict

ALLOW = Rule("allow", "allow", tool="refund", reason="Small.")
ASK = Rule("ask", "ask", tool="refund", reason="Look.")
DENY = Rule("deny", "deny", tool="refund", reason="Never.")
CAP = Rule("cap", "replace", tool="refund", arguments={"amount": 1}, reason="Capped.")
OTHER = Rule("other", "deny", tool="bash")
CALL = a_call(amount=5)

ALLOWED, ASKED, DENIED = Allow("allow", "Small."), AskPerson("ask", "Look."), Deny("deny", "Never.")
CAPPED = Replace({"amount": 1}, "cap", "Capped.")


@pytest.mark.parametrize(
    ("rules", "verdict"),
    [
        ([], None),
        ([OTHER], None),
        ([ALLOW], ALLOWED),
        ([ALLOW, ASK], ASKED),
        ([ALLOW, ASK, CAP], CAPPED),
        ([ALLOW, ASK, CAP, DENY], DENIED),
        ([ALLOW, OTHER, DENY], DENIED),
    ],
)
def test_the_strictest_rule_decides_in_any_order(rules: list[Rule], verdict: PolicyVerdict | None):
    for order in itertools.permutations(rules):
        assert Policy(*order).judge(CALL) == verdict


@pytest.mark.parametrize(
    ("default", "rules", "effect", "verdict"),
    [
        ("allow", [], a_call(), None),
        ("ask", [], a_call(), AskPerson("default", "no rule of the policy allows it.")),
        ("deny", [], a_call(), Deny("default", "no rule of the policy allows it.")),
        ("deny", [ALLOW], a_call(), ALLOWED),
        ("deny", [ALLOW, ASK], a_call(), ASKED),
        ("deny", [], an_effect("subagent", "clerk"), Deny("default", "no rule of the policy allows it.")),
        ("deny", [], an_effect("handoff", "clerk"), Deny("default", "no rule of the policy allows it.")),
        ("deny", [], an_effect("model", "openai:gpt-5"), None),
        ("deny", [Rule("m", "deny", model="openai:*")], an_effect("model", "openai:gpt-5"),
         Deny("m", "the policy does not allow a request to openai:gpt-5.")),
    ],
)  # fmt: skip
def test_the_default_decides_only_where_no_rule_does(
    default: Default, rules: list[Rule], effect: EffectRequest, verdict: PolicyVerdict | None
):
    assert Policy(*rules, default=default).judge(effect) == verdict


@pytest.mark.parametrize(
    ("rules", "answers", "default", "verdict"),
    [
        ([], [None], "allow", None),
        ([], [Allow("f")], "ask", Allow("f")),
        ([], [None, Allow("f")], "deny", Allow("f")),
        ([ASK], [Allow("f")], "allow", ASKED),
        ([ALLOW], [AskPerson("f", "Hm.")], "allow", AskPerson("f", "Hm.")),
        ([ASK], [AskPerson("f", "Hm.", 5)], "allow", AskPerson("ask+f", "Look. Hm.", 5)),
        ([ASK], [Deny("f", "No.")], "allow", Deny("f", "No.")),
        ([DENY], [Allow("f")], "allow", DENIED),
        # A permission of a later function takes back no replacement of an earlier one.
        ([CAP], [Allow("f")], "allow", CAPPED),
        ([], [Replace({"amount": 2}, "f"), Allow("g")], "allow", Replace({"amount": 2}, "f")),
        ([ASK], [Replace({"amount": 2}, "f")], "allow", Replace({"amount": 2}, "f")),
        ([CAP], [Deny("f", "No.")], "allow", Deny("f", "No.")),
        ([ASK], [Replace({"amount": 5}, "f")], "allow", ASKED),  # it replaces nothing
    ],
)
def test_answers_of_functions_count_as_those_of_rules(
    rules: list[Rule], answers: list[PolicyVerdict | None], default: Default, verdict: PolicyVerdict | None
):
    assert Policy(*rules, default=default).judge(CALL, answers) == verdict


def spending(request: EffectRequest) -> PolicyVerdict | None:
    return None


def test_a_function_is_a_rule_by_its_name_or_with_patterns_and_conditions():
    policy = Policy(
        spending, Rule("big", spending, tool="refund", when={"arguments.amount": {"above": 100}}), OTHER
    )
    assert [function.id for function in policy.functions_for(CALL)] == ["spending"]
    assert [function.id for function in policy.functions_for(a_call(amount=500))] == ["spending", "big"]
    assert [function.id for function in policy.functions_for(a_call("look"))] == ["spending"]
    assert policy.functions_for(a_call("bash")) == (), "a rule denies it already"


@pytest.mark.parametrize(
    ("policy", "concerned"),
    [
        (Policy(), []),
        (Policy(default="ask"), ["tool", "subagent", "handoff"]),
        (Policy(OTHER), []),
        (Policy(ASK), ["tool", "subagent"]),
        (Policy(spending), ["model", "tool", "subagent", "handoff"]),
        (Policy(Rule("m", "deny", model="*")), ["model"]),
    ],
)
def test_what_no_rule_can_concern_is_not_judged(policy: Policy, concerned: list[str]):
    kinds: Any = ("model", "tool", "subagent", "handoff")
    assert [kind for kind in kinds if policy.concerns(kind, "refund", "desk")] == concerned


def test_names_that_models_make_up_fill_no_memory():
    policy = Policy(ASK)
    for number in range(3 * MOST_REMEMBERED):
        assert not policy.concerns("tool", f"made_up_{number}", "desk")
    remembered: Any = policy
    assert len(remembered._concerned) <= MOST_REMEMBERED


json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
SCHEMA: Any = REFUND.parameters
NAMES = list(SCHEMA["properties"])
EVERYTHING = Policy(
    Rule("amount", "deny", when={"arguments.amount": {"above": 5, "is_not": 7}}),
    Rule("note", "ask", when={"arguments.note": {"matches": ["a*", "*b"], "contains": "x"}}),
    Rule("url", "ask", when={"arguments.url": {"not_host": "x.com"}}),
    Rule("path", "allow", when={"arguments.path": {"within": ["/srv", "here"]}}),
    Rule("items", "ask", when={"arguments.items.price": {"in": [1, "a"]}}),
    Rule("order", "replace", arguments={"order.total": 1, "note": "n"}),
    default="strict",
)


@given(st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=5), json, max_size=5))
def test_no_arguments_make_a_policy_raise_and_a_second_judgement_replaces_nothing(arguments: dict[str, Any]):
    verdict = EVERYTHING.judge(a_call(**arguments))
    assert EVERYTHING.explain(a_call(**arguments)).text
    if isinstance(verdict, Replace):
        assert not isinstance(EVERYTHING.judge(a_call(**verdict.arguments)), Replace)


@pytest.mark.parametrize(
    ("policy", "call", "rules", "says"),
    [
        (Policy(), CALL, (), "a call of refund is allowed: no rule concerns it."),
        (Policy(ASK, ALLOW), CALL, ("ask", "allow"), "a call of refund is asked about by rule ask: Look."),
        (
            Policy(Rule("big", "ask", tool="refund", when={"arguments.amount": {"above": 1}}, reason="Big.")),
            CALL,
            ("big",),
            "a call of refund is asked about by rule big, as arguments.amount is above 1 (5): Big.",
        ),
        (
            Policy(Rule("big", "deny", when={"arguments.amount": {"above": 1}}, reason="Big.")),
            a_call(),
            ("big",),
            "a call of refund is denied by rule big, as arguments.amount is above 1 (left out): Big.",
        ),
        (Policy(CAP, ASK), CALL, ("cap", "ask"), "a call of refund is changed by rule cap: Capped."),
        (Policy(default="deny"), CALL, (), "a call of refund is denied by default: no rule of the policy allows it."),
        (
            Policy.strict(),
            CALL,
            (),
            "a call of refund is asked about by default: refund needs a person: it may change something.",
        ),
    ],
)  # fmt: skip
def test_a_verdict_is_explained_in_one_sentence(
    policy: Policy, call: EffectRequest, rules: tuple[str, ...], says: str
):
    explained = policy.explain(call)
    assert (explained.rules, explained.text) == (rules, says)
    assert explained.verdict == policy.judge(call)


def test_a_policy_lists_its_rules_in_the_order_of_their_force():
    off = Rule("off", "deny", tool="x", enabled=False)
    policy = Policy(ALLOW, ASK, spending, CAP, DENY, off, default="strict")
    assert str(policy).splitlines() == [
        "Policy of 6 rules, the strongest first:",
        '  deny      deny      tool refund  "Never."',
        "  deny      off       tool x  (not enabled)",
        '  replace   cap       tool refund: amount = 1  "Capped."',
        "  function  spending  every effect",
        '  ask       ask       tool refund  "Look."',
        '  allow     allow     tool refund  "Small."',
        "  default             strict: by the declarations of the tool",
    ]
    assert repr(policy) == "Policy(default='strict', rules=6)"
    shown: Any = policy
    assert ">Never.</td>" in shown._repr_html_()


def test_a_policy_with_other_rules_is_another_policy():
    policy = Policy(ASK, DENY, default="ask", deadline=1)
    changed = policy.with_rules(Rule("ask", "allow"), spending).without("deny")
    assert [(rule.id, rule.force) for rule in changed.rules] == [("ask", "allow"), ("spending", "function")]
    assert (changed.default, changed.deadline) == ("ask", 1)
    assert policy.rules == (ASK, DENY)
    with pytest.raises(ConfigurationError, match=r"there is no rule 'dny'; did you mean 'deny'"):
        policy.without("dny")


@pytest.mark.parametrize(
    ("rules", "settings", "says"),
    [
        ([ASK, ASK], {}, "two rules have the id 'ask'"),
        (["deny"], {}, "a rule is Rule\\(...\\) or a function"),
        ([[ASK, DENY]], {}, "rules are passed one by one"),
        ([Policy(ASK)], {}, "pass the rules of a policy"),
        ([], {"default": "denied"}, "default must be one of .* did you mean 'deny'"),
        ([], {"default": None}, "default must be one of"),
        ([], {"deadline": 0}, "deadline must be a number of seconds above 0"),
        ([], {"deadline": "5"}, "deadline must be a number"),
    ],
)
def test_an_argument_that_is_wrong_is_told(rules: list[Any], settings: dict[str, Any], says: str):
    with pytest.raises(ConfigurationError, match=says):
        Policy(*rules, **settings)


def test_an_explanation_names_the_allow_rules_that_nearly_held() -> None:
    spec = tool(lambda number: 1, name="delete_mail", destructive=True).spec
    request = EffectRequest(kind="tool", name="delete_mail", spec=spec, arguments={"number": 2})
    policy = Policy.strict(
        Rule("tidy", "allow", tool="delete_*"),
        Rule("first", "allow", tool="delete_mail", when={"arguments.number": 1}),
        Rule("other", "allow", tool="send_mail"),
    )
    explained = policy.explain(request)
    assert explained.rules == (), "a rule that lifts nothing has met nothing"
    assert explained.text == (
        "a call of delete_mail is asked about by default: delete_mail needs a person: it spends money or cannot be "
        "taken back; rule tidy does not allow it, as only a rule with the name delete_mail, and no pattern, allows "
        "a tool that spends or is destructive; rule first would allow it where arguments.number is 1 (2)."
    )
    assert "tool delete_*  (no tool that spends or is destructive: that needs the name of the tool)" in str(
        policy
    )
    assert str(policy).count("needs the name") == 1
    assert str(Policy(Rule("one", "deny"))).startswith("Policy of 1 rule,")


def test_a_policy_is_told_how_rules_are_passed() -> None:
    wrong: Any = Policy
    for make in (wrong, wrong.strict):
        with pytest.raises(TypeError, match=r"has no argument 'rules': rules are passed one by one"):
            make(rules=[])
    with pytest.raises(TypeError, match=r"Policy.strict has no argument 'default'"):
        wrong.strict(default="ask")
