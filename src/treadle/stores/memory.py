"""A journal store in the memory of this process, for tests and for tasks that need not survive the process.

It stores encoded records, so a task takes as much memory as its journal is long.
"""

from __future__ import annotations

import asyncio
import json
from bisect import bisect_left, bisect_right
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from itertools import islice
from threading import Lock
from typing import Final

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
    InboxItem,
    JournalEnd,
    JournalReader,
    JournalStore,
    Record,
    Refused,
    StoreChanges,
    TaskFilter,
    TaskRow,
    TaskSums,
    ThreadMember,
    ThreadMoved,
    ThreadRow,
    Wake,
)
from treadle.stores import rules
from treadle.stores.listing import position, sums_of, usage_key
from treadle.stores.memory_deletion import Deletion
from treadle.stores.memory_tables import (
    MemoryTables,
    StoredMember,
    StoredTask,
    StoredThread,
    assign_place,
    chain,
    digest_at,
    seq_of,
    task_busy,
    version_of,
)
from treadle.stores.tenants import tenant_of
from treadle.stores.watchers import Watchers

CHUNK: Final = 100
"""Number of tasks that a list checks before other work of the event loop gets its turn."""


class MemoryStore(JournalStore):
    """A `JournalStore` in the memory of this object; every commit is done before `commit` returns."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._closed = False
        self._tables = MemoryTables()
        self._watchers = Watchers()
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
        """Make the store usable, also after `close`: its data is still there."""
        self._closed = False

    async def close(self) -> None:
        """Refuse later calls and end the ownership of all tasks."""
        with self._lock:
            self._closed = True
            for task in self._tables.tasks.values():
                task.left = task.left or task.owned
                task.owned, task.turn, task.wanted = False, None, AT_ONCE if task.owned else task.wanted
                self._tables.note_owner(task)

    # ------------------------------------------------------------------------------------------ writing

    def commit(self, commit: Commit, done: CommitDone) -> None:
        """Check and write a commit, then call `done`; see `JournalStore.commit`."""
        result: Committed | Exception
        with self._lock:
            self._usable()
            try:
                result = self._tables.commit(commit)
            except (Refused, TreadleError) as refusal:
                self._fenced += isinstance(refusal, Fenced)
                result = refusal
        done(result)
        if len(self._watchers) > 1 and not isinstance(result, Exception):
            self._watchers.wake(
                _changes_of(commit.task_id, owners=commit.release or commit.create is not None)
            )

    async def claim(self, task_id: str, *, enter: bool = False) -> Claim:
        """Become the owner; see `JournalStore.claim`."""
        with self._lock:
            task = self._task(task_id)
            if task.owned:
                raise task_busy(task)
            end = JournalEnd(task.seq, digest_at(task, task.seq))
            rules.check_claim(task_id, task.format, end, task.mark)
            task.epoch += 1
            task.owned, task.mark = True, end
            self._tables.note_owner(task)
            position = assign_place(task, self._tables.entry(task, "enqueue" if enter else None))
            claim = Claim(task.epoch, end.seq, end.digest, position, task.wanted, task.left)
            task.left = False
        if len(self._watchers) > 1:
            self._watchers.wake(_changes_of(task_id, owners=True))
        return claim

    async def restore(self, row: TaskRow, records: Iterable[Record], inbox: Sequence[InboxItem] = ()) -> None:
        """Insert a task with its whole journal; see `JournalStore.restore`."""
        with self._lock:
            self._usable()
            self._tables.restore(row, records, inbox)
        self._watchers.wake(_changes_of(row.task_id, owners=True))

    async def restore_thread(self, thread_id: str, version: int, members: Sequence[ThreadMember]) -> None:
        """Insert a thread; see `JournalStore.restore_thread`."""
        with self._lock:
            self._usable()
            thread = self._tables.threads.get(thread_id)
            if thread is not None:
                raise ThreadMoved(thread.version)
            restored = [
                StoredMember(m.version, self._task(m.task_id, deleted=True), m.seq, m.gone, m.covers)
                for m in members
            ]
            self._tables.threads[thread_id] = StoredThread(version, restored)

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
            self._tables.note_owner(task)
        self._watchers.wake(StoreChanges(mail=(task_id,)))
        return True

    async def delete(self, task_id: str) -> None:
        """Remove a task and its children; see `JournalStore.delete`."""
        with self._lock:
            deleted = Deletion(self._tables).delete([self._task(task_id)])
        self._watchers.wake(StoreChanges(None, deleted=deleted))

    async def delete_thread(self, thread_id: str) -> None:
        """Remove a thread and all its tasks; see `JournalStore.delete_thread`."""
        with self._lock:
            self._usable()
            tasks = [
                task
                for task in self._tables.tasks.values()
                if not task.deleted and task.new.thread_id == thread_id
            ]
            if not tasks and thread_id not in self._tables.threads:
                raise ThreadNotFound(f"no thread {thread_id!r} in {self.url}")
            deleted = Deletion(self._tables).delete(tasks, thread_id)
        self._watchers.wake(StoreChanges(None, deleted=deleted))

    # ------------------------------------------------------------------------------------------ reading

    async def read(self, task_id: str, *, after: int = 0, upto: int | None = None) -> list[Record]:
        """Return the records with events `after` + 1 to `upto`; see `JournalStore.read`."""
        with self._lock:
            self._usable()
            task = self._tables.tasks.get(task_id)
            if task is None:
                raise rules.task_not_found(task_id)
            records: list[Record] = []
            for part, shared in reversed(list(chain(task))):
                until = shared if upto is None or (shared is not None and shared < upto) else upto
                reached = max(after, part.new.base_seq)
                if until is not None and reached >= until:
                    continue
                start = bisect_right(part.records, reached, key=seq_of)
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
            return self._tables.row(self._task(task_id, deleted=deleted))

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
                    sums.setdefault(row.display_state, TaskSums()).add(sums_of(row))
        return sums

    async def usage(self, wanted: TaskFilter, by: str) -> dict[str | None, TaskSums]:
        """Return the number and the spending of matching rows; see `JournalReader.usage`."""
        sums: dict[str | None, TaskSums] = {}
        async for rows in self._matching(replace(wanted, states=None, search=None, cursor=None)):
            for row in rows:
                sums.setdefault(usage_key(row, by), TaskSums()).add(replace(sums_of(row), driven=0))
        return sums

    async def _matching(self, task_filter: TaskFilter) -> AsyncGenerator[list[TaskRow]]:
        """Yield matching rows, newest first, some at a time, so that the event loop can do other work."""
        with self._lock:
            self._usable()
            listed = list(self._tables.listed)
        if task_filter.cursor is not None:
            del listed[bisect_left(listed, position(task_filter.cursor)) :]
        while listed:
            with self._lock:
                rows = list(self._tables.matching(listed[-CHUNK:], task_filter))
            yield rows
            del listed[-CHUNK:]
            if listed:
                await asyncio.sleep(0)

    async def orphans(
        self, limit: int, *, after: str | None = None, until: int = AT_ONCE, indirect: bool = False
    ) -> list[TaskRow]:
        """Return the tasks for a driver to adopt; see `JournalStore.orphans`."""
        with self._lock:
            self._usable()
            last = self._tables.numbers.get(after, 0) if after is not None else 0
            keys = (self._tables.orphans.indirect if indirect else self._tables.orphans.all)(until, last)
            return [self._tables.row(self._tables.tasks[key]) for key in islice(keys, max(limit, 0))]

    async def adoptable(self, query: AdoptionQuery) -> list[TaskRow]:
        """Return orphans that a process may drive now; see `JournalStore.adoptable`."""
        with self._lock:
            self._usable()
            tables = self._tables
            return [tables.row(tables.tasks[key]) for key in tables.orphans.adoptable(query)]

    async def unadoptable(self, query: AdoptionQuery) -> list[TaskRow]:
        """Return one orphan of each agent and format that the process may not drive; see `JournalStore.unadoptable`."""
        with self._lock:
            self._usable()
            tables = self._tables
            return [tables.row(tables.tasks[key]) for key in tables.orphans.unadoptable(query)]

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
            thread = self._tables.threads.get(thread_id) or StoredThread()
            at = thread.version if version is None else min(version, thread.version)
            later = thread.members[bisect_right(thread.members, since, key=version_of) :]
            members = [m for m in later if m.version <= at and (m.removed is None or m.removed > at)]
            return at, [ThreadMember(m.version, m.task.new.task_id, m.seq, covers=m.covers) for m in members]

    async def threads(self, limit: int, *, after: str | None = None, tenant: str = "") -> list[ThreadRow]:
        """Return the threads that have a version; see `JournalStore.threads`."""
        with self._lock:
            self._usable()
            names = [
                name
                for name in sorted(self._tables.threads)
                if tenant_of(name) == tenant and (after is None or name > after)
            ]
            return [self._tables.thread_row(name) for name in names[: max(limit, 0)]]

    async def grants(
        self, *, tool: str | None = None, revoked: bool = False, tenant: str = ""
    ) -> list[StandingGrant]:
        """Return the approvals for later calls; see `JournalReader.grants`."""
        with self._lock:
            self._usable()
            grants = [
                grant
                for grant in self._tables.grants.values()
                if tenant_of(grant.grant_id) == tenant
                and tool in (None, grant.tool)
                and (revoked or grant.revoked is None)
            ]
        return sorted(grants, key=lambda grant: (grant.created, grant.grant_id))

    async def revoke(self, grant_id: str, time: int, by: str | None) -> bool:
        """Revoke an approval for later calls; see `JournalStore.revoke`."""
        with self._lock:
            self._usable()
            grant = self._tables.grants.get(grant_id)
            if grant is None:
                raise rules.grant_not_found(grant_id)
            if grant.revoked is not None:
                return False
            self._tables.grants[grant_id] = replace(grant, revoked=time, revoked_by=by)
            return True

    @asynccontextmanager
    async def snapshot(self) -> AsyncGenerator[JournalReader]:
        """Return a copy of this store that shares its records; see `JournalStore.snapshot`."""
        with self._lock:
            self._usable()
            copy = MemoryStore()
            copy._tables = self._tables.copy()
        yield copy

    def watch(self, wake: Wake) -> Callable[[], None]:
        """Call `wake` when another watcher may have written, since runners can share this object."""
        return self._watchers.add(wake)

    def _usable(self) -> None:
        if self._closed:
            raise StoreUnavailable(f"the store {self.url} is closed: open() it first")

    def _task(self, task_id: str, *, deleted: bool = False) -> StoredTask:
        self._usable()
        return self._tables.task(task_id, deleted=deleted)


def _changes_of(task_id: str, *, owners: bool) -> StoreChanges:
    """Return the changes of one task; `owners`: whether its driver or its row may have changed."""
    return StoreChanges(frozenset((task_id,)), owners=owners)
