"""Conformance of a `JournalStore`: drivers cannot claim tasks in a journal format that they do not know."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from treadle.core import events
from treadle.errors import TaskBusy, TaskTooNew
from treadle.ports import TaskFilter
from treadle.testing.conformance.owner import Owner, dump, item
from treadle.testing.conformance.store_subject import StoreSubject

NEWER = events.JOURNAL_FORMAT + 1


class FormatConformance(StoreSubject):
    """A row has the highest journal format that a driver needs; an older version may not claim the task."""

    async def test_the_row_keeps_the_highest_format_of_its_commits(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            owner = await Owner.create(store, "t")
            assert (await store.row("t")).format == 1
            for format_, expected in ((NEWER, NEWER), (1, NEWER), (NEWER + 1, NEWER + 1), (NEWER, NEWER + 1)):
                await owner.write(format=format_)
                assert (await store.row("t")).format == expected
                assert [row.format for row in await store.rows(TaskFilter())] == [expected]

    async def test_a_task_that_needs_a_newer_format_is_not_claimed_and_stays_as_it_is(
        self, tmp_path: Path
    ) -> None:
        async with self.opened(tmp_path) as store:
            owner = await Owner.create(store, "t")
            await owner.write(2, format=NEWER)
            with pytest.raises(TaskBusy):
                await store.claim("t")
            await owner.send(release=True, due_at=1)
            before = await dump(store)
            with pytest.raises(
                TaskTooNew, match=f"format {NEWER}; this version knows format {NEWER - 1}"
            ) as no:
                await store.claim("t")
            assert (no.value.task_id, no.value.needs, no.value.knows) == ("t", NEWER, NEWER - 1)
            assert await dump(store) == before
            assert [(row.task_id, row.format) for row in await store.orphans(10)] == [("t", NEWER)]
            assert await store.post("t", item("i"))
            assert [waiting.item_id for waiting in await store.inbox("t")] == ["i"]

    async def test_a_driver_that_knows_the_format_claims_the_task(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            owner = await Owner.create(store, "t")
            await owner.write(format=NEWER, release=True)
            with pytest.MonkeyPatch.context() as newer:
                newer.setattr(events, "JOURNAL_FORMAT", NEWER)
                assert (await Owner.claim(store, "t")).epoch == 2

    async def test_a_refused_commit_leaves_the_format_as_it_was(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            owner = await Owner.create(store, "t")
            late = replace(owner, seq=5)
            with pytest.raises(Exception, match="does not follow"):
                await late.write(format=NEWER)
            await owner.release()
            assert (await store.row("t")).format == 1
            assert (await Owner.claim(store, "t")).epoch == 2

    async def test_a_commit_that_only_releases_the_task_may_raise_the_format(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            owner = await Owner.create(store, "t")
            await owner.send(release=True, format=NEWER)
            assert (await store.row("t")).format == NEWER

    async def test_a_fork_and_a_restored_task_need_what_the_task_needs(self, tmp_path: Path) -> None:
        (tmp_path / "one").mkdir()
        (tmp_path / "two").mkdir()
        async with self.opened(tmp_path / "one") as first, self.opened(tmp_path / "two") as second:
            owner = await Owner.create(first, "t")
            await owner.write(format=NEWER, release=True)
            fork = await Owner.create(first, "f", base="t", base_seq=1)
            await fork.release()
            assert (await first.row("f")).format == NEWER
            for name in ("t", "f"):
                row = await first.row(name)
                await second.restore(row, await first.read(name, after=row.base_seq))
                assert (await second.row(name)).format == NEWER
                with pytest.raises(TaskTooNew):
                    await second.claim(name)

    async def test_an_owner_may_leave_the_inbox_to_the_next(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            owner = await Owner.create(store, "t")
            await store.post("t", item("i"))
            assert not (await owner.send(release=True)).released
            assert (await owner.send(release=True, leave=True)).released
            row = await store.row("t")
            assert row.driver is None
            assert [waiting.item_id for waiting in await store.inbox("t")] == ["i"]
            assert [row.task_id for row in await store.orphans(10)] == ["t"]
