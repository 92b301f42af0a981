"""Decisions that do not depend on the worker, as a table: cancel, interrupt, pause, undo, the end and after it."""

from typing import Any

import pytest

from tests.agents.stories import (
    BOOKED,
    DOWN,
    answered,
    began,
    decided,
    ended,
    follow,
    kinds,
    lost,
    numbered,
    ran,
    recorded,
    rules,
    state_after,
    step,
    undo,
)
from tests.core.rules.test_deferring import completed, deferred, issued
from tests.core.rules.test_deferring import state_after as state_with_tickets
from treadle.agents.decide import lifecycle, step_functions
from treadle.core import events as e
from treadle.core.children import SpentBy
from treadle.core.effects import CallModel, JudgeRequest, UndoCall, Wait
from treadle.core.events import IllegalEvent
from treadle.core.graph import Graph
from treadle.core.messages import Message, Text
from treadle.core.model import Usage
from treadle.core.rules.fold import apply, fold
from treadle.core.state import TaskState, UndoState, start
from treadle.testing.audit import well_formed

CANCEL, PAUSE, INTERRUPT = e.CancelRequested(), e.PauseRequested(), e.InterruptRequested()
RUNNING: list[Any] = [step(), answered("save", "look"), began(0)]
"""One call has begun, the other is proposed."""


def effects(decision: Any) -> list[str]:
    assert isinstance(decision, tuple), decision
    return [f"{type(effect).__name__} {effect.id}" for effect in decision]


# ------------------------------------------------------------------------------------------- cancel


@pytest.mark.parametrize("events", [[], step(), RUNNING, [step(), answered("save"), lost()]])
def test_cancel_ends_every_open_call_and_then_the_task(events: list[Any]) -> None:
    state = state_after(*events, CANCEL)
    if state.in_flight():
        assert decided(state) == ()
        stops = [
            e.ToolStopped("s1", "s1-0", "interrupted")
            if state.begun_calls()
            else e.ModelStopped("s1", "interrupted")
        ]
        state = state_after(*events, e.CancelRequested(), *stops)
    written, decision = follow(state)
    assert (written[-1].state, decision) == ("cancelled", Wait("ended"))
    assert list(well_formed("t", state.messages)) == []


def test_cancelled_calls_are_unknown_if_they_began_and_not_run_otherwise() -> None:
    state = state_after(*RUNNING, CANCEL, e.ToolStopped("s1", "s1-0", "interrupted"))
    assert [event.outcome for event in follow(state)[0][:-1]] == ["unknown", "cancelled"]


def test_a_call_found_to_have_happened_ends_so_even_when_the_task_is_cancelled() -> None:
    state = state_after(
        step(), answered("save"), lost(), e.OutcomeSettled("s1", "s1-0", "happened", "saved"), CANCEL
    )
    assert recorded(state) == e.ToolEnded("s1", "s1-0", "ok", "saved")


def test_a_lost_compensation_of_a_cancelled_task_ends_as_unknown() -> None:
    gone = [undoing(1), e.ToolStopped("s1", "s1-1-undo", "crash")]
    written = follow(state_after(*BOOKED, undo("s1-1", "s1-0"), *gone, CANCEL))[0]
    assert kinds(written) == ["tool_ended", "task_ended"]
    assert (written[0].call, written[0].outcome) == ("s1-1-undo", "unknown")


def test_a_compensation_that_did_not_happen_ends_when_the_task_is_cancelled_before_it_begins_again() -> None:
    settled = e.OutcomeSettled("s1", "s1-1-undo", "not_happened")
    gone = [undoing(1), e.ToolStopped("s1", "s1-1-undo", "crash"), settled]
    written = follow(state_after(*BOOKED, undo("s1-1", "s1-0"), *gone, CANCEL))[0]
    assert kinds(written) == ["tool_ended", "task_ended"]
    assert (written[0].call, written[0].outcome) == ("s1-1-undo", "cancelled")


def test_a_compensation_that_failed_and_was_requested_again_ends_once_when_its_task_is_cancelled() -> None:
    failed = e.ToolEnded("s1", "s1-1-undo", "error", error=e.Failure("tool", "error", "no", "s1-1-undo"))
    written = follow(state_after(*BOOKED, undo("s1-1"), undoing(1), failed, undo("s1-1"), CANCEL))[0]
    assert kinds(written) == ["task_ended"]


@pytest.mark.parametrize("finalize", [False, True])
def test_a_cancel_that_comes_after_the_answer_and_before_the_end_counts(finalize: bool) -> None:
    state = state_after(step(), answered(text="4"), e.StepCompleted("s1", True, "4"), CANCEL)
    written, _ = follow(state, finalize=finalize)
    assert [event.state for event in written] == ["cancelled"]


def test_a_cancelled_task_names_who_cancelled_it() -> None:
    assert recorded(state_after(e.CancelRequested(reason="enough"))).error.message == "cancelled: enough"


# --------------------------------------------------------------------------------- interrupt and pause


def test_interrupt_stops_what_runs_and_can_be_resumed() -> None:
    assert decided(state_after(*RUNNING, INTERRUPT)) == ()
    stop = e.ToolStopped("s1", "s1-0", "interrupted")
    assert decided(state_after(*RUNNING, INTERRUPT, stop)) == Wait("interrupted")
    assert effects(decided(state_after(*RUNNING, INTERRUPT, stop, e.Resumed()))) == ["CallTool s1-1"]


def test_pause_lets_what_runs_end_and_starts_nothing() -> None:
    assert effects(decided(state_after(*RUNNING, PAUSE))) == ["CallTool s1-0"]
    assert effects(decided(state_after(step(), PAUSE))) == ["CallModel s1"]
    assert decided(state_after(*RUNNING, PAUSE, ended(0))) == Wait("paused")
    assert effects(decided(state_after(*RUNNING, PAUSE, ended(0), e.Resumed()))) == ["CallTool s1-1"]


@pytest.mark.parametrize("events", [[], [step(), answered("save")], [step(), answered("save"), lost()]])
def test_a_pause_between_calls_is_a_pause_at_once(events: list[Any]) -> None:
    assert decided(state_after(*events, PAUSE)) == Wait("paused")


def test_a_message_does_not_cancel_a_last_answer_in_flight() -> None:
    state = state_after(ran("look"), e.LimitReached("steps", 1, 1), e.ModelStarted("s1", "m", 2, True))
    received = e.InputReceived((Text("quick"),), seq=state.seq + 1)
    apply(state, received)
    assert decided(state) == (CallModel("s1", state.step, state.step.model_call, True),)


# ---------------------------------------------------------------------------------------------- undo


def undoing(call: int, outcome: e.Outcome | None = None, attempt: int = 1) -> list[e.Event]:
    name = f"s1-{call}-undo"
    begin = e.ToolStarted("s1", name, "write", attempt, undoes=f"s1-{call}")
    if outcome is None:
        return [begin]
    error = None if outcome == "ok" else e.Failure("tool", "error", "cannot", name)
    return [begin, e.ToolEnded("s1", name, outcome, error=error)]


def test_compensations_run_newest_first_and_one_at_a_time() -> None:
    undo_request = undo("s1-1", "s1-0")
    assert effects(decided(state_after(*BOOKED, undo_request))) == ["UndoCall s1-1-undo"]
    assert effects(decided(state_after(*BOOKED, undo_request, undoing(1)))) == ["UndoCall s1-1-undo"]
    assert effects(decided(state_after(*BOOKED, undo_request, undoing(1, "ok")))) == ["UndoCall s1-0-undo"]
    written = follow(state_after(*BOOKED, undo_request, undoing(1, "ok"), undoing(0, "ok")))[0]
    assert [undone.verdict for undone in written[0].calls] == ["compensated", "compensated"]


def test_a_failed_compensation_stops_the_undo_until_it_is_requested_again() -> None:
    undo_request, failed = undo("s1-1", "s1-0"), undoing(1, "error")
    assert decided(state_after(*BOOKED, undo_request, failed)).reason == "undo_failed"  # type: ignore[union-attr]
    assert effects(decided(state_after(*BOOKED, undo_request, failed, undo("s1-1", "s1-0")))) == [
        "UndoCall s1-1-undo"
    ]


def test_a_forced_undo_skips_failed_compensations_and_reports_them() -> None:
    state = state_after(
        *BOOKED,
        undo("s1-1", "s1-0"),
        undoing(1, "error"),
        undo("s1-1", "s1-0", forced=True),
        undoing(0, "ok"),
    )
    assert [(undone.verdict, undone.why) for undone in recorded(state).calls] == [
        ("not_compensated", "cannot"),
        ("compensated", None),
    ]


def test_a_lost_compensation_waits_to_be_settled_and_is_never_repeated_unasked() -> None:
    gone = [undoing(1), e.ToolStopped("s1", "s1-1-undo", "crash")]
    undo_request = undo("s1-1", "s1-0")
    assert decided(state_after(*BOOKED, undo_request, *gone)).reason == "undo_unknown"  # type: ignore[union-attr]
    for verdict, follows in (("happened", "UndoCall s1-0-undo"), ("not_happened", "UndoCall s1-1-undo")):
        settled = e.OutcomeSettled("s1", "s1-1-undo", verdict)  # type: ignore[arg-type]
        assert effects(decided(state_after(*BOOKED, undo_request, *gone, settled))) == [follows]


def test_a_call_found_to_have_happened_ends_before_it_is_compensated() -> None:
    settled = e.OutcomeSettled("s1", "s1-0", "happened", "booked")
    state = state_after(step(), answered("book"), lost(name="book"), settled, undo("s1-0"))
    written, decision = follow(state)
    assert written == [e.ToolEnded("s1", "s1-0", "ok", "booked")]
    assert isinstance(decision, tuple)
    assert isinstance(decision[0], UndoCall)


def test_a_rewind_restores_the_state_after_the_kept_step() -> None:
    first = [ran("look"), e.StepCompleted("s1")]
    before = state_after(*first)
    state = state_after(*first, e.InputReceived((Text("more"),)), ran("save", index=2), undo(to=1))
    assert kinds(follow(state)[0]) == ["rewound", "step_started"]
    back = state_after(
        *first, e.InputReceived((Text("more"),)), ran("save", index=2), undo(to=1), e.Rewound(1, 1)
    )
    for name in ("messages", "turn", "tool_calls", "unread", "steps"):
        assert getattr(back, name) == getattr(before, name), name
    assert recorded(back) == e.StepStarted("s2b1", 2)


def test_undoing_feedback_brings_back_the_answer_before_it() -> None:
    first = [step(), answered(text="4"), e.StepCompleted("s1", True, "4")]
    more = [
        e.InputReceived((Text("sure?"),)),
        step(2),
        answered(text="5", index=2),
        e.StepCompleted("s2", True, "5"),
    ]
    state = state_after(*first, *more, undo(to=1), e.Rewound(1, 1))
    assert (state.answered, state.output, state.output_text) == (True, "4", "4")
    assert decided(state, finalize=False) == Wait("answered")


def test_messages_before_the_first_step_are_restored_with_it() -> None:
    received = e.InputReceived((Text("more"),))
    state = state_after(received, step(), answered(text="4"), undo(), e.Rewound(0, 1))
    assert [part.text for unread in state.unread for part in unread.parts] == ["go", "more"]


def test_messages_handed_out_before_a_rewind_stay_what_they_were() -> None:
    state = state_after(ran("look"))
    view = state.view
    texts = [message.text for message in view]
    for event in (undo(), e.Rewound(0, 1), e.StepStarted("s1b1", 1)):
        event.seq, event.time = state.seq + 1, state.time
        apply(state, event)
    assert [message.text for message in view] == texts


# ------------------------------------------------------------------------------------ forks, reopening


def forked(*events: Any, kept: int | None = None, then: tuple[Any, ...] = ()) -> Any:
    """A task of these events, and then a fork of it."""
    fork = e.TaskForked("t", "math", "other", "f2")
    return fold(start("f"), numbered(e.TaskCreated("math", (Text("go"),), "talk"), *events, fork, *then))


def test_a_fork_drops_the_requests_to_its_parent() -> None:
    for stop_request in (PAUSE, INTERRUPT, CANCEL, e.LimitReached("steps", 1, 1)):
        state = forked(ran("look"), e.StepCompleted("s1"), stop_request)
        assert recorded(state) == e.StepStarted("s2", 2)


def test_the_partial_answer_of_a_fork_is_not_text_of_its_parent() -> None:
    shared_step = [
        *step(),
        answered("look", text="so far"),
        began(0, name="look"),
        ended(0),
        e.StepCompleted("s1"),
    ]
    down = e.ModelFailed("s2", e.Failure("model", "server", "down"))
    state = forked(*shared_step, then=(step(2), down))
    assert recorded(state, rules(on_model_failure="degrade")).output == ""


def test_the_calls_of_a_subagent_are_known_after_its_second_start() -> None:
    spent = (SpentBy("poet", 1, Usage(5, 5)),)

    def begins(attempt: int) -> e.Event:
        return e.ToolStarted("s1", "s1-0", "agent", attempt, child="t.s1-0")

    started = [*step(), answered("poet"), begins(1)]
    stopped = e.ToolStopped("s1", "s1-0", "interrupted", spent=spent, unseen=100)
    state = state_after(started, stopped, begins(2), e.ToolStopped("s1", "s1-0", "interrupted", unseen=20))
    call = state.find_call("s1-0")
    assert call is not None
    assert (call.started, call.since, state.children) == (5, 5, {"t.s1-0": spent})
    assert state.driven == state.time + 120
    ends = e.ToolEnded("s1", "s1-0", "cancelled", error=e.Failure("subagent", "cancelled", "no"), unseen=3)
    state = state_after(started, e.ToolStopped("s1", "s1-0", "parked", spent=spent), begins(2), ends)
    assert state.children == {"t.s1-0": spent}
    assert state.driven == state.time + 3


STOPPED = {"pausing": False, "interrupting": False, "shutdown": False}
FORGOTTEN: dict[str, tuple[e.Event, dict[str, Any]]] = {
    "fork": (
        e.TaskForked("t", "math", "other", "f2"),
        {
            **STOPPED,
            "cancelling": False,
            "in_line": False,
            "ended": None,
            "limit": None,
            "undo": None,
            "attempt": 1,
            "thread_version": 0,
            "closing": 0,
            "driven": 0,
            "began": False,
            "base": 0,
            "end_reasons": (),
            "covers": 0,
            "own_from": 1,
        },
    ),
    "reopening": (
        e.TaskReopened(2, "resume"),
        {
            "ended": None,
            "thread_version": 0,
            "closing": 0,
            "limit": None,
            "error": None,
            "output": None,
            "output_text": "",
            "attempt": 2,
        },
    ),
    "end": (e.TaskEnded("failed"), {**STOPPED, "thread_version": 0, "error": None}),
    "resuming": (e.Resumed(), {**STOPPED, "stop_reason": None}),
    "options": (e.OptionsChanged(None), {"limit": None}),
    "undo": (
        e.Rewound(0, 1),
        {
            "error": None,
            "limit": None,
            "undo": None,
            "rejected": 0,
            "turn": 0,
            "tool_calls": 0,
            "reasons": [],
        },
    ),
}


@pytest.mark.parametrize("what", FORGOTTEN)
@pytest.mark.parametrize("graph", [False, True], ids=["row", "graph"])
def test_events_clear_the_state_that_no_longer_applies(what: str, graph: bool) -> None:
    event, fresh = FORGOTTEN[what]
    state = state_after()
    if graph:
        state.graph = Graph()
        fresh = {
            name: value
            for name, value in fresh.items()
            if what != "undo" or name in ("error", "limit", "undo")
        }
    for name, value in fresh.items():
        if name not in ("undo", "ended"):
            setattr(state, name, ["old"] if value == [] else 7)
    if what == "fork":
        state.undo = UndoState(0, [])
    if what in ("fork", "reopening"):
        state.ended, state.messages = "failed", [*state.messages, Message("user", (Text("go"),))] * 2
        del state.messages[2:]
        state.closing = 1
    event.seq, event.time = state.seq + 1, state.time
    apply(state, event)
    assert {name: getattr(state, name) for name in fresh} == fresh


def test_a_message_after_the_answer_withdraws_it_and_the_worker_finalizes_the_next_one() -> None:
    state = state_after(
        step(), answered(text="4"), e.StepCompleted("s1", True, "4"), e.AnswerFinalized("Four.")
    )
    assert (state.finalized, state.output) == (True, "Four.")
    received = e.InputReceived((Text("sure?"),), seq=state.seq + 1, time=state.time)
    apply(state, received)
    assert (state.answered, state.finalized, state.output, state.output_text) == (False, False, None, "")


@pytest.mark.parametrize(
    "ends",
    [
        [e.StepCompleted("s1", True, "4")],
        [e.StepFailed("s1", e.Failure("model", "auth", "no")), e.StepSkipped("s1")],
    ],
    ids=["answer", "skip"],
)
def test_the_count_of_wrong_answers_restarts_after_the_step(ends: list[e.Event]) -> None:
    state = state_after(step(), answered(text="4"))
    state.rejected = 2
    for end in ends:
        end.seq, end.time = state.seq + 1, state.time
        apply(state, end)
    assert state.rejected == 0


def test_a_cancelled_task_tells_why_it_was_degraded_before() -> None:
    state = state_after(ran("look"), e.StepCompleted("s1", reason="look failed"), CANCEL)
    assert recorded(state).reasons == ("look failed",)


def test_a_fork_of_an_ended_task_is_not_ended() -> None:
    ended_well = [
        step(),
        answered(text="4"),
        e.StepCompleted("s1", True, "4"),
        e.TaskEnded("completed", "4"),
    ]
    state = forked(*ended_well)
    assert (state.ended, state.attempt, state.floor) == (None, 1, 1)
    assert decided(state, finalize=False) == Wait("answered")


def test_the_input_of_a_fork_survives_the_undo_of_its_first_step() -> None:
    received = e.InputReceived((Text("instead"),))
    first = [ran("look"), e.StepCompleted("s1")]
    state = forked(*first, then=(received, step(2), answered(text="4", index=2), undo(to=1), e.Rewound(1, 1)))
    assert [part.text for unread in state.unread for part in unread.parts] == ["instead"]


def test_a_result_of_a_second_try_can_be_replaced_in_a_fork() -> None:
    state = forked(
        *[ran("save", outcome="error"), e.StepFailed("s1", e.Failure("tool", "error", "no", "s1-0"))],
        *[e.TaskEnded("failed"), e.TaskReopened(2, "resume"), e.StepStarted("s1", 1, 2)],
        *[e.ToolStarted("s1", "s1-0r2"), e.ToolEnded("s1", "s1-0r2", "ok", "done"), e.StepCompleted("s1")],
        then=(e.ResultReplaced("s1-0r2", "other", "done"),),
    )
    assert state.messages[-1].parts[0].text == "other"
    assert list(well_formed("f", state.messages)) == []


def test_a_reopened_task_has_no_output_of_the_attempt_before() -> None:
    stopped = e.ModelStopped("s1", "interrupted")
    state = state_after(
        step(), stopped, e.TaskEnded("degraded", "part", None, ("limit",)), e.TaskReopened(2, "resume")
    )
    assert (state.output, state.output_text, state.ended) == (None, "", None)


def test_a_closing_note_leaves_the_conversation_when_the_task_is_reopened() -> None:
    stopped = e.ModelStopped("s1", "interrupted")
    state = state_after(step(), stopped, e.TaskEnded("failed", kept=True))
    assert "failed" in state.messages[-1].text
    assert (
        state_after(step(), stopped, e.TaskEnded("failed", kept=True), e.TaskReopened(2, "resume"))
        .messages[-1]
        .text
        == "go"
    )


# -------------------------------------------------------------------------------- what cannot follow


@pytest.mark.parametrize(
    "events",
    [
        [e.TaskEnded("completed"), e.StepStarted("s1", 1)],
        [e.TaskEnded("completed"), e.TaskEnded("completed")],
        [answered(text="4")],
        [step(), e.StepCompleted("s2")],
        [step(), answered("save"), ended(1)],
        [ran("save"), ended(0)],
        [step(), e.ToolStarted("s1", "s1-0")],
        [e.StepSkipped("s1")],
        [e.ResultReplaced("s1-0", 1)],
        [ran("book"), e.ToolStarted("s1", "s1-0-undo", undoes="s1-0")],
    ],
)
def test_an_event_that_cannot_follow_is_refused(events: list[Any]) -> None:
    with pytest.raises(IllegalEvent, match="task t"):
        state_after(*events)


def test_a_gap_or_a_doubled_event_is_refused() -> None:
    state = state_after()
    for seq in (1, 3):
        with pytest.raises(IllegalEvent, match=f"event {seq} cannot follow event 1"):
            apply(state, e.StepStarted("s1", 1, seq=seq))


def test_driven_time_is_counted_within_an_ownership_only() -> None:
    state = start("t")
    for seq, (epoch, time) in enumerate([(1, 10), (1, 15), (2, 100), (2, 107)], 1):
        event = e.TaskCreated("math", (), "talk") if seq == 1 else e.InputReceived(())
        event.seq, event.time = seq, time
        apply(state, event, epoch)
    assert state.driven == 12


def test_a_fork_counts_its_own_driven_time_and_not_its_parents() -> None:
    state = forked(ran("look"), e.StepCompleted("s1"))
    fork, at = e.TaskForked("f", "math", "other"), state.time
    for event, time in ((e.StepStarted("s2", 2), at + 20), (fork, at + 50), (e.Resumed(), at + 57)):
        event.seq, event.time = state.seq + 1, time
        apply(state, event)
    assert state.driven == 7


# ---- what an answered task does about tickets that are open, and how calls in the background end, as a table


TWO: list[Any] = [step(), answered("put", "put"), deferred(0), deferred(1), e.StepCompleted("s1")]
ANSWER: list[Any] = [step(2), answered(text="started", index=2), e.StepCompleted("s2", True, "started")]


@pytest.mark.parametrize("at_end", ["suspend", "wait"])
def test_an_answered_task_waits_for_what_is_in_the_background(at_end: Any) -> None:
    decision = decided(state_with_tickets(TWO, ANSWER), rules(at_end=at_end))
    assert isinstance(decision, Wait)
    assert (decision.reason, [call.id for call in decision.calls]) == ("background", ["s1-0", "s1-1"])
    assert decided(state_with_tickets(TWO, ANSWER), rules(at_end=at_end), finalize=False) == Wait("answered")


def test_it_goes_on_with_one_step_once_all_is_in() -> None:
    written, decision = follow(state_with_tickets(TWO, ANSWER, completed(0)))
    assert (written, getattr(decision, "reason", "")) == ([], "background")
    written, decision = follow(state_with_tickets(TWO, ANSWER, completed(0), completed(1)))
    assert [event.kind for event in written] == ["step_started"]
    assert isinstance(decision, tuple)
    assert isinstance(decision[0], CallModel)


def test_with_detach_it_ends_with_its_tickets_open() -> None:
    state = state_with_tickets(TWO, ANSWER)
    written, decision = follow(state, rules(at_end="detach"))
    assert [event.kind for event in written] == ["task_ended"]
    assert (decision, list(state.deferred)) == (Wait("ended"), ["s1-0", "s1-1"])
    assert state.next_due() is None


def test_with_cancel_it_ends_after_its_tickets() -> None:
    written, _ = follow(state_with_tickets(TWO, ANSWER), rules(at_end="cancel"))
    ends = [(event.call, event.outcome) for event in written if isinstance(event, e.ToolEnded)]
    assert (ends, written[-1].kind) == ([("s1-0", "unknown"), ("s1-1", "unknown")], "task_ended")


def test_a_task_that_reached_a_limit_does_not_wait() -> None:
    limit = e.LimitReached("steps", 1, 1)
    written, _ = follow(state_with_tickets(TWO, limit, ANSWER))
    assert [event.kind for event in written] == ["task_ended"]


@pytest.mark.parametrize(
    ("told", "outcome"),
    [
        (e.TicketCompleted("s1", "s1-0", "film"), "ok"),
        (e.TicketFailed("s1", "s1-0", "no film"), "error"),
    ],
)
@pytest.mark.parametrize(
    "before",
    [
        pytest.param(deferred(0), id="deferred"),
        pytest.param(
            [issued(), began(0, name="put"), e.ToolStopped("s1", "s1-0", "crash")], id="cut off, idempotent"
        ),
        pytest.param([issued(), began(0, name="save"), e.ToolStopped("s1", "s1-0", "crash")], id="lost"),
        pytest.param(
            [issued(), began(0), e.ToolStopped("s1", "s1-0", "crash"), e.OutcomeUnresolved("s1", "s1-0")],
            id="unresolved",
        ),
    ],
)
def test_what_is_told_by_a_ticket_ends_the_call(before: list[Any], told: e.Event, outcome: str) -> None:
    end = recorded(state_with_tickets(step(), answered("put"), before, told))
    assert (end.kind, end.call, end.outcome) == ("tool_ended", "s1-0", outcome)
    assert end.error is None or end.error.message == "no film"


def test_a_call_whose_tool_still_runs_is_let_run() -> None:
    running = [issued(), began(0, name="put"), e.TicketCompleted("s1", "s1-0", "film")]
    decision = decided(state_with_tickets(step(), answered("put"), running))
    assert isinstance(decision, tuple)
    assert [effect.id for effect in decision] == ["s1-0"]


def test_of_a_long_result_the_model_sees_a_part() -> None:
    end = recorded(state_with_tickets(TWO, e.TicketCompleted("s1", "s1-0", "x" * 500)), rules(max_chars=100))
    assert end.output == "x" * 500
    assert "400 characters cut; full output: call s1-0" in end.observation[0].text


@pytest.mark.parametrize(("name", "outcome"), [("put", "unknown"), ("save", "unknown"), ("look", "timeout")])
def test_a_ticket_that_expired_ends_its_call_as_one_that_took_too_long(name: str, outcome: str) -> None:
    state = state_with_tickets(step(), answered(name), deferred(name=name), e.StepCompleted("s1"))
    expired = e.TicketExpired("s1", "s1-0")
    expired.seq, expired.time = state.seq + 1, 900
    from treadle.core.rules.fold import apply

    apply(state, expired)
    end = recorded(state)
    assert (end.outcome, end.error.kind, end.output) == (outcome, "timeout", "job")


@pytest.mark.parametrize(("name", "outcome"), [("put", "unknown"), ("look", "cancelled")])
def test_cancel_ends_what_is_in_the_background_too(name: str, outcome: str) -> None:
    cancelled = [step(), answered(name), deferred(name=name), e.StepCompleted("s1"), e.CancelRequested()]
    written, _ = follow(state_with_tickets(cancelled))
    assert [event.kind for event in written] == ["tool_ended", "task_ended"]
    assert getattr(written[0], "outcome", "") == outcome


def test_undo_cancels_the_tickets_of_its_steps_and_compensates_their_calls() -> None:
    done = [step(), answered("book"), deferred(name="book"), e.StepCompleted("s1"), undo("s1-0")]
    state = state_with_tickets(done)
    written, decision = follow(state)
    assert [(event.kind, getattr(event, "outcome", "")) for event in written] == [("tool_ended", "unknown")]
    assert isinstance(decision, tuple)
    assert isinstance(decision[0], UndoCall)
    assert decision[0].call.as_tool_call.output == "job"


def test_undo_leaves_the_tickets_of_earlier_steps_open() -> None:
    later = [TWO, step(2), answered(text="so", index=2), e.StepCompleted("s2")]
    written, _ = follow(state_with_tickets(later, e.UndoRequested(1, ("s2",))))
    assert written[0].kind == "rewound"


# ---- requests to models that are judged: nothing goes out without a permit, and a permit holds for one question


JUDGING = rules(judges_requests=True, gated=True)
OPENED = e.StepStarted("s1", 1)


def judged(verdict: e.RequestVerdict, index: int = 1) -> e.RequestJudged:
    return e.RequestJudged(f"s{index}", verdict, "m", "a-rule", "why")


def wanted(state: TaskState) -> list[tuple[type, str]]:
    decision: Any = decided(state, JUDGING)
    assert isinstance(decision, tuple), decision
    return [(type(effect), effect.id) for effect in decision]


JUDGE, ASK = [(JudgeRequest, "s1-judge")], [(CallModel, "s1")]


@pytest.mark.parametrize(
    ("events", "wants"),
    [
        ([OPENED], JUDGE),
        ([OPENED, judged("allow")], ASK),
        ([OPENED, judged("allow"), e.ModelStarted("s1", "m")], ASK),
        ([OPENED, e.ModelStarted("s1", "m")], ASK),  # it went out before there was a policy
        ([OPENED, judged("allow"), e.ModelStarted("s1", "m"), e.ModelStopped("s1", "crash")], ASK),
        ([OPENED, judged("ask")], JUDGE),  # the pause was lost in a crash
        ([OPENED, judged("ask"), e.PauseRequested("policy", "why"), e.Resumed()], ASK),
        ([OPENED, judged("ask"), e.Resumed()], JUDGE),  # nothing was paused, so nobody let it go
        ([OPENED, e.PauseRequested("ann"), judged("deny"), e.Resumed()], JUDGE),
        ([OPENED, judged("allow"), e.TaskForked("t0", "math", "talk")], JUDGE),  # a fork inherits no permit
    ],
)
def test_a_request_goes_out_only_with_a_permit(events: list[Any], wants: list[tuple[type, str]]):
    assert wanted(state_after(*events)) == wants


@pytest.mark.parametrize(
    ("failed", "wants"),
    [
        (e.ModelFailed("s1", DOWN, retry_at=9), ASK),
        (e.ModelFailed("s1", DOWN, retry_at=9, route="a", next_route="b"), JUDGE),  # another model
    ],
)
def test_a_permit_holds_for_the_next_attempt_at_the_same_model(
    failed: e.Event, wants: list[tuple[type, str]]
):
    state = state_after(OPENED, judged("allow"), e.ModelStarted("s1", "m"), failed)
    state.step.model_call.tries.retry_at = None  # type: ignore[union-attr]  # pyright: ignore[reportOptionalMemberAccess]
    assert wanted(state) == wants


def test_the_next_question_needs_a_permit_of_its_own():
    asked = state_after(OPENED, judged("allow"), e.ModelStarted("s1", "m"), answered("look"))
    assert [call.permit for _, call in asked.open_model_calls()] == [None]
    done = state_after(OPENED, judged("allow"), *ran("look")[1:])
    events, decision = follow(done, JUDGING)
    assert [event.kind for event in events] == ["step_completed", "step_started"]
    assert [(type(effect), effect.id) for effect in decision] == [(JudgeRequest, "s2-judge")]  # type: ignore[union-attr]


def test_a_denied_request_fails_the_step_as_a_failed_model_does():
    denied = [
        judged("deny"),
        e.ModelStarted("s1", "m"),
        e.ModelFailed("s1", e.Failure("model", "denied", "no")),
    ]
    state = state_after(OPENED, *denied)
    assert state.model_calls == 0, "nothing went out"
    assert isinstance(decided(state, JUDGING), e.StepFailed)
    pausing = rules(judges_requests=True, gated=True, on_model_failure="pause")
    assert isinstance(decided(state, pausing), e.PauseRequested)
    resumed = state_after(OPENED, *denied, e.PauseRequested("failure policy", "no"), e.Resumed())
    decision: Any = decided(resumed, pausing)
    assert [type(effect) for effect in decision] == [JudgeRequest], "it is judged once more"


def test_a_paused_task_rests_until_it_is_resumed():
    state = state_after(OPENED, judged("ask"), e.PauseRequested("policy", "why"))
    assert decided(state, JUDGING) == Wait("paused")


def test_requests_of_step_functions_are_judged_one_by_one():
    requested = [e.ModelRequested("s1", f"s1-m{n}", f"k{n}", "d", (Message("user", ()),)) for n in (1, 2)]
    planned = [e.StepsPlanned((e.NextStep("a"),)), e.StepStarted("s1", 1), *requested]
    state = state_after(*planned, e.RequestJudged("s1", "allow", "m", call="s1-m1"))
    decision: Any = lifecycle.decide(state, JUDGING, step_functions.decide, finalize=True)
    assert [(type(effect), effect.id) for effect in decision][1:] == [
        (CallModel, "s1-m1"),
        (JudgeRequest, "s1-m2-judge"),
    ]


def test_without_a_policy_on_models_no_request_is_judged():
    assert [(type(effect), effect.id) for effect in decided(state_after(OPENED))] == ASK  # type: ignore[union-attr]


def test_a_request_that_is_out_is_not_judged_any_more():
    with pytest.raises(e.IllegalEvent, match="request_judged names s1, whose request is begun"):
        state_after(*step(), judged("allow"))
