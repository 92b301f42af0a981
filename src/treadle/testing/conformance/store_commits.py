"""Conformance of a `JournalStore`: commits, their order, refusals and groups."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from treadle.errors import AlreadyFinalized, Fenced, JournalCorrupt, TaskNotFound
from treadle.ports import (
    Commit,
    Committed,
    InboxWaiting,
    JournalEnd,
    TaskExists,
    TaskFilter,
    ThreadMoved,
)
from treadle.testing.conformance.owner import (
    Owner,
    add,
    dump,
    item,
    new_task,
    remove,
    send,
    spans,
    with_blob,
)
from treadle.testing.conformance.store_subject import StoreSubject


class CommitConformance(StoreSubject):
    """The permitted commits; a refused commit leaves no trace."""

    # ---------------------------------------------------------------------------------------- append and read

    async def test_records_come_back_as_they_were_written_and_in_order(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            owner = await Owner.create(store, "t")
            records = [owner.record(3, b"\x00\xff odd bytes")]
            await owner.send(records[0])
            records.append(owner.record(1, b"", {"one": b"1" * 9_000, "two": b""}))
            await owner.send(records[1])
            assert (await store.read("t"))[1:] == records

    async def test_reading_a_range_gives_the_records_that_hold_its_events(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            owner = await Owner.create(store, "t")
            for _ in range(3):
                await owner.write(3)
            assert spans(await store.read("t")) == [(1, 1, None), (2, 4, None), (5, 7, None), (8, 10, None)]
            assert spans(await store.read("t", after=4)) == [(5, 7, None), (8, 10, None)]
            assert spans(await store.read("t", after=5)) == [(5, 7, None), (8, 10, None)]
            assert spans(await store.read("t", after=2, upto=5)) == [(2, 4, None), (5, 7, None)]
            assert spans(await store.read("t", upto=4)) == [(1, 1, None), (2, 4, None)]
            assert spans(await store.read("t", after=10)) == []
            assert spans(await store.read("t", upto=0)) == []

    async def test_a_long_journal_is_read_whole(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            owner = await Owner.create(store, "t")
            sent: list[asyncio.Future[Committed]] = []
            number = self.many(2_500)
            for _ in range(number):
                record = owner.record()
                sent.append(send(store, owner.commit(record)))
                owner.seq, owner.digest = record.seq, record.digest
            await asyncio.gather(*sent)
            assert [r.seq for r in await store.read("t")] == list(range(1, number + 2))
            part = await store.read("t", after=number // 5 - 1, upto=number * 3 // 5)
            assert [r.seq for r in part] == list(range(number // 5, number * 3 // 5 + 1))

    async def test_a_read_sees_what_was_queued_before_it(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            owner = Owner(store, "t")
            sent = send(store, owner.commit(owner.record(2), create=new_task("t")))
            assert (await store.row("t")).head == 2
            assert len(await store.read("t")) == 1
            await sent

    async def test_done_is_called_once_in_the_calling_loop_in_the_order_of_the_commits(
        self, tmp_path: Path
    ) -> None:
        async with self.opened(tmp_path) as store:
            owner = await Owner.create(store, "t")
            called: list[tuple[int, int]] = []
            for number in range(20):
                record = owner.record()
                store.commit(
                    owner.commit(record), lambda _, n=number: called.append((n, threading.get_ident()))
                )
                owner.seq, owner.digest = record.seq, record.digest
            assert (await store.row("t")).head == 21
            await asyncio.sleep(0)
            assert called == [(n, threading.get_ident()) for n in range(20)]

    async def test_a_row_shows_the_values_of_the_creation_and_later_changes(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            await Owner.create(store, "p")
            owner = await Owner.create(
                store, "t", agent="bot", thread_id="talk", created=5, parent="p", labels={"a": "1", "b": "ü"}
            )
            row = await store.row("t")
            assert (row.task_id, row.agent, row.thread_id, row.created, row.parent) == (
                "t",
                "bot",
                "talk",
                5,
                "p",
            )
            assert (row.labels, row.epoch, row.head, row.state) == ({"a": "1", "b": "ü"}, 1, 1, "created")
            assert (row.base, row.base_seq) == (None, 0)
            assert row.driver is not None
            assert row.driver.alive
            await owner.write(4, state="running")
            await owner.send(state="paused", release=True)
            row = await store.row("t")
            assert (row.state, row.head, row.driver) == ("paused", 5, None)

    async def test_a_task_can_be_created_in_a_state_and_released_at_once(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            owner = Owner(store, "t")
            committed = await owner.write(create=new_task("t"), state="interrupted", release=True)
            assert committed == Committed(released=True)
            row = await store.row("t")
            assert (row.state, row.driver, row.head) == ("interrupted", None, 1)

    async def test_an_unknown_task_is_not_found(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            for method in (store.row, store.read, store.claim, store.inbox, store.delete):
                with pytest.raises(TaskNotFound, match="missing"):
                    await method("missing")
            with pytest.raises(TaskNotFound, match="missing"):
                await store.post("missing", item("i"))
            with pytest.raises(Fenced, match="missing"):
                await send(store, Commit("missing", 1, state="running"))

    # ------------------------------------------------------------------------------------- the end of a journal

    async def test_a_row_holds_the_end_that_its_journal_had_when_it_was_last_written(
        self, tmp_path: Path
    ) -> None:
        async with self.opened(tmp_path) as store:
            owner = await Owner.create(store, "t")
            marks = [JournalEnd(1, owner.digest)]
            assert (await store.row("t")).mark == marks[0]
            await owner.write(2)
            assert (await store.row("t")).mark == marks[0]
            await owner.write(state="running")
            assert (await store.row("t")).mark == JournalEnd(4, owner.digest)
            await owner.write(3)
            await owner.release()
            assert (await store.row("t")).mark == JournalEnd(7, owner.digest)
            owner = await Owner.claim(store, "t")
            await owner.write(release=True)
            assert (await store.row("t")).mark == JournalEnd(8, owner.digest)
            assert [row.mark for row in await store.rows(TaskFilter())] == [JournalEnd(8, owner.digest)]

    async def test_a_row_is_not_written_for_a_release_that_is_refused(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            owner = await Owner.create(store, "t")
            first = JournalEnd(1, owner.digest)
            await store.post("t", item("i"))
            await owner.write(2, release=True)
            assert (await store.row("t")).mark == first
            with pytest.raises(InboxWaiting):
                await owner.write(state="completed", seal=True)
            assert (await store.row("t")).mark == first

    async def test_a_journal_that_lost_its_end_is_noticed_by_a_read_and_by_a_claim(
        self, tmp_path: Path
    ) -> None:
        async with self.opened(tmp_path) as store:
            for name in ("t", "u"):
                owner = await Owner.create(store, name)
                await owner.write(3)
                await owner.write(2, release=True)
            before = await store.read("t")
            if not await self.lose_last_record(store, tmp_path, "t"):
                pytest.skip("there is no way to make this store lose a record")
            for method in (
                store.read("t"),
                store.read("t", after=4),
                store.read("t", upto=5),
                store.claim("t"),
            ):
                with pytest.raises(JournalCorrupt, match="t: events 5 to 6") as noticed:
                    await method
                assert (noticed.value.task_id, noticed.value.seq) == ("t", 5)
            assert await store.read("t", upto=4) == before[:2]
            row = await store.row("t")
            assert (row.head, row.epoch, row.driver) == (4, 1, None)
            await (await Owner.claim(store, "u")).write()

    async def test_a_read_that_met_damage_hides_from_the_next_one_nothing_written_since(
        self, tmp_path: Path
    ) -> None:
        async with self.opened(tmp_path) as store:
            second = await Owner.create(store, "u")
            fork = await Owner.create(store, "f", base="u", base_seq=1)
            await fork.write(2, release=True)
            if not await self.lose_last_record(store, tmp_path, "f"):
                pytest.skip("there is no way to make this store lose a record")
            with pytest.raises(JournalCorrupt):
                await store.read("f")
            await second.write()
            assert spans(await store.read("u")) == [(1, 1, None), (2, 2, None)]

    async def test_what_a_driver_wrote_since_it_claimed_may_be_missing_after_a_crash(
        self, tmp_path: Path
    ) -> None:
        async with self.opened(tmp_path) as store:
            owner = await Owner.create(store, "t")
            await owner.write(3)
            await owner.write(2)
            if not await self.lose_last_record(store, tmp_path, "t"):
                pytest.skip("there is no way to make this store lose a record")
            assert spans(await store.read("t")) == [(1, 1, None), (2, 4, None)]

    async def test_forks_and_deleted_tasks_hold_only_their_own_ends(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            base = await Owner.create(store, "t")
            await base.write(4, release=True)
            fork = await Owner.create(store, "f", base="t", base_seq=3)
            assert (await store.row("f")).mark == JournalEnd(3, base.digest)
            await fork.write(2, release=True)
            assert (await store.row("f")).mark == JournalEnd(5, fork.digest)
            await store.delete("t")
            assert spans(await store.read("f")) == [(1, 1, None), (2, 5, 3), (4, 5, None)]
            await Owner.claim(store, "f")

    # ------------------------------------------------------------------------------------ refusals and groups

    async def test_a_refused_commit_has_written_nothing(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            owner, second = await Owner.create(store, "t"), await Owner.create(store, "u")
            await store.post("t", item("i"))
            await second.write(thread=add(0), release=True)
            before = await dump(store, ["talk", "new"])
            changes: dict[str, Any] = {"state": "completed", "release": True}
            new = new_task("v", base="missing", base_seq=1)
            cases: list[tuple[type[Exception], Commit]] = [
                (Fenced, replace(owner, epoch=7).commit(with_blob(owner), taken=("i",), **changes)),
                (Fenced, owner.commit(with_blob(replace(owner, seq=9)), taken=("i",), **changes)),
                (InboxWaiting, owner.commit(with_blob(owner), seal=True, thread=add(1), **changes)),
                (ThreadMoved, owner.commit(with_blob(owner), taken=("i",), thread=add(0), **changes)),
                (
                    AlreadyFinalized,
                    owner.commit(with_blob(owner), taken=("i",), thread=remove(), **changes),
                ),
                (AlreadyFinalized, owner.commit(with_blob(owner), thread=remove("new"), **changes)),
                (TaskExists, owner.commit(with_blob(owner), create=new_task("t"), taken=("i",))),
                (TaskNotFound, Commit("v", 1, with_blob(Owner(store, "v", seq=1)), create=new)),
                (Fenced, Commit("v", 1, create=replace(new, base="u", base_seq=99))),
                (Fenced, Commit("v", 1, with_blob(Owner(store, "v", seq=4)), create=new_task("v"))),
            ]
            for refusal, commit in cases:
                with pytest.raises(refusal):
                    await send(store, commit)
                assert await dump(store, ["talk", "new"]) == before
            # Blobs are shared by digest. If a refused commit had stored one, its bytes would appear here.
            await owner.write(blobs={"b": b"mine"})
            assert (await store.read("t"))[-1].blobs == {"b": b"mine"}

    async def test_a_refused_commit_harms_no_other_of_its_group(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            number = self.many(300)
            owners = await asyncio.gather(*(Owner.create(store, f"t{n:03}") for n in range(number)))
            fenced, moved, waiting = number // 30, number // 3, number * 2 // 3
            await owners[number // 6].write(thread=add(0))
            await store.post(f"t{waiting:03}", item("i"))
            commits = [owner.commit(owner.record()) for owner in owners]
            stale = replace(owners[fenced], epoch=0)
            commits[fenced] = stale.commit(stale.record())
            commits[moved] = owners[moved].commit(owners[moved].record(), thread=add(0))
            commits[waiting] = owners[waiting].commit(owners[waiting].record(), seal=True)
            results = await asyncio.gather(*(send(store, c) for c in commits), return_exceptions=True)
            refused = {n: type(r) for n, r in enumerate(results) if r != Committed()}
            assert refused == {fenced: Fenced, moved: ThreadMoved, waiting: InboxWaiting}
            heads = {row.task_id: row.head for row in await store.rows(TaskFilter(limit=400))}
            assert {key for key, head in heads.items() if head == 1} == {
                f"t{n:03}" for n in (fenced, moved, waiting)
            }
            assert len(heads) == number

    async def test_commits_from_several_loops_and_threads_all_arrive(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:

            async def drive(name: str) -> None:
                owner = await Owner.create(store, name)
                for _ in range(25):
                    await owner.write()
                assert len(await store.read(name)) == 26

            names = [f"t{n}" for n in range(4)]
            await asyncio.gather(*(asyncio.to_thread(asyncio.run, drive(name)) for name in names))
            assert {row.head for row in await store.rows(TaskFilter())} == {26}

    async def test_a_loop_that_closed_meanwhile_harms_no_other(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            owner = await Owner.create(store, "t")

            async def leave_at_once() -> None:
                for n in range(50):
                    store.commit(Commit(f"u{n}", 1, create=new_task(f"u{n}")), lambda _: None)

            leaving = asyncio.to_thread(asyncio.run, leave_at_once())
            await asyncio.gather(leaving, *(owner.write() for _ in range(1)))
            await owner.write()
            assert len(await store.rows(TaskFilter())) == 51
