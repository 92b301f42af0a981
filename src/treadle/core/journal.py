"""The rules of a journal: numbers without gaps, records chained by digests, and forks with a shared prefix."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from treadle.core import codec, events
from treadle.core.rules.fold import apply
from treadle.core.state import TaskState
from treadle.errors import JournalCorrupt, TaskTooNew


class StoredRecord(Protocol):
    """A record, as this module uses it."""

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
    """Yield the epoch and events of each record, oldest first. Checks each record on the way.

    Args:
        task_id: named in errors.
        records: in order, as a store returned them.
        after: omit events up to this one. Earlier records may be missing.
        previous: digest of the record before the first one. None: it is not known, and the first record is trusted.

    Raises:
        JournalCorrupt: a record was changed, is missing, or does not follow the one before.
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
    """Yield each event of checked records with its epoch, oldest first. Arguments and errors are those of `unfold`."""
    for epoch, decoded in unfold(task_id, records, after=after, previous=previous):
        for event in decoded:
            yield epoch, event


def apply_stored(state: TaskState, event: events.Event, epoch: int = 0) -> None:
    """Apply an event from a journal.

    Args:
        state: the state after the events before it. Do not use it after an error.
        event: the next event.
        epoch: the epoch of its record.

    Raises:
        JournalCorrupt: the event cannot follow those before it.
        TaskTooNew: the same after an event that this version does not know.
    """
    apply_all_stored(state, (event,), epoch)


def apply_all_stored(state: TaskState, stored: Sequence[events.Event], epoch: int) -> None:
    """Apply events from a journal, in order. Arguments and errors are those of `apply_stored`."""
    for event in stored:
        try:
            apply(state, event, epoch)
        except Exception as error:
            # The chain fits, so other software or a version with a defect wrote the journal like this. The fold trusts
            # the references in events, so the error may be of any class.
            if state.unknown is not None:
                check_known(state)  # the event may follow from the unknown one
            why = f"a {event.kind} event cannot stand here: {error or type(error).__name__}"
            message = f"task {state.task_id}, event {event.seq}: {why}"
            raise JournalCorrupt(message, task_id=state.task_id, seq=event.seq) from error


def missing_tail(task_id: str, head: int, mark: int) -> JournalCorrupt:
    """Return the error for a journal that ends at event `head`, before event `mark` in its task's row."""
    message = f"task {task_id}: events {head + 1} to {mark} are missing"
    return JournalCorrupt(message, task_id=task_id, seq=head + 1)


def replaced_tail(task_id: str, mark: int) -> JournalCorrupt:
    """Return the error for a journal whose last record differs from the one in its task's row."""
    return JournalCorrupt(f"task {task_id}: event {mark} was replaced", task_id=task_id, seq=mark)


def check_format(task_id: str, needs: int, reason: str = "") -> None:
    """Raise `TaskTooNew` if driving a task needs a newer journal format than this version knows.

    Args:
        task_id: the task.
        needs: the format that a driver must know.
        reason: the cause, if it is known.
    """
    knows = events.JOURNAL_FORMAT
    if needs > knows:
        written = f"task {task_id} was written by a newer version of Treadle{f': {reason}' if reason else ''}"
        message = (
            f"{written}. Driving it needs journal format {needs}; this version knows format {knows}. "
            "Upgrade treadle, or leave the task to a driver of the newer version; it can still be viewed and exported "
            "here"
        )
        raise TaskTooNew(message, task_id=task_id, needs=needs, knows=knows)


def check_known(state: TaskState) -> None:
    """Raise `TaskTooNew` if an unknown event forbids this version to drive the task."""
    unknown = state.unknown
    if unknown is not None:
        reason = f"event {unknown.seq} is of the kind {unknown.tag!r}, which is not known here"
        if unknown.known is not None:
            reason = f"event {unknown.seq}, of the kind {unknown.tag!r}, has fields or values that are not known here"
        check_format(state.task_id, unknown.format, reason)


def _check_digest(task_id: str, record: StoredRecord, previous: bytes, before: int) -> None:
    if codec.chain(previous, record.data) == record.digest:
        return
    if codec.chain(codec.branch_digest(previous, before), record.data) == record.digest:
        return
    message = (
        f"task {task_id}: the record of events {before + 1} to {record.seq} was changed or belongs elsewhere"
    )
    raise JournalCorrupt(message, task_id=task_id, seq=record.seq)
