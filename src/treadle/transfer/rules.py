"""The consistency rules of tasks and threads. `verify` reports each breach, and an import refuses it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from treadle.core.data import mutable
from treadle.errors import TaskNotFound
from treadle.ports import JournalReader, Record, TaskRow, ThreadMember

_PAGE: Final = 200


@mutable
class WholeThread:
    """A thread with all its members, also those that later versions removed."""

    version: int
    members: list[ThreadMember]


async def every_thread(store: JournalReader) -> AsyncIterator[str]:
    """Yield the ids of all threads that have a version, in ascending order."""
    after = None
    while True:
        rows = await store.threads(_PAGE, after=after)
        for row in rows:
            yield row.thread_id
        if len(rows) < _PAGE:
            return
        after = rows[-1].thread_id


async def whole_thread(store: JournalReader, thread_id: str) -> WholeThread:
    """Return a thread with its removed members.

    A deletion drops the events of a removed member once tasks cannot begin with them any more, and keeps those that
    forks share. The thread's versions still name the dropped end. Such a member ends here at its task's head, and an
    export has the rest.
    """
    version, members = await store.thread(thread_id)
    if len(members) == version:
        return WholeThread(version, members)
    by_version: dict[int, ThreadMember] = {}
    for at in range(1, version + 1):
        _, present = await store.thread(thread_id, version=at)
        for member in present:
            by_version.setdefault(member.version, member)
        present_versions = {member.version for member in present}
        for member in by_version.values():
            if member.version not in present_versions and member.gone is None:
                member.gone = at
    for member in by_version.values():
        if member.gone is not None:
            row = await _row(store, member.task_id)
            if row is not None and row.deleted and row.head:
                member.seq = min(member.seq, row.head)
    return WholeThread(version, [by_version[at] for at in sorted(by_version)])


async def head_of(store: JournalReader, task_id: str) -> int:
    """Return the last event of a task, deleted or not, or 0 if it is not in the store."""
    row = await _row(store, task_id)
    return 0 if row is None else row.head


async def _row(store: JournalReader, task_id: str) -> TaskRow | None:
    try:
        return await store.row(task_id, deleted=True)
    except TaskNotFound:
        return None


def missing_end(member: ThreadMember, head: int) -> str | None:
    """Return the defect of a member of a thread, given the last event of its task, or None."""
    if 1 <= member.seq <= head:
        return None
    return f"a thread ends task {member.task_id} at event {member.seq}, and it is not here with that event"


def wrong_epoch(row: TaskRow, record: Record, previous: int) -> str | None:
    """Return the reason why a record cannot have its epoch after one of a `previous` epoch, or None."""
    if previous <= record.epoch <= row.epoch:
        return None
    return f"task {row.task_id}: epoch {record.epoch} follows epoch {previous} of {row.epoch}"
