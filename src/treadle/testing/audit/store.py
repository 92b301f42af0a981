"""The auditor: what must hold of every task's journal, as pure functions over its events that return violations.

Each check is named and belongs to one of the numbered invariants of `invariants`. Those over events alone are in
`events`, those that need another witness in `external_evidence`; `prefixes` and `refold`, here, use the engine's own
fold. `audit` runs all that apply to one task, `audit_store` reads every task of a store and audits them, forks against
their parents included. As a process of its own:

    python -m treadle.testing.auditor STORE --ledger effects.jsonl
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, fields, replace
from typing import Any

from treadle.core import events as e
from treadle.core.data import mutable
from treadle.core.events import IllegalEvent
from treadle.core.fold import apply
from treadle.core.graph import Graph
from treadle.core.journal import unfold
from treadle.core.messages import Message
from treadle.core.render import spoken
from treadle.core.schedule import words_of
from treadle.core.state import TaskState, start
from treadle.drivers.thread_history import ThreadHistory
from treadle.errors import JournalCorrupt
from treadle.ports import AT_ONCE, JournalStore, Record, TaskFilter, TaskRow
from treadle.testing.audit.children import families
from treadle.testing.audit.events import (
    Invariant,
    LedgerEntry,
    Violation,
    ended,
    epochs_grow,
    gap_free,
    given_back,
    ledger_agrees,
    limits,
    offers_stay,
    one_end,
    one_task_end,
    ran_as_told,
    stopped,
    taken_over,
    times_go_on,
    well_formed,
)
from treadle.testing.audit.external_evidence import (
    Acknowledged,
    Kept,
    Stream,
    acknowledged,
    one_writer,
    secrets_in,
    stopped_for_good,
    stream,
    unchanged,
)
from treadle.testing.audit.threads import began_with, threads

__all__ = [
    "Acknowledged",
    "Evidence",
    "Invariant",
    "JournalOf",
    "Kept",
    "LedgerEntry",
    "Stream",
    "Violation",
    "audit",
    "audit_store",
    "journal_of",
    "kept",
    "ledger_agrees",
    "prefixes",
    "refold",
    "well_formed",
]


@mutable(kw_only=True)
class Evidence:
    """What others than the journals saw of the tasks of a store; what is not given is not checked.

    Args:
        ledger: what tools wrote down, each entry naming its task.
        requests: the conversations each task's model was sent, by task id.
        acknowledged: what callers and watchers were told is durable.
        streams: what watchers saw, in the order they saw it.
        secrets: texts that must not be in any record.
        before: the store at an earlier moment, from `kept`.
        touched: the tasks that something was done to since then.
        ended: whether every task must have come to its end.
    """

    ledger: Sequence[LedgerEntry] = ()
    requests: Mapping[str, Iterable[Sequence[Message]]] = field(default_factory=dict[str, Any])
    acknowledged: Sequence[Acknowledged] = ()
    streams: Sequence[Stream] = ()
    secrets: Sequence[str] = ()
    before: Kept = field(default_factory=dict[str, Any])
    touched: Sequence[str] = ()
    ended: bool = False

    def of(self, task: str) -> Evidence:
        """Return what of it is about one task."""
        return replace(
            self,
            ledger=[entry for entry in self.ledger if entry.task == task],
            requests={task: self.requests.get(task, ())},
            acknowledged=[one for one in self.acknowledged if one.task == task],
            streams=[one for one in self.streams if one.task == task],
        )


@mutable
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
    evidence: Evidence | None = None,
    *,
    live: TaskState | None = None,
    parent: JournalOf | None = None,
) -> list[Violation]:
    """Return everything that is wrong with one task.

    Args:
        journal: its events and where it began.
        evidence: what others saw of this task.
        live: its state as a runner holds it, to compare with what the events add up to.
        parent: the task it was forked from.
    """
    task, events, seen = journal.task, journal.events, evidence or Evidence()
    found = [*gap_free(task, events), *one_end(task, events), *one_task_end(task, events)]
    if found and found[0].name == "gap_free":
        return found  # nothing can be said of places
    found += [
        *epochs_grow(task, journal.entries),
        *taken_over(task, journal.entries),
        *times_go_on(task, events),
    ]
    found += [*stopped(task, events), *limits(task, events), *offers_stay(task, events), *prefixes(journal)]
    if seen.ended:
        found += ended(task, events)
    for request in seen.requests.get(task, ()):
        found += well_formed(task, request, request=True)
    if live is not None:
        found += refold(journal, live)
    if parent is not None:
        found += fork_equals_parent(journal, parent)
    for watched in seen.streams:
        found += stream(task, events, watched)
    found += acknowledged(task, events, seen.acknowledged)
    found += stopped_for_good(task, seen.acknowledged, seen.ledger)
    found += one_writer(task, journal.entries, seen.ledger)
    return [*found, *ledger_agrees(task, events, seen.ledger), *ran_as_told(task, events, seen.ledger)]


# ------------------------------------------------------------------------------------------------ fold


@mutable
class _Place:
    """Where a task stands, as far as an undo gives it back."""

    messages: list[Message]
    turn: int
    tool_calls: int
    unread: list[e.InputReceived]
    answered: bool
    output: Any
    rejected: int


@mutable
class _Places:
    """Where the task stood: before its first step, and at the end of each step of the present branch.

    `said` are the words that came since an undo was first asked for: they are to outlast it.
    """

    origin: _Place | None = None
    after: dict[int, _Place] = field(default_factory=dict[int, _Place])
    said: list[e.InputReceived] | None = None
    heard: set[int] = field(default_factory=set[int])
    """the words that came, by the number of their event, but for those that others took the place of"""


_SPOKEN = (e.ToolEnded, e.ModelReturned, e.StepCompleted, e.Rewound, e.TaskReopened)
"""Events that change the conversation in another way than by adding somebody's words."""


_STOOD = (e.StepCompleted, e.StepFailed, e.StepSkipped, e.Rewound, e.TaskReopened, e.TaskForked)
"""Events after which what steps that depend on each other said and did is added up."""


def prefixes(journal: JournalOf) -> Iterator[Violation]:
    """Every prefix is a valid task with a well-formed conversation, and an undo restores what it says."""
    task = journal.task
    state = start(task, journal.history)
    places = _Places()
    for epoch, event in journal.entries:
        if isinstance(event, e.StepCompleted) and event.last and _ignores_words(state):
            text = f"{event.step} answers while words wait to be read"
            yield Violation("well_formed", task, event.seq, text)
        if isinstance(event, e.TaskEnded) and event.state == "completed" and state.unread:
            yield Violation("well_formed", task, event.seq, "it completes while words wait to be read")
        try:
            apply(state, event, epoch)
        except (IllegalEvent, AssertionError, LookupError, TypeError, AttributeError) as error:
            yield Violation("prefix_folds", task, event.seq, f"{event.kind}: {type(error).__name__}: {error}")
            return
        yield from _coherent(task, event.seq, state)
        _hear(event, state, places.heard)
        if isinstance(event, _STOOD) and state.graph is not None:
            yield from _adds_up(task, event.seq, state, state.graph)
        if isinstance(event, (*_STOOD, e.TaskEnded)) and state.graph is not None:
            yield from _keeps_words(task, event, state, state.graph, places.heard)
        if isinstance(event, _SPOKEN) and not _owes_results(state):
            yield from well_formed(task, state.messages, seq=event.seq)
        if isinstance(event, e.Rewound):
            yield from _restored(task, event, state, places)
        _remember(event, state, places)


def _ignores_words(state: TaskState) -> bool:
    """Whether a step that answers now leaves words unread, though the model may still be asked."""
    return state.step is not None and not state.step.final and bool(state.unread)


def _owes_results(state: TaskState) -> bool:
    """Whether calls were asked for whose results are still to be said."""
    if state.graph is not None:
        return any(node.owes for node in state.graph.running.values())
    return state.step is not None and bool(state.step.open)


def _coherent(task: str, seq: int, state: TaskState) -> Iterator[Violation]:
    """The indexes inside the state agree with what they index."""
    if state.graph is not None:
        yield from _coherent_graph(task, seq, state, state.graph)
        return
    step = state.step
    if step is not None:
        still = {call.id for call in step.calls if call.status != "ended"}
        if still != set(step.open):
            yield Violation("prefix_folds", task, seq, f"open are {sorted(step.open)}, not {sorted(still)}")
    indexes = [found.index for found in (*state.steps, *((step,) if step is not None else ()))]
    if indexes != list(range(1, len(indexes) + 1)):
        yield Violation("prefix_folds", task, seq, f"steps are numbered {indexes}")


def _coherent_graph(task: str, seq: int, state: TaskState, graph: Graph) -> Iterator[Violation]:
    """What is kept about steps that depend on each other follows from the steps themselves."""
    nodes = graph.nodes
    for node in nodes.values():
        above = [nodes[other] for other in node.after]
        ended = [other for other in above if other.status == "completed"]
        given_up = [other for other in above if other.status == "skipped"]
        failed = [other for other in above if other.status == "failed" and other.id not in graph.failed]
        if node.status == "planned" and node.waits != len(above) - len(ended) - len(given_up) - len(failed):
            yield Violation("prefix_folds", task, seq, f"{node.id} waits for {node.waits} steps")
        if node.status == "running" and node.step is not None and not node.won + node.passed >= node.need:
            yield Violation("prefix_folds", task, seq, f"{node.id} runs with {node.won} of {node.need}")
        if node.step is not None and node.status == "running":
            still = {call.id for call in node.step.calls if call.status != "ended"}
            if still != set(node.step.open):
                text = f"open are {sorted(node.step.open)}, not {sorted(still)}"
                yield Violation("prefix_folds", task, seq, text)
    for name, listed in (
        ("ready", [node.id for node in graph.ready]),
        ("running", list(graph.running)),
    ):
        there = sorted(node.id for node in nodes.values() if node.status == name)
        if sorted(listed) != there:
            yield Violation("prefix_folds", task, seq, f"{name} are {listed}, not {there}")
    if graph.planned != sum(node.status == "planned" for node in nodes.values()):
        yield Violation("prefix_folds", task, seq, f"{graph.planned} steps are said to be planned")
    places = [nodes[step.id].path for step in state.steps]
    if places != sorted(set(places)):
        yield Violation("prefix_folds", task, seq, f"steps are in the order {places}")
    if state.ended == "completed" and graph.running:
        yield Violation("prefix_folds", task, seq, f"completed while {', '.join(graph.running)} still runs")


def _adds_up(task: str, seq: int, state: TaskState, graph: Graph) -> Iterator[Violation]:
    """What is counted of a task, and its conversation, is what its steps did and said: no more after an undo."""
    nodes = graph.nodes.values()
    said = [node for node in nodes if node.merged]
    said.sort(key=lambda node: (node.since, node.path))
    began = [node.step for node in nodes if node.step is not None]
    own = state.messages[len(state.history) : len(state.messages) - state.closing]
    for what, counted, there in (
        ("its conversation", own, [message for node in said for message in words_of(node)]),
        ("answers", state.turn, sum(node.answers for node in nodes)),
        ("calls", state.tool_calls, sum(node.calls for node in nodes)),
        ("steps begun", graph.started, sum(step.started_seq != step.ended_seq for step in began)),
        ("unread", [words.seq for words in state.unread], sorted(words.seq for words in state.unread)),
    ):
        if counted != there:
            yield Violation("prefix_folds", task, seq, f"{what}: {counted!r} is kept, and {there!r} is there")
    if state.own_from > len(state.messages):
        yield Violation(
            "prefix_folds", task, seq, f"its own words begin at {state.own_from}, beyond them all"
        )


def _hear(event: e.Event, state: TaskState, heard: set[int]) -> None:
    if isinstance(event, (e.InputEdited, e.MessagesImported)):
        heard.clear()  # what a step has read already is not replaced, and is found there
    if isinstance(event, e.InputReceived):
        heard.add(event.seq)
    elif isinstance(event, (e.InputEdited, e.TaskCreated)):
        heard.update(words.seq for words in state.unread)


def _keeps_words(
    task: str, event: e.Event, state: TaskState, graph: Graph, heard: set[int]
) -> Iterator[Violation]:
    """Whatever was said is read by one step or by none yet; if the task's words are kept, it is among them."""
    waiting = [words.seq for words in state.unread]
    read = [words.seq for node in graph.nodes.values() for words in node.read]
    there = Counter([*waiting, *read])
    lost = sorted(seq for seq in heard if there[seq] != 1)
    if lost:
        yield Violation("well_formed", task, event.seq, f"words of events {lost} are not in one place")
    if isinstance(event, e.TaskEnded) and (event.kept or event.state in ("completed", "degraded")):
        said = [spoken(words) for node in graph.nodes.values() for words in node.read]
        silent = [words.text for words in said if state.messages.count(words) < said.count(words)]
        if silent:
            yield Violation(
                "well_formed", task, event.seq, f"{silent} is not in the conversation that is kept"
            )


def _place(state: TaskState) -> _Place:
    messages, unread = list(state.messages), list(state.unread)
    answered, output = state.answered, state.output
    return _Place(messages, state.turn, state.tool_calls, unread, answered, output, state.rejected)


def _remember(event: e.Event, state: TaskState, places: _Places) -> None:
    before = not state.began and state.step is None and len(state.steps) == state.floor
    if isinstance(event, (e.Rewound, e.TaskForked, e.TaskEnded)):
        places.said = None
    if isinstance(event, (e.TaskCreated, e.TaskForked)):
        places.origin = _place(state) if before else places.after.get(state.floor, places.origin)
    elif isinstance(event, e.InputReceived) and before and places.origin is not None:
        unread = [*places.origin.unread, event]
        places.origin = replace(places.origin, unread=unread, answered=False, output=None)
    elif isinstance(event, e.InputReceived) and places.said is not None:
        places.said.append(event)
    elif isinstance(event, e.UndoRequested):
        places.said = [] if places.said is None else places.said
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
        index, place = state.steps[-1].index, _place(state)
        known = places.after.get(index)
        if isinstance(event, e.TaskReopened) and known is not None and known.unread != place.unread:
            place = known  # words since the step's end are taken back with the step that reads them
        places.after[index] = place
        if len(state.steps) == state.floor and place is not known:
            # The step that was under way where a fork began: it cannot go back further than its end.
            places.origin = place


def _restored(task: str, event: e.Rewound, state: TaskState, places: _Places) -> Iterator[Violation]:
    if state.graph is not None:
        left = [step.id for step in state.steps if step.id in event.steps]
        if left:
            yield Violation("undo_restores", task, event.seq, f"{left} were taken back and are there")
        return
    expected = places.origin if event.to == state.floor else places.after.get(event.to)
    if len(state.steps) != event.to:
        yield Violation(
            "undo_restores", task, event.seq, f"{len(state.steps)} steps are left, not {event.to}"
        )
    if expected is None:
        return
    if places.said:
        unread = [*expected.unread, *places.said]
        expected = replace(expected, unread=unread, answered=False, output=None)
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
    return await _unfolded(store, row, await store.read(row.task_id))


async def _unfolded(store: JournalStore, row: TaskRow, records: list[Record]) -> JournalOf:
    entries: list[tuple[int, e.Event]] = []
    for epoch, found in unfold(row.task_id, records):
        entries += [(epoch, event) for event in found]
    journal = JournalOf(row.task_id, entries, parent=row.base, shared=row.base_seq)
    thread, base = began_with(journal.events)
    if base:
        journal.history = (await ThreadHistory(store).begin(thread, base)).messages
    return journal


async def all_rows(store: JournalStore) -> list[TaskRow]:
    """Return the rows of all tasks of a store, newest task id first."""
    rows: list[TaskRow] = []
    while True:
        page = await store.rows(TaskFilter(limit=100, cursor=rows[-1].task_id if rows else None))
        rows += page
        if len(page) < 100:
            return rows


async def kept(store: JournalStore) -> Kept:
    """Return what a store holds now, to be compared with what it holds later; see `Evidence.before`."""
    found: dict[str, tuple[TaskRow, Sequence[tuple[int, bytes]]]] = {}
    for row in await all_rows(store):
        records = await store.read(row.task_id)
        found[row.task_id] = row, [(record.seq, record.digest) for record in records]
    return found


async def audit_store(
    store: JournalStore,
    evidence: Evidence | None = None,
    *,
    live: Callable[[str], TaskState | None] = lambda _: None,
) -> list[Violation]:
    """Return everything that is wrong with the tasks of a store.

    Args:
        store: an open store.
        evidence: what others saw of its tasks.
        live: a task's state as a runner holds it at rest, None if it holds none.
    """
    seen = evidence or Evidence()
    found: list[Violation] = []
    journals: dict[str, JournalOf] = {}
    now: dict[str, tuple[TaskRow, Sequence[tuple[int, bytes]]]] = {}
    for row in await all_rows(store):
        try:
            records = await store.read(row.task_id)
            now[row.task_id] = row, [(record.seq, record.digest) for record in records]
            journals[row.task_id] = await _unfolded(store, row, records)
            if seen.secrets:
                found += secrets_in(row.task_id, records, seen.secrets)
        except JournalCorrupt as error:
            found.append(Violation("chain", row.task_id, error.seq, str(error)))
    if seen.before:
        found += unchanged(seen.before, now, seen.touched)
    for task in {one.task for one in seen.acknowledged} - now.keys():
        found.append(
            Violation("acknowledged", task, 0, "something of it was acknowledged and it is not there")
        )
    for task, journal in journals.items():
        row, parent = now[task][0], journals.get(journal.parent or "")
        if row.driver is None and row.wanted != AT_ONCE:  # else its driver died, and the next one ends it
            found += given_back(task, journal.events)
        found += audit(journal, seen.of(task), live=live(task), parent=parent)
    found += families({task: journal.events for task, journal in journals.items()})
    found += await threads(store, {task: journal.entries for task, journal in journals.items()})
    return found
