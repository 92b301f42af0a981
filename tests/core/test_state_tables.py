"""The tables of states in `docs/architecture.md` say what the rules do: every cell is driven."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from treadle.core import events as e
from treadle.core.messages import Message, Text, ToolCall
from treadle.core.rules.fold import apply
from treadle.core.state import TaskState, start

PAGE: Final = Path(__file__).parents[2] / "docs" / "architecture.md"
DOWN: Final = e.Failure("model", "server", "down")
GIVEN_UP: Final = e.Failure("tool", "error", "no")
CREATED: Final = e.TaskCreated("agent", (Text("go"),), "thread")
ASKED: Final = (CREATED, e.StepStarted("s1", 1))
CALLING: Final = e.ModelReturned("s1", Message("assistant", (ToolCall("s1-0", "put", {}),)), "tool_calls")
CALLED: Final = (*ASKED, e.ModelStarted("s1", "m"), CALLING)
PLANNED: Final = (CREATED, e.StepsPlanned((e.NextStep("a"), e.NextStep("b", after=("a",)))))
REQUESTED: Final = (
    *PLANNED,
    e.StepStarted("s1", 1),
    e.ModelRequested("s1", "s1-m1", "k", "d", (Message("user", ()),)),
)


def tables() -> dict[str, dict[str, list[tuple[str, str]]]]:
    """Return the rows of each table by the state before: the events, each with the state after it."""
    section = PAGE.read_text(encoding="utf-8").split("\n## States\n")[1].split("\n## ")[0]
    found: dict[str, dict[str, list[tuple[str, str]]]] = {}
    for part in section.split("\n### ")[1:]:
        rows = [
            [cell.strip() for cell in line.split("|")[1:-1]] for line in part.splitlines() if line[:1] == "|"
        ]
        events = rows[0][1:]
        assert all(len(row) == len(rows[0]) for row in rows)
        found[part.splitlines()[0]] = {row[0]: list(zip(events, row[1:], strict=True)) for row in rows[2:]}
    return found


TABLES: Final = tables()


def state_after(*events: e.Event) -> TaskState:
    """Return the state after some events, a microsecond apart."""
    state = start("t")
    for event in events:
        event.seq, event.time = state.seq + 1, state.time + 1
        apply(state, event)
    return state


def drive(before: tuple[e.Event, ...], event: e.Event, stands: Callable[[TaskState], str]) -> str:
    """Return the state that an event leads to; `-` if the event cannot follow."""
    state = state_after(*before)
    event.seq, event.time = state.seq + 1, state.time + 1_000
    try:
        apply(state, event)
    except e.IllegalEvent:
        return "-"
    return stands(state)


def each_row(table: str) -> Callable[[Callable[[str, str, str], None]], Any]:
    """Make a test for each row of a table of a check of one cell: the state before, the event, the state after."""

    def decorate(check: Callable[[str, str, str], None]) -> Any:
        def test(before: str) -> None:
            for event, after in TABLES[table][before]:
                try:
                    check(before, event, after)
                except AssertionError as error:
                    error.add_note(f"{before} | {event}")
                    raise

        return pytest.mark.parametrize("before", TABLES[table])(test)

    return decorate


# ----------------------------------------------------------------------------------- a model call

ANSWER: Final = Message("assistant", (Text("4"),))


def model_event(name: str, step: str, call: str | None) -> e.Event:
    return {
        "ModelStarted": e.ModelStarted(step, "m", call=call),
        "ModelReturned": e.ModelReturned(step, ANSWER, call=call),
        "AnswerHeld": e.AnswerHeld(step, ANSWER, call=call),
        "ModelFailed": e.ModelFailed(step, DOWN, call),
        "ModelFailed, to retry": e.ModelFailed(step, DOWN, call, retry_at=100),
        "ModelStopped": e.ModelStopped(step, "crash", call),
        "TimerFired": e.TimerFired(step, call),
        "RequestJudged": e.RequestJudged(step, "allow", "m", call=call),
    }[name]


WAYS_TO_MODEL_STATES: Final = {
    "proposed": (),
    "begun": ("ModelStarted",),
    "held": ("ModelStarted", "AnswerHeld"),
    "waiting": ("ModelStarted", "ModelFailed, to retry"),
    "answered": ("ModelStarted", "ModelReturned"),
    "failed": ("ModelStarted", "ModelFailed"),
}


def model_call_of(state: TaskState) -> str:
    if state.graph is None:
        assert state.step is not None
        call = state.step.model_call
    else:
        call = state.graph.nodes["s1"].memo["k"].done
    waits = call.tries is not None and call.tries.retry_at is not None
    return "waiting" if waits else call.status


@each_row("A model call")
def test_a_model_call(before: str, event: str, after: str) -> None:
    for first, call in ((ASKED, None), (REQUESTED, "s1-m1")):
        way = (*first, *[model_event(name, "s1", call) for name in WAYS_TO_MODEL_STATES[before]])
        assert model_call_of(state_after(*way)) == before
        again = after.endswith(" (again)")
        expected = after.removesuffix(" (again)") if call is None or not again else "-"
        assert drive(way, model_event(event, "s1", call), model_call_of) == expected


# ------------------------------------------------------------------------------------ a tool call


def tool_event(name: str, call: str = "s1-0") -> e.Event:
    name, _, how = name.partition(": ")
    number = 2 if how == "second" else 1
    made: dict[str, Callable[[], e.Event]] = {
        "QuestionAsked": lambda: asked(number),
        "QuestionAnswered": lambda: e.QuestionAnswered("s1", call, number, "yes"),
        "QuestionExpired": lambda: e.QuestionExpired("s1", call, number),
        "ToolStarted": lambda: started(how or "write"),
        "ArgumentsRewritten": lambda: e.ArgumentsRewritten("s1", call, 1, {"n": 2}),
        "ToolStopped": lambda: (
            e.ToolStopped("s1", call, "error", GIVEN_UP, failed="t.s1-0")
            if how == "agent, to retry"
            else e.ToolStopped("s1", call, "crash")
        ),
        "OutcomeSettled": lambda: e.OutcomeSettled(
            "s1", call, "happened" if how == "happened" else "not_happened"
        ),
        "OutcomeUnresolved": lambda: e.OutcomeUnresolved("s1", call),
        "CallEdited": lambda: e.CallEdited("s1", call, {"n": 2}, {}),
        "ToolEnded": lambda: e.ToolEnded("s1", call, "error" if how == "error" else "ok", error=None),
        "SleepStarted": lambda: e.SleepStarted("s1", call, 20),
        "SleepEnded": lambda: e.SleepEnded("s1", call),
        "TicketIssued": lambda: e.TicketIssued("s1", call, "digest"),
        "CallDeferred": lambda: e.CallDeferred("s1", call, 20),
        "TicketProgressed": lambda: e.TicketProgressed("s1", call, "half"),
        "TicketCompleted": lambda: e.TicketCompleted("s1", call, "whole"),
        "TicketFailed": lambda: e.TicketFailed("s1", call, "broken"),
        "TicketExpired": lambda: e.TicketExpired("s1", call),
    }
    return made[name]()


def started(effect: str) -> e.ToolStarted:
    child = "t.s1-0" if effect == "agent" else None
    return e.ToolStarted("s1", "s1-0", effect, undo=effect == "write", child=child)  # type: ignore[arg-type]


def asked(number: int, place: int | None = None) -> e.QuestionAsked:
    return e.QuestionAsked("s1", "s1-0", number, "Go?", {}, "digest", place or number, expires=20)


WAYS_TO_CALL_STATES: Final = {
    "proposed": (),
    "begun": ("ToolStarted",),
    "in doubt": ("ToolStarted: idempotent", "ToolStopped"),
    "asking": ("ToolStarted: read", "QuestionAsked"),
    "sleeping": ("ToolStarted: read", "SleepStarted"),
    "lost": ("ToolStarted", "ToolStopped"),
    "unresolved": ("ToolStarted", "ToolStopped", "OutcomeUnresolved"),
    "happened": ("ToolStarted", "ToolStopped", "OutcomeSettled: happened"),
    "parked": ("ToolStarted: agent", "ToolStopped"),
    "deferred": ("TicketIssued", "ToolStarted", "CallDeferred"),
    "ended": ("ToolStarted", "ToolEnded"),
}


def tool_call_of(state: TaskState) -> str:
    call = state.find_call("s1-0")
    assert call is not None
    if call.status == "unresolved" and call.outcome == "ok":
        return "happened"
    return "in doubt" if call.status == "proposed" and call.in_doubt else call.status


@each_row("A tool call")
def test_a_tool_call(before: str, event: str, after: str) -> None:
    way = [tool_event(name) for name in WAYS_TO_CALL_STATES[before]]
    if before == "begun" and event.startswith("ToolStopped: "):
        way = [started(event.removeprefix("ToolStopped: ").removesuffix(", to retry"))]
    if before == "begun" and event.startswith("SleepStarted: "):
        way[0] = started(event.removeprefix("SleepStarted: "))
    if before in ("begun", "asking") and event.startswith("QuestionAsked: "):
        is_read = event == "QuestionAsked: read"
        way[0] = started("read" if is_read or before == "asking" else "write")
        event = "QuestionAsked: second" if before == "asking" and is_read else event
    assert tool_call_of(state_after(*CALLED, *way)) == before
    assert drive((*CALLED, *way), tool_event(event), tool_call_of) == after


# ------------------------------------------------------------------------------------ a question


WAYS_TO_QUESTIONS: Final = {
    "none": ("ToolStarted: read",),
    "open": ("ToolStarted: read", "QuestionAsked"),
    "answered": ("ToolStarted: read", "QuestionAsked", "QuestionAnswered", "ToolStarted: read"),
    "expired": ("ToolStarted: read", "QuestionAsked", "QuestionExpired", "ToolStarted: read"),
}


def question_of(state: TaskState) -> str:
    """Return how the question at the first place of the call's code stands."""
    call = state.find_call("s1-0")
    assert call is not None
    status = call.questions[0].status if call.questions else "none"
    assert bool(state.questions) == (status == "open")
    return status


def late(events: Iterator[e.Event]) -> list[e.Event]:
    """Return the events with so many others before an expiry that its time has come."""
    return [each for event in events for each in (*_filled(event), event)]


def _filled(event: e.Event) -> list[e.Event]:
    return [e.Resumed() for _ in range(20)] if isinstance(event, e.QuestionExpired) else []


@each_row("A question")
def test_a_question(before: str, event: str, after: str) -> None:
    way = late(tool_event(name) for name in WAYS_TO_QUESTIONS[before])
    assert question_of(state_after(*CALLED, *way)) == before
    number = 2 if before in ("answered", "expired") else 1
    follows = asked(number, 1) if event == "QuestionAsked" else tool_event(event)
    assert drive((*CALLED, *way), follows, question_of) == after


# --------------------------------------------------------------------------------------- a ticket

WAYS_TO_TICKETS: Final = {
    "none": (),
    "issued": ("TicketIssued",),
    "begun": ("TicketIssued", "ToolStarted: idempotent"),
    "early": ("TicketIssued", "ToolStarted: idempotent", "TicketCompleted"),
    "deferred": ("TicketIssued", "ToolStarted: idempotent", "CallDeferred"),
    "completed": ("TicketIssued", "ToolStarted: idempotent", "CallDeferred", "TicketCompleted"),
    "ended": ("TicketIssued", "ToolStarted: idempotent", "CallDeferred", "TicketCompleted", "ToolEnded"),
}


def ticket_of(state: TaskState) -> str:
    call = state.find_call("s1-0")
    assert call is not None
    assert (call.id in state.deferred) == (call.status == "deferred")
    if call.ticket is None:
        return "none"
    assert state.tickets == {"digest": call}
    if call.status == "ended":
        return "ended"
    if call.ticket.completion is not None:
        return "completed" if call.status == "deferred" else "early"
    return call.status if call.status in ("deferred", "begun") else "issued"


@each_row("A ticket")
def test_a_ticket(before: str, event: str, after: str) -> None:
    way = [tool_event(name) for name in WAYS_TO_TICKETS[before]]
    assert ticket_of(state_after(*CALLED, *way)) == before
    assert drive((*CALLED, *way), tool_event(event), ticket_of) == after


def test_a_ticket_does_not_expire_before_its_time() -> None:
    way = [tool_event(name) for name in WAYS_TO_TICKETS["deferred"]]
    state = state_after(*CALLED, *way)
    early = e.TicketExpired("s1", "s1-0", seq=state.seq + 1, time=19)
    with pytest.raises(e.IllegalEvent, match="has not expired"):
        apply(state, early)


@pytest.mark.parametrize("event", ["TicketCompleted", "TicketFailed"])
def test_after_the_end_of_a_task_only_a_completed_call_in_the_background_ends(event: str) -> None:
    way = [tool_event(name) for name in WAYS_TO_TICKETS["deferred"]]
    ended = (*CALLED, *way, e.StepCompleted("s1"), e.TaskEnded("completed", "so"))
    assert drive(ended, tool_event("ToolEnded"), ticket_of) == "-"
    assert drive(ended, tool_event(event), ticket_of) == "completed"
    assert drive((*ended, tool_event(event)), tool_event("ToolEnded"), ticket_of) == "ended"


# ---------------------------------------------------------------------------------- a conversation

NEXT: Final = e.NextAgent("desk", "s1-0", "transfer_to_desk")


def conversation_event(name: str) -> e.Event:
    return {
        "AgentChanged": lambda: e.AgentChanged("s1", "s1-0", "desk", "math"),
        "StepStarted": lambda: e.StepStarted("s2", 2),
        "InputReceived": lambda: e.InputReceived((Text("more"),)),
        "Rewound": lambda: e.Rewound(0, 1),
        "TaskForked": lambda: e.TaskForked("t", "math", "other"),
        "TaskForked: to another agent": lambda: e.TaskForked("t", "shop", "other", "version"),
    }[name]()


def conversation_of(state: TaskState) -> str:
    if state.team is None:
        return "here"
    return "moved" if state.team.next is None else "to move"


@each_row("A conversation")
def test_a_conversation(before: str, event: str, after: str) -> None:
    ended = e.StepCompleted("s1", next_agent=NEXT if before != "here" else None)
    way = (*CALLED, e.ToolStarted("s1", "s1-0"), e.ToolEnded("s1", "s1-0"), ended)
    if before == "moved":
        way = (*way, conversation_event("AgentChanged"))
    assert conversation_of(state_after(*way)) == before
    assert drive(way, conversation_event(event), conversation_of) == after


# --------------------------------------------------------------------------------------- a permit

EDITED: Final = {"n": 2}


def permit_event(name: str, number: int = 1) -> e.Event:
    name, _, how = name.partition(": ")
    made: dict[str, Callable[[], e.Event]] = {
        "CallJudged": lambda: e.CallJudged("s1", "s1-0", how, arguments=EDITED),  # type: ignore[arg-type]
        "ApprovalRequested": lambda: e.ApprovalRequested("s1", "s1-0", number, "d", "a", 20),
        "ApprovalGiven": lambda: e.ApprovalGiven(
            "s1", "s1-0", number, arguments=EDITED if how == "edited" else None
        ),
        "ApprovalDenied": lambda: e.ApprovalDenied("s1", "s1-0", number),
        "ApprovalExpired": lambda: e.ApprovalExpired("s1", "s1-0", number),
        "ApprovalVoided": lambda: e.ApprovalVoided("s1", "s1-0", number, "changed"),
        "CallEdited": lambda: tool_event("CallEdited"),
        "ToolStarted": lambda: started("idempotent"),
    }
    return made[name]()


WAYS_TO_PERMITS: Final = {
    "none": (),
    "allowed": ("CallJudged: allow",),
    "asked": ("ApprovalRequested",),
    "edited": ("ApprovalRequested", "ApprovalGiven: edited"),
    "approved": ("ApprovalRequested", "ApprovalGiven"),
    "denied": ("ApprovalRequested", "ApprovalDenied"),
}


def permit_of(state: TaskState) -> str:
    call = state.find_call("s1-0")
    assert call is not None
    assert ("s1-0" in state.open_approvals) == (call.permit is not None and call.permit.status == "asked")
    return call.permit.status if call.permit is not None else "none"


@each_row("A permit")
def test_a_permit(before: str, event: str, after: str) -> None:
    if before == "used":
        stopped = e.ToolStopped("s1", "s1-0", "crash")
        way = [permit_event("CallJudged: allow"), started("idempotent"), stopped]
    else:
        way = [permit_event(name) for name in WAYS_TO_PERMITS[before]]
    assert permit_of(state_after(*CALLED, *way)) == before
    assert drive((*CALLED, *way), permit_event(event), permit_of) == after


@pytest.mark.parametrize("event", ["ApprovalGiven", "ApprovalDenied", "ApprovalExpired"])
def test_a_decision_on_another_request_of_the_call_cannot_follow(event: str) -> None:
    way = (*CALLED, permit_event("ApprovalRequested"))
    assert drive(way, permit_event(event, 2), permit_of) == "-"


# --------------------------------------------------------------------------------------- a content

CONTENT: Final = "s1-0-value"


def content_event(name: str) -> e.Event:
    name, _, how = name.partition(": ")
    made: dict[str, Callable[[], e.Event]] = {
        "GuardrailJudged": lambda: e.GuardrailJudged("s1", CONTENT, "result", how, content={"result": "x"}),  # type: ignore[arg-type]
        "ApprovalRequested": lambda: e.ApprovalRequested("s1", CONTENT, 1, "d", "a", 20),
        "ApprovalGiven": lambda: e.ApprovalGiven(
            "s1", CONTENT, 1, arguments={"result": "y"} if how == "edited" else None
        ),
        "ApprovalDenied": lambda: e.ApprovalDenied("s1", CONTENT, 1),
        "ApprovalExpired": lambda: e.ApprovalExpired("s1", CONTENT, 1),
        "StepFailed": lambda: e.StepFailed("s1", GIVEN_UP),
    }
    return made[name]()


ASKED_ABOUT: Final = ("GuardrailJudged: ask", "ApprovalRequested")
WAYS_TO_CONTENTS: Final = {
    "open": ("GuardrailJudged: rewrite",),
    "asked": ASKED_ABOUT,
    "edited": (*ASKED_ABOUT, "ApprovalGiven: edited"),
    "allowed": ("GuardrailJudged: allow",),
    "approved": (*ASKED_ABOUT, "ApprovalGiven"),
    "denied": ("GuardrailJudged: deny",),
}


def content_of(state: TaskState) -> str:
    permit = state.checks[CONTENT].permit
    assert (CONTENT in state.open_approvals) == (permit is not None and permit.status == "asked")
    return permit.status if permit is not None else "open"


@each_row("A content")
def test_a_content(before: str, event: str, after: str) -> None:
    ended = (started("idempotent"), e.ToolEnded("s1", "s1-0", "ok", "x"))
    way = (*CALLED, *ended, *[content_event(name) for name in WAYS_TO_CONTENTS[before]])
    assert content_of(state_after(*way)) == before
    assert drive(way, content_event(event), content_of) == after


# --------------------------------------------------------------------------------- a compensation

DONE: Final = (started("write"), e.ToolEnded("s1", "s1-0", "ok"), e.StepCompleted("s1"))


def undo_event(name: str) -> e.Event:
    if name.startswith("UndoRequested"):
        return e.UndoRequested(0, ("s1",), ("s1-0",), forced=name.endswith("forced"))
    if name == "ToolStarted":
        return e.ToolStarted("s1", "s1-0-undo", "write", undoes="s1-0")
    return tool_event(name, "s1-0-undo")


WAYS_TO_UNDO_STATES: Final = {
    "none": (),
    "begun": ("ToolStarted",),
    "lost": ("ToolStarted", "ToolStopped"),
    "not_happened": ("ToolStarted", "ToolStopped", "OutcomeSettled: not happened"),
    "done": ("ToolStarted", "ToolEnded: ok"),
    "failed": ("ToolStarted", "ToolEnded: error"),
    "skipped": ("ToolStarted", "ToolEnded: error", "UndoRequested: forced"),
}


def compensation_of(state: TaskState) -> str:
    call = state.find_call("s1-0")
    assert call is not None
    return call.undo_status


@each_row("A compensation")
def test_a_compensation(before: str, event: str, after: str) -> None:
    undo_requested = (*CALLED, *DONE, undo_event("UndoRequested"))
    way = (*undo_requested, *[undo_event(name) for name in WAYS_TO_UNDO_STATES[before]])
    assert compensation_of(state_after(*way)) == before
    assert drive(way, undo_event(event), compensation_of) == after


@pytest.mark.parametrize("event", ["ToolStarted", "ToolStopped", "OutcomeSettled: happened", "ToolEnded: ok"])
def test_without_an_undo_no_event_names_a_compensation(event: str) -> None:
    assert drive((*CALLED, *DONE), undo_event(event), compensation_of) == "-"


# ----------------------------------------------------------------------------------------- steps


def step_event(name: str, step: str = "s1") -> e.Event:
    return {
        "StepStarted": e.StepStarted(step, 1),
        "StepStarted: another step": e.StepStarted("s2", 2),
        "StepCompleted": e.StepCompleted(step),
        "StepFailed": e.StepFailed(step, DOWN),
        "StepSkipped": e.StepSkipped(step, "step"),
    }[name]


def step_of(state: TaskState) -> str:
    if state.step is not None:
        return state.step.status
    return state.steps[-1].status if state.steps else "none"


@each_row("A step of an agent")
def test_a_step_of_an_agent(before: str, event: str, after: str) -> None:
    way = {"none": (), "running": ("StepStarted",), "failed": ("StepStarted", "StepFailed")}[before]
    events = (CREATED, *[step_event(name) for name in way])
    assert step_of(state_after(*events)) == before
    assert drive(events, step_event(event), step_of) == after


WAYS_TO_STEPS: Final = {
    "planned": ("s2", ()),
    "ready": ("s1", ()),
    "running": ("s1", ("StepStarted",)),
    "failed": ("s1", ("StepStarted", "StepFailed")),
    "completed": ("s1", ("StepStarted", "StepCompleted")),
    "skipped": ("s1", ("StepSkipped",)),
}


@each_row("A step function")
def test_a_step_function(before: str, event: str, after: str) -> None:
    step, way = WAYS_TO_STEPS[before]

    def stands(state: TaskState) -> str:
        assert state.graph is not None
        return state.graph.nodes[step].status

    events = (*PLANNED, *[step_event(name, step) for name in way])
    assert stands(state_after(*events)) == before
    assert drive(events, step_event(event, step), stands) == after


# ---------------------------------------------------------------------------------------- a task


def task_event(name: str) -> e.Event:
    return {
        "PauseRequested": e.PauseRequested(),
        "InterruptRequested": e.InterruptRequested(),
        "CancelRequested": e.CancelRequested(),
        "Resumed": e.Resumed(),
        "ThreadAwaited": e.ThreadAwaited(),
        "ThreadEntered": e.ThreadEntered(),
        "InputReceived": e.InputReceived((Text("and?"),)),
        "TaskEnded": e.TaskEnded("failed", None, GIVEN_UP),
        "TaskReopened": e.TaskReopened(2, "resume"),
    }[name]


WAYS_TO_TASKS: Final = {
    "waiting": "ThreadAwaited",
    "pausing": "PauseRequested",
    "interrupting": "InterruptRequested",
    "cancelling": "CancelRequested",
    "ended": "TaskEnded",
}


def task_of(state: TaskState) -> str:
    holds = {
        "ended": state.ended is not None,
        "cancelling": state.cancelling,
        "interrupting": state.interrupting,
        "pausing": state.pausing,
        "answered": state.answered,
        "waiting": state.in_line,
    }
    return next((name for name, held in holds.items() if held), "open")


@each_row("A task")
def test_a_task(before: str, event: str, after: str) -> None:
    way: tuple[e.Event, ...] = (CREATED,)
    if before == "answered":
        answer = e.ModelReturned("s1", ANSWER)
        way = (*ASKED, e.ModelStarted("s1", "m"), answer, e.StepCompleted("s1", True, "4"))
    elif before != "open":
        way = (CREATED, task_event(WAYS_TO_TASKS[before]))
    assert task_of(state_after(*way)) == before
    assert drive(way, task_event(event), task_of) == after


# -------------------------------------------------------------------------------- all that there is


def events_without_a_table() -> Iterator[str]:
    cells = [cell for table in TABLES.values() for row in table.values() for cell in row]
    named = {re.split(r"[:,]", event)[0] for event, _ in cells}
    yield from sorted({cls.__name__ for cls in e.EVENTS.values()} - named)


def test_every_event_that_moves_a_call_a_step_or_a_task_has_a_column() -> None:
    assert list(events_without_a_table()) == [
        "AnswerFinalized",
        "CallRequested",
        "CommandRejected",
        "DriverSurvived",
        "InputEdited",
        "InstructionsSet",
        "LimitReached",
        "MessagesImported",
        "ModelRequested",
        "OptionsChanged",
        "ResultReplaced",
        "RouteChosen",
        "StateOverwritten",
        "StepRequested",
        "StepsPlanned",
        "SummaryRequested",
        "TaskCreated",
        "ValueKept",
        "VersionChanged",
        "WorkerFailed",
    ]
