"""Conformance of a `JournalStore`: snapshots, read while other calls write."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from treadle.errors import TaskNotFound
from treadle.ports import JournalReader, TaskFilter
from treadle.testing.conformance.owner import Owner, item
from treadle.testing.conformance.store_subject import StoreSubject
from treadle.testing.conformance.store_threads import claim_again, make_members


async def all_of(reader: JournalReader) -> list[Any]:
    """Return all readable content of a store."""
    rows = await reader.rows(TaskFilter())
    threads = await reader.threads(100)
    return [
        rows,
        threads,
        [await reader.row(row.task_id) for row in rows],
        [await reader.read(row.task_id) for row in rows],
        [await reader.inbox(row.task_id) for row in rows],
        [await reader.thread(thread.thread_id) for thread in threads],
    ]


class SnapshotConformance(StoreSubject):
    """A snapshot shows the whole store at one moment, and no writer waits for it."""

    async def test_a_snapshot_shows_nothing_of_what_is_written_after_it(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            await make_members(store, "t", "u", "v")
            fork = await Owner.create(store, "fork", base="t", base_seq=3)
            await fork.write(2, release=True)
            await store.post("u", item("first"))
            before = await all_of(store)
            async with store.snapshot() as snapshot:
                owner = await claim_again(store, "t")
                async with asyncio.timeout(10):  # no write waits for the snapshot
                    await owner.write(2, state="failed", release=True)
                    await store.post("u", item("second"))
                    await make_members(store, "w", "x")
                    await make_members(store, "y", thread="other")
                    await store.delete("v")
                assert await all_of(snapshot) == before
                with pytest.raises(TaskNotFound):
                    await snapshot.row("w")
                assert await all_of(snapshot) == before, "a query that fails does not end the snapshot"
            after = await all_of(store)
            assert [row.task_id for row in after[0]] == ["y", "x", "w", "u", "t", "fork"]
            async with store.snapshot() as snapshot:
                assert await all_of(snapshot) == after

    async def test_a_snapshot_shows_what_was_queued_before_it(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            owner = await Owner.create(store, "t")
            writing = asyncio.ensure_future(owner.write(2, release=True))
            await asyncio.sleep(0)
            async with store.snapshot() as snapshot:
                assert (await snapshot.row("t")).head == 3
            await writing

    async def test_several_snapshots_each_show_their_own_moment(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            owner = await Owner.create(store, "t")
            async with store.snapshot() as first:
                await owner.write(2)
                async with store.snapshot() as second:
                    await owner.write(2, release=True)
                    heads = [(await reader.row("t")).head for reader in (first, second, store)]
                    assert heads == [1, 3, 5]
