"""Handoffs in an answer: when one begins, what refuses it, and how its step ends."""

from typing import Any

import pytest

from tests.agents.stories import SPECS, answered, began, decided, ended, recorded, state_after, step, wanted
from treadle.agents.decide.rules import Rules
from treadle.core import events as e
from treadle.core.effects import Wait
from treadle.core.tools import ToolSpec
from treadle.policy.limits import Limits

TO_B, TO_C = "transfer_to_b", "transfer_to_c"
TOOLS = {**SPECS, TO_B: ToolSpec(name=TO_B, read_only=True), TO_C: ToolSpec(name=TO_C, read_only=True)}


def team(limits: Limits | None = None, **fields: Any) -> Rules:
    return Rules("m", TOOLS, limits or Limits(), handoffs={TO_B: "b", TO_C: "c"}, **fields)


def moved(place: int = 0) -> list[e.Event]:
    return [e.ToolStarted("s1", f"s1-{place}"), e.ToolEnded("s1", f"s1-{place}")]


def test_a_handoff_begins_once_all_other_calls_have_ended() -> None:
    asked = [step(), answered("look", TO_B)]
    assert wanted(decided(state_after(*asked), team())) == ["CallTool s1-0"]
    assert wanted(decided(state_after(*asked, began(0, name="look")), team())) == ["CallTool s1-0"]
    alone = state_after(*asked, began(0, name="look"), ended(0))
    assert wanted(decided(alone, team())) == ["CallTool s1-1"]


def test_a_step_that_handed_over_ends_with_the_next_agent_and_waits_for_it() -> None:
    done = [step(), answered(TO_B), *moved()]
    end = recorded(state_after(*done), team())
    assert end == e.StepCompleted("s1", next_agent=e.NextAgent("b", "s1-0", TO_B))
    assert decided(state_after(*done, end), team()) == Wait("handoff")


def test_the_first_handoff_wins_and_the_others_are_refused() -> None:
    end = recorded(state_after(step(), answered(TO_B, TO_C), *moved()), team())
    assert (end.call, end.outcome) == ("s1-1", "refused")
    assert end.error.message == "transfer_to_c was not run: the conversation goes to b already."


def test_a_handoff_waits_for_the_end_of_one_that_began() -> None:
    asked = [step(), answered(TO_B, TO_C), e.ToolStarted("s1", "s1-0")]
    assert wanted(decided(state_after(*asked), team())) == ["CallTool s1-0"]
    again = state_after(*asked, e.ToolStopped("s1", "s1-0", "interrupted"))
    assert wanted(decided(again, team())) == ["CallTool s1-0"]


def test_a_handoff_that_was_cut_off_and_is_then_refused_does_not_say_that_it_never_ran() -> None:
    cut_off = [e.ToolStarted("s1", "s1-0"), e.ToolStopped("s1", "s1-0", "interrupted")]
    end = recorded(state_after(step(), answered(TO_B), *cut_off), team(Limits(handoffs=0)))
    assert end.outcome == "cancelled"
    assert end.error.message == (
        "transfer_to_b was stopped after it began. "
        "transfer_to_b does not begin again: the task allows no handoffs."
    )


def test_where_the_first_handoff_fails_the_next_one_is_tried() -> None:
    denied = e.ToolEnded("s1", "s1-0", "denied", error=e.Failure("tool", "denied", "no", "s1-0"))
    state = state_after(step(), answered(TO_B, TO_C), denied)
    assert wanted(decided(state, team())) == ["CallTool s1-1"]


def test_a_handoff_is_judged_beside_other_calls_and_begins_after_them() -> None:
    by = team(judged=frozenset([TO_B]), gated=True)
    asked = [step(), answered("look", TO_B)]
    assert wanted(decided(state_after(*asked), by)) == ["CallTool s1-0", "JudgeCall s1-1-judge"]
    allowed = state_after(*asked, e.CallJudged("s1", "s1-1", "allow"))
    assert wanted(decided(allowed, by)) == ["CallTool s1-0"]


def test_a_result_that_is_the_answer_refuses_a_handoff_beside_it() -> None:
    state = state_after(step(), answered("reply", TO_B), began(0, name="reply"), ended(0))
    end = recorded(state, team())
    assert end.error.message == "transfer_to_b was not run: the result of reply is the answer of the task."


def test_an_answer_of_the_output_type_refuses_a_handoff_beside_it() -> None:
    typed = e.TypedAnswer(3, call="s1-0")
    asked = [step(), answered("final_answer", TO_B, typed=typed)]
    taken = recorded(state_after(*asked), team(output_retries=2))
    end = recorded(state_after(*asked, taken), team(output_retries=2))
    assert (end.call, end.outcome) == ("s1-1", "refused")


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (Limits(handoffs=0), "the task allows no handoffs"),
        (Limits(steps=1), "the limit of 1 steps leaves none for another agent"),
    ],
)
def test_a_limit_refuses_a_handoff(limits: Limits, why: str) -> None:
    end = recorded(state_after(step(), answered(TO_B)), team(limits))
    assert (end.outcome, end.error.source, end.error.kind) == ("refused", "limit", "handoffs")
    assert end.error.message == f"transfer_to_b was not run: {why}."


def test_no_more_handoffs_than_the_limit_allows() -> None:
    there = [
        *[step(), answered(TO_B), *moved()],
        e.StepCompleted("s1", next_agent=e.NextAgent("b", "s1-0", TO_B)),
        e.AgentChanged("s1", "s1-0", "b", "math"),
        step(2),
        answered(TO_C, index=2),
    ]
    end = recorded(state_after(*there), team(Limits(handoffs=1)))
    assert end.error.message == (
        "transfer_to_c was not run: the limit of 1 handoffs is reached, so you have to go on yourself."
    )
    assert wanted(decided(state_after(*there), team(Limits(handoffs=2)))) == ["CallTool s2-0"]


def test_a_failed_call_stops_the_step_before_the_conversation_moves() -> None:
    done = [step(), answered("look", TO_B), began(0, name="look"), ended(0, "error"), *moved(1)]
    assert recorded(state_after(*done), team(on_tool_failure="fail")).kind == "step_failed"
