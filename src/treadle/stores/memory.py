"""A journal store in the memory of this process: for tests, and for tasks that need not survive the process.

It stores encoded records as they are, so a task takes as much memory as its journal is long.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from bisect import bisect_left, bisect_right, insort
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from threading import Lock
from typing import Final
from uuid import uuid4

from treadle.core.data import mutable
from treadle.core.events import END_STATES
from treadle.core.permits import StandingGrant
from treadle.errors import (
    Fenced,
    StoreUnavailable,
    ThreadNotFound,
    TreadleError,
)
from treadle.ports import (
    AT_ONCE,
    AdoptionQuery,
    Claim,
    Commit,
    CommitDone,
    Committed,
    Driver,
    InboxItem,
    JournalEnd,
    JournalReader,
    JournalStore,
    NewTask,
    OnBusyThread,
    QueuePosition,
    Record,
    Refused,
    StoreChanges,
    TaskFigures,
    TaskFilter,
    TaskRow,
    TaskSums,
    ThreadMember,
    ThreadMoved,
    ThreadRow,
    Wake,
)
from treadle.stores import rules
from treadle.stores.listing import is_match, position, sums_of, usage_key
from treadle.stores.orphan_index import Orphan, OrphanIndex
from treadle.stores.rules import IN_PARALLEL, Membership, QueuedTask, QueueEntry
from treadle.stores.tenants import tenant_of

CHUNK: Final = 100
"""How many tasks a list looks at before other work of the event loop gets its turn."""


@dataclass(slots=True, eq=False)
class _Task:
    """A task; `deleted` while forks or a thread still need its records."""

    new: NewTask
    state: str
    epoch: int
    base: _Task | None
    owned: bool = True
    left: bool = False
    """whether its last owner did not release it"""

    wanted: int = 0
    deleted: bool = False
    turn: int | None = None
    """its place in the queue of its thread: 0 has the thread, others wait, smallest first; None without a place"""

    records: list[Record] = field(default_factory=list[Record])
    waiting: dict[str, InboxItem] = field(default_factory=dict[str, InboxItem])
    seen: set[str] = field(default_factory=set[str])
    forks: list[_Task] = field(default_factory=list["_Task"])
    mark: JournalEnd | None = None
    format: int = 1
    figures: TaskFigures | None = None

    @property
    def seq(self) -> int:
        """The last event"""
        return self.records[-1].seq if self.records else self.new.base_seq


@mutable
class _Member:
    version: int
    task: _Task
    seq: int
    removed: int | None = None
    """the version that took it out"""

    covers: int = 0


@mutable
class _Thread:
    version: int = 0
    members: list[_Member] = field(default_factory=list[_Member])


@mutable
class _Blob:
    data: bytes
    records: int = 0


def _is_kept_for_forks(task: _Task) -> bool:
    """Return whether forks in other threads need a deleted task."""
    return any(not fork.deleted or fork.new.thread_id != task.new.thread_id for fork in task.forks)


def _seq(record: Record) -> int:
    return record.seq


def _version(member: _Member) -> int:
    return member.version


def _turn(task: QueuedTask) -> int:
    return task.turn


class MemoryStore(JournalStore):
    """A `JournalStore` in the memory of this object; every commit is done before `commit` returns."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._closed = False
        self._tasks: dict[str, _Task] = {}
        self._numbers: dict[str, int] = {}
        """for each task a number that grows with each new one"""

        self._newest = 0
        self._listed: list[tuple[int, str]] = []
        """time and id of the tasks that lists show, the newest last"""

        self._orphans = OrphanIndex()

        self._threads: dict[str, _Thread] = {}
        self._blobs: dict[str, _Blob] = {}
        self._grants: dict[str, StandingGrant] = {}
        self._watchers: dict[object, Wake] = {}
        self._driver_id = str(uuid4())
        self._host = socket.gethostname()
        self._fenced = 0

    @property
    def url(self) -> str:
        """`memory:`"""
        return "memory:"

    @property
    def fenced(self) -> int:
        """See `JournalStore.fenced`."""
        return self._fenced

    async def open(self) -> None:
        """Make the store usable (again: data from before `close` is still there)."""
        self._closed = False

    async def close(self) -> None:
        """Refuse later calls and end the ownership of all tasks."""
        with self._lock:
            self._closed = True
            for task in self._tasks.values():
                task.left = task.left or task.owned
                task.owned, task.turn, task.wanted = False, None, AT_ONCE if task.owned else task.wanted
                self._note_owner(task)

    # ------------------------------------------------------------------------------------------ writing

    def commit(self, commit: Commit, done: CommitDone) -> None:
        """Check and write a commit, then call `done`; see `JournalStore.commit`."""
        result: Committed | Exception
        with self._lock:
            self._usable()
            try:
                result = self._commit(commit)
            except (Refused, TreadleError) as refusal:
                self._fenced += isinstance(refusal, Fenced)
                result = refusal
        done(result)
        if len(self._watchers) > 1 and not isinstance(result, Exception):
            self._tell_of(commit.task_id, owners=commit.release or commit.create is not None)

    def _commit(self, commit: Commit) -> Committed:
        task = self._tasks.get(commit.task_id)
        earlier = _record_at(task, commit) if rules.may_be_repeated(commit, task) else None
        if not rules.admit(commit, task, earlier):
            assert task is not None
            if not task.owned or task.epoch != commit.epoch:
                return Committed(released=True)
            return Committed(place=_assign_place(task, self._entry(task, commit.enter)))
        if commit.create is not None:
            task = self._new_task(commit.create, commit.epoch)
        assert task is not None
        released = (commit.seal or commit.release) and rules.releases(commit, task.waiting)
        taken_out = self._check_thread(task, commit) if commit.thread is not None else 0
        entry = self._entry(task, commit.enter) if commit.enter is not None else None
        self._write(task, commit, taken_out)
        position = _assign_place(task, entry) if entry is not None else None
        if released:
            task.owned, task.turn, task.wanted = False, None, commit.wanted
            self._note_owner(task)
        if released or commit.state is not None or commit.create is not None:
            task.mark = JournalEnd(task.seq, _digest(task, task.seq))
        return Committed(released, position)

    def _entry(self, task: _Task, policy: OnBusyThread | None) -> QueueEntry | None:
        """Return the place that a task asks for in the queue of its thread."""
        if policy is None or not task.owned:
            return None
        if policy == "parallel":
            return IN_PARALLEL
        name = task.new.thread_id
        queued = [
            QueuedTask(0, candidate.new.task_id, candidate.turn, 0)
            for candidate in self._tasks.values()
            if candidate.turn is not None and candidate is not task and candidate.new.thread_id == name
        ]
        queued.sort(key=_turn)
        thread = self._threads.get(name)
        return rules.enter_thread(name, thread.version if thread else 0, task.turn, policy, queued)

    def _new_task(self, new: NewTask, epoch: int) -> _Task:
        """Build a task without storing it: nothing may be written before every check has passed."""
        base = self._base(new)
        if new.labels:
            new = replace(new, labels=dict(new.labels))
        task = _Task(new, "created", epoch, base)
        task.format = 1 if base is None else base.format
        return task

    def _number(self, task_id: str) -> None:
        """Give a task the next number, unless it has one."""
        if task_id not in self._numbers:
            self._newest = self._numbers[task_id] = self._newest + 1

    def _base(self, new: NewTask, *, deleted: bool = False) -> _Task | None:
        if new.base is None:
            return None
        base = self._task(new.base, deleted=deleted)
        rules.check_fork(new.base, new.base_seq, base.seq)
        return base

    def _check_thread(self, task: _Task, commit: Commit) -> int:
        """Return the version of the member that a commit takes out of its thread, 0 for none."""
        change = commit.thread
        assert change is not None
        thread = self._threads.get(change.thread_id) or _Thread()
        members = [m for m in thread.members if m.removed is None] if change.action == "remove" else []
        newest = next((n for n in reversed(range(len(members))) if members[n].task is task), len(members))
        return rules.check_thread(commit, thread.version, [(m.version, m.covers) for m in members[newest:]])

    def _write(self, task: _Task, commit: Commit, taken_out: int) -> None:
        if commit.create is not None:
            self._tasks[commit.task_id] = task
            self._number(commit.task_id)
            insort(self._listed, (task.new.created, commit.task_id))
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
            self._grants.setdefault(grant.grant_id, grant)
        if commit.thread is not None:
            thread = self._threads.setdefault(commit.thread.thread_id, _Thread())
            thread.version += 1
            if commit.thread.action == "add":
                member = _Member(thread.version, task, task.seq, covers=commit.thread.covers)
                thread.members.append(member)
            else:
                index = bisect_left(thread.members, taken_out, key=_version)
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

    async def claim(self, task_id: str, *, enter: bool = False) -> Claim:
        """Become the owner; see `JournalStore.claim`."""
        with self._lock:
            task = self._task(task_id)
            if task.owned:
                raise _busy(task)
            end = JournalEnd(task.seq, _digest(task, task.seq))
            rules.check_claim(task_id, task.format, end, task.mark)
            task.epoch += 1
            task.owned, task.mark = True, end
            self._note_owner(task)
            position = _assign_place(task, self._entry(task, "enqueue" if enter else None))
            claim = Claim(task.epoch, end.seq, end.digest, position, task.wanted, task.left)
            task.left = False
        if len(self._watchers) > 1:
            self._tell_of(task_id, owners=True)
        return claim

    async def restore(self, row: TaskRow, records: Iterable[Record], inbox: Sequence[InboxItem] = ()) -> None:
        """Insert a task with its whole journal; see `JournalStore.restore`."""
        with self._lock:
            self._usable()
            if row.task_id in self._tasks:
                raise rules.task_exists(row.task_id)
            new = NewTask(row.task_id, row.agent, row.thread_id, row.created, row.parent)
            new.base, new.base_seq, new.labels = row.base, row.base_seq, dict(row.labels)
            base = self._base(new, deleted=True)
            task = _Task(new, row.state, row.epoch, base, owned=False, deleted=row.deleted, mark=row.mark)
            task.wanted, task.format = row.wanted, max(row.format, 1 if base is None else base.format)
            own_records = list(records)
            task.figures = row.figures
            task.waiting = {item.item_id: item for item in inbox}
            task.seen = set(task.waiting)
            task.records = [self._with_shared_blobs(record) for record in own_records]
            self._tasks[row.task_id] = task
            self._number(row.task_id)
            if not row.deleted:
                insort(self._listed, (row.created, row.task_id))
            self._note_owner(task)
            if base is not None:
                base.forks.append(task)
        self._tell_of(row.task_id, owners=True)

    async def restore_thread(self, thread_id: str, version: int, members: Sequence[ThreadMember]) -> None:
        """Insert a thread; see `JournalStore.restore_thread`."""
        with self._lock:
            self._usable()
            thread = self._threads.get(thread_id)
            if thread is not None:
                raise ThreadMoved(thread.version)
            restored = [
                _Member(m.version, self._task(m.task_id, deleted=True), m.seq, m.gone, m.covers)
                for m in members
            ]
            self._threads[thread_id] = _Thread(version, restored)

    async def post(self, task_id: str, item: InboxItem) -> bool:
        """Put an item into a task's inbox; see `JournalStore.post`."""
        stored = replace(
            item, data=json.loads(json.dumps(item.data))
        )  # plain data, not shared with the sender
        with self._lock:
            task = self._task(task_id)
            if item.item_id in task.seen:
                return False
            task.seen.add(item.item_id)
            task.waiting[item.item_id] = stored
            self._note_owner(task)
        self._wake_watchers(StoreChanges(mail=(task_id,)))
        return True

    async def delete(self, task_id: str) -> None:
        """Remove a task and its children; see `JournalStore.delete`."""
        with self._lock:
            deleted = self._delete([self._task(task_id)])
        self._wake_watchers(StoreChanges(None, deleted=deleted))

    async def delete_thread(self, thread_id: str) -> None:
        """Remove a thread and all its tasks; see `JournalStore.delete_thread`."""
        with self._lock:
            self._usable()
            tasks = [
                task for task in self._tasks.values() if not task.deleted and task.new.thread_id == thread_id
            ]
            if not tasks and thread_id not in self._threads:
                raise ThreadNotFound(f"no thread {thread_id!r} in {self.url}")
            deleted = self._delete(tasks, thread_id)
        self._wake_watchers(StoreChanges(None, deleted=deleted))

    def _delete(self, roots: list[_Task], thread_id: str | None = None) -> frozenset[str]:
        """Delete tasks with their children, and return the ids of all of them."""
        family = self._family(roots)
        for task in family:
            if task.owned:
                raise _busy(task)
        for task in family:
            del self._listed[bisect_left(self._listed, (task.new.created, task.new.task_id))]
            task.deleted = True
            task.epoch += 1
            task.state, task.waiting, task.seen, task.mark = "", {}, set(), None
            self._note_owner(task)
        members = self._threads[thread_id].members if thread_id in self._threads else []
        bases = [part for task in (*family, *(m.task for m in members)) for part, _ in _chain(task)]
        names = {task.new.thread_id for task in bases}
        for name, thread in self._threads.items():
            if any(member.task in family for member in thread.members):
                names.add(name)
        if thread_id is not None:
            names.add(thread_id)
            self._forget_grants(thread_id)
        self._take_out(family, thread_id)
        self._collect([*family, *self._removed_members(names)])
        # With a fork that goes, the thread it began with may go too.
        while freed := self._drop_threads(names):
            self._collect(freed)
        return frozenset([task.new.task_id for task in family])

    def _take_out(self, family: list[_Task], thread_id: str | None) -> None:
        """Take all members out of a thread, and the tasks of subagents out of theirs."""
        called = rules.subagent_tasks((id(task), task.new.task_id, task.new.parent) for task in family)
        for name, thread in self._threads.items():
            for member in reversed(thread.members):
                if member.removed is None and (name == thread_id or id(member.task) in called):
                    thread.version += 1
                    member.removed = thread.version

    def _family(self, roots: list[_Task]) -> list[_Task]:
        """Return the tasks, their listed children, the children of those, and so on."""
        children: dict[str | None, list[_Task]] = {}
        for task in self._tasks.values():
            if not task.deleted and task.new.parent is not None:
                children.setdefault(task.new.parent, []).append(task)
        family = list(roots)
        for task in family:
            family.extend(child for child in children.get(task.new.task_id, ()) if child not in family)
        return family

    def _drop_threads(self, names: set[str]) -> list[_Task]:
        """Forget the threads that no task needs any more; return their former members."""
        with_readers = {
            task.new.thread_id
            for task in self._tasks.values()
            if not task.deleted or _is_kept_for_forks(task)
        }
        members: list[_Task] = []
        for name in names:
            thread = self._threads.get(name, _Thread())
            has_members = any(member.removed is None for member in thread.members)
            if not rules.stays(has_members=has_members, has_readers=name in with_readers):
                self._forget_grants(name)
                members.extend(member.task for member in thread.members)
                self._threads.pop(name, None)
        return members

    def _forget_grants(self, thread_id: str) -> None:
        """Delete the approvals that held in a thread."""
        self._grants = {key: grant for key, grant in self._grants.items() if grant.thread_id != thread_id}

    def _collect(self, waiting: list[_Task]) -> None:
        """Drop records of deleted tasks that are no longer read, then those of the tasks kept for them."""
        while waiting:
            task = waiting.pop()
            if not task.deleted or self._tasks.get(task.new.task_id) is not task:
                continue
            last = rules.last_needed_event(
                [fork.new.base_seq for fork in task.forks], self._memberships(task)
            )
            end = -1 if last is None else last
            self._forget_blobs([r for r in task.records if r.seq - r.count >= end])
            task.records = [r for r in task.records if r.seq - r.count < end]
            if last is not None:
                continue
            del self._tasks[task.new.task_id]
            del self._numbers[task.new.task_id]
            for thread in self._threads.values():
                thread.members = [m for m in thread.members if m.task is not task]
            if task.base is not None:
                task.base.forks.remove(task)
                waiting.append(task.base)
            waiting += self._removed_members({task.new.thread_id})

    def _memberships(self, task: _Task) -> list[Membership]:
        return [
            Membership(m.version, m.seq, m.removed is not None, self._read_below(name, thread))
            for name, thread in self._threads.items()
            for m in thread.members
            if m.task is task
        ]

    def _read_below(self, name: str, thread: _Thread) -> int:
        first: dict[str, int] = {}
        for member in thread.members:
            first.setdefault(member.task.new.task_id, member.version)
        return rules.read_below(
            first.get(task.new.task_id)
            for task in self._tasks.values()
            if task.new.thread_id == name and task.base is None and (not task.deleted or task.forks)
        )

    def _removed_members(self, names: set[str]) -> list[_Task]:
        """Return the deleted tasks that are kept because tasks of these threads may have begun with them."""
        threads = [self._threads[name] for name in names if name in self._threads]
        return [m.task for t in threads for m in t.members if m.removed is not None and m.task.deleted]

    def _forget_blobs(self, records: list[Record]) -> None:
        for record in records:
            for digest in record.blobs:
                blob = self._blobs[digest]
                blob.records -= 1
                if blob.records == 0:
                    del self._blobs[digest]

    # ------------------------------------------------------------------------------------------ reading

    async def read(self, task_id: str, *, after: int = 0, upto: int | None = None) -> list[Record]:
        """Return the records with events `after` + 1 to `upto`; see `JournalStore.read`."""
        with self._lock:
            self._usable()
            task = self._tasks.get(task_id)
            if task is None:
                raise rules.task_not_found(task_id)
            records: list[Record] = []
            for part, shared in reversed(list(_chain(task))):
                until = shared if upto is None or (shared is not None and shared < upto) else upto
                reached = max(after, part.new.base_seq)
                if until is not None and reached >= until:
                    continue
                start = bisect_right(part.records, reached, key=_seq)
                for record in part.records[start:]:
                    if until is not None and record.seq - record.count >= until:
                        break
                    cut = shared is not None and record.seq > shared
                    records.append(replace(record, upto=shared) if cut else record)
            last = records[-1].seq if records else max(after, task.new.base_seq)
            rules.check_read(task_id, last, task.mark.seq if task.mark is not None else None, upto)
            return records

    async def row(self, task_id: str, *, deleted: bool = False) -> TaskRow:
        """Return a task's row; see `JournalStore.row`."""
        with self._lock:
            return self._row(self._task(task_id, deleted=deleted))

    async def rows(self, wanted: TaskFilter) -> list[TaskRow]:
        """Return matching rows, newest first."""
        limit, rows = max(wanted.limit, 0), list[TaskRow]()
        async with aclosing(self._matching(wanted)) as matching:
            async for page in matching:
                rows += page
                if len(rows) >= limit:
                    break
        return rows[:limit]

    async def sums(self, wanted: TaskFilter) -> dict[str, TaskSums]:
        """Return the number and the spending of the matching rows, by state; see `JournalReader.sums`."""
        sums: dict[str, TaskSums] = {}
        async for rows in self._matching(replace(wanted, cursor=None)):
            for row in rows:
                if wanted.search is None or row.figures is not None:
                    sums.setdefault(row.word, TaskSums()).add(sums_of(row))
        return sums

    async def usage(self, wanted: TaskFilter, by: str) -> dict[str | None, TaskSums]:
        """Return the number and the spending of matching rows, by agent, day or label; see `JournalReader.usage`."""
        sums: dict[str | None, TaskSums] = {}
        async for rows in self._matching(replace(wanted, states=None, search=None, cursor=None)):
            for row in rows:
                sums.setdefault(usage_key(row, by), TaskSums()).add(replace(sums_of(row), driven=0))
        return sums

    async def _matching(self, task_filter: TaskFilter) -> AsyncGenerator[list[TaskRow]]:
        """Yield matching rows, newest first, some at a time: the event loop does other work meanwhile."""
        with self._lock:
            self._usable()
            listed = list(self._listed)
        if task_filter.cursor is not None:
            del listed[bisect_left(listed, position(task_filter.cursor)) :]
        while listed:
            with self._lock:
                rows = list(self._matching_of(listed[-CHUNK:], task_filter))
            yield rows
            del listed[-CHUNK:]
            if listed:
                await asyncio.sleep(0)

    def _matching_of(self, listed: list[tuple[int, str]], task_filter: TaskFilter) -> Iterator[TaskRow]:
        for _, task_id in reversed(listed):
            task = self._tasks.get(task_id)
            if task is not None and not task.deleted:
                row = self._row(task)
                if is_match(row, task_filter, task.figures.text if task.figures is not None else None):
                    yield row

    async def orphans(
        self, limit: int, *, after: str | None = None, until: int = AT_ONCE, indirect: bool = False
    ) -> list[TaskRow]:
        """Return the tasks for a driver to adopt; see `JournalStore.orphans`."""
        with self._lock:
            self._usable()
            last = self._numbers.get(after, 0) if after is not None else 0
            keys = (self._orphans.indirect if indirect else self._orphans.all)(until, last)
            return [self._row(self._tasks[key]) for key in islice(keys, max(limit, 0))]

    async def adoptable(self, query: AdoptionQuery) -> list[TaskRow]:
        """Return orphans that a process may drive now; see `JournalStore.adoptable`."""
        with self._lock:
            self._usable()
            return [self._row(self._tasks[key]) for key in self._orphans.adoptable(query)]

    async def unadoptable(self, query: AdoptionQuery) -> list[TaskRow]:
        """Return orphans that the process may not drive, one of each sort; see `JournalStore.unadoptable`."""
        with self._lock:
            self._usable()
            return [self._row(self._tasks[key]) for key in self._orphans.unadoptable(query)]

    def _note_owner(self, task: _Task) -> None:
        """Note whether a task needs an owner, after its owner, its inbox or the task itself changed."""
        key = task.new.task_id
        if task.deleted or task.owned or task.state in END_STATES or not (task.wanted or task.waiting):
            self._orphans.discard(key)
            return
        number, new = self._numbers[key], task.new
        is_child, has_mail = new.parent is not None, bool(task.waiting)
        self._orphans.put(Orphan(number, key, new.agent, task.format, task.wanted, is_child, has_mail))

    async def inbox(self, task_id: str) -> list[InboxItem]:
        """Return the items that are not taken yet, in order of arrival."""
        with self._lock:
            return list(self._task(task_id).waiting.values())

    async def thread(
        self, thread_id: str, *, version: int | None = None, since: int = 0
    ) -> tuple[int, list[ThreadMember]]:
        """Return a thread's version and its members; see `JournalStore.thread`."""
        with self._lock:
            self._usable()
            thread = self._threads.get(thread_id) or _Thread()
            at = thread.version if version is None else min(version, thread.version)
            later = thread.members[bisect_right(thread.members, since, key=_version) :]
            members = [m for m in later if m.version <= at and (m.removed is None or m.removed > at)]
            return at, [ThreadMember(m.version, m.task.new.task_id, m.seq, covers=m.covers) for m in members]

    async def threads(self, limit: int, *, after: str | None = None, tenant: str = "") -> list[ThreadRow]:
        """Return the threads that have a version; see `JournalStore.threads`."""
        with self._lock:
            self._usable()
            names = [
                name
                for name in sorted(self._threads)
                if tenant_of(name) == tenant and (after is None or name > after)
            ]
            return [self._thread_row(name) for name in names[: max(limit, 0)]]

    async def grants(
        self, *, tool: str | None = None, revoked: bool = False, tenant: str = ""
    ) -> list[StandingGrant]:
        """Return the approvals for later calls; see `JournalReader.grants`."""
        with self._lock:
            self._usable()
            grants = [
                grant
                for grant in self._grants.values()
                if tenant_of(grant.grant_id) == tenant
                and tool in (None, grant.tool)
                and (revoked or grant.revoked is None)
            ]
        return sorted(grants, key=lambda grant: (grant.created, grant.grant_id))

    async def revoke(self, grant_id: str, time: int, by: str | None) -> bool:
        """Revoke an approval for later calls; see `JournalStore.revoke`."""
        with self._lock:
            self._usable()
            grant = self._grants.get(grant_id)
            if grant is None:
                raise rules.grant_not_found(grant_id)
            if grant.revoked is not None:
                return False
            self._grants[grant_id] = replace(grant, revoked=time, revoked_by=by)
            return True

    def _thread_row(self, name: str) -> ThreadRow:
        thread = self._threads[name]
        members = [member for member in thread.members if member.removed is None and not member.covers]
        return ThreadRow(name, thread.version, len(members))

    @asynccontextmanager
    async def snapshot(self) -> AsyncGenerator[JournalReader]:
        """Return a copy of this store that shares its records; see `JournalStore.snapshot`."""
        with self._lock:
            self._usable()
            copy = MemoryStore()
            copy._driver_id = self._driver_id
            members = [member.task for thread in self._threads.values() for member in thread.members]
            waiting, copies = [*self._tasks.values(), *members], dict[int, _Task]()
            while waiting:
                task = waiting.pop()
                if id(task) not in copies:
                    records = list(task.records)
                    copies[id(task)] = replace(task, records=records, waiting=dict(task.waiting), forks=[])
                    waiting += [task.base] if task.base is not None else []
            for task in copies.values():
                task.base = copies[id(task.base)] if task.base is not None else None
            copy._grants = dict(self._grants)
            copy._tasks = {key: copies[id(task)] for key, task in self._tasks.items()}
            copy._listed = list(self._listed)
            for name, thread in self._threads.items():
                members = [replace(member, task=copies[id(member.task)]) for member in thread.members]
                copy._threads[name] = _Thread(thread.version, members)
        yield copy

    def watch(self, wake: Wake) -> Callable[[], None]:
        """Call `wake` when another watcher may have written: runners can share this object."""
        token = object()
        self._watchers[token] = wake
        return lambda: self._watchers.pop(token, None) and None

    def _tell_of(self, task_id: str, *, owners: bool) -> None:
        self._wake_watchers(StoreChanges(frozenset((task_id,)), owners=owners))

    def _wake_watchers(self, changes: StoreChanges) -> None:
        for wake in list(self._watchers.values()):
            wake(changes)

    def _usable(self) -> None:
        if self._closed:
            raise StoreUnavailable(f"the store {self.url} is closed: open() it first")

    def _task(self, task_id: str, *, deleted: bool = False) -> _Task:
        self._usable()
        task = self._tasks.get(task_id)
        if task is None or (task.deleted and not deleted):
            raise rules.task_not_found(task_id)
        return task

    def _row(self, task: _Task) -> TaskRow:
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
            wanted=task.wanted,
            format=task.format,
            figures=None if task.figures is None else replace(task.figures, text=""),
            tenant=tenant_of(new.task_id),
        )


def _record_at(task: _Task | None, commit: Commit) -> rules.RecordKey | None:
    """Return epoch and digest of the record that ends at the same event as the commit's record."""
    assert task is not None
    assert commit.record is not None
    index = bisect_left(task.records, commit.record.seq, key=_seq)
    if index == len(task.records) or task.records[index].seq != commit.record.seq:
        return None
    return task.records[index].epoch, task.records[index].digest


def _assign_place(task: _Task, entry: QueueEntry | None) -> QueuePosition | None:
    if entry is None:
        return None
    task.turn = entry.turn
    return entry.position


def _busy(task: _Task) -> Exception:
    return rules.task_busy(task.new.task_id, os.getpid(), socket.gethostname(), is_own=True)


def _chain(task: _Task) -> Iterator[tuple[_Task, int | None]]:
    """Yield the task and those it was forked from, each with the last event that `task` shares with it."""
    part: _Task | None = task
    shared: int | None = None
    while part is not None:
        yield part, shared
        shared = part.new.base_seq if shared is None else min(shared, part.new.base_seq)
        part = part.base


def _digest(task: _Task, seq: int) -> bytes:
    """Return the digest of the record with event `seq` of the task."""
    if task.records and task.records[-1].seq == seq:
        return task.records[-1].digest
    for part, _ in _chain(task):
        if seq > part.new.base_seq:
            index = bisect_left(part.records, seq, key=lambda record: record.seq)
            return part.records[index].digest if index < len(part.records) else b""
    return b""
