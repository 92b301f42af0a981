"""The auditor: what must hold of every task's journal, as pure functions over its events that return violations.

Each check is one named invariant. Those over events alone are in `treadle.testing.audit_events`; `prefixes` and
`refold` use the engine's own fold. `audit` runs all that apply to one task, `audit_store` reads every task of a store
and audits them, forks against their parents included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from treadle.core import events as e
from treadle.core.fold import IllegalEvent, apply
from treadle.core.journal import unfold
from treadle.core.messages import Message
from treadle.core.state import TaskState, start
from treadle.errors import JournalCorrupt
from treadle.ports import JournalStore, TaskFilter, TaskRow
from treadle.runner.desk import Desk
from treadle.testing.audit_events import (
    Invariant,
    LedgerEntry,
    Violation,
    epochs_grow,
    gap_free,
    ledger_agrees,
    one_end,
    one_task_end,
    well_formed,
)

__all__ = [
    "Invariant",
    "JournalOf",
    "LedgerEntry",
    "Violation",
    "audit",
    "audit_store",
    "epochs_grow",
    "fork_equals_parent",
    "gap_free",
    "journal_of",
    "ledger_agrees",
    "one_end",
    "one_task_end",
    "prefixes",
    "refold",
    "well_formed",
]


@dataclass(slots=True)
class JournalOf:
    """A task as a store holds it: each event with the epoch it was written under, and the thread it began in."""

    task: str
    entries: list[tuple[int, e.Event]]
    history: list[Message] = field(default_factory=list[Message])
    parent: str | None = None
    shared: int = 0

    @property
    def events(self) -> list[e.Event]:
        """The events without their epochs."""
        return [event for _, event in self.entries]


def audit(
    journal: JournalOf,
    *,
    live: TaskState | None = None,
    parent: JournalOf | None = None,
    requests: Iterable[Sequence[Message]] = (),
    ledger: Iterable[LedgerEntry] = (),
) -> list[Violation]:
    """Return everything that is wrong with one task.

    Args:
        journal: its events and where it began.
        live: its state as a runner holds it, to compare with what the events add up to.
        parent: the task it was forked from.
        requests: the conversations its model was sent.
        ledger: what its tools wrote down about this task.
    """
    task, events = journal.task, journal.events
    found = [*gap_free(task, events), *one_end(task, events), *one_task_end(task, events)]
    found += epochs_grow(task, journal.entries)
    found += prefixes(journal)
    for request in requests:
        found += well_formed(task, request, request=True)
    if live is not None:
        found += refold(journal, live)
    if parent is not None:
        found += fork_equals_parent(journal, parent)
    return [*found, *ledger_agrees(task, events, ledger)]


# ------------------------------------------------------------------------------------------------ fold


@dataclass(slots=True)
class _Place:
    """Where a task stands, as far as an undo gives it back."""

    messages: list[Message]
    turn: int
    tool_calls: int
    unread: list[e.InputReceived]
    answered: bool
    output: Any


@dataclass(slots=True)
class _Places:
    """Where the task stood: before its first step, and at the end of each step of the present branch."""

    origin: _Place | None = None
    after: dict[int, _Place] = field(default_factory=dict[int, _Place])


_SPOKEN = (e.ToolEnded, e.ModelReturned, e.StepCompleted, e.Rewound, e.TaskReopened)
"""Events that change the conversation in another way than by adding somebody's words."""


def prefixes(journal: JournalOf) -> Iterator[Violation]:
    """Every prefix is a valid task with a well-formed conversation, and an undo restores what it says."""
    task = journal.task
    state = start(task, journal.history)
    places = _Places()
    for epoch, event in journal.entries:
        try:
            apply(state, event, epoch)
        except (IllegalEvent, AssertionError, LookupError, TypeError, AttributeError) as error:
            yield Violation("prefix_folds", task, event.seq, f"{event.kind}: {type(error).__name__}: {error}")
            return
        yield from _coherent(task, event.seq, state)
        if isinstance(event, _SPOKEN) and (state.step is None or not state.step.open):
            yield from well_formed(task, state.messages, seq=event.seq)
        if isinstance(event, e.Rewound):
            yield from _restored(task, event, state, places)
        _remember(event, state, places)


def _coherent(task: str, seq: int, state: TaskState) -> Iterator[Violation]:
    """The indexes inside the state agree with what they index."""
    step = state.step
    if step is not None:
        still = {call.id for call in step.calls if call.status != "ended"}
        if still != set(step.open):
            yield Violation("prefix_folds", task, seq, f"open are {sorted(step.open)}, not {sorted(still)}")
    indexes = [found.index for found in (*state.steps, *((step,) if step is not None else ()))]
    if indexes != list(range(1, len(indexes) + 1)):
        yield Violation("prefix_folds", task, seq, f"steps are numbered {indexes}")


def _place(state: TaskState) -> _Place:
    return _Place(
        list(state.messages), state.turn, state.tool_calls, list(state.unread), state.answered, state.output
    )


def _remember(event: e.Event, state: TaskState, places: _Places) -> None:
    before = not state.began and state.step is None and len(state.steps) == state.floor
    if isinstance(event, (e.TaskCreated, e.TaskForked)):
        places.origin = _place(state) if before else places.after.get(state.floor, places.origin)
    elif isinstance(event, e.InputReceived) and before and places.origin is not None:
        unread = [*places.origin.unread, event]
        places.origin = replace(places.origin, unread=unread, answered=False, output=None)
    elif isinstance(event, e.ResultReplaced):
        # A fork with another result stands elsewhere than its parent did.
        places.after = {}
        if places.origin is not None:
            places.origin = replace(places.origin, messages=list(state.messages))
    if (
        isinstance(event, (e.StepCompleted, e.StepSkipped, e.TaskReopened))
        and state.steps
        and state.step is None
    ):
        places.after[state.steps[-1].index] = _place(state)
        if len(state.steps) == state.floor:
            # The step that was under way where a fork began: it cannot go back further than its end.
            places.origin = places.after[state.steps[-1].index]


def _restored(task: str, event: e.Rewound, state: TaskState, places: _Places) -> Iterator[Violation]:
    expected = places.origin if event.to == state.floor else places.after.get(event.to)
    if len(state.steps) != event.to:
        yield Violation(
            "undo_restores", task, event.seq, f"{len(state.steps)} steps are left, not {event.to}"
        )
    if expected is None:
        return
    here = _place(state)
    for item in fields(_Place):
        then, now = getattr(expected, item.name), getattr(here, item.name)
        if then != now:
            text = f"back after step {event.to}, {item.name} is {now!r} and was {then!r}"
            yield Violation("undo_restores", task, event.seq, text)


def refold(journal: JournalOf, live: TaskState) -> Iterator[Violation]:
    """What a runner holds in memory is what the journal adds up to."""
    folded = start(journal.task, journal.history)
    for epoch, event in journal.entries:
        apply(folded, event, epoch)
    if folded.seq != live.seq:
        yield Violation("refold", journal.task, live.seq, f"the journal ends at event {folded.seq}")
        return
    for item in fields(TaskState):
        kept, told = getattr(live, item.name), getattr(folded, item.name)
        if item.name == "history":
            kept, told = list(kept), list(told)
        if kept != told:
            text = f"{item.name} is {kept!r} in memory and {told!r} by the journal"
            yield Violation("refold", journal.task, live.seq, text)


def fork_equals_parent(fork: JournalOf, parent: JournalOf) -> Iterator[Violation]:
    """Up to its point a fork is its parent, event by event; there it says whose fork it is."""
    for (_, mine), (_, theirs) in zip(fork.entries[: fork.shared], parent.entries, strict=False):
        if mine != theirs or mine.time != theirs.time:
            yield Violation("fork_equals_parent", fork.task, mine.seq, f"{mine!r} is not {theirs!r}")
    if len(fork.entries) <= fork.shared:
        yield Violation("fork_equals_parent", fork.task, fork.shared, "it has no event of its own")
        return
    first = fork.entries[fork.shared][1]
    if not isinstance(first, e.TaskForked) or first.parent != parent.task:
        text = f"its first own event is {first.kind}, not a fork of {parent.task}"
        yield Violation("fork_equals_parent", fork.task, first.seq, text)


# -------------------------------------------------------------------------------------- whole stores


async def journal_of(store: JournalStore, row: TaskRow) -> JournalOf:
    """Return a task's journal as the store holds it, its chain checked; raises `JournalCorrupt`."""
    entries: list[tuple[int, e.Event]] = []
    for epoch, found in unfold(row.task_id, await store.read(row.task_id)):
        entries += [(epoch, event) for event in found]
    journal = JournalOf(row.task_id, entries, parent=row.base, shared=row.base_seq)
    first = entries[0][1] if entries else None
    if isinstance(first, e.TaskCreated) and first.base:
        journal.history = await Desk(store, lambda: 0).thread_messages(first.thread, first.base)
    return journal


async def audit_store(
    store: JournalStore,
    *,
    requests: Mapping[str, Iterable[Sequence[Message]]] | None = None,
    ledger: Iterable[LedgerEntry] = (),
    live: Callable[[str], TaskState | None] = lambda _: None,
) -> list[Violation]:
    """Return everything that is wrong with the tasks of a store.

    Args:
        store: an open store.
        requests: the conversations each task's model was sent, by task id.
        ledger: what tools wrote down, each entry naming its task.
        live: a task's state as a runner holds it at rest, None if it holds none.
    """
    rows: list[TaskRow] = []
    while True:
        page = await store.rows(TaskFilter(limit=100, cursor=rows[-1].task_id if rows else None))
        rows += page
        if len(page) < 100:
            break
    entries = list(ledger)
    found: list[Violation] = []
    journals: dict[str, JournalOf] = {}
    for row in rows:
        try:
            journals[row.task_id] = await journal_of(store, row)
        except JournalCorrupt as error:
            found.append(Violation("chain", row.task_id, error.seq, str(error)))
    for task, journal in journals.items():
        found += audit(
            journal,
            live=live(task),
            parent=journals.get(journal.parent or ""),
            requests=(requests or {}).get(task, ()),
            ledger=[entry for entry in entries if entry.task == task],
        )
    return found
