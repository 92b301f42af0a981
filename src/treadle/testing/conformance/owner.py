"""An owner of a task for the store suite, which appends chained records in an epoch."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from treadle.errors import TaskNotFound
from treadle.ports import (
    Claim,
    Commit,
    Committed,
    InboxItem,
    JournalStore,
    NewTask,
    Record,
    TaskFilter,
    ThreadChange,
)


def send(store: JournalStore, commit: Commit) -> asyncio.Future[Committed]:
    """Queue a commit; return a future that ends when its `done` is called."""
    ended: asyncio.Future[Committed] = asyncio.get_running_loop().create_future()

    def done(result: Committed | Exception) -> None:
        if isinstance(result, Exception):
            ended.set_exception(result)
        else:
            ended.set_result(result)

    store.commit(commit, done)
    return ended


def new_task(task_id: str, **fields: Any) -> NewTask:
    """Build a task row, with defaults for the other fields."""
    return replace(NewTask(task_id, "agent", f"thread-of-{task_id}", 1_700_000_000_000_000), **fields)


def item(item_id: str, **data: Any) -> InboxItem:
    """Build an inbox item."""
    return InboxItem(item_id, "message", data, 1_700_000_000_000_001)


def add(expected: int, thread: str = "talk") -> ThreadChange:
    """Build a change that adds the task to a thread."""
    return ThreadChange("add", thread, expected)


def remove(thread: str = "talk") -> ThreadChange:
    """Build a change that removes the task from a thread."""
    return ThreadChange("remove", thread)


def spans(records: list[Record]) -> list[tuple[int, int, int | None]]:
    """Return the first and last event of each record, and its `upto`."""
    return [(r.seq - r.count + 1, r.seq, r.upto) for r in records]


@dataclass
class Owner:
    """The owner of one task.

    Args:
        store: the store of its journal.
        task_id: the task.
        epoch: the epoch of its ownership.
        seq: the last event that it wrote.
        digest: the digest of the last record that it wrote.
    """

    store: JournalStore
    task_id: str
    epoch: int = 1
    seq: int = 0
    digest: bytes = b""

    @classmethod
    async def create(cls, store: JournalStore, task_id: str, **fields: Any) -> Owner:
        """Create and own a task with a record of one event, or a fork without a record."""
        new = new_task(task_id, **fields)
        owner = cls(store, task_id, seq=new.base_seq)
        if new.base is None:
            await owner.write(create=new)
        else:
            await owner.send(create=new)
        return owner

    @classmethod
    async def claim(cls, store: JournalStore, task_id: str) -> Owner:
        """Become the owner of an existing task."""
        return cls.of(store, task_id, await store.claim(task_id))

    @classmethod
    def of(cls, store: JournalStore, task_id: str, claim: Claim) -> Owner:
        return cls(store, task_id, claim.epoch, claim.head, claim.digest)

    def record(
        self, count: int = 1, data: bytes | None = None, blobs: dict[str, bytes] | None = None
    ) -> Record:
        """Build the next record without writing it."""
        seq = self.seq + count
        data = data if data is not None else f"{self.task_id} {self.seq + 1}-{seq}".encode()
        return Record(seq, count, self.epoch, data, sha256(self.digest + data).digest(), blobs or {})

    def commit(self, record: Record | None = None, **fields: Any) -> Commit:
        """Build a commit in the epoch of this owner."""
        return Commit(self.task_id, self.epoch, record, **fields)

    async def send(self, record: Record | None = None, **fields: Any) -> Committed:
        """Write a commit and move to the end of its record; raise the error that refused it."""
        committed = await send(self.store, self.commit(record, **fields))
        if record is not None:
            self.seq, self.digest = record.seq, record.digest
        return committed

    async def write(
        self, count: int = 1, data: bytes | None = None, blobs: dict[str, bytes] | None = None, **fields: Any
    ) -> Committed:
        """Write the next record."""
        return await self.send(self.record(count, data, blobs), **fields)

    async def release(self) -> None:
        """End the ownership."""
        await self.send(release=True)


async def last_of(*deeds: Awaitable[Any]) -> Any:
    """Start several calls in this order, await them, and return the result of the last one.

    Calls that are queued while the first one is written form one group.
    """
    return (await asyncio.gather(*deeds))[-1]


async def until(holds: Callable[[], Awaitable[bool]], seconds: float = 10.0) -> None:
    """Wait for a condition that another thread or process makes true."""
    async with asyncio.timeout(seconds):
        while not await holds():  # noqa: ASYNC110 (there is nothing to be woken by)
            await asyncio.sleep(0.01)


async def dump(store: JournalStore, threads: Iterable[str] = (), tasks: Iterable[str] = ()) -> dict[str, Any]:
    """Return the content of a store: its tasks, the named threads, and named tasks that it does not list.

    Tenants are left out, and so are owners, which differ between processes.
    """
    content: dict[str, Any] = {}
    for row in await store.rows(TaskFilter(limit=1_000)):
        key = row.task_id
        content[key] = (replace(row, driver=None, tenant=""), await store.read(key), await store.inbox(key))
    for key in tasks:
        if key not in content:
            try:
                content[key] = await store.read(key)
            except TaskNotFound:
                content[key] = None
    for key in threads:
        version, members = await store.thread(key)
        content[f"thread {key}"] = (
            version,
            members,
            [await store.thread(key, version=v) for v in range(version)],
        )
    return content


def with_blob(owner: Owner) -> Record:
    """Build a record that carries a blob named `b`."""
    return owner.record(2, blobs={"b": b"of a refused commit"})
