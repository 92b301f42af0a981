"""What must hold of a task's events by themselves: numbering, ends, calls, conversations and the effects' ledger.

Pure functions that return violations; nothing here uses the engine's own fold, so that they do not share its mistakes.
`treadle.testing.audit` runs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal

from treadle.core import events as e
from treadle.core.data import frozen, mutable
from treadle.core.fold import UNDO_SUFFIX
from treadle.core.messages import Message, ToolCall, ToolResult
from treadle.core.model_calls import NOT_SENT
from treadle.core.render import RETRY_MARK
from treadle.core.spending import PICODOLLARS
from treadle.core.tools import EffectClass

Invariant = Literal[
    "gap_free",
    "times_go_on",
    "one_end",
    "unknown_iff_lost",
    "one_task_end",
    "ended",
    "epochs_grow",
    "one_writer",
    "stopped",
    "limits",
    "well_formed",
    "prefix_folds",
    "refold",
    "undo_restores",
    "offers_stay",
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
]
"""What a check is called; `treadle.testing.audit.invariants` says which numbered invariant it belongs to."""


NUMBERS: Final[dict[Invariant, str]] = {
    "gap_free": "I1",
    "times_go_on": "I1",
    "chain": "I1",
    "prefix_folds": "I1",
    "refold": "I1",
    "one_end": "I2",
    "children": "I2",
    "ledger": "I3",
    "acknowledged": "I4",
    "unchanged": "I4",
    "undo_restores": "I4",
    "offers_stay": "I4",
    "well_formed": "I5",
    "epochs_grow": "I6",
    "one_writer": "I6",
    "stopped": "I7",
    "one_task_end": "I9",
    "ended": "I9",
    "stream": "I10",
    "limits": "I11",
    "secrets": "I12",
    "unknown_iff_lost": "I13",
    "untouched": "I14",
    "fork_equals_parent": "I14",
    "threads": "I14",
}
"""Which numbered invariant each check belongs to."""


@frozen
class Violation:
    """An invariant that does not hold: its name, of which task, at which event, and what is wrong."""

    name: Invariant
    task: str
    seq: int
    text: str

    def __str__(self) -> str:
        return f"{NUMBERS[self.name]} {self.name}: task {self.task}, event {self.seq}: {self.text}"


@frozen
class LedgerEntry:
    """What a tool itself wrote down, outside of the journal: it started, or it did what it does.

    Args:
        call: the call's id in its task, as in `ToolContext.call_id`.
        key: the idempotency key it was given.
        effect: what the tool is declared to be.
        phase: `start` as its first act, `done` as its last.
        task: the task, when the ledger holds several.
        attempt: which start of the call it was, as the tool was told; 0 when not known.
        driver: the process that drove the task, by any name that no two have; empty when not known.
        time: microseconds since 1970, 0 when not known.
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
    """Events are numbered from 1 without a gap, and the first one creates the task."""
    for expected, event in enumerate(events, 1):
        if event.seq != expected:
            yield Violation("gap_free", task, event.seq, f"event {expected} should be here")
            return
        if (expected == 1) != (type(event) is e.TaskCreated):
            yield Violation("gap_free", task, event.seq, f"{event.kind} at place {expected}")


def times_go_on(task: str, events: Iterable[e.Event]) -> Iterator[Violation]:
    """No event is earlier than the one before it, whatever the clock was set to; nor is a fork than its fork point."""
    last = 0
    for event in events:
        if event.time < last:
            text = f"{event.kind} is {(last - event.time) / 1e6} s earlier than the event before"
            yield Violation("times_go_on", task, event.seq, text)
        last = event.time


def epochs_grow(task: str, entries: Iterable[tuple[int, e.Event]]) -> Iterator[Violation]:
    """Ownership only ever grows; a fork begins anew."""
    last = 0
    for epoch, event in entries:
        if epoch < last and type(event) is not e.TaskForked:
            yield Violation("epochs_grow", task, event.seq, f"written under epoch {epoch} after {last}")
        last = epoch


def taken_over(task: str, entries: Iterable[tuple[int, e.Event]]) -> Iterator[Violation]:
    """A call that an earlier owner began and did not end is marked as lost before anything else is said of it."""
    begun: dict[str, int] = {}
    for epoch, event in entries:
        if isinstance(event, (e.ToolEnded, e.ToolStopped, e.ToolStarted)):
            under = begun.pop(event.call, epoch)
            if under < epoch and not isinstance(event, e.ToolStopped):
                text = f"{event.kind} of {event.call}, which began under epoch {under}, now {epoch}"
                yield Violation("unknown_iff_lost", task, event.seq, text)
            if isinstance(event, e.ToolStarted):
                begun[event.call] = epoch


_STARTS = (e.StepStarted, e.ModelStarted, e.ToolStarted)


def stopped(task: str, events: Iterable[e.Event]) -> Iterator[Violation]:
    """After a cancel nothing starts; after a pause or an interrupt nothing but compensations, until it is resumed."""
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
            why = cancel or (None if isinstance(event, e.ToolStarted) and event.undoes else pause)
            if why is not None:
                yield Violation(
                    "stopped", task, event.seq, f"{event.kind} after {why.kind} (event {why.seq})"
                )


def released(task: str, events: Iterable[e.Event]) -> Iterator[Violation]:
    """A task without an owner was not asked to end: its driver gives it back only when a cancel is carried out."""
    cancel: e.CancelRequested | None = None
    for event in events:
        if isinstance(event, e.CancelRequested):
            cancel = event
        elif isinstance(event, (e.TaskEnded, e.TaskForked)):
            cancel = None
    if cancel is not None:
        text = "the cancel is recorded, and the task was given back without an end"
        yield Violation("stopped", task, cancel.seq, text)


def limits(task: str, events: Iterable[e.Event]) -> Iterator[Violation]:
    """No request goes out beyond the model calls, tokens or dollars that the task's own options allow."""
    allowed: dict[str, float | None] = {}
    calls = tokens = cost = 0
    for event in events:
        if isinstance(event, (e.TaskCreated, e.TaskForked, e.OptionsChanged)):
            allowed = (event.options or {}).get("limits") or {}
        elif isinstance(event, (e.ModelReturned, e.ModelFailed)):
            tokens += event.usage.total_tokens + sum(side.usage.total_tokens for side in event.also)
            cost += sum(paid or 0 for paid in (event.cost, *[side.cost for side in event.also]))
            calls += len(event.also)
            if isinstance(event, e.ModelFailed) and event.error.kind == NOT_SENT:
                calls -= 1
        elif isinstance(event, e.ModelStarted):
            calls += 1
            for name, used in (("model_calls", calls - 1), ("tokens", tokens), ("cost", cost / PICODOLLARS)):
                most = allowed.get(name)
                if most is not None and used >= most:
                    yield Violation("limits", task, event.seq, f"a request after {used} {name} of {most}")


def offers_stay(task: str, events: Iterable[e.Event]) -> Iterator[Violation]:
    """A request that is made again holds the tools it held before, unless something was said or changed meanwhile."""
    offered: dict[str, tuple[str, ...]] = {}
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
        elif isinstance(event, (e.InputReceived, e.InputEdited, e.VersionChanged, e.TaskForked, e.Rewound)):
            offered.clear()


def ended(task: str, events: Sequence[e.Event]) -> Iterator[Violation]:
    """The task has come to its end."""
    last = next((event for event in reversed(events) if type(event) is not e.UnknownEvent), None)
    if type(last) is not e.TaskEnded:
        yield Violation(
            "ended", task, last.seq if last else 0, f"the last event is {last.kind if last else 'none'}"
        )


def one_task_end(task: str, events: Iterable[e.Event]) -> Iterator[Violation]:
    """An attempt ends exactly once; after that the task is only reopened (or forked) and attempts count up."""
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
        elif ended and kind is not e.UnknownEvent:
            yield Violation("one_task_end", task, event.seq, f"{event.kind} after the task ended")
        elif kind is e.TaskEnded:
            ended = True


# ----------------------------------------------------------------------------------------------- calls


@mutable
class _Call:
    """What a call's events said so far: `begun` has no end yet; `lost` is a begun write that was given up."""

    step: str
    status: Literal["proposed", "begun", "lost", "happened", "ended"] = "proposed"
    effect: EffectClass = "write"
    starts: int = 0
    undone: int = 0
    """how many of its starts were found not to have happened"""

    doubts: int = 0
    """how many of its starts were cut off, so that it is not known what they did"""

    outcome: str = ""
    answers: bool = False
    """it gives a typed answer, and is not to begin"""

    is_task: bool = False
    """it is an agent's task, which may be cancelled after it began"""

    offered: bool = True
    """its tool was in the request, or nobody chose which are; else it is not to begin either"""

    @property
    def began(self) -> bool:
        """Whether a start of it may have reached the tool."""
        return self.starts > self.undone

    @property
    def in_doubt(self) -> bool:
        """Whether it may have taken effect or not."""
        return self.doubts > 0 and self.effect != "read" and not self.is_task


@frozen
class _Request:
    """A request to the model that is out."""

    step: str
    offered: tuple[str, ...] | None


_NEVER_RAN = ("invalid", "refused", "denied", "cancelled")

_NOT_RUN: Final = "was not run"
"""What a call's end says if the call never began."""


def one_end(task: str, events: Iterable[e.Event]) -> Iterator[Violation]:
    """Each begin has at most one end, each requested call exactly one once its step or attempt ended.

    Calls start only if they were requested; an outcome is called unknown exactly when a begin has no end.
    """
    calls: dict[str, _Call] = {}
    asking: dict[str, _Request] = {}
    held: dict[
        str, tuple[str, ...] | None
    ] = {}  # by functions' requests, the tools in them, if they name any
    for event in events:
        problem: str | None = None
        if isinstance(event, e.ModelRequested):
            held[event.call] = event.tools
        elif isinstance(event, e.ModelStarted):
            place = event.call or event.step
            problem = f"a model call of {place} is in flight" if place in asking else None
            offered = held.get(place)
            asking[place] = _Request(event.step, event.offered if offered is None else offered)
        elif isinstance(event, (e.ModelReturned, e.ModelFailed, e.ModelStopped)):
            request = asking.pop(event.call or event.step, None)
            if request is None:
                problem = f"{event.kind} of a model call that was not begun"
            elif isinstance(event, e.ModelReturned) and event.call is None:
                yield from _requested(task, event, calls, request.offered)
            elif isinstance(event, e.ModelReturned) and event.call is not None:
                held[event.call] = request.offered
        elif isinstance(event, e.CallRequested):
            problem = f"call id {event.call!r} is used twice" if event.call in calls else None
            offered = held.get(event.call.rpartition("-")[0])
            calls[event.call] = _Call(event.step, offered=offered is None or event.name in offered)
        elif isinstance(event, (e.ToolStarted, e.ToolStopped, e.OutcomeSettled, e.ToolEnded)):
            yield from _call_event(task, event, calls)
        elif isinstance(event, (e.StepCompleted, e.StepFailed, e.StepSkipped, e.TaskEnded, e.Rewound)):
            steps = () if isinstance(event, e.TaskEnded) else _steps_of(event)
            still = [
                key
                for key, call in calls.items()
                if call.status != "ended" and (not steps or call.step in steps)
            ]
            still += [place for place, request in asking.items() if not steps or request.step in steps]
            if still and not isinstance(event, e.StepFailed):
                problem = f"{event.kind} while {', '.join(still)} has no end"
            if isinstance(event, e.Rewound):
                calls = {key: call for key, call in calls.items() if not key.endswith(UNDO_SUFFIX)}
        if problem is not None:
            yield Violation("one_end", task, event.seq, problem)


def _steps_of(event: e.StepCompleted | e.StepFailed | e.StepSkipped | e.Rewound) -> tuple[str, ...]:
    """Return which steps come to an end by an event; of an undo none means all."""
    return event.steps if isinstance(event, e.Rewound) else (event.step,)


def _requested(
    task: str, event: e.ModelReturned, calls: dict[str, _Call], offered: tuple[str, ...] | None
) -> Iterator[Violation]:
    for asked in event.message.tool_calls:
        if asked.id in calls or not asked.id:
            yield Violation("one_end", task, event.seq, f"call id {asked.id!r} is used twice or empty")
        answers = event.typed is not None and event.typed.call == asked.id
        calls[asked.id] = _Call(event.step, answers=answers, offered=offered is None or asked.name in offered)


def _call_event(
    task: str,
    event: e.ToolStarted | e.ToolStopped | e.OutcomeSettled | e.ToolEnded,
    calls: dict[str, _Call],
) -> Iterator[Violation]:
    call = calls.get(event.call)
    if call is None:
        base, _, tries = event.call.partition(RETRY_MARK)
        source = event.call.removesuffix(UNDO_SUFFIX) if event.call.endswith(UNDO_SUFFIX) else base
        before = calls.get(source)
        if before is None or before.status != "ended" or (source == event.call and not tries):
            yield Violation(
                "one_end", task, event.seq, f"{event.kind} of {event.call}, which was not requested"
            )
            return
        call = calls[event.call] = _Call(event.step, offered=before.offered)
        if source == base:
            last = calls.get(f"{base}{RETRY_MARK}{int(tries) - 1}", before)
            call.effect, call.doubts = last.effect, last.doubts
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
        call.is_task = event.child is not None
        if event.attempt != call.starts and event.undoes is None:
            text = f"{event.call} starts as attempt {event.attempt}, its start number {call.starts}"
            yield Violation("one_end", task, event.seq, text)
    elif isinstance(event, e.ToolStopped):
        if call.status != "begun":
            yield Violation(
                "one_end", task, event.seq, f"{event.call} is given up though it is {call.status}"
            )
        call.status = "lost" if call.effect == "write" else "proposed"
        call.doubts += event.reason != "error" and not call.is_task
    else:
        unentered = call.effect == "idempotent" and call.doubts and event.by == "runner"
        if call.status != "lost" and not unentered:
            yield Violation(
                "unknown_iff_lost", task, event.seq, f"{event.call} is settled and was {call.status}"
            )
        undo = event.call.endswith(UNDO_SUFFIX)
        happened: Literal["ended", "happened"] = "ended" if undo else "happened"
        call.status = happened if event.verdict == "happened" else "proposed"
        call.undone += event.verdict == "not_happened"
        call.doubts -= 1


def _ended(task: str, event: e.ToolEnded, call: _Call) -> Iterator[Violation]:
    outcome, was = event.outcome, call.status
    message = event.error.message if event.error is not None else ""
    if was == "ended":
        yield Violation("one_end", task, event.seq, f"{event.call} ends a second time")
    elif outcome == "unknown" and not (call.in_doubt or (was == "begun" and call.effect == "idempotent")):
        text = f"{event.call} ends as unknown, and each of its starts has an end"
        yield Violation("unknown_iff_lost", task, event.seq, text)
    elif outcome not in ("ok", "unknown") and (
        call.in_doubt or (outcome in ("timeout", "abandoned") and call.effect != "read")
    ):
        text = f"{event.call} ends as {outcome}, and a start of it may have taken effect"
        yield Violation("unknown_iff_lost", task, event.seq, text)
    elif outcome in _NEVER_RAN and call.began and not _may_be_stopped(call, event):
        text = f"{event.call} ends as {outcome}: {message!r}, and it began"
        yield Violation("unknown_iff_lost", task, event.seq, text)
    elif outcome not in (*_NEVER_RAN, "unknown") and not (call.began or was == "happened" or call.answers):
        yield Violation("one_end", task, event.seq, f"{event.call} ends as {outcome} and never began")
    elif outcome == "ok" and was in ("proposed", "lost") and not call.answers:
        yield Violation("unknown_iff_lost", task, event.seq, f"{event.call} ends well and was {was}")
    call.status, call.outcome = "ended", outcome
    if outcome == "ok":
        call.doubts = 0
    elif outcome in ("timeout", "abandoned", "unknown") or (call.is_task and not event.harmless):
        call.doubts += 1


def _may_be_stopped(call: _Call, event: e.ToolEnded) -> bool:
    """Whether a call that began may end as cancelled: what only reads, or is a task, and nothing else is said of it."""
    said = event.error.message if event.error is not None else ""
    return event.outcome == "cancelled" and (call.effect == "read" or call.is_task) and _NOT_RUN not in said


# -------------------------------------------------------------------------------------------- messages


def well_formed(
    task: str, messages: Sequence[Message], *, seq: int = 0, request: bool = False
) -> Iterator[Violation]:
    """Every call has exactly one result, right after its message and in order; every result a call; ids are unique.

    With `request`, the last words are not the model's own.
    """
    seen: set[str] = set()
    owed: list[str] = []
    for place, message in enumerate(messages):
        given = [part.call_id for part in message.parts if isinstance(part, ToolResult)]
        if (owed or given) and given != owed:
            text = f"message {place} gives results {given} where {owed} are owed"
            yield Violation("well_formed", task, seq, text)
        if bool(given) != (message.role == "tool"):
            yield Violation("well_formed", task, seq, f"message {place} of role {message.role} holds {given}")
        owed = [part.id for part in message.parts if isinstance(part, ToolCall)]
        if owed and message.role != "assistant":
            yield Violation(
                "well_formed", task, seq, f"message {place} of role {message.role} asks for {owed}"
            )
        for call_id in owed:
            if call_id in seen or not call_id:
                yield Violation(
                    "well_formed", task, seq, f"message {place}: call id {call_id!r} twice or empty"
                )
            seen.add(call_id)
    if owed:
        yield Violation("well_formed", task, seq, f"no results for {owed}")
    if request and (not messages or messages[-1].role == "assistant"):
        yield Violation("well_formed", task, seq, "the model is asked to answer its own words")


# ---------------------------------------------------------------------------------------------- ledger


def ledger_agrees(task: str, events: Sequence[e.Event], ledger: Sequence[LedgerEntry]) -> Iterator[Violation]:
    """What tools wrote down was begun in the journal; a writing call starts at most once per begin it was allowed.

    A call that was settled as not having happened may start once more; every start of a call has the same key and no
    two calls share one; a failed call that is tried again is the same call. What was written down before the task was
    made is of an earlier task of its id, which shares no key with it.
    """
    created = events[0].time if events else 0
    earlier = {entry.key for entry in ledger if 0 < entry.time < created}
    ledger = [entry for entry in ledger if not 0 < entry.time < created]
    for entry in ledger:
        if entry.key in earlier:
            text = f"{entry.call} has the key {entry.key}, which was used before the task was made"
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
        asked = entry.call.partition(RETRY_MARK)[0]
        if owner.setdefault(entry.key, asked) != asked:
            yield Violation(
                "ledger", task, 0, f"{entry.call} and {owner[entry.key]} share the key {entry.key}"
            )
        if entry.phase == "start":
            starts.setdefault(entry.call, []).append(entry)
    for call, entries in starts.items():
        most = allowed.get(call, 1) if entries[0].effect == "write" else begun.get(call, 0)
        if call not in begun and entries[0].effect != "read":
            yield Violation("ledger", task, 0, f"{call} started and the journal knows no begin")
        elif len(entries) > most and entries[0].effect != "read":
            yield Violation("ledger", task, 0, f"{call} started {len(entries)} times, allowed were {most}")
        if len({entry.key for entry in entries}) > 1:
            yield Violation("ledger", task, 0, f"{call} started under several keys")


def ran_as_told(task: str, events: Sequence[e.Event], ledger: Sequence[LedgerEntry]) -> Iterator[Violation]:
    """Of no call whose tool wrote down that it started, and may write, the journal says that it did not run.

    Nor does the report of an undo say that there was nothing to take back. Where a person or `reconcile=` said that a
    start did not happen, the journal goes by that.
    """
    created = events[0].time if events else 0
    ledger = [entry for entry in ledger if entry.effect != "read" and not 0 < entry.time < created]
    started = {entry.call: entry.phase for entry in ledger if entry.phase == "start"}
    started |= {
        entry.call: entry.phase for entry in ledger if entry.call in started and entry.phase == "done"
    }
    for event in events:
        if isinstance(event, e.OutcomeSettled) and event.verdict == "not_happened" and event.by != "runner":
            started.pop(event.call, None)
        elif isinstance(event, e.ToolEnded) and event.call in started and event.outcome in _NEVER_RAN:
            text = f"{event.call} ends as {event.outcome}, and its tool had started"
            yield Violation("unknown_iff_lost", task, event.seq, text)
        elif isinstance(event, e.Rewound):
            for undone in event.calls:
                if undone.verdict == "nothing_to_compensate" and started.get(undone.call) == "done":
                    text = f"there is said to be nothing to take back of {undone.call}, and its tool did what it does"
                    yield Violation("unknown_iff_lost", task, event.seq, text)
