"""What guardrails want before a task goes on: a table of states and decisions."""

from dataclasses import replace
from typing import Any

import pytest

from tests.core.test_state_tables import ANSWER, ASKED, CALLED, state_after
from treadle.agents.decide import function_calling
from treadle.agents.decide.guardrails import guarded, guarded_rules
from treadle.agents.decide.rules import Rules
from treadle.core import events as e
from treadle.core.effects import Wait
from treadle.core.tools import ToolSpec
from treadle.policy.guardrails import Guardrail

CREATED = ASKED[0]
BEGUN = (*ASKED, e.ModelStarted("s1", "m"))
HELD = (*BEGUN, e.AnswerHeld("s1", ANSWER))
ENDED = (*CALLED, e.ToolStarted("s1", "s1-0", "read"), e.ToolEnded("s1", "s1-0", "ok", "x"))


def judged(place: str, guards: Any, verdict: Any) -> e.Event:
    return e.GuardrailJudged("s1", place, guards, verdict, "r", content={"text": "x"})


def asked(place: str, guards: Any) -> tuple[e.Event, e.Event]:
    return judged(place, guards, "ask"), e.ApprovalRequested("s1", place, 1, "d", "a", 9_000, "r")


def wanted(*events: e.Event, on: Any = ("input", "output", "result"), blocking: bool = False) -> Any:
    """Return what a task wants: the ids of effects, the kind of an event, or why it waits."""
    tools = {"put": ToolSpec(name="put", description="", parameters={}, read_only=True)}
    rules = Rules(tools=tools)
    blocks = blocking and "input" in on
    guardrails = [Guardrail(lambda request: None, id="r", on=on, blocking=blocks)] if on else []
    rules = guarded_rules(rules, guardrails, runs_functions=False)
    decision = guarded(function_calling.decide)(state_after(*events), replace(rules))
    if isinstance(decision, Wait):
        return f"wait: {decision.reason} {[call.id for call in decision.calls]}"
    return decision.kind if isinstance(decision, e.Event) else [effect.id for effect in decision]


INPUT_PASSED = judged("in1", "input", "allow")


@pytest.mark.parametrize(
    ("events", "blocking", "what"),
    [
        ((CREATED,), False, "step_started"),
        ((CREATED,), True, ["in1-judge"]),
        ((CREATED, INPUT_PASSED), True, "step_started"),
        ((CREATED, judged("in1", "input", "deny")), True, "task_ended"),
        ((CREATED, *asked("in1", "input")), True, "wait: approval ['in1']"),
        (ASKED, False, ["s1", "in1-judge"]),
        (BEGUN, False, ["s1", "in1-judge"]),
        ((*BEGUN, judged("in1", "input", "deny")), False, []),
        ((*HELD, judged("in1", "input", "deny")), False, "step_failed"),
        ((*ASKED, judged("in1", "input", "deny")), False, "step_failed"),
        ((*ASKED, *asked("in1", "input")), False, "wait: approval ['in1']"),
        ((*BEGUN, *asked("in1", "input")), False, ["s1"]),
        (HELD, False, ["in1-judge", "s1-said1-judge"]),
        ((*HELD, INPUT_PASSED), False, ["s1-said1-judge"]),
        ((*HELD, judged("s1-said1", "output", "allow")), False, ["in1-judge"]),
        ((*HELD, INPUT_PASSED, judged("s1-said1", "output", "allow")), False, ["s1-release"]),
        ((*HELD, INPUT_PASSED, judged("s1-said1", "output", "deny")), False, "model_failed"),
        ((*HELD, INPUT_PASSED, *asked("s1-said1", "output")), False, "wait: approval ['s1-said1']"),
        ((*HELD, *asked("s1-said1", "output")), False, ["in1-judge"]),
        ((*ENDED, INPUT_PASSED), False, ["s1-0-value-judge"]),
        ((*ENDED, INPUT_PASSED, judged("s1-0-value", "result", "allow")), False, "step_completed"),
        ((*ENDED, INPUT_PASSED, judged("s1-0-value", "result", "deny")), False, "step_failed"),
        ((*ENDED, INPUT_PASSED, *asked("s1-0-value", "result")), False, "wait: approval ['s1-0-value']"),
    ],
)
def test_what_guardrails_want(events: tuple[e.Event, ...], blocking: bool, what: Any) -> None:
    assert wanted(*events, blocking=blocking) == what


def test_an_answer_that_is_held_goes_on_where_there_is_no_guardrail_any_more() -> None:
    assert wanted(*HELD, on=()) == ["s1-release"]
    assert wanted(*ENDED, on=()) == "step_completed"


def test_a_refused_result_is_read_as_withheld_in_the_next_attempt() -> None:
    refused = (*ENDED, INPUT_PASSED, judged("s1-0-value", "result", "deny"))
    failed = (*refused, e.StepFailed("s1", e.Failure("guardrail", "result", "no")))
    assert wanted(*failed, e.StepStarted("s1", 1, 2)) == "step_completed"
