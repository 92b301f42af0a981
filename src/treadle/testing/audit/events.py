"""Invariants of a task's events: numbering, ends, calls, conversations and the ledger of effects.

Pure functions that return violations. They do not use the engine's fold, so they do not share its mistakes.
`treadle.testing.audit` runs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, Literal

from treadle.core import events as e
from treadle.core.data import frozen, mutable
from treadle.core.ids import (
    answer_place,
    approval_id,
    approved_call,
    asking_id,
    attempt_of,
    base_call_id,
    call_id_in_attempt,
    is_undo,
    undone_call,
)
from treadle.core.json_schema import misfit
from treadle.core.messages import Message, ToolCall, ToolResult
from treadle.core.rules.model_calls import UNSENT
from treadle.core.spending import PICODOLLARS
from treadle.core.tools import EffectClass

Invariant = Literal[
    "gap_free",
    "times_go_on",
    "one_end",
    "unknown_iff_lost",
    "approved_starts",
    "answered_questions",
    "judged_requests",
    "guarded",
    "one_task_end",
    "delivered_once",
    "ended",
    "epochs_grow",
    "one_writer",
    "stopped",
    "limits",
    "well_formed",
    "prefix_folds",
    "refold",
    "undo_restores",
    "state_adds_up",
    "offers_stay",
    "handed_over",
    "fork_equals_parent",
    "ledger",
    "acknowledged",
    "unchanged",
    "stream",
    "untouched",
    "secrets",
    "chain",
    "children",
    "threads",
    "labels",
    "tracebacks",
]
"""The name of a check; `NUMBERS` maps it to its numbered invariant."""


NUMBERS: Final[dict[Invariant, str]] = {
    "gap_free": "I1",
    "times_go_on": "I1",
    "chain": "I1",
    "prefix_folds": "I1",
    "refold": "I1",
    "one_end": "I2",
    "delivered_once": "I2",
    "children": "I2",
    "ledger": "I3",
    "acknowledged": "I4",
    "unchanged": "I4",
    "undo_restores": "I4",
    "state_adds_up": "I4",
    "offers_stay": "I4",
    "handed_over": "I4",
    "well_formed": "I5",
    "tracebacks": "I5",
    "epochs_grow": "I6",
    "one_writer": "I6",
    "stopped": "I7",
    "approved_starts": "I8",
    "answered_questions": "I8",
    "judged_requests": "I8",
    "guarded": "I8",
    "one_task_end": "I9",
    "ended": "I9",
    "stream": "I10",
    "limits": "I11",
    "secrets": "I12",
    "unknown_iff_lost": "I13",
    "untouched": "I14",
    "fork_equals_parent": "I14",
    "threads": "I14",
    "labels": "I15",
}
"""The numbered invariant of each check."""


@frozen
class Violation:
    """A failed check: its name, the task, the event, and the problem."""

    name: Invariant
    task: str
    seq: int
    text: str

    def __str__(self) -> str:
        return f"{NUMBERS[self.name]} {self.name}: task {self.task}, event {self.seq}: {self.text}"


@frozen
class LedgerEntry:
    """A tool's own record, outside the journal, that a call started or that its effect happened.

    Args:
        call: the call's id in its task, `ToolContext.call_id`.
        key: the call's idempotency key.
        effect: the declared effect class of the tool.
        phase: `start` before the effect, `done` after it.
        task: the task, if the ledger holds several.
        attempt: the number of this start, `ToolContext.attempt`; 0 if unknown.
        driver: a unique name of the process that drove the task; empty if unknown.
        time: microseconds since 1970; 0 if unknown.
    """

    call: str
    key: str
    effect: EffectClass
    phase: Literal["start", "done"] = "start"
    task: str = ""
    attempt: int = 0
    driver: str = ""
    time: int = 0


# ------------------------------------------------------------------------------------------- sequence


def gap_free(task: str, events: Iterable[e.Event]) -> Iterator[Violation]:
    """Check that events are numbered from 1 without a gap and the first one creates the task."""
    for expected, event in enumerate(events, 1):
        if event.seq != expected:
            yield Violation("gap_free", task, event.seq, f"event {expected} should be here")
            return
        if (expected == 1) != (type(event) is e.TaskCreated):
            yield Violation("gap_free", task, event.seq, f"{event.kind} as event {expected}")


def times_go_on(task: str, events: Iterable[e.Event]) -> Iterator[Violation]:
    """Check that times never decrease, even if the clock was set back, and that no fork precedes its fork point."""
    last = 0
    for event in events:
        if event.time < last:
            text = f"{event.kind} is {(last - event.time) / 1e6} s earlier than the event before"
            yield Violation("times_go_on", task, event.seq, text)
        last = event.time


def epochs_grow(task: str, entries: Iterable[tuple[int, e.Event]]) -> Iterator[Violation]:
    """Check that epochs never decrease, except at the start of a fork."""
    last = 0
    for epoch, event in entries:
        if epoch < last and type(event) is not e.TaskForked:
            yield Violation("epochs_grow", task, event.seq, f"written under epoch {epoch} after {last}")
        last = epoch


def taken_over(task: str, entries: Iterable[tuple[int, e.Event]]) -> Iterator[Violation]:
    """Check that the new owner first marks the calls that an earlier owner left open as lost."""
    begun: dict[str, int] = {}
    for epoch, event in entries:
        if isinstance(event, (e.CallDeferred, e.SleepStarted)):
            begun.pop(event.call, None)
        if isinstance(event, (e.ToolEnded, e.ToolStopped, e.ToolStarted)):
            under = begun.pop(event.call, epoch)
            if under < epoch and not isinstance(event, e.ToolStopped):
                text = f"{event.kind} of {event.call}, which began under epoch {under}, now {epoch}"
                yield Violation("unknown_iff_lost", task, event.seq, text)
            if isinstance(event, e.ToolStarted):
                begun[event.call] = epoch
        elif isinstance(event, e.QuestionAsked):
            begun.pop(event.call, None)


_STARTS = (e.StepStarted, e.ModelStarted, e.ToolStarted)


def stopped(task: str, events: Iterable[e.Event]) -> Iterator[Violation]:
    """Check that no call starts after a cancel, and only compensations start during a pause or interrupt."""
    cancel: e.CancelRequested | None = None
    pause: e.PauseRequested | e.InterruptRequested | None = None
    for event in events:
        if isinstance(event, e.CancelRequested):
            cancel = event
        elif isinstance(event, (e.PauseRequested, e.InterruptRequested)):
            pause = event
        elif isinstance(event, (e.TaskEnded, e.TaskForked)):
            cancel = pause = None
        elif isinstance(event, (e.Resumed, e.UndoRequested)):
            pause = None
        elif isinstance(event, _STARTS):
            reason = cancel or (None if isinstance(event, e.ToolStarted) and event.undoes else pause)
            if reason is not None:
                yield Violation(
                    "stopped", task, event.seq, f"{event.kind} after {reason.kind} (event {reason.seq})"
                )


def released(task: str, events: Iterable[e.Event]) -> Iterator[Violation]:
    """Check that a task without an owner has no open cancel, which its driver must carry out before the release."""
    cancel: e.CancelRequested | None = None
    for event in events:
        if isinstance(event, e.CancelRequested):
            cancel = event
        elif isinstance(event, (e.TaskEnded, e.TaskForked)):
            cancel = None
    if cancel is not None:
        text = "the cancel is recorded, and the task was released without an end"
        yield Violation("stopped", task, cancel.seq, text)


def limits(task: str, events: Iterable[e.Event]) -> Iterator[Violation]:
    """Check that no request exceeds the model calls, tokens or dollars that the task's options allow."""
    allowed: dict[str, float | None] = {}
    calls = tokens = cost = 0
    held_answers: set[str] = set()
    for event in events:
        if isinstance(event, (e.TaskCreated, e.TaskForked, e.OptionsChanged)):
            allowed = (event.options or {}).get("limits") or {}
        elif isinstance(event, e.ModelReturned) and (event.call or event.step) in held_answers:
            held_answers.discard(event.call or event.step)  # it was counted when it arrived
        elif isinstance(event, (e.ModelReturned, e.ModelFailed, e.AnswerHeld)):
            if isinstance(event, e.AnswerHeld):
                held_answers.add(event.call or event.step)
            tokens += event.usage.total_tokens + sum(side.usage.total_tokens for side in event.also)
            cost += sum(paid or 0 for paid in (event.cost, *[side.cost for side in event.also]))
            calls += len(event.also)
            if isinstance(event, e.ModelFailed) and event.error.kind in UNSENT:
                calls -= 1
        elif isinstance(event, e.ModelStopped):
            tokens += event.usage.total_tokens
            cost += event.cost or 0
        elif isinstance(event, e.ModelStarted):
            calls += 1
            held_answers.discard(event.call or event.step)
            for name, used in (("model_calls", calls - 1), ("tokens", tokens), ("cost", cost / PICODOLLARS)):
                most = allowed.get(name)
                if most is not None and used >= most:
                    yield Violation("limits", task, event.seq, f"a request after {used} {name} of {most}")


_NEW_TO_A_REQUEST: Final = (
    *(e.InputReceived, e.InputEdited, e.VersionChanged, e.AgentChanged, e.TaskForked, e.Rewound),
)
"""Events after which a repeated request may offer other tools."""


def offers_stay(task: str, events: Iterable[e.Event]) -> Iterator[Violation]:
    """Check that a repeated request offers the same tools, unless a message or a change came in between them."""
    offered: dict[str, tuple[str, ...]] = {}
    in_background: set[str] = set()
    for event in events:
        if isinstance(event, e.ModelStarted):
            before = offered.pop(event.call or event.step, None)
            if event.offered is not None:
                offered[event.call or event.step] = event.offered
                if before is not None and before != event.offered:
                    text = f"a request of {event.call or event.step} offers {event.offered}, and offered {before}"
                    yield Violation("offers_stay", task, event.seq, text)
        elif isinstance(event, e.ModelReturned):
            offered.pop(event.call or event.step, None)
        elif isinstance(event, e.CallDeferred):
            in_background.add(event.call)
        elif isinstance(event, _NEW_TO_A_REQUEST) or (
            isinstance(event, e.ToolEnded) and event.call in in_background
        ):
            offered.clear()


def until_end(events: Sequence[e.Event]) -> Sequence[e.Event]:
    """Return the events up to the end of their task, without background calls that ended later."""
    for index in range(len(events) - 1, -1, -1):
        if type(events[index]) is e.TaskEnded:
            return events[: index + 1]
        if type(events[index]) not in _AFTER_THE_END:
            break
    return events


def ended(task: str, events: Sequence[e.Event]) -> Iterator[Violation]:
    """Check that the task has ended."""
    last = next((event for event in reversed(until_end(events)) if type(event) is not e.UnknownEvent), None)
    if type(last) is not e.TaskEnded:
        yield Violation(
            "ended", task, last.seq if last else 0, f"the last event is {last.kind if last else 'none'}"
        )


_AFTER_THE_END = (e.UnknownEvent, e.TicketProgressed, e.TicketCompleted, e.TicketFailed, e.ToolEnded)
"""Events that may follow the end of an attempt; `one_end` checks that only tickets end calls there."""


def one_task_end(task: str, events: Iterable[e.Event]) -> Iterator[Violation]:
    """Check that an attempt ends once, and that afterwards the task is only reopened, with the next number."""
    ended, attempt = False, 1
    for event in events:
        kind = type(event)
        if kind is e.TaskForked:
            ended, attempt = False, 1
        elif type(event) is e.TaskReopened:
            if not ended:
                yield Violation("one_task_end", task, event.seq, "reopened without having ended")
            if event.attempt != attempt + 1:
                text = f"attempt {event.attempt} follows attempt {attempt}"
                yield Violation("one_task_end", task, event.seq, text)
            ended, attempt = False, event.attempt
        elif ended and kind not in _AFTER_THE_END:
            yield Violation("one_task_end", task, event.seq, f"{event.kind} after the task ended")
        elif kind is e.TaskEnded:
            ended = True


def judged_requests(task: str, events: Iterable[e.Event]) -> Iterator[Violation]:
    """Check that a denied request is not answered, and that a request for approval waits for a pause and a resume."""
    awaiting_person: set[str] = set()
    denied: set[str] = set()
    pausing = False
    for event in events:
        if isinstance(event, e.RequestJudged):
            name = event.call or event.step
            awaiting_person.discard(name)
            denied.discard(name)
            if event.verdict != "allow":
                (awaiting_person if event.verdict == "ask" else denied).add(name)
        elif isinstance(event, e.PauseRequested):
            pausing = True
        elif isinstance(event, e.Resumed):
            if pausing:
                awaiting_person.clear()
            pausing = False
        elif isinstance(event, e.ModelStarted) and (event.call or event.step) in awaiting_person:
            text = f"the request of {event.call or event.step} goes out, which waits for a person"
            yield Violation("judged_requests", task, event.seq, text)
        elif isinstance(event, e.ModelReturned) and (event.call or event.step) in denied:
            text = f"the request of {event.call or event.step} was denied, and is answered"
            yield Violation("judged_requests", task, event.seq, text)


def guarded(task: str, events: Iterable[e.Event]) -> Iterator[Violation]:
    """Check that content held or refused by guardrails is not used, and is settled once, by a person if they ask.

    A held answer is used only once all its holds are settled. Refused input has no effect.
    """
    verdicts: dict[str, str] = {}
    attempts: dict[str, int] = {}
    held_answers: dict[str, str] = {}
    inputs: set[str] = set()
    for event in events:
        problem: str | None = None
        name = getattr(event, "call", None) or getattr(event, "step", "")
        if isinstance(event, e.ModelStarted):
            attempts[name] = event.attempt
            held_answers.pop(name, None)
        elif isinstance(event, e.AnswerHeld):
            held_answers[name] = answer_place(name, attempts.get(name, 0))
        elif isinstance(event, e.GuardrailJudged):
            if verdicts.get(event.place) in ("allow", "deny", "asked", "withheld"):
                problem = f"{event.place} is judged, and is {verdicts[event.place]} already"
            verdicts[event.place] = event.verdict
            if event.guards == "input":
                inputs.add(event.place)
        elif isinstance(event, e.ApprovalRequested) and event.call in verdicts:
            verdicts[event.call] = "asked"
        elif isinstance(event, e.ApprovalGiven) and event.call in verdicts:
            verdicts[event.call] = "allow" if event.arguments is None else "edited"
        elif isinstance(event, (e.ApprovalDenied, e.ApprovalExpired)) and event.call in verdicts:
            verdicts[event.call] = "deny"
        elif isinstance(event, e.ModelReturned) and name in held_answers:
            verdict = verdicts.get(held_answers.pop(name), "allow")
            if verdict != "allow":
                problem = f"the answer of {name} goes on, and is {verdict}"
        elif isinstance(event, (e.TaskForked, e.Rewound, e.InputEdited)):
            forked = isinstance(event, e.TaskForked)
            verdicts = {
                key: verdict
                for key, verdict in verdicts.items()
                if verdict == "allow" and not (forked and key[:2] == "in")
            }
            held_answers.clear()
        elif isinstance(event, e.StepSkipped):
            verdicts = {
                key: "withheld" if verdict == "deny" else verdict for key, verdict in verdicts.items()
            }
        elif isinstance(event, e.TaskEnded):
            verdicts = {key: "" if verdict == "asked" else verdict for key, verdict in verdicts.items()}
        refused_input = {key for key in inputs if verdicts.get(key) == "deny"}
        is_start = isinstance(event, (e.ModelReturned, e.ToolStarted))
        if refused_input and is_start and not (isinstance(event, e.ToolStarted) and event.undoes):
            problem = f"{event.kind} though {min(refused_input)} was refused"
        if problem is not None:
            yield Violation("guarded", task, event.seq, problem)


def approved_starts(task: str, events: Iterable[e.Event]) -> Iterator[Violation]:
    """Check that a call starts only if its newest request for approval was granted, and never after a denial.

    Each request is decided at most once. A task's approvals do not cover its forks.
    """
    newest_request: dict[str, int] = {}
    decided: dict[tuple[str, int], str] = {}
    denied: set[str] = set()
    granted: set[str] = set()
    for event in events:
        problem: str | None = None
        if isinstance(event, e.ApprovalGiven) and event.scope == "task":
            granted.add(approval_id(event.call, event.number))
        named = event.grant if isinstance(event, e.CallJudged) and event.grant else ""
        if approved_call(named) is not None and named not in granted:
            problem = f"{event.kind} of a call by {named}, which is no approval for the task"
        elif isinstance(event, e.ApprovalRequested):
            newest_request[event.call] = event.number
        elif isinstance(event, (e.ApprovalGiven, e.ApprovalDenied, e.ApprovalExpired)):
            request = event.call, event.number
            if newest_request.get(event.call) != event.number or request in decided:
                problem = f"{event.kind} of request {event.number} of {event.call}, which is not open"
            decided[request] = event.kind
        elif isinstance(event, e.ApprovalVoided):
            newest_request.pop(event.call, None)
        elif isinstance(event, e.CallJudged) and event.verdict == "deny":
            denied.add(event.call)
        elif isinstance(event, e.CallEdited):
            newest_request.pop(event.call, None)
            denied.discard(event.call)
        elif isinstance(event, e.CallJudged) and event.verdict == "replace":
            newest_request.pop(event.call, None)
        elif isinstance(event, e.TaskForked):
            newest_request.clear()
            denied.clear()
            granted.clear()
        elif isinstance(event, e.ToolStarted) and event.undoes is None:
            request = event.call, newest_request.get(event.call, 0)
            if event.call in denied or (request[1] and decided.get(request) != "approval_given"):
                problem = f"{event.call} starts, and is {decided.get(request, 'not approved')}"
        elif isinstance(event, e.ArgumentsRewritten) and newest_request.get(event.call):
            problem = f"{event.call} runs with other arguments than were approved"
        if problem is not None:
            yield Violation("approved_starts", task, event.seq, problem)


def answered_questions(task: str, events: Iterable[e.Event]) -> Iterator[Violation]:
    """Check that a question is answered at most once and to its schema, or expires in time.

    Then its call restarts. A value that a call keeps is kept once.
    """
    request_ids: set[str] = set()
    open_: dict[str, e.QuestionAsked] = {}
    kept_keys: set[tuple[str, str]] = set()
    for event in events:
        problem: str | None = None
        if isinstance(event, e.QuestionAsked):
            problem = f"{event.request_id} is asked twice" if event.request_id in request_ids else None
            request_ids.add(event.request_id)
            open_[event.request_id] = event
        elif isinstance(event, (e.QuestionAnswered, e.QuestionExpired)):
            problem = _wrong_answer(event, open_.pop(event.request_id, None))
        elif isinstance(event, e.ToolStarted) and event.undoes is None:
            waits = [name for name, question in open_.items() if question.call == event.call]
            problem = f"{event.call} starts, and {waits[0]} is not answered" if waits else None
        elif isinstance(event, e.ValueKept) and event.call:
            key = event.call, event.key
            problem = f"{event.call} keeps {event.key!r} twice" if key in kept_keys else None
            kept_keys.add(key)
        elif isinstance(event, e.StepCompleted):
            waits = [name for name, question in open_.items() if question.step == event.step]
            problem = f"{event.step} completes, and {waits[0]} is not answered" if waits else None
        elif isinstance(event, (e.ToolEnded, e.StepFailed, e.StepSkipped, e.Rewound, e.TaskForked)):
            open_ = {name: question for name, question in open_.items() if not _closes(event, question)}
            if isinstance(event, e.TaskForked):
                kept_keys.clear()
        if problem is not None:
            yield Violation("answered_questions", task, event.seq, problem)


def _wrong_answer(
    event: e.QuestionAnswered | e.QuestionExpired, question: e.QuestionAsked | None
) -> str | None:
    if question is None:
        return f"{event.kind} of {event.request_id}, which is not open"
    if isinstance(event, e.QuestionAnswered):
        problem = misfit(event.value, question.schema)
        return f"the answer to {event.request_id} does not fit: {problem}" if problem is not None else None
    early = question.expires is None or event.time < question.expires
    return f"{event.request_id} expires before its time" if early else None


def _closes(event: e.Event, question: e.QuestionAsked) -> bool:
    """Return whether an event ends the asking call or step, and with it the question."""
    if isinstance(event, e.TaskForked):
        return True
    if isinstance(event, e.ToolEnded):
        return question.call == event.call
    if isinstance(event, e.Rewound):
        return not event.steps or question.step in event.steps
    return not question.call and question.step == getattr(event, "step", "")


# ----------------------------------------------------------------------------------------------- calls


@mutable
class _CallStatus:
    """The status of a call from its events so far.

    A call is `proposed`, then `begun`, then `ended`. A write whose start was cut off is `lost` until it is settled:
    then it is `happened`, or `proposed` again. A `deferred` call has returned, and continues in the background.
    """

    step: str
    status: Literal["proposed", "begun", "deferred", "lost", "happened", "ended"] = "proposed"
    effect: EffectClass = "write"
    starts: int = 0
    undone: int = 0
    """number of its starts that were settled as not having happened"""

    doubts: int = 0
    """number of its starts that were cut off, with an unknown effect"""

    outcome: str = ""
    answers: bool = False
    """whether it is the typed answer, which never runs"""

    is_task: bool = False
    """whether it is an agent's task, which may be cancelled after it began"""

    ticket_ended: bool = False
    """whether its ticket was completed or failed"""

    is_resting: bool = False
    """whether its last attempt ended in a question or a sleep"""

    rests: int = 0
    """number of its starts that ended in a question or a sleep"""

    halfway: bool = False
    """whether one of these starts may have taken effect and no later one failed: it slept, kept a value, or passed an
    answer
    """

    kept_values: int = 0
    """number of values that it keeps"""

    offered: bool = True
    """whether its request offered its tool or all tools; a call of another tool never runs"""

    @property
    def began(self) -> bool:
        """Return whether a start may have reached the tool without ending in a question or a sleep."""
        return self.starts > self.undone + self.rests

    @property
    def in_doubt(self) -> bool:
        """Return whether its effect is unknown."""
        return self.doubts > 0 and self.effect != "read" and not self.is_task


@frozen
class _Request:
    """A request to the model that has no answer yet."""

    step: str
    offered: tuple[str, ...] | None
    is_held: bool = False
    """whether its answer has arrived and waits for guardrails"""


_NEVER_RAN = ("invalid", "refused", "denied", "cancelled")

_NOT_RUN: Final = "was not run"
"""The part of a call's error message for a call that never began."""


def one_end(task: str, events: Iterable[e.Event]) -> Iterator[Violation]:
    """Check that each start has at most one end, and each requested call exactly one when its step or attempt ends.

    Calls start only if they were requested. An outcome is unknown exactly if a start has no end.
    """
    calls: dict[str, _CallStatus] = {}
    in_flight: dict[str, _Request] = {}
    # The tools in the requests of step functions, if they name any, by request id.
    ends: dict[str, tuple[str, ...] | None] = {}
    for event in events:
        problem: str | None = None
        if isinstance(event, e.ModelRequested):
            ends[event.call] = event.tools
        elif isinstance(
            event, (e.ModelStarted, e.AnswerHeld, e.ModelReturned, e.ModelFailed, e.ModelStopped)
        ):
            yield from _model_event(task, event, calls, in_flight, ends)
        elif isinstance(event, e.RouteChosen) and event.message is not None:
            problem = f"a model call of {event.step} is in flight" if event.step in in_flight else None
            yield from _requested(
                task, e.ModelReturned(event.step, event.message, seq=event.seq), calls, None
            )
        elif isinstance(event, e.CallRequested):
            problem = f"call id {event.call!r} is used twice" if event.call in calls else None
            offered = ends.get(asking_id(event.call))
            calls[event.call] = _CallStatus(event.step, offered=offered is None or event.name in offered)
        elif isinstance(event, e.ArgumentsRewritten):
            if event.call not in calls or calls[event.call].status != "begun":
                problem = f"the arguments of {event.call} are rewritten, and it was not begun"
        elif isinstance(event, (e.ToolStarted, e.ToolStopped, e.OutcomeSettled, e.ToolEnded)):
            yield from _call_event(task, event, calls)
        elif isinstance(event, _WHILE_IT_LASTS):
            if event.call not in calls and base_call_id(event.call) in calls:
                # A ticket of an earlier attempt ends the repeated call.
                calls[event.call] = replace(
                    calls[base_call_id(event.call)], status="proposed", starts=0, rests=0
                )
            problem = _note_interim_event(event, calls.get(event.call))
        elif isinstance(event, (e.StepCompleted, e.StepFailed, e.StepSkipped, e.TaskEnded, e.Rewound)):
            steps = () if isinstance(event, e.TaskEnded) else _steps_of(event)
            # Background calls outlast their step. `delivered_once` checks that they do not outlast its undo.
            unended = [call_id for call_id, call in calls.items() if call.status not in ("ended", "deferred")]
            if steps:
                unended = [call_id for call_id in unended if calls[call_id].step in steps]
            unended += [
                name
                for name, request in in_flight.items()
                if not request.is_held and (not steps or request.step in steps)
            ]
            if unended and not isinstance(event, e.StepFailed):
                problem = f"{event.kind} while {', '.join(unended)} has no end"
            if isinstance(event, e.Rewound):
                calls = {name: call for name, call in calls.items() if not is_undo(name)}
        if problem is not None:
            yield Violation("one_end", task, event.seq, problem)


_WHILE_IT_LASTS: Final = (
    e.QuestionAsked,
    e.ValueKept,
    e.SleepStarted,
    e.CallDeferred,
    e.TicketCompleted,
    e.TicketFailed,
)


def _note_interim_event(
    event: e.QuestionAsked
    | e.ValueKept
    | e.SleepStarted
    | e.CallDeferred
    | e.TicketCompleted
    | e.TicketFailed,
    call: _CallStatus | None,
) -> str | None:
    """Record that a call asks, keeps a value, sleeps or continues in the background; return the problem, if any."""
    if isinstance(event, (e.TicketCompleted, e.TicketFailed)):
        if call is not None:
            call.ticket_ended = True
        return None
    if not event.call:
        return None  # a step function
    asks = isinstance(event, e.QuestionAsked)
    if call is None or not (call.status == "begun" or (call.is_resting and asks)):
        return (
            f"{event.kind} of {event.call}, which is {call.status if call is not None else 'not requested'}"
        )
    if isinstance(event, e.CallDeferred):
        call.status, call.doubts = "deferred", 0
    elif isinstance(event, e.ValueKept):
        call.kept_values += 1
    elif call.effect == "write":
        return f"{event.kind} of {event.call}, which may not start again"
    elif isinstance(event, e.SleepStarted):
        call.status, call.is_resting, call.rests = "proposed", True, call.rests + 1
        call.halfway = call.halfway or call.effect != "read"
    else:
        if call.status == "begun":
            call.rests += 1
            call.halfway = call.halfway or (
                call.effect != "read" and (call.kept_values > 0 or event.place > 1)
            )
        call.status, call.is_resting = "proposed", True
    return None


def _steps_of(event: e.StepCompleted | e.StepFailed | e.StepSkipped | e.Rewound) -> tuple[str, ...]:
    """Return the steps that an event ends; an undo without steps ends all."""
    return event.steps if isinstance(event, e.Rewound) else (event.step,)


def _model_event(
    task: str,
    event: e.ModelStarted | e.AnswerHeld | e.ModelReturned | e.ModelFailed | e.ModelStopped,
    calls: dict[str, _CallStatus],
    in_flight: dict[str, _Request],
    ends: dict[str, tuple[str, ...] | None],
) -> Iterator[Violation]:
    name = event.call or event.step
    request = in_flight.pop(name, None)
    if isinstance(event, e.ModelStarted):
        if request is not None and not request.is_held:
            yield Violation("one_end", task, event.seq, f"a model call of {name} is in flight")
        offered = ends.get(name)
        in_flight[name] = _Request(event.step, event.offered if offered is None else offered)
    elif request is None or (isinstance(event, e.AnswerHeld) and request.is_held):
        yield Violation("one_end", task, event.seq, f"{event.kind} of a model call that was not begun")
    elif isinstance(event, e.AnswerHeld):
        in_flight[name] = replace(request, is_held=True)
    elif isinstance(event, e.ModelReturned) and event.call is None:
        yield from _requested(task, event, calls, request.offered)
    elif isinstance(event, e.ModelReturned) and event.call is not None:
        ends[event.call] = request.offered


def _requested(
    task: str, event: e.ModelReturned, calls: dict[str, _CallStatus], offered: tuple[str, ...] | None
) -> Iterator[Violation]:
    for call in event.message.tool_calls:
        if call.id in calls or not call.id:
            yield Violation("one_end", task, event.seq, f"call id {call.id!r} is used twice or empty")
        answers_task = event.typed is not None and event.typed.call == call.id
        is_offered = offered is None or call.name in offered
        calls[call.id] = _CallStatus(event.step, answers=answers_task, offered=is_offered)


def _call_event(
    task: str,
    event: e.ToolStarted | e.ToolStopped | e.OutcomeSettled | e.ToolEnded,
    calls: dict[str, _CallStatus],
) -> Iterator[Violation]:
    call = calls.get(event.call)
    if call is None:
        base, attempt = base_call_id(event.call), attempt_of(event.call)
        source = undone_call(event.call) if is_undo(event.call) else base
        before = calls.get(source)
        if before is None or before.status != "ended" or (source == event.call and attempt == 1):
            yield Violation(
                "one_end", task, event.seq, f"{event.kind} of {event.call}, which was not requested"
            )
            return
        call = calls[event.call] = _CallStatus(event.step, offered=before.offered)
        if source == base:
            last = calls.get(call_id_in_attempt(base, attempt - 1), before)
            call.effect, call.doubts, call.kept_values = last.effect, last.doubts, last.kept_values
    if isinstance(event, e.ToolEnded):
        yield from _ended(task, event, call)
        return
    if isinstance(event, e.ToolStarted):
        if call.answers and event.undoes is None:
            yield Violation("one_end", task, event.seq, f"{event.call} starts though it gives the answer")
        if not call.offered and event.undoes is None:
            yield Violation(
                "one_end", task, event.seq, f"{event.call} starts though its tool was not offered"
            )
        undo_again = event.undoes is not None and call.outcome not in ("", "ok")
        if call.status != "proposed" and not undo_again:
            yield Violation("one_end", task, event.seq, f"{event.call} starts though it is {call.status}")
        call.status, call.effect, call.starts = "begun", event.effect, call.starts + 1
        call.is_resting = False
        call.is_task = event.child is not None
        if event.attempt != call.starts and event.undoes is None:
            text = f"{event.call} starts as attempt {event.attempt}, its start number {call.starts}"
            yield Violation("one_end", task, event.seq, text)
    elif isinstance(event, e.ToolStopped):
        if call.status != "begun" and not (call.is_task and event.failed is not None):
            yield Violation("one_end", task, event.seq, f"{event.call} is stopped though it is {call.status}")
        call.status = "lost" if call.effect == "write" else "proposed"
        call.doubts += event.reason != "error" and not call.is_task
        call.halfway = call.halfway and event.reason != "error"
        call.doubts += event.failed is not None and not event.harmless
    else:
        unentered = call.effect == "idempotent" and call.doubts and event.by == "runner"
        if call.status != "lost" and not unentered:
            yield Violation(
                "unknown_iff_lost", task, event.seq, f"{event.call} is settled and was {call.status}"
            )
        undo = is_undo(event.call)
        happened: Literal["ended", "happened"] = "ended" if undo else "happened"
        call.status = happened if event.verdict == "happened" else "proposed"
        call.undone += event.verdict == "not_happened"
        call.doubts -= 1


def _ended(task: str, event: e.ToolEnded, call: _CallStatus) -> Iterator[Violation]:
    outcome, status = event.outcome, call.status
    halfway = call.halfway and status != "begun"
    message = event.error.message if event.error is not None else ""
    if status == "ended":
        yield Violation("one_end", task, event.seq, f"{event.call} ends a second time")
    elif call.ticket_ended and outcome in ("ok", "error"):
        pass  # the outcome of its starts does not matter
    elif status == "deferred" and (outcome == "unknown") == (call.effect != "read"):
        pass  # it expired, or was asked to stop
    elif outcome == "unknown" and not (
        call.in_doubt or halfway or (status == "begun" and call.effect == "idempotent")
    ):
        text = f"{event.call} ends as unknown, and each of its starts has an end"
        yield Violation("unknown_iff_lost", task, event.seq, text)
    elif (
        outcome not in ("ok", "unknown")
        and (call.in_doubt or halfway or (outcome in ("timeout", "abandoned") and call.effect != "read"))
        and not call.is_task
    ):
        text = f"{event.call} ends as {outcome}, and a start of it may have taken effect"
        yield Violation("unknown_iff_lost", task, event.seq, text)
    elif outcome in _NEVER_RAN and call.began and not _may_be_stopped(call, event):
        text = f"{event.call} ends as {outcome}: {message!r}, and it began"
        yield Violation("unknown_iff_lost", task, event.seq, text)
    elif outcome not in (*_NEVER_RAN, "unknown") and not (call.began or status == "happened" or call.answers):
        yield Violation("one_end", task, event.seq, f"{event.call} ends as {outcome} and never began")
    elif outcome == "ok" and status in ("proposed", "lost") and not call.answers:
        yield Violation("unknown_iff_lost", task, event.seq, f"{event.call} ends well and was {status}")
    call.status, call.outcome = "ended", outcome
    if outcome == "ok":
        call.doubts = 0
    elif outcome in ("timeout", "abandoned", "unknown") or (call.is_task and not event.harmless):
        call.doubts += 1


def _may_be_stopped(call: _CallStatus, event: e.ToolEnded) -> bool:
    """Return whether a begun call may end as cancelled: a read or a task, unless its error says that it never ran."""
    message = event.error.message if event.error is not None else ""
    return (
        event.outcome == "cancelled" and (call.effect == "read" or call.is_task) and _NOT_RUN not in message
    )


# -------------------------------------------------------------------------------------------- messages


def well_formed(
    task: str, messages: Sequence[Message], *, seq: int = 0, request: bool = False
) -> Iterator[Violation]:
    """Check that each call has exactly one result, directly after its message and in order, and that ids are unique.

    With `request`, the last message must not be the model's own.
    """
    problems: list[str] = []
    seen_ids: set[str] = set()
    unanswered: list[str] = []
    for number, message in enumerate(messages):
        results = [part.call_id for part in message.parts if isinstance(part, ToolResult)]
        if (unanswered or results) and results != unanswered:
            problems.append(f"message {number} gives results {results} where {unanswered} are owed")
        if bool(results) != (message.role == "tool"):
            problems.append(f"message {number} of role {message.role} holds {results}")
        unanswered = [part.id for part in message.parts if isinstance(part, ToolCall)]
        if unanswered and message.role != "assistant":
            problems.append(f"message {number} of role {message.role} asks for {unanswered}")
        for call_id in unanswered:
            if call_id in seen_ids or not call_id:
                problems.append(f"message {number}: call id {call_id!r} twice or empty")
            seen_ids.add(call_id)
    if unanswered:
        problems.append(f"no results for {unanswered}")
    if request and (not messages or messages[-1].role == "assistant"):
        problems.append("the last message of the request is the model's own")
    for problem in problems:
        yield Violation("well_formed", task, seq, problem)


# ---------------------------------------------------------------------------------------------- ledger


def ledger_agrees(task: str, events: Sequence[e.Event], ledger: Sequence[LedgerEntry]) -> Iterator[Violation]:
    """Check that the journal has each start in the ledger, and that a write starts at most as often as allowed.

    A call that was settled as not having happened may start once more. All starts of a call have the same key, and no
    two calls share a key. A retried call is the same call. Entries from before the task's creation belong to an earlier
    task with the same id, with other keys.
    """
    created = events[0].time if events else 0
    earlier = {entry.key for entry in ledger if 0 < entry.time < created}
    ledger = [entry for entry in ledger if not 0 < entry.time < created]
    for entry in ledger:
        if entry.key in earlier:
            text = f"{entry.call} has the key {entry.key}, which was used before the task was created"
            yield Violation("ledger", task, 0, text)
    begun: dict[str, int] = {}
    allowed: dict[str, int] = {}
    for event in events:
        if isinstance(event, e.ToolStarted):
            begun[event.call] = begun.get(event.call, 0) + 1
            allowed.setdefault(event.call, 1)
        elif isinstance(event, e.OutcomeSettled) and event.verdict == "not_happened":
            allowed[event.call] = allowed.get(event.call, 1) + 1
    starts: dict[str, list[LedgerEntry]] = {}
    owner: dict[str, str] = {}
    for entry in ledger:
        first_try = base_call_id(entry.call)
        if owner.setdefault(entry.key, first_try) != first_try:
            yield Violation(
                "ledger", task, 0, f"{entry.call} and {owner[entry.key]} share the key {entry.key}"
            )
        if entry.phase == "start":
            starts.setdefault(entry.call, []).append(entry)
    for call, entries in starts.items():
        most = allowed.get(call, 1) if entries[0].effect == "write" else begun.get(call, 0)
        if call not in begun and entries[0].effect != "read":
            yield Violation("ledger", task, 0, f"{call} started, and the journal has no start of it")
        elif len(entries) > most and entries[0].effect != "read":
            yield Violation("ledger", task, 0, f"{call} started {len(entries)} times, allowed were {most}")
        if len({entry.key for entry in entries}) > 1:
            yield Violation("ledger", task, 0, f"{call} started under several keys")


def _took_effect(end: e.ToolEnded) -> bool:
    return end.report is not None and end.report.took_effect


def ran_as_told(task: str, events: Sequence[e.Event], ledger: Sequence[LedgerEntry]) -> Iterator[Violation]:
    """Check that the journal never denies the run of a write if the ledger has a start of it.

    An undo must not report a happened effect as nothing to compensate. Without force it compensates each happened
    effect, or is refused. A tool that raises an error is trusted to have had no effect. If a person or `reconcile=`
    settled a start as not having happened, the journal follows them.
    """
    created = events[0].time if events else 0
    ledger = [entry for entry in ledger if entry.effect != "read" and not 0 < entry.time < created]
    started = {entry.call: entry.phase for entry in ledger if entry.phase == "start"}
    started |= {
        entry.call: entry.phase for entry in ledger if entry.call in started and entry.phase == "done"
    }
    forced, raised = False, set[str]()
    for event in events:
        if isinstance(event, e.ToolEnded) and event.outcome == "error" and not _took_effect(event):
            raised.add(event.call)
        if isinstance(event, e.OutcomeSettled) and event.verdict == "not_happened" and event.by != "runner":
            started.pop(event.call, None)
        elif isinstance(event, e.ToolEnded) and event.call in started and event.outcome in _NEVER_RAN:
            text = f"{event.call} ends as {event.outcome}, and its tool had started"
            yield Violation("unknown_iff_lost", task, event.seq, text)
        elif isinstance(event, e.UndoRequested):
            forced = forced or event.forced
        elif isinstance(event, e.Rewound):
            for undone in event.calls:
                if started.get(undone.call) != "done":
                    continue
                if undone.verdict == "nothing_to_compensate":
                    text = f"{undone.call} has nothing to compensate by the report, and its effect happened"
                    yield Violation("unknown_iff_lost", task, event.seq, text)
                elif undone.verdict != "compensated" and not forced and undone.call not in raised:
                    text = f"{undone.call} took effect, and an undo without force left it"
                    yield Violation("undo_restores", task, event.seq, text)
            forced = False
