"""How rules come together, as tables: replacements upon replacements, and one question for several."""

from typing import Any

import pytest

from tests.policy.requests import REFUND, a_call
from treadle import AskPerson, Deny, EffectRequest, Replace, Rule
from treadle.policy.composition import CompiledRule, one_question, question, replacement
from treadle.policy.verdicts import PolicyVerdict


def replaces(name: str, when: dict[str, Any] | None = None, **arguments: Any) -> CompiledRule:
    rule = Rule(name, "replace", tool="refund", when=when or {}, arguments=arguments, reason=f"By {name}.")
    return CompiledRule(rule, rule.conditions())


CAP = replaces("cap", {"arguments.amount": {"above": 100}}, amount=100)
NOTE = replaces("note", note="seen")
NOTE_AGAIN = replaces("again", note="seen again")
HUNDRED = replaces("hundred", {"arguments.amount": 100}, note="exactly a hundred")
TOTAL = replaces("total", None, **{"order.total": 1})
UNKNOWN = replaces("unknown", dry_run=True)


@pytest.mark.parametrize(
    ("rules", "before", "after", "by"),
    [
        ([], {"amount": 1}, None, None),
        ([CAP], {"amount": 1}, None, None),
        ([CAP], {"amount": 500}, {"amount": 100}, "cap"),
        ([CAP], {"amount": "500"}, {"amount": 100}, "cap"),  # what cannot be compared is not left alone
        ([CAP, NOTE], {"amount": 500}, {"amount": 100, "note": "seen"}, "cap+note"),
        ([NOTE, CAP], {"amount": 500}, {"amount": 100, "note": "seen"}, "note+cap"),
        ([CAP, NOTE], {"amount": 1}, {"amount": 1, "note": "seen"}, "note"),
        ([NOTE], {"amount": 1, "note": "seen"}, None, None),  # nothing changes any more
        # Each rule sees what those before it left.
        ([CAP, HUNDRED], {"amount": 500}, {"amount": 100, "note": "exactly a hundred"}, "cap+hundred"),
        ([HUNDRED, CAP], {"amount": 500}, {"amount": 100}, "cap"),
        # Of two that set the same argument the later has the last word.
        ([NOTE, NOTE_AGAIN], {"amount": 1}, {"amount": 1, "note": "seen again"}, "note+again"),
        ([NOTE_AGAIN, NOTE], {"amount": 1}, {"amount": 1, "note": "seen"}, "again+note"),
        # A path changes one part; the objects on the way are made.
        ([TOTAL], {"order": {"total": 9, "day": "mon"}}, {"order": {"total": 1, "day": "mon"}}, "total"),
        ([TOTAL], {}, {"order": {"total": 1}}, "total"),
        ([TOTAL], {"order": "text"}, {"order": {"total": 1}}, "total"),
        # An argument that the tool does not have would make the call invalid.
        ([UNKNOWN], {"amount": 1}, None, None),
        ([UNKNOWN], {"amount": 1, "dry_run": False}, {"amount": 1, "dry_run": True}, "unknown"),
    ],
)
def test_replacements_are_made_one_upon_the_other(
    rules: list[CompiledRule], before: dict[str, Any], after: dict[str, Any] | None, by: str | None
):
    made = replacement(rules, a_call(**before))
    assert (made.arguments if made else None, made.rule if made else None) == (after, by)
    if made is not None and rules != [HUNDRED, CAP]:
        again = replacement(rules, a_call(**made.arguments))
        assert again is None, "judged anew, nothing is replaced once more"


def test_a_replacement_leaves_the_arguments_of_the_call_as_they_were():
    request = a_call(order={"total": 9}, to=["a"])
    assert replacement([TOTAL], request) == Replace(
        {"order": {"total": 1}, "to": ["a"]}, "total", "By total."
    )
    assert request.arguments == {"order": {"total": 9}, "to": ["a"]}


def asks(name: str, **fields: Any) -> PolicyVerdict:
    return question(Rule(name, "ask", reason=f"Says {name}.", **fields), a_call())


@pytest.mark.parametrize(
    ("questions", "one"),
    [
        ([], None),
        ([asks("a")], AskPerson("a", "Says a.")),
        ([asks("a"), asks("b")], AskPerson("a+b", "Says a. Says b.")),
        (
            [asks("a", expires=60), asks("b", expires=5), asks("c")],
            AskPerson("a+b+c", "Says a. Says b. Says c.", 5),
        ),
        (
            [asks("a"), asks("b", approvers=["ann", "bob"]), asks("c", approvers=["bob", "eve"])],
            AskPerson("a+b+c", "Says a. Says b. Says c.", None, ("bob",)),
        ),
        (
            [asks("a", approvers=["ann"]), asks("b", approvers=["bob"])],
            Deny("a+b", "rules a+b accept no approver in common."),
        ),
        (
            [asks("a", approvers=["ann"]), asks("b", excluded=["ann"])],
            Deny("a+b", "rules a+b accept no approver in common."),
        ),
        (
            [asks("a", excluded=["ann"]), asks("b", excluded=["bob", "ann"])],
            AskPerson("a+b", "Says a. Says b.", None, (), ("ann", "bob")),
        ),
        ([asks("a"), asks("b", every_call=True)], AskPerson("a+b", "Says a. Says b.", every_call=True)),
    ],
)
def test_one_question_has_the_strictest_terms_of_all_that_ask(
    questions: list[PolicyVerdict], one: PolicyVerdict | None
):
    assert one_question(questions) == one


def test_a_rule_excludes_the_name_in_a_label():
    rule = Rule("second", "ask", excluded=["labels.user", "root"], reason="A second person decides.")
    labelled = EffectRequest(kind="tool", name="refund", spec=REFUND, labels={"user": "ann"})
    assert question(rule, labelled) == AskPerson(
        "second", "A second person decides.", None, (), ("ann", "root")
    )


def test_a_rule_that_excludes_a_requester_whom_no_label_tells_denies():
    verdict = question(Rule("second", "ask", excluded=["labels.user"]), a_call())
    assert verdict == Deny(
        "second", "rule second excludes the name in label 'user', and the task has no such label."
    )
