"""What events add up to of calls in the background; the table of states is in `test_state_tables`."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from tests.agents.stories import CREATED, answered, began, ended, numbered, step
from treadle.core import events as e
from treadle.core.messages import Text
from treadle.core.rules.fold import apply, fold
from treadle.core.state import TaskState, start

DONE = e.StepCompleted


def flat(events: Any) -> Iterator[e.Event]:
    """Yield copies of events from lists of lists."""
    if isinstance(events, e.Event):
        yield deepcopy(events)
    else:
        for event in events:
            yield from flat(event)


def state_after(*events: Any) -> TaskState:
    return fold(start("t"), numbered(*flat((CREATED, events))))


def issued(place: int = 0, index: int = 1) -> e.Event:
    return e.TicketIssued(f"s{index}", f"s{index}-{place}", f"digest {index}-{place}")


def deferred(place: int = 0, index: int = 1, name: str = "put") -> list[e.Event]:
    """Return the events of a call whose tool left work in the background, until event 900."""
    call = f"s{index}-{place}"
    return [
        issued(place, index),
        began(place, index, name=name),
        e.CallDeferred(f"s{index}", call, 900, "job"),
    ]


def completed(place: int = 0, index: int = 1, output: Any = "film") -> list[e.Event]:
    call = f"s{index}-{place}"
    return [e.TicketCompleted(f"s{index}", call, output), e.ToolEnded(f"s{index}", call, "ok", output)]


def texts(state: TaskState) -> list[str]:
    """Return the conversation: each message by its role and the text that tells it apart."""
    told: list[str] = []
    for message in state.messages:
        for part in message.parts:
            parts = getattr(part, "parts", (part,))
            told += [f"{message.role}: {item.text.strip()}" for item in parts if type(item) is Text]
    return [line for line in told if "observation" not in line]


ONE_STEP: list[Any] = [step(), answered("put"), deferred(), DONE("s1")]
LATER = "put goes on in the background. Its result will be sent to you once it is there. About it: job"
ENDED = "user: put (s1-0), which went on in the background, ended: ok"


def test_a_step_does_not_wait_for_a_call_in_the_background() -> None:
    state = state_after(ONE_STEP)
    assert texts(state) == ["user: go", f"tool: {LATER}"]
    assert (list(state.deferred), state.steps[0].status) == (["s1-0"], "completed")
    assert [(timer.call, timer.due) for timer in state.timers()] == [("s1-0", 900)]


def test_its_result_is_read_by_the_next_step_once() -> None:
    state = state_after(ONE_STEP, completed(), step(2), answered(text="so", index=2), DONE("s2"), step(3))
    assert texts(state) == ["user: go", f"tool: {LATER}", ENDED, "user: film", "assistant: so"]
    assert (state.deferred, state.completed, state.unread, state.next_due()) == ({}, {}, [], None)


def test_a_result_that_comes_before_the_results_of_its_step_is_one_of_them() -> None:
    both = [step(), answered("put", "save"), deferred(), began(1), completed(), ended(1), DONE("s1")]
    state = state_after(both, step(2))
    assert texts(state) == ["user: go", "tool: film", "tool: done"]
    assert state.arrived == []


def test_a_call_that_is_completed_while_its_tool_still_runs_ends_after_it() -> None:
    early = e.TicketCompleted("s1", "s1-0", "film")
    state = state_after(step(), answered("put"), issued(), began(0, name="put"), early)
    assert list(state.completed) == ["s1-0"]
    assert state.begun_calls() != []


def test_an_answered_task_goes_on_once_nothing_is_in_the_background_any_more() -> None:
    two = [step(), answered("put", "put"), deferred(0), deferred(1), DONE("s1")]
    end = [step(2), answered(text="started", index=2), DONE("s2", True, "started")]
    assert state_after(two, end).answered
    assert state_after(two, end, completed(1)).answered
    state = state_after(two, end, completed(1), completed(0))
    assert (state.answered, len(state.unread)) == (False, 2)


def test_a_task_that_has_ended_keeps_a_result_and_does_not_say_it() -> None:
    end = [step(2), answered(text="started", index=2), DONE("s2", True, "started")]
    over = [ONE_STEP, end, e.TaskEnded("completed", "started")]
    before, state = state_after(over), state_after(over, completed())
    call = state.find_call("s1-0")
    assert call is not None
    assert (state.ended, call.outcome, call.output) == ("completed", "ok", "film")
    assert state.messages == before.messages


def test_a_task_that_is_taken_up_again_reads_the_result_that_came_after_its_end() -> None:
    end = [step(2), answered(text="started", index=2), DONE("s2", True, "started")]
    over = [ONE_STEP, end, e.TaskEnded("degraded", "started"), completed(), e.TaskReopened(2, "resume")]
    assert not state_after(over).answered
    assert texts(state_after(over, step(3)))[-2:] == [ENDED, "user: film"]


UNDO = e.UndoRequested(1, ("s2",))


@pytest.mark.parametrize(
    ("events", "unread"),
    [
        pytest.param([completed(), step(2)], 1, id="read by the step that is taken back"),
        pytest.param([step(2), completed()], 1, id="arrived during that step"),
        pytest.param([step(2)], 0, id="not arrived yet"),
    ],
)
def test_a_result_that_only_undone_steps_read_is_read_again(events: list[Any], unread: int) -> None:
    state = state_after(ONE_STEP, events, e.ModelStopped("s2", "interrupted"), UNDO, e.Rewound(1, 1))
    assert len(state.unread) == unread
    assert ENDED not in texts(state)
    if not unread:
        for event in completed():
            event.seq, event.time = state.seq + 1, state.time + 1
            apply(state, event)
        assert len(state.unread) == 1


def test_a_result_that_guardrails_rewrote_is_read_once_after_an_undo_to_the_step_that_it_came_in() -> None:
    came: list[Any] = [step(), answered("put"), deferred(), completed(), DONE("s1")]
    rewritten = [
        e.GuardrailJudged("", "in9", "result", "rewrite", "rule", "why", {"text": "a short film"}),
        e.GuardrailJudged("", "in9", "result", "allow"),
    ]
    undone = [e.UndoRequested(1, ("s2",)), e.Rewound(1, 1, steps=("s2",))]
    state = state_after(came, rewritten, step(2), undone, e.StepStarted("s2b1", 2))
    assert [line for line in texts(state) if "film" in line] == ["user: a short film"]


def test_a_result_that_a_kept_step_read_is_not_read_again() -> None:
    kept = [
        ONE_STEP,
        completed(),
        step(2),
        answered("look", index=2),
        began(0, 2, name="look"),
        ended(0, index=2),
    ]
    undone = [DONE("s2"), e.StepStarted("s3", 3), e.UndoRequested(2, ("s3",)), e.Rewound(2, 1)]
    state = state_after(kept, undone)
    assert (state.unread, texts(state).count(ENDED)) == ([], 1)


def test_the_next_attempt_of_a_step_has_the_result_among_its_own() -> None:
    failing = [step(), answered("put", "look"), deferred(), began(1, name="look"), ended(1, "error")]
    failed = [failing, e.StepFailed("s1", e.Failure("tool", "error", "no")), completed()]
    assert len(state_after(failed).unread) == 1
    again = [
        e.StepStarted("s1", 1, 2),
        e.ToolStarted("s1", "s1-1r2", "read"),
        e.ToolEnded("s1", "s1-1r2", "ok", "yes"),
    ]
    state = state_after(failed, again)
    assert texts(state) == ["user: go", "tool: film", "tool: yes"]
    assert state.unread == []


def test_a_call_that_is_repeated_is_ended_by_the_tickets_of_its_earlier_attempts() -> None:
    late = [step(), answered("put"), deferred(), e.TicketExpired("s1", "s1-0")]
    events = numbered(CREATED, *flat(late))
    events[-1].time = 900
    state = fold(start("t"), events)
    again = [
        e.ToolEnded("s1", "s1-0", "timeout", error=e.Failure("tool", "timeout", "late")),
        e.StepFailed("s1", e.Failure("tool", "timeout", "late")),
        e.StepStarted("s1", 1, 2),
    ]
    for event in again:
        event.seq, event.time = state.seq + 1, state.time + 1
        apply(state, event)
    assert {digest: call.id for digest, call in state.tickets.items()} == {"digest 1-0": "s1-0r2"}


def test_a_fork_has_no_tickets() -> None:
    state = state_after(ONE_STEP, completed(), e.TaskForked("p", "math", "other"))
    assert state.tickets == {}


def test_input_that_is_edited_leaves_results_unread() -> None:
    state = state_after(ONE_STEP, completed(), e.InputEdited((Text("else"),), ()))
    assert [str(received.parts[0]) for received in state.unread] != []
    assert len(state.unread) == 2
