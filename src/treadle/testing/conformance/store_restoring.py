"""How every `JournalStore` takes in tasks and threads that stood in another store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from treadle.errors import Fenced, JournalCorrupt, TaskNotFound
from treadle.ports import JournalStore, Record, TaskExists, TaskFilter, TaskRow, ThreadMember, ThreadMoved
from treadle.testing.conformance.owner import Owner, add, dump, item, remove
from treadle.testing.conformance.store_subject import StoreSubject


class RestoringConformance(StoreSubject):
    """A task restored from what a store shows of it is the same task."""

    async def test_a_restored_task_is_the_task_it_was(self, tmp_path: Path) -> None:
        (tmp_path / "one").mkdir()
        (tmp_path / "two").mkdir()
        async with self.opened(tmp_path / "one") as one, self.opened(tmp_path / "two") as two:
            owner = await Owner.create(one, "t", agent="bot", labels={"a": "ü"}, parent="p")
            await owner.write(3, blobs={"b": b"1" * 9_000}, state="running", release=True)
            owner = await Owner.claim(one, "t")
            await owner.write(2, release=True, thread=add(0), wanted=1_800_000_000_000_000)
            await one.post("t", item("i", text="a"))
            fork = await Owner.create(one, "f", base="t", base_seq=2, thread_id="other")
            await fork.write(2, release=True)
            for name in ("t", "f"):
                row = await one.row(name)
                own = await one.read(name, after=row.base_seq)
                await two.restore(row, own, await one.inbox(name))
            await two.restore_thread("talk", 1, [ThreadMember(1, "t", 6)])
            assert await dump(two, ["talk"]) == await dump(one, ["talk"])
            assert await two.post("t", item("i")) is False
            for name, head in (("t", 6), ("f", 4)):
                taken_up = await Owner.claim(two, name)
                assert (taken_up.seq, taken_up.epoch) == (head, (await one.row(name)).epoch + 1)
                await taken_up.write()

    async def test_an_existing_task_is_not_overwritten_by_a_restored_one(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            owner = await Owner.create(store, "t")
            await owner.release()
            before = await dump(store)
            with pytest.raises(TaskExists):
                await store.restore(await store.row("t"), await store.read("t"))
            assert await dump(store) == before

    async def test_records_that_fail_half_way_leave_nothing_behind(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            row, records = await self._task(store, "t")
            await store.delete("t")

            class Torn:
                def __iter__(self) -> Iterator[Record]:
                    yield from records[:2]
                    raise JournalCorrupt("line 7: not what it was", task_id="t", seq=3)

            with pytest.raises(JournalCorrupt, match="line 7"):
                await store.restore(row, Torn(), [item("i")])
            assert await store.rows(TaskFilter()) == []
            with pytest.raises(TaskNotFound):
                await store.read("t")
            await store.restore(row, records)
            assert await store.read("t") == records

    async def test_a_fork_is_restored_only_where_its_base_is(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            row, _ = await self._task(store, "t")
            fork = replace(row, task_id="f", base="t", base_seq=99)
            with pytest.raises(Fenced):
                await store.restore(fork, [])
            with pytest.raises(TaskNotFound, match="missing"):
                await store.restore(replace(fork, base="missing", base_seq=1), [])
            assert [row.task_id for row in await store.rows(TaskFilter())] == ["t"]

    async def test_a_deleted_task_that_forks_need_is_restored_as_deleted(self, tmp_path: Path) -> None:
        (tmp_path / "one").mkdir()
        (tmp_path / "two").mkdir()
        async with self.opened(tmp_path / "one") as one, self.opened(tmp_path / "two") as two:
            await self._task(one, "t")
            await (await Owner.create(one, "f", base="t", base_seq=2)).write(release=True)
            assert (await one.row("t", deleted=True)).deleted is False
            await one.delete("t")
            with pytest.raises(TaskNotFound):
                await one.row("missing", deleted=True)
            row = await one.row("t", deleted=True)
            assert (row.deleted, row.mark) == (True, None)
            await two.restore(row, await one.read("t"))
            fork = await one.row("f")
            await two.restore(fork, await one.read("f", after=fork.base_seq))
            assert await dump(two) == await dump(one)
            with pytest.raises(TaskNotFound):
                await two.row("t")
            await two.delete("f")
            with pytest.raises(TaskNotFound):
                await two.row("t", deleted=True)

    async def test_a_restored_task_that_ends_with_another_record_than_its_row_says_is_not_claimed(
        self, tmp_path: Path
    ) -> None:
        async with self.opened(tmp_path) as store:
            row, records = await self._task(store, "t")
            assert row.mark is not None
            other = replace(row, task_id="u", mark=replace(row.mark, digest=b"another"))
            await store.restore(other, records)
            with pytest.raises(JournalCorrupt, match="was replaced"):
                await store.claim("u")

    async def test_a_restored_summary_covers_what_it_covered(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            for name in ("t", "s"):
                await self._task(store, name)
            members = [ThreadMember(1, "t", 6), ThreadMember(2, "s", 6, covers=1)]
            await store.restore_thread("talk", 2, members)
            assert await store.thread("talk") == (2, members)
            assert [(row.version, row.members) for row in await store.threads(10)] == [(2, 1)]

    async def test_a_restored_thread_has_its_whole_history(self, tmp_path: Path) -> None:
        (tmp_path / "one").mkdir()
        (tmp_path / "two").mkdir()
        async with self.opened(tmp_path / "one") as one, self.opened(tmp_path / "two") as two:
            first, second = await Owner.create(one, "t"), await Owner.create(one, "u")
            await first.write(thread=add(0), release=True)
            await second.write(thread=add(1))
            await second.write(thread=remove(), release=True)
            members = [ThreadMember(1, "t", 2), ThreadMember(2, "u", 2, gone=3)]
            with pytest.raises(TaskNotFound):
                await two.restore_thread("talk", 3, members)
            assert await two.thread("talk") == (0, [])
            for name in ("t", "u"):
                await two.restore(await one.row(name), await one.read(name))
            await two.restore_thread("talk", 3, members)
            assert await dump(two, ["talk"]) == await dump(one, ["talk"])
            with pytest.raises(ThreadMoved):
                await two.restore_thread("talk", 3, members)

    async def _task(self, store: JournalStore, name: str) -> tuple[TaskRow, list[Record]]:
        owner = await Owner.create(store, name)
        await owner.write(2)
        await owner.write(3, release=True)
        return await store.row(name), await store.read(name)
