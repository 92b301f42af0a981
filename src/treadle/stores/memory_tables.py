"""The tasks, threads and grants of a store in memory: the checks and writes of commits, and the copies of snapshots."""

from __future__ import annotations

import os
import socket
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from uuid import uuid4

from treadle.core.data import mutable
from treadle.core.events import END_STATES
from treadle.core.permits import StandingGrant
from treadle.ports import (
    Commit,
    Committed,
    Driver,
    InboxItem,
    JournalEnd,
    NewTask,
    OnBusyThread,
    QueuePosition,
    Record,
    TaskFigures,
    TaskFilter,
    TaskRow,
    ThreadRow,
)
from treadle.stores import rules
from treadle.stores.listing import is_match
from treadle.stores.orphan_index import Orphan, OrphanIndex
from treadle.stores.rules import IN_PARALLEL, QueuedTask, QueueEntry
from treadle.stores.tenants import tenant_of


@dataclass(slots=True, eq=False)
class StoredTask:
    """A task; `deleted` while forks or a thread still need its records."""

    new: NewTask
    state: str
    epoch: int
    base: StoredTask | None
    owned: bool = True
    left: bool = False
    """whether its last owner did not release it"""

    wanted: int = 0
    deleted: bool = False
    turn: int | None = None
    """its place in the queue of its thread: 0 has the thread, larger numbers wait; None without a place"""

    records: list[Record] = field(default_factory=list[Record])
    waiting: dict[str, InboxItem] = field(default_factory=dict[str, InboxItem])
    seen: set[str] = field(default_factory=set[str])
    forks: list[StoredTask] = field(default_factory=list["StoredTask"])
    mark: JournalEnd | None = None
    format: int = 1
    figures: TaskFigures | None = None

    @property
    def seq(self) -> int:
        """The last event"""
        return self.records[-1].seq if self.records else self.new.base_seq


@mutable
class StoredMember:
    """A member of a thread."""

    version: int
    task: StoredTask
    seq: int
    removed: int | None = None
    """the version that removed it"""

    covers: int = 0


@mutable
class StoredThread:
    """A thread with its members, including removed ones."""

    version: int = 0
    members: list[StoredMember] = field(default_factory=list[StoredMember])


@mutable
class _Blob:
    data: bytes
    records: int = 0


class MemoryTables:
    """The data of a store in memory; its methods are called under the lock of the store."""

    def __init__(self) -> None:
        self.tasks: dict[str, StoredTask] = {}
        self.numbers: dict[str, int] = {}
        """for each task a number that grows with each new one"""

        self._newest = 0
        self.listed: list[tuple[int, str]] = []
        """time and id of the tasks that lists show, the newest last"""

        self.orphans = OrphanIndex()

        self.threads: dict[str, StoredThread] = {}
        self._blobs: dict[str, _Blob] = {}
        self.grants: dict[str, StandingGrant] = {}
        self._driver_id = str(uuid4())
        self._host = socket.gethostname()

    def task(self, task_id: str, *, deleted: bool = False) -> StoredTask:
        """Return a task; a deleted one only if `deleted` is true.

        Raises:
            TaskNotFound: there is none.
        """
        task = self.tasks.get(task_id)
        if task is None or (task.deleted and not deleted):
            raise rules.task_not_found(task_id)
        return task

    def row(self, task: StoredTask) -> TaskRow:
        """Return a task's row."""
        new = task.new
        driver = Driver(self._driver_id, self._host, os.getpid(), alive=True) if task.owned else None
        return TaskRow(
            task_id=new.task_id,
            agent=new.agent,
            thread_id=new.thread_id,
            state=task.state,
            created=new.created,
            parent=new.parent,
            base=new.base,
            base_seq=new.base_seq,
            epoch=task.epoch,
            labels=dict(new.labels),
            driver=driver,
            head=task.seq,
            mark=task.mark,
            deleted=task.deleted,
            due_at=task.wanted,
            format=task.format,
            figures=None if task.figures is None else replace(task.figures, text=""),
            tenant=tenant_of(new.task_id),
        )

    def matching(self, listed: list[tuple[int, str]], task_filter: TaskFilter) -> Iterator[TaskRow]:
        """Yield the matching rows of listed tasks, from the last to the first."""
        for _, task_id in reversed(listed):
            task = self.tasks.get(task_id)
            if task is not None and not task.deleted:
                row = self.row(task)
                if is_match(row, task_filter, task.figures.text if task.figures is not None else None):
                    yield row

    def thread_row(self, name: str) -> ThreadRow:
        """Return a thread's row."""
        thread = self.threads[name]
        members = [member for member in thread.members if member.removed is None and not member.covers]
        return ThreadRow(name, thread.version, len(members))

    def commit(self, commit: Commit) -> Committed:
        """Check and write a commit."""
        task = self.tasks.get(commit.task_id)
        earlier = _record_at(task, commit) if rules.may_be_repeated(commit, task) else None
        if not rules.admit(commit, task, earlier):
            assert task is not None
            if not task.owned or task.epoch != commit.epoch:
                return Committed(released=True)
            return Committed(place=assign_place(task, self.entry(task, commit.enter)))
        if commit.create is not None:
            task = self._new_task(commit.create, commit.epoch)
        assert task is not None
        released = (commit.seal or commit.release) and rules.releases(commit, task.waiting)
        taken_out = self._check_thread(task, commit) if commit.thread is not None else 0
        entry = self.entry(task, commit.enter) if commit.enter is not None else None
        self._write(task, commit, taken_out)
        position = assign_place(task, entry) if entry is not None else None
        if released:
            task.owned, task.turn, task.wanted = False, None, commit.due_at
            self.note_owner(task)
        if released or commit.state is not None or commit.create is not None:
            task.mark = JournalEnd(task.seq, digest_at(task, task.seq))
        return Committed(released, position)

    def entry(self, task: StoredTask, policy: OnBusyThread | None) -> QueueEntry | None:
        """Return the place that a task asks for in the queue of its thread."""
        if policy is None or not task.owned:
            return None
        if policy == "parallel":
            return IN_PARALLEL
        name = task.new.thread_id
        queued = [
            QueuedTask(0, candidate.new.task_id, candidate.turn, 0)
            for candidate in self.tasks.values()
            if candidate.turn is not None and candidate is not task and candidate.new.thread_id == name
        ]
        queued.sort(key=_turn)
        thread = self.threads.get(name)
        return rules.enter_thread(name, thread.version if thread else 0, task.turn, policy, queued)

    def _new_task(self, new: NewTask, epoch: int) -> StoredTask:
        """Build a task without storing it, since nothing may be written before every check has passed."""
        base = self._base(new)
        if new.labels:
            new = replace(new, labels=dict(new.labels))
        task = StoredTask(new, "created", epoch, base)
        task.format = 1 if base is None else base.format
        return task

    def _number(self, task_id: str) -> None:
        """Give a task the next number, unless it has one."""
        if task_id not in self.numbers:
            self._newest = self.numbers[task_id] = self._newest + 1

    def _base(self, new: NewTask, *, deleted: bool = False) -> StoredTask | None:
        if new.base is None:
            return None
        base = self.task(new.base, deleted=deleted)
        rules.check_fork(new.base, new.base_seq, base.seq)
        return base

    def _check_thread(self, task: StoredTask, commit: Commit) -> int:
        """Return the version of the member that a commit removes from its thread; 0 for none."""
        change = commit.thread
        assert change is not None
        thread = self.threads.get(change.thread_id) or StoredThread()
        members = [m for m in thread.members if m.removed is None] if change.action == "remove" else []
        newest = next((n for n in reversed(range(len(members))) if members[n].task is task), len(members))
        return rules.check_thread(commit, thread.version, [(m.version, m.covers) for m in members[newest:]])

    def _write(self, task: StoredTask, commit: Commit, taken_out: int) -> None:
        if commit.create is not None:
            self.tasks[commit.task_id] = task
            self._number(commit.task_id)
            insort(self.listed, (task.new.created, commit.task_id))
            if task.base is not None:
                task.base.forks.append(task)
        if commit.record is not None:
            task.records.append(self._with_shared_blobs(commit.record))
        for item_id in commit.taken:
            task.waiting.pop(item_id, None)
        if commit.state is not None:
            task.state = commit.state
        task.format = max(task.format, commit.format)
        if commit.figures is not None:
            task.figures = commit.figures
        for grant in commit.grants:
            self.grants.setdefault(grant.grant_id, grant)
        if commit.thread is not None:
            thread = self.threads.setdefault(commit.thread.thread_id, StoredThread())
            thread.version += 1
            if commit.thread.action == "add":
                member = StoredMember(thread.version, task, task.seq, covers=commit.thread.covers)
                thread.members.append(member)
            else:
                index = bisect_left(thread.members, taken_out, key=version_of)
                thread.members[index].removed = thread.version

    def _with_shared_blobs(self, record: Record) -> Record:
        if not record.blobs:
            return record
        shared: dict[str, bytes] = {}
        for digest, data in record.blobs.items():
            blob = self._blobs.setdefault(digest, _Blob(data))
            blob.records += 1
            shared[digest] = blob.data
        return replace(record, blobs=shared)

    def note_owner(self, task: StoredTask) -> None:
        """Update the index of orphans after a task, its owner or its inbox changed."""
        key = task.new.task_id
        if task.deleted or task.owned or task.state in END_STATES or not (task.wanted or task.waiting):
            self.orphans.discard(key)
            return
        number, new = self.numbers[key], task.new
        is_child, has_mail = new.parent is not None, bool(task.waiting)
        self.orphans.put(Orphan(number, key, new.agent, task.format, task.wanted, is_child, has_mail))

    def forget_grants(self, thread_id: str) -> None:
        """Delete the approvals that held in a thread."""
        self.grants = {key: grant for key, grant in self.grants.items() if grant.thread_id != thread_id}

    def forget_blobs(self, records: list[Record]) -> None:
        """Release the files of records; a file without a record is deleted."""
        for record in records:
            for digest in record.blobs:
                blob = self._blobs[digest]
                blob.records -= 1
                if blob.records == 0:
                    del self._blobs[digest]

    def restore(self, row: TaskRow, records: Iterable[Record], inbox: Sequence[InboxItem]) -> None:
        """Insert a task with its whole journal."""
        if row.task_id in self.tasks:
            raise rules.task_exists(row.task_id)
        new = NewTask(row.task_id, row.agent, row.thread_id, row.created, row.parent)
        new.base, new.base_seq, new.labels = row.base, row.base_seq, dict(row.labels)
        base = self._base(new, deleted=True)
        task = StoredTask(new, row.state, row.epoch, base, owned=False, deleted=row.deleted, mark=row.mark)
        task.wanted, task.format = row.due_at, max(row.format, 1 if base is None else base.format)
        own_records = list(records)
        task.figures = row.figures
        task.waiting = {item.item_id: item for item in inbox}
        task.seen = set(task.waiting)
        task.records = [self._with_shared_blobs(record) for record in own_records]
        self.tasks[row.task_id] = task
        self._number(row.task_id)
        if not row.deleted:
            insort(self.listed, (row.created, row.task_id))
        self.note_owner(task)
        if base is not None:
            base.forks.append(task)

    def copy(self) -> MemoryTables:
        """Return a copy that shares the records."""
        copy = MemoryTables()
        copy._driver_id = self._driver_id
        members = [member.task for thread in self.threads.values() for member in thread.members]
        waiting, copies = [*self.tasks.values(), *members], dict[int, StoredTask]()
        while waiting:
            task = waiting.pop()
            if id(task) not in copies:
                records = list(task.records)
                copies[id(task)] = replace(task, records=records, waiting=dict(task.waiting), forks=[])
                waiting += [task.base] if task.base is not None else []
        for task in copies.values():
            task.base = copies[id(task.base)] if task.base is not None else None
        copy.grants = dict(self.grants)
        copy.tasks = {key: copies[id(task)] for key, task in self.tasks.items()}
        copy.listed = list(self.listed)
        for name, thread in self.threads.items():
            members = [replace(member, task=copies[id(member.task)]) for member in thread.members]
            copy.threads[name] = StoredThread(thread.version, members)
        return copy


def seq_of(record: Record) -> int:
    """Return the last event of a record."""
    return record.seq


def version_of(member: StoredMember) -> int:
    """Return the version of a thread that a member created."""
    return member.version


def _turn(task: QueuedTask) -> int:
    return task.turn


def _record_at(task: StoredTask | None, commit: Commit) -> rules.RecordKey | None:
    """Return epoch and digest of the record that ends at the same event as the commit's record."""
    assert task is not None
    assert commit.record is not None
    index = bisect_left(task.records, commit.record.seq, key=seq_of)
    if index == len(task.records) or task.records[index].seq != commit.record.seq:
        return None
    return task.records[index].epoch, task.records[index].digest


def assign_place(task: StoredTask, entry: QueueEntry | None) -> QueuePosition | None:
    """Give a task its place in the queue of its thread, and return its position."""
    if entry is None:
        return None
    task.turn = entry.turn
    return entry.position


def task_busy(task: StoredTask) -> Exception:
    """Return the error for a task that this process owns."""
    return rules.task_busy(task.new.task_id, os.getpid(), socket.gethostname(), is_own=True)


def chain(task: StoredTask) -> Iterator[tuple[StoredTask, int | None]]:
    """Yield the task and its ancestors by fork, each with the last event that `task` shares with it."""
    part: StoredTask | None = task
    shared: int | None = None
    while part is not None:
        yield part, shared
        shared = part.new.base_seq if shared is None else min(shared, part.new.base_seq)
        part = part.base


def digest_at(task: StoredTask, seq: int) -> bytes:
    """Return the digest of the record with event `seq` of the task."""
    if task.records and task.records[-1].seq == seq:
        return task.records[-1].digest
    for part, _ in chain(task):
        if seq > part.new.base_seq:
            index = bisect_left(part.records, seq, key=lambda record: record.seq)
            return part.records[index].digest if index < len(part.records) else b""
    return b""
