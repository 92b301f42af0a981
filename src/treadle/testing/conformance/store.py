"""The conformance suite of a `JournalStore`, as tests that any store can inherit.

A `TaskStore` can inherit it too: tests of methods that it lacks are skipped.


    class TestMyStore(StoreConformance):
        def make(self, place):                     # `place` is an empty directory of this test
            return MyStore(place / "journal")

A store that outlives its process inherits `PersistentStoreConformance` from `treadle.testing.conformance.durability`
instead, which adds two instances, several processes, crashes and damage. The suite needs only pytest and its anyio
plugin.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from treadle.errors import Fenced, StoreUnavailable
from treadle.ports import AT_ONCE, Committed, TaskFilter
from treadle.testing.conformance.owner import Owner, item, new_task, send
from treadle.testing.conformance.store_adoption import QUERY, AdoptionConformance
from treadle.testing.conformance.store_commits import CommitConformance
from treadle.testing.conformance.store_format import FormatConformance
from treadle.testing.conformance.store_grants import GrantConformance
from treadle.testing.conformance.store_lists import ListConformance
from treadle.testing.conformance.store_ownership import OwnershipConformance
from treadle.testing.conformance.store_restoring import RestoringConformance
from treadle.testing.conformance.store_sharing import SharingConformance
from treadle.testing.conformance.store_snapshots import SnapshotConformance
from treadle.testing.conformance.store_tenants import TenantConformance
from treadle.testing.conformance.store_threads import ThreadConformance
from treadle.testing.conformance.store_turns import TurnConformance


@pytest.mark.anyio
class StoreConformance(
    AdoptionConformance,
    CommitConformance,
    OwnershipConformance,
    FormatConformance,
    GrantConformance,
    ListConformance,
    SharingConformance,
    TenantConformance,
    ThreadConformance,
    TurnConformance,
    RestoringConformance,
    SnapshotConformance,
):
    """The contract of `JournalStore`, one rule a test. A subclass defines `make`, which creates a store."""

    # ------------------------------------------------------------------------------------------------ listing

    async def test_rows_are_filtered_by_all_fields_that_are_set(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            fields_of: dict[str, dict[str, Any]] = {
                "a": {"agent": "x", "thread_id": "one", "created": 10},
                "b": {"agent": "y", "thread_id": "one", "created": 20, "parent": "a"},
                "c": {"agent": "x", "thread_id": "two", "created": 30, "parent": "a"},
                "d": {"agent": "x", "thread_id": "one", "created": 40, "base": "a", "base_seq": 1},
            }
            for name, fields in fields_of.items():
                owner = await Owner.create(store, name, **fields)
                await owner.send(state="paused" if name in "bd" else "running", release=name in "bd")
            cursor = (await store.row("c")).cursor
            cases: list[tuple[dict[str, Any], str]] = [
                ({}, "dcba"),
                ({"agent": "x"}, "dca"),
                ({"thread_id": "one"}, "dba"),
                ({"parent": "a"}, "cb"),
                ({"base": "a"}, "d"),
                ({"base": "missing"}, ""),
                ({"states": ("paused",)}, "db"),
                ({"since": 20}, "dcb"),
                ({"cursor": cursor}, "ba"),
                ({"states": ("running",), "agent": "x", "since": 20}, "c"),
                ({"limit": 2}, "dc"),
                ({"limit": 2, "cursor": cursor, "thread_id": "one"}, "ba"),
            ]
            for fields, expected in cases:
                rows = await store.rows(TaskFilter(**fields))
                assert "".join(row.task_id for row in rows) == expected, fields
            assert [await store.row(name) for name in "dcba"] == await store.rows(TaskFilter())

    async def test_pages_follow_each_other_without_gap_or_repetition(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            names = [f"t{n:02}" for n in range(23)]
            for name in names[::2] + names[1::2]:
                await Owner.create(store, name)
            task_ids: list[str] = []
            task_filter = TaskFilter(limit=5)
            while page := await store.rows(task_filter):
                task_ids += [row.task_id for row in page]
                task_filter = replace(task_filter, cursor=page[-1].cursor)
            assert task_ids == names[::-1]

    async def test_a_task_at_rest_is_listed_by_its_state_behind_many_that_are_driven(
        self, tmp_path: Path
    ) -> None:
        async with self.opened(tmp_path) as store:
            await (await Owner.create(store, "a")).send(release=True, state="paused")
            await asyncio.gather(*(Owner.create(store, f"t{n:03}") for n in range(101)))
            assert [row.task_id for row in await store.rows(TaskFilter(states=("paused",), limit=1))] == ["a"]

    # ---------------------------------------------------------------------------------------------- orphans

    async def test_orphans_are_tasks_without_an_owner_that_are_wanted_or_have_inbox_items_and_have_not_ended(
        self, tmp_path: Path
    ) -> None:
        async with self.opened(tmp_path) as store:
            for name in ("rest", "wanted", "mail", "both", "driven", "ended", "taken"):
                owner = await Owner.create(store, name)
                if name in ("wanted", "both"):
                    await owner.send(release=True, due_at=1, state="interrupted")
                elif name == "ended":
                    await owner.send(release=True, state="completed")
                elif name != "driven":
                    await owner.release()
            for name in ("mail", "both", "driven", "ended", "taken"):
                await store.post(name, item("i"))
            await (await Owner.claim(store, "taken")).send(taken=("i",), release=True)
            orphans = await store.orphans(10)
            assert [(row.task_id, row.due_at) for row in orphans] == [
                ("wanted", True),
                ("mail", False),
                ("both", True),
            ]
            assert orphans == [await store.row(row.task_id) for row in orphans]
            assert [row.task_id for row in await store.orphans(2)] == ["wanted", "mail"]
            assert [row.task_id for row in await store.orphans(2, after="mail")] == ["both"]
            assert await store.orphans(2, after="both") == []

    async def test_a_task_that_is_wanted_from_a_time_on_is_no_orphan_before_and_keeps_its_time(
        self, tmp_path: Path
    ) -> None:
        async with self.opened(tmp_path) as store:
            due_time = 1_800_000_000_000_000
            await (await Owner.create(store, "now")).send(release=True, due_at=AT_ONCE, state="running")
            await (await Owner.create(store, "t")).send(release=True, due_at=due_time, state="waiting")
            assert [row.task_id for row in await store.orphans(10)] == ["now"]
            assert [row.task_id for row in await store.orphans(10, until=due_time - 1)] == ["now"]
            assert [row.task_id for row in await store.orphans(10, until=due_time)] == ["now", "t"]
            assert (await store.row("t")).due_at == due_time
            claim = await store.claim("t")
            assert claim.due_at == due_time
            assert await store.orphans(10, until=due_time, after="now") == [], "it has an owner"
            await Owner.of(store, "t", claim).send(release=True, due_at=claim.due_at)
            assert [row.task_id for row in await store.orphans(10, until=due_time, after="now")] == ["t"]
            row = replace(await store.row("t"), task_id="u", mark=None)
            await store.restore(row, await store.read("t"))
            assert (await store.row("u")).due_at == due_time

    async def test_a_wanted_task_is_no_orphan_while_it_is_driven_nor_when_it_was_released_unwanted(
        self, tmp_path: Path
    ) -> None:
        async with self.opened(tmp_path) as store:
            await (await Owner.create(store, "t")).send(release=True, due_at=1)
            claim = await store.claim("t")
            assert claim.due_at
            assert (await store.row("t")).due_at, "until it is released"
            assert await store.orphans(10) == []
            await Owner.of(store, "t", claim).release()
            assert await store.orphans(10) == []
            claim = await store.claim("t")
            assert not claim.due_at
            await Owner.of(store, "t", claim).send(release=True, due_at=1)
            await store.delete("t")
            assert await store.orphans(10) == []

    async def test_a_deleted_task_that_a_fork_needs_is_no_orphan(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            await (await Owner.create(store, "t")).send(release=True, due_at=AT_ONCE)
            await (await Owner.create(store, "f", base="t", base_seq=1)).release()
            await store.delete("t")
            assert await store.orphans(10) == []

    async def test_refused_commits_of_a_former_owner_are_counted(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            stale = await Owner.create(store, "t")
            await stale.release()
            await (await Owner.claim(store, "t")).write()
            assert store.fenced == 0
            for _ in range(2):
                with pytest.raises(Fenced):
                    await stale.write()
            assert store.fenced == 2
            await store.close()
            await store.open()
            assert store.fenced == 2

    # --------------------------------------------------------------------------------------- opening, closing

    async def test_open_and_close_may_be_repeated(self, tmp_path: Path) -> None:
        store = self.whole(tmp_path)
        await store.open()
        await store.open()
        await Owner.create(store, "t")
        await store.close()
        await store.close()
        await store.open()
        assert (await store.row("t")).head == 1
        await (await Owner.claim(store, "t")).write()
        await store.close()

    async def test_tasks_that_were_owned_when_their_store_was_closed_are_orphans(
        self, tmp_path: Path
    ) -> None:
        store = self.whole(tmp_path)
        await store.open()
        await Owner.create(store, "t")
        await (await Owner.create(store, "rest")).release()
        await store.close()
        await store.open()
        assert [row.task_id for row in await store.orphans(10)] == ["t"], "but no task at rest"
        await store.close()

    async def test_a_thread_is_free_once_the_store_of_its_holder_was_closed(self, tmp_path: Path) -> None:
        store = self.whole(tmp_path)
        await store.open()
        await Owner(store, "t").write(create=new_task("t", thread_id="talk"), enter="enqueue")
        await store.close()
        await store.open()
        new = new_task("u", thread_id="talk")
        committed = await Owner(store, "u").write(create=new, enter="enqueue")
        assert committed.place is not None
        assert committed.place.held
        await store.close()

    async def test_close_writes_what_is_queued(self, tmp_path: Path) -> None:
        store = self.whole(tmp_path)
        await store.open()
        owner = await Owner.create(store, "t")
        sent: list[asyncio.Future[Committed]] = []
        for _ in range(self.many(1_000)):
            record = owner.record()
            sent.append(send(store, owner.commit(record)))
            owner.seq, owner.digest = record.seq, record.digest
        await store.close()
        assert await asyncio.gather(*sent) == [Committed()] * self.many(1_000)
        await store.open()
        assert (await store.row("t")).head == self.many(1_000) + 1
        await store.close()

    async def test_a_closed_store_says_so(self, tmp_path: Path) -> None:
        store = self.whole(tmp_path)
        await store.open()
        owner = await Owner.create(store, "t")
        await store.close()
        calls: list[Callable[[], Any]] = [
            lambda: store.row("t"),
            lambda: store.read("t"),
            lambda: store.claim("t"),
            lambda: store.inbox("t"),
            lambda: store.thread("t"),
            lambda: store.post("t", item("i")),
            lambda: send(store, owner.commit(owner.record())),
            lambda: store.orphans(1),
            lambda: store.adoptable(QUERY),
            lambda: store.unadoptable(QUERY),
        ]
        if hasattr(store, "rows"):
            calls.append(lambda: store.rows(TaskFilter()))
        if hasattr(store, "delete"):
            calls.append(lambda: store.delete("t"))
        for call in calls:
            with pytest.raises(StoreUnavailable):
                await call()

    async def test_the_name_of_a_store_is_short_text(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            assert ":" in store.url
            assert "\n" not in store.url

    async def test_all_watchers_of_a_store_are_woken_by_a_release_and_by_an_inbox_item(
        self, tmp_path: Path
    ) -> None:
        async with self.opened(tmp_path) as store:
            owner = await Owner.create(store, "t")
            first, second = list[str](), list[str]()
            ends = [
                store.watch(lambda changes, mails=mails: mails.extend(["", *changes.mail]))
                for mails in (first, second)
            ]
            await asyncio.sleep(0.2)  # a store may wake a new watcher once
            first.clear()
            second.clear()
            await owner.release()
            assert first
            assert second
            first.clear()
            second.clear()
            await store.post("t", item("i"))
            assert "t" in first
            assert "t" in second
            ends[0]()
            first.clear()
            second.clear()
            await store.post("t", item("j"))
            assert not first
            assert "t" in second
            ends[1]()

    async def test_a_watch_can_be_ended_twice(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            end = store.watch(lambda _: None)
            end()
            end()
