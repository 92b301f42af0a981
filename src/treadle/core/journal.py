"""The rules of a journal: events numbered without a gap, records chained by digest, forks sharing a prefix."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from treadle.core import codec, events
from treadle.core.rules.fold import apply
from treadle.core.state import TaskState
from treadle.errors import JournalCorrupt, TaskTooNew


class StoredRecord(Protocol):
    """What this module needs to know of a record, wherever it lies."""

    seq: int
    count: int
    epoch: int
    data: bytes
    digest: bytes
    blobs: dict[str, bytes]
    upto: int | None


def unfold(
    task_id: str, records: Iterable[StoredRecord], *, after: int = 0, previous: bytes | None = b""
) -> Iterator[tuple[int, list[events.Event]]]:
    """Yield for each record its epoch and its events, oldest first, checking each record on the way.

    Args:
        task_id: named in errors.
        records: in order, as a store returned them.
        after: leave out events up to this one; records before it need not be given.
        previous: digest of the record before the first given; None if it is not known, so that the first is trusted.

    Raises:
        JournalCorrupt: a record was changed, is missing, or does not follow from the one before.
    """
    head: int | None = None
    for record in records:
        first = record.seq - record.count + 1
        if head is not None and first != head + 1:
            message = f"task {task_id}: events {head + 1} to {first - 1} are missing"
            raise JournalCorrupt(message, task_id=task_id, seq=first)
        if previous is not None:
            _check_digest(task_id, record, previous, first - 1)
        try:
            decoded = codec.decode(record.data, record.blobs, record.seq)
        except codec.UnreadableRecord as error:
            raise JournalCorrupt(
                f"task {task_id}, event {first}: {error}", task_id=task_id, seq=first
            ) from error
        if len(decoded) != record.count:
            message = f"task {task_id}, event {first}: {len(decoded)} events where {record.count} belong"
            raise JournalCorrupt(message, task_id=task_id, seq=first)
        head = record.seq if record.upto is None else record.upto
        previous = record.digest
        if after >= first or head < record.seq:
            decoded = [event for event in decoded if after < event.seq <= head]
        yield record.epoch, decoded


def events_with_epochs(
    task_id: str, records: Iterable[StoredRecord], *, after: int = 0, previous: bytes | None = b""
) -> Iterator[tuple[int, events.Event]]:
    """Yield each event of checked records with its epoch, oldest first; arguments and errors are those of `unfold`."""
    for epoch, decoded in unfold(task_id, records, after=after, previous=previous):
        for event in decoded:
            yield epoch, event


def apply_stored(state: TaskState, event: events.Event, epoch: int = 0) -> None:
    """Apply an event that was read from a journal.

    Args:
        state: what the events before it add up to; not to be used any more after an error.
        event: the next event.
        epoch: the ownership it was written under.

    Raises:
        JournalCorrupt: the event cannot follow those before it.
        TaskTooNew: nor can that be known, since an event that this version does not know came before.
    """
    try:
        apply(state, event, epoch)
    except Exception as error:
        # The chain fits, so it was written like this: by a foreign hand, or by a version with a defect. The rules of
        # the fold trust that an event speaks of what is there, so the error may be of any class.
        if state.unknown is not None:
            check_known(state)  # what is not known here may be what this event follows from
        why = f"a {event.kind} event cannot stand here: {error or type(error).__name__}"
        message = f"task {state.task_id}, event {event.seq}: {why}"
        raise JournalCorrupt(message, task_id=state.task_id, seq=event.seq) from error


def missing_tail(task_id: str, head: int, mark: int) -> JournalCorrupt:
    """Return the error for a journal that ends at event `head` though its task's row knows of event `mark`."""
    message = f"task {task_id}: events {head + 1} to {mark} are missing"
    return JournalCorrupt(message, task_id=task_id, seq=head + 1)


def replaced_tail(task_id: str, mark: int) -> JournalCorrupt:
    """Return the error for a journal whose last record is another than the one its task's row knows of."""
    return JournalCorrupt(f"task {task_id}: event {mark} was replaced", task_id=task_id, seq=mark)


def check_format(task_id: str, needs: int, why: str = "") -> None:
    """Raise `TaskTooNew` if a task's driver must know a newer journal format than this version does.

    Args:
        task_id: the task.
        needs: the format that a driver must know.
        why: what needs it, if that is known.
    """
    knows = events.JOURNAL_FORMAT
    if needs > knows:
        message = (
            f"task {task_id} was written by a newer version of Treadle{f': {why}' if why else ''}. Driving it needs "
            f"journal format {needs}; this version knows format {knows}. Upgrade treadle, or leave the task to a "
            "driver of the newer version; it can still be viewed and exported here"
        )
        raise TaskTooNew(message, task_id=task_id, needs=needs, knows=knows)


def check_known(state: TaskState) -> None:
    """Raise `TaskTooNew` if a task's journal holds an event that this version may not drive the task on over."""
    unknown = state.unknown
    if unknown is not None:
        why = f"event {unknown.seq} is of the kind {unknown.tag!r}, which is not known here"
        if unknown.known is not None:
            why = f"event {unknown.seq}, of the kind {unknown.tag!r}, has fields or values that are not known here"
        check_format(state.task_id, unknown.format, why)


def _check_digest(task_id: str, record: StoredRecord, previous: bytes, before: int) -> None:
    if codec.chain(previous, record.data) == record.digest:
        return
    if codec.chain(codec.branch_digest(previous, before), record.data) == record.digest:
        return
    message = (
        f"task {task_id}: the record of events {before + 1} to {record.seq} was changed or belongs elsewhere"
    )
    raise JournalCorrupt(message, task_id=task_id, seq=record.seq)
