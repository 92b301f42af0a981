"""A tenant's store in which other tenants do the same: they have the same tasks, threads, blobs and grants."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from treadle.ports import (
    Claim,
    Commit,
    CommitDone,
    InboxItem,
    JournalStore,
    Record,
    TaskRow,
    ThreadMember,
)
from treadle.stores.tenants import Tenants, TenantStore
from treadle.wiring import open_store

OWN = "acme"
OTHERS = ("", "acm", "acme.", "Acme")
"""The names around that of the tenant: none, its beginning, one that begins with it, and one in other letters."""

T = TypeVar("T")


class MirroredStore(TenantStore):
    """What tenant `acme` has in a store in which other tenants are told all that it is told.

    Args:
        store: the whole store.
        others: names of the other tenants.
    """

    def __init__(self, store: JournalStore, others: Sequence[str] = OTHERS[:2]) -> None:
        super().__init__(store, OWN)
        self.others = [Tenants(store).of(name) for name in others]

    async def _too(self, own: Awaitable[T], other: Callable[[JournalStore], Awaitable[object]]) -> T:
        """Return what happens to this tenant; then the others do the same, however it went for this one."""
        try:
            return await own
        finally:
            for store in self.others:
                with suppress(Exception):
                    await other(store)

    def commit(self, commit: Commit, done: CommitDone) -> None:
        for store in self.others:
            with suppress(Exception):
                store.commit(commit, lambda _: None)
        super().commit(commit, done)

    async def claim(self, task_id: str, *, enter: bool = False) -> Claim:
        return await self._too(super().claim(task_id, enter=enter), lambda s: s.claim(task_id, enter=enter))

    async def delete(self, task_id: str) -> None:
        await self._too(super().delete(task_id), lambda store: store.delete(task_id))

    async def delete_thread(self, thread_id: str) -> None:
        await self._too(super().delete_thread(thread_id), lambda store: store.delete_thread(thread_id))

    async def revoke(self, grant_id: str, time: int, by: str | None) -> bool:
        return await self._too(
            super().revoke(grant_id, time, by), lambda store: store.revoke(grant_id, time, by)
        )

    async def restore(self, row: TaskRow, records: Iterable[Record], inbox: Sequence[InboxItem] = ()) -> None:
        if isinstance(records, list):
            await self._too(
                super().restore(row, records, inbox), lambda store: store.restore(row, records, inbox)
            )
        else:
            await super().restore(row, records, inbox)

    async def restore_thread(self, thread_id: str, version: int, members: Sequence[ThreadMember]) -> None:
        own = super().restore_thread(thread_id, version, members)
        await self._too(own, lambda store: store.restore_thread(thread_id, version, members))

    async def post(self, task_id: str, item: InboxItem) -> bool:
        return await self._too(super().post(task_id, item), lambda store: store.post(task_id, item))


def open_mirrored(address: str) -> Any:
    """Open the store at an address for tenant `acme`, which others mirror."""
    return MirroredStore(open_store(address))


def open_alone(address: str) -> Any:
    """Open the store at an address for tenant `acme`, which nothing mirrors: for tests that count or crash calls."""
    return TenantStore(open_store(address), OWN)
