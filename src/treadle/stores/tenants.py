"""Tenants: several sets of tasks, threads and grants in one store, each with names of its own.

A store prefixes each name of a tenant with the name of the tenant: `acme`, a unit separator, `order-17`. Callers' names
cannot contain a separator, so names of two tenants never collide. References to a parent, a base, a thread or a place
in a queue stay within their tenant. Names of the tenant "" have no prefix: a store without tenants has only tasks of
that tenant.

Only `TenantStore` adds and removes prefixes, in rows, records and errors. Journals have bare names, so an export of one
tenant can be imported by another. The stores themselves know tenants only in lists.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from threading import Lock
from typing import Final, TypeVar

from treadle.core.ids import TENANT_SEPARATOR
from treadle.core.permits import StandingGrant
from treadle.errors import TreadleError
from treadle.ports import (
    AT_ONCE,
    AdoptionQuery,
    Claim,
    Commit,
    CommitDone,
    Committed,
    InboxItem,
    JournalReader,
    JournalStore,
    NewTask,
    QueuePosition,
    Record,
    Refused,
    StoreChanges,
    TaskFilter,
    TaskRow,
    TaskSums,
    TenantStores,
    ThreadMember,
    ThreadRow,
    Wake,
)

PAGE: Final = 200
"""Number of orphans of all tenants to read at a time in search of those of one."""


TaskT = TypeVar("TaskT", NewTask, TaskRow)


def tenant_of(name: str) -> str:
    """Return the tenant that a name in a store belongs to."""
    return name.partition(TENANT_SEPARATOR)[0] if TENANT_SEPARATOR in name else ""


def name_in(tenant: str, task_id: str) -> str:
    """Return the name of a tenant's task in the store."""
    return tenant + TENANT_SEPARATOR + task_id if tenant else task_id


class Names:
    """Converts between the names of one tenant and those in its store.

    Args:
        tenant: its name, not empty.
    """

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.prefix = tenant + TENANT_SEPARATOR
        self._shown = repr(self.prefix)[1:-1]
        """its form in a name that an error shows between quotes"""

    def full(self, name: str) -> str:
        """Return a name as the store keeps it."""
        return self.prefix + name

    def bare(self, name: str) -> str:
        """Return a name as the tenant gave it."""
        return name.removeprefix(self.prefix)

    def full_or_none(self, name: str | None) -> str | None:
        """Return a name as the store keeps it, if there is one."""
        return None if name is None else self.prefix + name

    def bare_or_none(self, name: str | None) -> str | None:
        """Return a name as the tenant gave it, if there is one."""
        return None if name is None else name.removeprefix(self.prefix)

    def bare_text(self, text: str) -> str:
        """Return a text of an error with the tenant's own names in it."""
        return text.replace(self.prefix, "").replace(self._shown, "")

    @contextmanager
    def bare_errors(self) -> Generator[None]:
        """Remove the prefix from names in errors of a block."""
        try:
            yield
        except (TreadleError, Refused) as error:
            self.bare_error(error)
            raise

    def bare_error(self, error: Exception) -> None:
        """Remove the prefix from names in an error's message and fields."""
        error.args = tuple([self.bare_text(each) if isinstance(each, str) else each for each in error.args])
        for name, value in vars(error).items():
            if isinstance(value, str):
                setattr(error, name, self.bare_text(value))

    # ------------------------------------------------------------------------------------ into the store

    def full_labels(self, labels: dict[str, str]) -> dict[str, str]:
        """Return labels with the tenant before their names, the keys of an index."""
        return {self.prefix + name: value for name, value in labels.items()}

    def full_record(self, record: Record) -> Record:
        """Return a record in the form of the store; its events are unchanged."""
        if not record.blobs:
            return record
        return replace(record, blobs={self.prefix + digest: data for digest, data in record.blobs.items()})

    def _full_task(self, task: TaskT) -> TaskT:
        return replace(
            task,
            task_id=self.full(task.task_id),
            thread_id=self.full(task.thread_id),
            parent=self.full_or_none(task.parent),
            base=self.full_or_none(task.base),
            labels=self.full_labels(task.labels),
        )

    def full_commit(self, commit: Commit) -> Commit:
        """Return a commit as the store takes it."""
        thread = commit.thread
        return replace(
            commit,
            task_id=self.full(commit.task_id),
            record=None if commit.record is None else self.full_record(commit.record),
            create=None if commit.create is None else self._full_task(commit.create),
            thread=None if thread is None else replace(thread, thread_id=self.full(thread.thread_id)),
            grants=tuple([self._full_grant(grant) for grant in commit.grants]),
        )

    def _full_grant(self, grant: StandingGrant) -> StandingGrant:
        return replace(
            grant,
            grant_id=self.full(grant.grant_id),
            tool=self.full(grant.tool),
            thread_id=self.full_or_none(grant.thread_id),
            task_id=self.full(grant.task_id),
        )

    def full_row(self, row: TaskRow) -> TaskRow:
        """Return a row as the store keeps it."""
        return replace(self._full_task(row), tenant=self.tenant)

    def full_filter(self, task_filter: TaskFilter) -> TaskFilter:
        """Return a filter for the same tasks, of this tenant alone."""
        beginning = None if task_filter.beginning is None else self.full(task_filter.beginning)
        return replace(
            task_filter,
            thread_id=self.full_or_none(task_filter.thread_id),
            parent=self.full_or_none(task_filter.parent),
            base=self.full_or_none(task_filter.base),
            labels=None if task_filter.labels is None else self.full_labels(task_filter.labels),
            beginning=beginning,
            cursor=None if task_filter.cursor is None else self._full_cursor(task_filter.cursor),
            tenant=self.tenant,
        )

    def _full_cursor(self, cursor: str) -> str:
        """Return the cursor of a list, by a row's time and its name in the store."""
        created, dot, task_id = cursor.partition(".")
        return f"{created}{dot}{self.prefix}{task_id}"

    # ---------------------------------------------------------------------------------- out of the store

    def bare_row(self, row: TaskRow) -> TaskRow:
        """Return a row as the tenant sees it."""
        start = len(self.prefix)
        return replace(
            row,
            task_id=self.bare(row.task_id),
            thread_id=self.bare(row.thread_id),
            parent=self.bare_or_none(row.parent),
            base=self.bare_or_none(row.base),
            labels={name[start:]: value for name, value in row.labels.items()},
        )

    def bare_record(self, record: Record) -> Record:
        """Return a record as the tenant wrote it."""
        if not record.blobs:
            return record
        return replace(record, blobs={self.bare(digest): data for digest, data in record.blobs.items()})

    def bare_place(self, place: QueuePosition | None) -> QueuePosition | None:
        """Return a place in the queue of a thread as the tenant sees it."""
        if place is None or not place.holders:
            return place
        return replace(place, holders=tuple([self.bare(task_id) for task_id in place.holders]))

    def bare_committed(self, committed: Committed) -> Committed:
        """Return the answer to a commit as the tenant sees it."""
        if committed.place is None or not committed.place.holders:
            return committed
        return replace(committed, place=self.bare_place(committed.place))

    def bare_grant(self, grant: StandingGrant) -> StandingGrant:
        """Return an approval for later calls as the tenant gave it."""
        return replace(
            grant,
            grant_id=self.bare(grant.grant_id),
            tool=self.bare(grant.tool),
            thread_id=self.bare_or_none(grant.thread_id),
            task_id=self.bare(grant.task_id),
        )


class _FullRecords:
    """Records on their way into a store, which may iterate over them more than once."""

    def __init__(self, names: Names, records: Iterable[Record]) -> None:
        self._names = names
        self._records = records

    def __iter__(self) -> Iterator[Record]:
        return map(self._names.full_record, self._records)


class TenantReader(JournalReader):
    """One tenant's view of the reader of a whole store."""

    def __init__(self, reader: JournalReader, names: Names) -> None:
        self._reader = reader
        self._names = names

    async def read(self, task_id: str, *, after: int = 0, upto: int | None = None) -> list[Record]:
        """See `JournalReader.read`."""
        with self._names.bare_errors():
            records = await self._reader.read(self._names.full(task_id), after=after, upto=upto)
        return [self._names.bare_record(record) for record in records]

    async def row(self, task_id: str, *, deleted: bool = False) -> TaskRow:
        """See `JournalReader.row`."""
        with self._names.bare_errors():
            return self._names.bare_row(await self._reader.row(self._names.full(task_id), deleted=deleted))

    async def rows(self, wanted: TaskFilter) -> list[TaskRow]:
        """See `JournalReader.rows`."""
        with self._names.bare_errors():
            rows = await self._reader.rows(self._names.full_filter(wanted))
        return [self._names.bare_row(row) for row in rows]

    async def sums(self, wanted: TaskFilter) -> dict[str, TaskSums]:
        """See `JournalReader.sums`."""
        with self._names.bare_errors():
            return await self._reader.sums(self._names.full_filter(wanted))

    async def usage(self, wanted: TaskFilter, by: str) -> dict[str | None, TaskSums]:
        """See `JournalReader.usage`."""
        names = self._names
        label = by.removeprefix("label:")
        by = by if label == by else f"label:{names.full(label)}"
        with names.bare_errors():
            return await self._reader.usage(names.full_filter(wanted), by)

    async def inbox(self, task_id: str) -> list[InboxItem]:
        """See `JournalReader.inbox`."""
        with self._names.bare_errors():
            return await self._reader.inbox(self._names.full(task_id))

    async def thread(
        self, thread_id: str, *, version: int | None = None, since: int = 0
    ) -> tuple[int, list[ThreadMember]]:
        """See `JournalReader.thread`."""
        with self._names.bare_errors():
            at, members = await self._reader.thread(self._names.full(thread_id), version=version, since=since)
        return at, [replace(member, task_id=self._names.bare(member.task_id)) for member in members]

    async def threads(self, limit: int, *, after: str | None = None, tenant: str = "") -> list[ThreadRow]:
        """See `JournalReader.threads`; those of this tenant."""
        names = self._names
        with names.bare_errors():
            rows = await self._reader.threads(limit, after=names.full_or_none(after), tenant=names.tenant)
        return [replace(row, thread_id=names.bare(row.thread_id)) for row in rows]

    async def grants(
        self, *, tool: str | None = None, revoked: bool = False, tenant: str = ""
    ) -> list[StandingGrant]:
        """See `JournalReader.grants`; those of this tenant."""
        names = self._names
        with names.bare_errors():
            grants = await self._reader.grants(
                tool=names.full_or_none(tool), revoked=revoked, tenant=names.tenant
            )
        return [names.bare_grant(grant) for grant in grants]


class TenantStore(TenantReader, JournalStore):
    """A `JournalStore` with one tenant's part of another store.

    Args:
        store: the other store, which other tenants share.
        tenant: the tenant's name, not empty.
        watch: a watch of the other store that tenants share; by default a separate one.
    """

    def __init__(self, store: JournalStore, tenant: str, watch: SharedWatch | None = None) -> None:
        super().__init__(store, Names(tenant))
        self._store = store
        self._watch = SharedWatch(store) if watch is None else watch

    @property
    def url(self) -> str:
        """The address of the whole store."""
        return self._store.url

    @property
    def fenced(self) -> int:
        """See `JournalStore.fenced`; of all tenants."""
        return self._store.fenced

    async def open(self) -> None:
        """See `JournalStore.open`."""
        await self._store.open()

    async def close(self) -> None:
        """Close the whole store, for all tenants."""
        await self._store.close()

    def commit(self, commit: Commit, done: CommitDone) -> None:
        """See `JournalStore.commit`."""
        names = self._names

        def bare_done(result: Committed | Exception) -> None:
            if isinstance(result, Exception):
                names.bare_error(result)
                done(result)
            else:
                done(names.bare_committed(result))

        self._store.commit(names.full_commit(commit), bare_done)

    async def claim(self, task_id: str, *, enter: bool = False) -> Claim:
        """See `JournalStore.claim`."""
        with self._names.bare_errors():
            claim = await self._store.claim(self._names.full(task_id), enter=enter)
        return replace(claim, place=self._names.bare_place(claim.place))

    async def orphans(
        self, limit: int, *, after: str | None = None, until: int = AT_ONCE, indirect: bool = False
    ) -> list[TaskRow]:
        """See `JournalStore.orphans`; those of this tenant."""
        names, own, last = self._names, list[TaskRow](), self._names.full_or_none(after)
        while len(own) < limit:
            page = await self._store.orphans(PAGE, after=last, until=until, indirect=indirect)
            own += [names.bare_row(row) for row in page if row.tenant == names.tenant]
            if len(page) < PAGE:
                break
            last = page[-1].task_id
        return own[: max(limit, 0)]

    async def adoptable(self, query: AdoptionQuery) -> list[TaskRow]:
        """See `JournalStore.adoptable`; those of this tenant among the first of all."""
        names = self._names
        return [
            names.bare_row(row) for row in await self._store.adoptable(query) if row.tenant == names.tenant
        ]

    async def unadoptable(self, query: AdoptionQuery) -> list[TaskRow]:
        """See `JournalStore.unadoptable`; those of this tenant."""
        names = self._names
        return [
            names.bare_row(row) for row in await self._store.unadoptable(query) if row.tenant == names.tenant
        ]

    async def delete(self, task_id: str) -> None:
        """See `JournalStore.delete`."""
        with self._names.bare_errors():
            await self._store.delete(self._names.full(task_id))

    async def delete_thread(self, thread_id: str) -> None:
        """See `JournalStore.delete_thread`."""
        with self._names.bare_errors():
            await self._store.delete_thread(self._names.full(thread_id))

    async def revoke(self, grant_id: str, time: int, by: str | None) -> bool:
        """See `JournalStore.revoke`."""
        with self._names.bare_errors():
            return await self._store.revoke(self._names.full(grant_id), time, by)

    async def restore(self, row: TaskRow, records: Iterable[Record], inbox: Sequence[InboxItem] = ()) -> None:
        """See `JournalStore.restore`."""
        names = self._names
        with names.bare_errors():
            await self._store.restore(names.full_row(row), _FullRecords(names, records), inbox)

    async def restore_thread(self, thread_id: str, version: int, members: Sequence[ThreadMember]) -> None:
        """See `JournalStore.restore_thread`."""
        names = self._names
        full = [replace(member, task_id=names.full(member.task_id)) for member in members]
        with names.bare_errors():
            await self._store.restore_thread(names.full(thread_id), version, full)

    async def post(self, task_id: str, item: InboxItem) -> bool:
        """See `JournalStore.post`."""
        with self._names.bare_errors():
            return await self._store.post(self._names.full(task_id), item)

    @asynccontextmanager
    async def snapshot(self) -> AsyncGenerator[JournalReader]:
        """See `JournalStore.snapshot`."""
        async with self._store.snapshot() as reader:
            yield TenantReader(reader, self._names)

    def watch(self, wake: Wake) -> Callable[[], None]:
        """See `JournalStore.watch`; for changes of this tenant."""
        return self._watch.add(self._names, wake)


class SharedWatch:
    """One watch of a store for all its tenants, each woken by its own changes alone.

    Args:
        store: the whole store.
    """

    def __init__(self, store: JournalStore) -> None:
        self._store = store
        self._lock = Lock()
        self._watchers: dict[str, dict[object, tuple[Names, Wake]]] = {}
        self._count = 0
        self._stops: list[Callable[[], None]] = []
        """stop the watches of the store: the one that wakes, and another one if there are several watchers"""

    def add(self, names: Names, wake: Wake) -> Callable[[], None]:
        """Add a tenant's watcher; return a function that removes it."""
        token = object()
        with self._lock:
            if not self._stops:
                self._stops.append(self._store.watch(self._changed))
            elif len(self._stops) == 1:
                # A store with one watcher does not report writes through itself: that watcher made them.
                self._stops.append(self._store.watch(_heed_nothing))
            self._watchers.setdefault(names.tenant, {})[token] = names, wake
            self._count += 1
        return lambda: self._remove(names.tenant, token)

    def _remove(self, tenant: str, token: object) -> None:
        with self._lock:
            watchers = self._watchers.get(tenant, {})
            if watchers.pop(token, None) is None:
                return
            self._count -= 1
            if not watchers:
                del self._watchers[tenant]
            stops, self._stops = self._stops[self._count :], self._stops[: self._count]
        for stop in stops:
            stop()

    def _changed(self, changes: StoreChanges) -> None:
        tasks, mail = _by_tenant(changes.tasks or ()), _by_tenant(changes.mail)
        deleted = _by_tenant(changes.deleted)
        with self._lock:
            concerned = (
                [*self._watchers]
                if changes.tasks is None
                else {*tasks, *mail, *deleted} & self._watchers.keys()
            )
            woken = [(token, *each) for tenant in concerned for token, each in self._watchers[tenant].items()]
        for token, names, wake in woken:
            own = [names.bare(name) for name in tasks.get(names.tenant, ())]
            own_mail = tuple([names.bare(name) for name in mail.get(names.tenant, ())])
            seen = None if changes.tasks is None else frozenset(own)
            gone = frozenset([names.bare(name) for name in deleted.get(names.tenant, ())])
            try:
                wake(StoreChanges(seen, own_mail, changes.owners, gone, changes.outdated))
            except RuntimeError:  # its event loop is closed
                self._remove(names.tenant, token)


def _heed_nothing(changes: StoreChanges) -> None:
    """Do nothing; used as the second watcher of a store."""


def _by_tenant(task_ids: Iterable[str]) -> dict[str, list[str]]:
    """Return the names of tasks in a store, by the tenant they belong to."""
    by_tenant: dict[str, list[str]] = {}
    for name in task_ids:
        by_tenant.setdefault(tenant_of(name), []).append(name)
    return by_tenant


class Tenants(TenantStores):
    """The tenants of a store; the tenant "" is the store itself.

    Args:
        store: the store.
    """

    def __init__(self, store: JournalStore) -> None:
        self._store = store
        self._watch = SharedWatch(store)

    def of(self, tenant: str) -> JournalStore:
        """See `TenantStores.of`."""
        return TenantStore(self._store, tenant, self._watch) if tenant else self._store

    async def orphans(
        self, limit: int, *, after: TaskRow | None = None, until: int = AT_ONCE, indirect: bool = False
    ) -> list[TaskRow]:
        """See `TenantStores.orphans`."""
        last = None if after is None else name_in(after.tenant, after.task_id)
        rows = await self._store.orphans(limit, after=last, until=until, indirect=indirect)
        return [_bare_row(row) for row in rows]

    async def adoptable(self, query: AdoptionQuery) -> list[TaskRow]:
        """See `TenantStores.adoptable`."""
        return [_bare_row(row) for row in await self._store.adoptable(query)]

    async def unadoptable(self, query: AdoptionQuery) -> list[TaskRow]:
        """See `TenantStores.unadoptable`."""
        return [_bare_row(row) for row in await self._store.unadoptable(query)]


def _bare_row(row: TaskRow) -> TaskRow:
    """Return a row of a store with its tenant's own names."""
    return Names(row.tenant).bare_row(row) if row.tenant else row
