"""The reading half of a store in a database: one query for each method of `JournalReader`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from treadle.core.permits import StandingGrant
from treadle.ports import (
    AdoptionQuery,
    InboxItem,
    JournalReader,
    Record,
    TaskFilter,
    TaskRow,
    TaskSums,
    ThreadMember,
    ThreadRow,
)

T = TypeVar("T")


class Queries(Protocol):
    """The queries of a database, each a function of a connection; a store's module `reading` has them."""

    def records(self, connection: Any, key: str, after: int, upto: int | None, /) -> list[Record]: ...
    def row(self, connection: Any, key: str, deleted: bool, /) -> TaskRow: ...
    def rows(self, connection: Any, wanted: TaskFilter, /) -> list[TaskRow]: ...
    def sums(self, connection: Any, wanted: TaskFilter, /) -> dict[str, TaskSums]: ...
    def usage(self, connection: Any, wanted: TaskFilter, by: str, /) -> dict[str | None, TaskSums]: ...
    def orphans(
        self, connection: Any, limit: int, after: str | None, until: int, indirect: bool, /
    ) -> list[TaskRow]: ...
    def adoptable(self, connection: Any, query: AdoptionQuery, /) -> list[TaskRow]: ...
    def unadoptable(self, connection: Any, query: AdoptionQuery, /) -> list[TaskRow]: ...
    def inbox(self, connection: Any, key: str, /) -> list[InboxItem]: ...
    def thread(
        self, connection: Any, key: str, version: int | None, since: int, /
    ) -> tuple[int, list[ThreadMember]]: ...
    def threads(self, connection: Any, limit: int, after: str | None, tenant: str, /) -> list[ThreadRow]: ...
    def grants(
        self, connection: Any, tool: str | None, revoked: bool, tenant: str, /
    ) -> list[StandingGrant]: ...


class QueryReader(JournalReader):
    """A `JournalReader` whose methods are `queries`; a subclass runs them.

    Stores and their snapshots derive from it.
    """

    queries: Queries

    async def _query(self, function: Callable[..., T], *arguments: Any) -> T:
        """Return the result of a query, called with a connection and the arguments."""
        raise NotImplementedError

    async def read(self, task_id: str, *, after: int = 0, upto: int | None = None) -> list[Record]:
        """Return the records with events `after` + 1 to `upto`; see `JournalReader.read`."""
        return await self._query(self.queries.records, task_id, after, upto)

    async def row(self, task_id: str, *, deleted: bool = False) -> TaskRow:
        """Return a task's row; see `JournalReader.row`."""
        return await self._query(self.queries.row, task_id, deleted)

    async def rows(self, wanted: TaskFilter) -> list[TaskRow]:
        """Return matching rows, newest first."""
        return await self._query(self.queries.rows, wanted)

    async def sums(self, wanted: TaskFilter) -> dict[str, TaskSums]:
        """Return the number and the spending of the matching rows, by state; see `JournalReader.sums`."""
        return await self._query(self.queries.sums, wanted)

    async def usage(self, wanted: TaskFilter, by: str) -> dict[str | None, TaskSums]:
        """Return the number and the spending of matching rows; see `JournalReader.usage`."""
        return await self._query(self.queries.usage, wanted, by)

    async def inbox(self, task_id: str) -> list[InboxItem]:
        """Return the items not yet taken, in order of arrival."""
        return await self._query(self.queries.inbox, task_id)

    async def thread(
        self, thread_id: str, *, version: int | None = None, since: int = 0
    ) -> tuple[int, list[ThreadMember]]:
        """Return a thread's version and its members; see `JournalReader.thread`."""
        return await self._query(self.queries.thread, thread_id, version, since)

    async def threads(self, limit: int, *, after: str | None = None, tenant: str = "") -> list[ThreadRow]:
        """Return the threads that have a version; see `JournalReader.threads`."""
        return await self._query(self.queries.threads, limit, after, tenant)

    async def grants(
        self, *, tool: str | None = None, revoked: bool = False, tenant: str = ""
    ) -> list[StandingGrant]:
        """Return the approvals for later calls; see `JournalReader.grants`."""
        return await self._query(self.queries.grants, tool, revoked, tenant)
