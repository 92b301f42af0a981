"""The auditor: run all checks of one task, or of all tasks and threads of a store.

Each check has a name and belongs to one of the numbered invariants of `invariants`. `events` has the checks of events
alone, `folds` those of folded states. `external_evidence` uses evidence from outside the journal. `children` and
`threads` check tasks together. `audit` runs all checks of one task. `audit_store` audits every task of a store, and
compares forks with their parents. As a program:

    python -m treadle.testing.auditor STORE --ledger effects.jsonl
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from treadle.core.data import mutable
from treadle.core.events import known_part
from treadle.core.journal import events_with_epochs
from treadle.core.messages import Message
from treadle.core.state import TaskState
from treadle.drivers.thread_history import ThreadHistory
from treadle.errors import JournalCorrupt
from treadle.ports import AT_ONCE, JournalStore, Record, TaskFilter, TaskRow
from treadle.testing.audit.children import families
from treadle.testing.audit.events import (
    Invariant,
    LedgerEntry,
    Violation,
    answered_questions,
    approved_starts,
    ended,
    epochs_grow,
    gap_free,
    guarded,
    judged_requests,
    ledger_agrees,
    limits,
    offers_stay,
    one_end,
    one_task_end,
    ran_as_told,
    released,
    stopped,
    taken_over,
    times_go_on,
    well_formed,
)
from treadle.testing.audit.external_evidence import (
    Acknowledged,
    Kept,
    KeptTask,
    Stream,
    acknowledged,
    one_writer,
    secrets_in,
    stopped_for_good,
    stream,
    tracebacks_in,
    unchanged,
)
from treadle.testing.audit.folds import JournalOf, fork_equals_parent, prefixes, refold
from treadle.testing.audit.handoffs import handed_over
from treadle.testing.audit.labels import labels
from treadle.testing.audit.threads import began_with, threads
from treadle.testing.audit.tickets import told_by_tickets

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
    """Evidence about the tasks of a store from outside the journals; checks without evidence are skipped.

    Args:
        ledger: entries that tools wrote; each names its task.
        requests: the conversations sent to each task's model, by task id.
        acknowledged: events that were acknowledged to callers and watchers as durable.
        streams: the events that watchers received, in order.
        secrets: texts that must not be in any record.
        before: the store at an earlier moment, from `kept`.
        touched: the tasks that were changed since then.
        ended: whether every task must have ended.
        clocks_agree: whether times order events of different tasks, since no clock was set.
    """

    ledger: Sequence[LedgerEntry] = ()
    requests: Mapping[str, Iterable[Sequence[Message]]] = field(default_factory=dict[str, Any])
    acknowledged: Sequence[Acknowledged] = ()
    streams: Sequence[Stream] = ()
    secrets: Sequence[str] = ()
    before: Kept = field(default_factory=dict[str, Any])
    touched: Sequence[str] = ()
    ended: bool = False
    clocks_agree: bool = True

    def of(self, task: str) -> Evidence:
        """Return the evidence about one task."""
        return replace(
            self,
            ledger=[entry for entry in self.ledger if entry.task == task],
            requests={task: self.requests.get(task, ())},
            acknowledged=[item for item in self.acknowledged if item.task == task],
            streams=[stream for stream in self.streams if stream.task == task],
        )


def audit(
    journal: JournalOf,
    evidence: Evidence | None = None,
    *,
    live: TaskState | None = None,
    parent: JournalOf | None = None,
) -> list[Violation]:
    """Return all violations of one task.

    Args:
        journal: its events, and the thread in which it began.
        evidence: other evidence about this task.
        live: a runner's state of it, to compare with the folded state.
        parent: the task from which it was forked.
    """
    task, events, evidence = journal.task, journal.events, evidence or Evidence()
    violations = [*gap_free(task, events), *one_end(task, events), *one_task_end(task, events)]
    if violations and violations[0].name == "gap_free":
        return violations  # other checks need valid numbers
    violations += [
        *epochs_grow(task, journal.entries),
        *approved_starts(task, events),
        *answered_questions(task, events),
        *judged_requests(task, events),
        *guarded(task, events),
        *told_by_tickets(task, events),
        *taken_over(task, journal.entries),
        *times_go_on(task, events),
        *stopped(task, events),
        *limits(task, events),
        *offers_stay(task, events),
        *handed_over(task, events),
        *prefixes(journal),
    ]
    if evidence.ended:
        violations += ended(task, events)
    requests = list(evidence.requests.get(task, ()))
    for request in requests:
        violations += well_formed(task, request, request=True)
    violations += tracebacks_in(task, events, requests)
    if live is not None:
        violations += refold(journal, live)
    if parent is not None:
        violations += fork_equals_parent(journal, parent)
    for watched in evidence.streams:
        violations += stream(task, events, watched)
    return [
        *violations,
        *acknowledged(task, events, evidence.acknowledged),
        *stopped_for_good(task, evidence.acknowledged, evidence.ledger),
        *one_writer(task, journal.entries, evidence.ledger),
        *ledger_agrees(task, events, evidence.ledger),
        *ran_as_told(task, events, evidence.ledger),
    ]


# -------------------------------------------------------------------------------------- whole stores


async def journal_of(store: JournalStore, row: TaskRow) -> JournalOf:
    """Read a task's journal from the store and check its chain; raise `JournalCorrupt`."""
    return await _unfolded(store, row, await store.read(row.task_id))


async def _unfolded(store: JournalStore, row: TaskRow, records: list[Record]) -> JournalOf:
    journal = JournalOf(
        row.task_id,
        [(epoch, known_part(event)) for epoch, event in events_with_epochs(row.task_id, records)],
        parent=row.base,
        shared=row.base_seq,
    )
    thread, base = began_with(journal.events)
    if base:
        began = await ThreadHistory(store).begin(thread, base)
        journal.history = began.messages
        journal.history_untrusted, journal.history_exposed = began.untrusted, began.exposed
    return journal


async def all_rows(store: JournalStore) -> list[TaskRow]:
    """Return the rows of all tasks of a store, newest first."""
    rows: list[TaskRow] = []
    while True:
        page = await store.rows(TaskFilter(limit=100, cursor=rows[-1].cursor if rows else None))
        rows += page
        if len(page) < 100:
            return rows


async def kept(store: JournalStore) -> Kept:
    """Return the current content of a store, for `Evidence.before`."""
    return {row.task_id: kept_of(row, await store.read(row.task_id)) for row in await all_rows(store)}


def kept_of(row: TaskRow, records: Iterable[Record]) -> KeptTask:
    """Return the row and the records of one task."""
    return row, [(record.seq, record.digest) for record in records]


async def audit_store(
    store: JournalStore,
    evidence: Evidence | None = None,
    *,
    live: Callable[[str], TaskState | None] = lambda _: None,
) -> list[Violation]:
    """Return all violations of the tasks of a store.

    Args:
        store: an open store.
        evidence: other evidence about its tasks.
        live: returns a stopped task's state from a runner's cache; None if it is not cached.
    """
    evidence = evidence or Evidence()
    violations: list[Violation] = []
    journals: dict[str, JournalOf] = {}
    now: dict[str, KeptTask] = {}
    for row in await all_rows(store):
        try:
            records = await store.read(row.task_id)
            now[row.task_id] = kept_of(row, records)
            journals[row.task_id] = await _unfolded(store, row, records)
            if evidence.secrets:
                violations += secrets_in(row.task_id, records, evidence.secrets)
        except JournalCorrupt as error:
            violations.append(Violation("chain", row.task_id, error.seq, str(error)))
    if evidence.before:
        violations += unchanged(evidence.before, now, evidence.touched)
    for task in {item.task for item in evidence.acknowledged} - now.keys():
        text = "an event of it was acknowledged, and the task is not in the store"
        violations.append(Violation("acknowledged", task, 0, text))
    for task, journal in journals.items():
        row, parent = now[task][0], journals.get(journal.parent or "")
        if (
            row.driver is None and row.due_at != AT_ONCE
        ):  # otherwise its driver crashed, and the next one will end it
            violations += released(task, journal.events)
        violations += audit(journal, evidence.of(task), live=live(task), parent=parent)
    events = {task: journal.events for task, journal in journals.items()}
    violations += families(events, clocks_agree=evidence.clocks_agree)
    violations += labels(events)
    return violations + await threads(store, {task: journal.entries for task, journal in journals.items()})
