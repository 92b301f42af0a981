"""Conformance of a `JournalStore`: import of tasks and threads from another store."""

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
    """A task restored from another store's data equals the original."""

    async def test_a_restored_task_is_the_task_it_was(self, tmp_path: Path) -> None:
        (tmp_path / "one").mkdir()
        (tmp_path / "two").mkdir()
        async with self.opened(tmp_path / "one") as first, self.opened(tmp_path / "two") as second:
            owner = await Owner.create(first, "t", agent="bot", labels={"a": "ü"}, parent="p")
            await owner.write(3, blobs={"b": b"1" * 9_000}, state="running", release=True)
            owner = await Owner.claim(first, "t")
            await owner.write(2, release=True, thread=add(0), due_at=1_800_000_000_000_000)
            await first.post("t", item("i", text="a"))
            fork = await Owner.create(first, "f", base="t", base_seq=2, thread_id="other")
            await fork.write(2, release=True)
            for name in ("t", "f"):
                row = await first.row(name)
                records = await first.read(name, after=row.base_seq)
                await second.restore(row, records, await first.inbox(name))
            await second.restore_thread("talk", 1, [ThreadMember(1, "t", 6)])
            assert await dump(second, ["talk"]) == await dump(first, ["talk"])
            assert await second.post("t", item("i")) is False
            for name, head in (("t", 6), ("f", 4)):
                adopted = await Owner.claim(second, name)
                assert (adopted.seq, adopted.epoch) == (head, (await first.row(name)).epoch + 1)
                await adopted.write()

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
        async with self.opened(tmp_path / "one") as first, self.opened(tmp_path / "two") as second:
            await self._task(first, "t")
            await (await Owner.create(first, "f", base="t", base_seq=2)).write(release=True)
            assert (await first.row("t", deleted=True)).deleted is False
            await first.delete("t")
            with pytest.raises(TaskNotFound):
                await first.row("missing", deleted=True)
            row = await first.row("t", deleted=True)
            assert (row.deleted, row.mark) == (True, None)
            await second.restore(row, await first.read("t"))
            fork = await first.row("f")
            await second.restore(fork, await first.read("f", after=fork.base_seq))
            assert await dump(second) == await dump(first)
            with pytest.raises(TaskNotFound):
                await second.row("t")
            await second.delete("f")
            with pytest.raises(TaskNotFound):
                await second.row("t", deleted=True)

    async def test_a_restored_task_that_ends_with_another_record_than_its_row_says_is_not_claimed(
        self, tmp_path: Path
    ) -> None:
        async with self.opened(tmp_path) as store:
            row, records = await self._task(store, "t")
            assert row.mark is not None
            broken = replace(row, task_id="u", mark=replace(row.mark, digest=b"another"))
            await store.restore(broken, records)
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
        async with self.opened(tmp_path / "one") as source, self.opened(tmp_path / "two") as target:
            first, second = await Owner.create(source, "t"), await Owner.create(source, "u")
            await first.write(thread=add(0), release=True)
            await second.write(thread=add(1))
            await second.write(thread=remove(), release=True)
            members = [ThreadMember(1, "t", 2), ThreadMember(2, "u", 2, gone=3)]
            with pytest.raises(TaskNotFound):
                await target.restore_thread("talk", 3, members)
            assert await target.thread("talk") == (0, [])
            for name in ("t", "u"):
                await target.restore(await source.row(name), await source.read(name))
            await target.restore_thread("talk", 3, members)
            assert await dump(target, ["talk"]) == await dump(source, ["talk"])
            with pytest.raises(ThreadMoved):
                await target.restore_thread("talk", 3, members)

    async def _task(self, store: JournalStore, name: str) -> tuple[TaskRow, list[Record]]:
        owner = await Owner.create(store, name)
        await owner.write(2)
        await owner.write(3, release=True)
        return await store.row(name), await store.read(name)
