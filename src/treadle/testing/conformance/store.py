"""What every `JournalStore` must do, as tests that any store can inherit.

    from treadle.testing.conformance.store import StoreConformance

    class TestMyStore(StoreConformance):
        def make(self, place):                     # `place` is an empty directory of this test
            return MyStore(place / "journal")

A store that outlives its process inherits `PersistentStoreConformance` from `treadle.testing.conformance.durability`
instead, which adds two instances, several processes, crashes and damage. Needs pytest and its anyio plugin only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from treadle.errors import StoreUnavailable
from treadle.ports import Committed, TaskFilter
from treadle.testing.conformance.owner import Owner, item, send
from treadle.testing.conformance.store_commits import CommitConformance
from treadle.testing.conformance.store_restoring import RestoringConformance
from treadle.testing.conformance.store_sharing import SharingConformance
from treadle.testing.conformance.store_turns import TurnConformance


@pytest.mark.anyio
class StoreConformance(CommitConformance, SharingConformance, TurnConformance, RestoringConformance):
    """The contract of `JournalStore`, one rule a test. Inherit, and say how to `make` a store."""

    # ------------------------------------------------------------------------------------------------ listing

    async def test_rows_are_filtered_by_all_given_fields(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            made: dict[str, dict[str, Any]] = {
                "a": {"agent": "x", "thread_id": "one", "created": 10},
                "b": {"agent": "y", "thread_id": "one", "created": 20, "parent": "a"},
                "c": {"agent": "x", "thread_id": "two", "created": 30, "parent": "a"},
                "d": {"agent": "x", "thread_id": "one", "created": 40, "base": "a", "base_seq": 1},
            }
            for name, fields in made.items():
                owner = await Owner.create(store, name, **fields)
                await owner.send(state="paused" if name in "bd" else "running", release=name in "bd")
            cases: list[tuple[dict[str, Any], str]] = [
                ({}, "dcba"),
                ({"agent": "x"}, "dca"),
                ({"thread_id": "one"}, "dba"),
                ({"parent": "a"}, "cb"),
                ({"base": "a"}, "d"),
                ({"base": "nobody"}, ""),
                ({"state": "paused"}, "db"),
                ({"since": 20}, "dcb"),
                ({"cursor": "c"}, "ba"),
                ({"state": "running", "agent": "x", "since": 20}, "c"),
                ({"limit": 2}, "dc"),
                ({"limit": 2, "cursor": "c", "thread_id": "one"}, "ba"),
            ]
            for fields, wanted in cases:
                found = await store.rows(TaskFilter(**fields))
                assert "".join(row.task_id for row in found) == wanted, fields
            assert [await store.row(name) for name in "dcba"] == await store.rows(TaskFilter())

    async def test_pages_follow_each_other_without_gap_or_repetition(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            names = [f"t{n:02}" for n in range(23)]
            for name in names[::2] + names[1::2]:
                await Owner.create(store, name)
            seen: list[str] = []
            wanted = TaskFilter(limit=5)
            while page := await store.rows(wanted):
                seen += [row.task_id for row in page]
                wanted = replace(wanted, cursor=page[-1].task_id)
            assert seen == names[::-1]

    # --------------------------------------------------------------------------------------- opening, closing

    async def test_open_and_close_may_be_repeated(self, tmp_path: Path) -> None:
        store = self.make(tmp_path)
        await store.open()
        await store.open()
        await Owner.create(store, "t")
        await store.close()
        await store.close()
        await store.open()
        assert (await store.row("t")).head == 1
        await (await Owner.claim(store, "t")).write()
        await store.close()

    async def test_close_writes_what_is_queued(self, tmp_path: Path) -> None:
        store = self.make(tmp_path)
        await store.open()
        owner = await Owner.create(store, "t")
        sent: list[asyncio.Future[Committed]] = []
        for _ in range(1_000):
            record = owner.record()
            sent.append(send(store, owner.commit(record)))
            owner.seq, owner.digest = record.seq, record.digest
        await store.close()
        assert await asyncio.gather(*sent) == [Committed()] * 1_000
        await store.open()
        assert (await store.row("t")).head == 1_001
        await store.close()

    async def test_a_closed_store_says_so(self, tmp_path: Path) -> None:
        store = self.make(tmp_path)
        await store.open()
        owner = await Owner.create(store, "t")
        await store.close()
        asks: list[Callable[[], Any]] = [
            lambda: store.row("t"),
            lambda: store.rows(TaskFilter()),
            lambda: store.read("t"),
            lambda: store.claim("t"),
            lambda: store.inbox("t"),
            lambda: store.thread("t"),
            lambda: store.post("t", item("i")),
            lambda: store.delete("t"),
            lambda: send(store, owner.commit(owner.record())),
        ]
        for ask in asks:
            with pytest.raises(StoreUnavailable):
                await ask()

    async def test_the_name_of_a_store_is_short_text(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            assert ":" in store.url
            assert "\n" not in store.url

    async def test_a_watch_can_be_ended_twice(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            end = store.watch(lambda _: None)
            end()
            end()
