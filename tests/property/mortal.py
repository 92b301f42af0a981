"""A store that can be lost in the middle: what was committed stays, what comes after the death is never written."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from treadle.core.permits import StandingGrant
from treadle.errors import StoreUnavailable
from treadle.ports import (
    AdoptionQuery,
    Claim,
    Commit,
    CommitDone,
    InboxItem,
    JournalReader,
    JournalStore,
    Record,
    TaskFilter,
    TaskRow,
    TaskSums,
    ThreadMember,
    ThreadRow,
)


class MortalStore(JournalStore):
    """One run of a process on a store: it crashes at a chosen commit, before the write or before its answer."""

    def __init__(self, real: JournalStore) -> None:
        self.real = real
        self.dead = False
        self.commits_left: int | None = None
        self.dies_after_writing = False

    def die(self) -> None:
        self.dead = True

    def _alive(self) -> JournalStore:
        if self.dead:
            raise StoreUnavailable("the process is dead")
        return self.real

    @property
    def url(self) -> str:
        return self.real.url

    @property
    def fenced(self) -> int:
        return self.real.fenced

    async def open(self) -> None:
        await self._alive().open()

    async def close(self) -> None:
        """Leave the real store alone: the next life uses it."""

    def commit(self, commit: Commit, done: CommitDone) -> None:
        error = StoreUnavailable("the process died")
        if self.dead:
            done(error)
            return
        if self.commits_left is not None:
            self.commits_left -= 1
            if self.commits_left < 0:
                self.dead = True
                if self.dies_after_writing:
                    self.real.commit(commit, lambda _: done(error))
                else:
                    done(error)
                return
        self.real.commit(commit, done)

    async def claim(self, task_id: str, *, enter: bool = False) -> Claim:
        return await self._alive().claim(task_id, enter=enter)

    async def read(self, task_id: str, *, after: int = 0, upto: int | None = None) -> list[Record]:
        return await self._alive().read(task_id, after=after, upto=upto)

    async def row(self, task_id: str) -> TaskRow:
        return await self._alive().row(task_id)

    async def rows(self, wanted: TaskFilter) -> list[TaskRow]:
        return await self._alive().rows(wanted)

    async def orphans(self, limit: int, **options: Any) -> list[TaskRow]:
        return await self._alive().orphans(limit, **options)

    async def adoptable(self, query: AdoptionQuery) -> list[TaskRow]:
        return await self._alive().adoptable(query)

    async def unadoptable(self, query: AdoptionQuery) -> list[TaskRow]:
        return await self._alive().unadoptable(query)

    async def delete(self, task_id: str) -> None:
        await self._alive().delete(task_id)

    async def delete_thread(self, thread_id: str) -> None:
        await self._alive().delete_thread(thread_id)

    async def threads(self, limit: int, *, after: str | None = None) -> list[ThreadRow]:
        return await self._alive().threads(limit, after=after)

    async def grants(self, *, tool: str | None = None, revoked: bool = False) -> list[StandingGrant]:
        return await self._alive().grants(tool=tool, revoked=revoked)

    async def revoke(self, grant_id: str, time: int, by: str | None) -> bool:
        return await self._alive().revoke(grant_id, time, by)

    async def post(self, task_id: str, item: InboxItem) -> bool:
        return await self._alive().post(task_id, item)

    async def inbox(self, task_id: str) -> list[InboxItem]:
        return await self._alive().inbox(task_id)

    async def thread(self, thread_id: str, **options: Any) -> tuple[int, list[ThreadMember]]:
        return await self._alive().thread(thread_id, **options)

    async def sums(self, wanted: TaskFilter) -> dict[str, TaskSums]:
        return await self._alive().sums(wanted)

    async def usage(self, wanted: TaskFilter, by: str) -> dict[str | None, TaskSums]:
        return await self._alive().usage(wanted, by)

    async def restore(self, *arguments: Any) -> None:
        await self._alive().restore(*arguments)

    async def restore_thread(self, *arguments: Any) -> None:
        await self._alive().restore_thread(*arguments)

    def snapshot(self) -> AbstractAsyncContextManager[JournalReader]:
        return self._alive().snapshot()

    def watch(self, wake: Callable[..., Any]) -> Callable[[], None]:
        return self._alive().watch(wake)


async def next_life(store: MortalStore, again: Callable[[], JournalStore] | None) -> MortalStore:
    """Return a new process' view of the store that the crashed process left, its ownerships expired.

    Args:
        store: what the crashed process saw.
        again: opens the store another time; None for one in memory, which both processes use.
    """
    store.die()
    await store.real.close()
    real = store.real if again is None else again()
    await real.open()
    return MortalStore(real)
