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
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from treadle.errors import AlreadyFinalized, Fenced, StoreUnavailable, TaskBusy, TaskNotFound
from treadle.ports import (
    Commit,
    Committed,
    InboxWaiting,
    JournalStore,
    Record,
    TaskExists,
    TaskFilter,
    ThreadChange,
    ThreadMember,
    ThreadMoved,
)
from treadle.testing.conformance.owner import Owner, dump, item, new_task, send, until


def add(expected: int, thread: str = "talk") -> ThreadChange:
    """Build a change that puts the task into a thread."""
    return ThreadChange("add", thread, expected)


def remove(thread: str = "talk") -> ThreadChange:
    """Build a change that takes the task out of a thread."""
    return ThreadChange("remove", thread)


def spans(records: list[Record]) -> list[tuple[int, int, int | None]]:
    """First and last event of each record, and where a fork cuts it."""
    return [(r.seq - r.count + 1, r.seq, r.upto) for r in records]


@pytest.mark.anyio
class StoreConformance:
    """The contract of `JournalStore`, one rule a test. Inherit, and say how to `make` a store."""

    def make(self, place: Path) -> JournalStore:
        """Return a store, not opened yet, whose data is in `place`; for the same place the same data."""
        raise NotImplementedError

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    @asynccontextmanager
    async def opened(self, place: Path) -> AsyncGenerator[JournalStore]:
        """Open a store for the length of a block."""
        store = self.make(place)
        await store.open()
        try:
            yield store
        finally:
            await store.close()

    # -------------------------------------------------------------------------------- append and read

    async def test_records_come_back_as_they_were_written_and_in_order(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            owner = await Owner.create(store, "t")
            written = [owner.record(3, b"\x00\xff odd bytes")]
            await owner.send(written[0])
            written.append(owner.record(1, b"", {"one": b"1" * 9_000, "two": b""}))
            await owner.send(written[1])
            assert (await store.read("t"))[1:] == written

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
            for _ in range(2_500):
                record = owner.record()
                sent.append(send(store, owner.commit(record)))
                owner.seq, owner.digest = record.seq, record.digest
            await asyncio.gather(*sent)
            assert [r.seq for r in await store.read("t")] == list(range(1, 2_502))
            assert [r.seq for r in await store.read("t", after=499, upto=1_500)] == list(range(500, 1_501))

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

    async def test_a_row_tells_what_the_task_was_created_with_and_what_changed(self, tmp_path: Path) -> None:
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
            done = await owner.write(create=new_task("t"), state="interrupted", release=True)
            assert done == Committed(released=True)
            row = await store.row("t")
            assert (row.state, row.driver, row.head) == ("interrupted", None, 1)

    async def test_an_unknown_task_is_said_to_be_unknown(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            for ask in (store.row, store.read, store.claim, store.inbox, store.delete):
                with pytest.raises(TaskNotFound, match="nobody"):
                    await ask("nobody")
            with pytest.raises(TaskNotFound, match="nobody"):
                await store.post("nobody", item("i"))
            with pytest.raises(Fenced, match="nobody"):
                await send(store, Commit("nobody", 1, state="running"))

    # ----------------------------------------------------------------------------- ownership and fencing

    async def test_a_claim_raises_the_epoch_and_tells_where_the_journal_ends(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            owner = await Owner.create(store, "t")
            await owner.write(4)
            await owner.release()
            claim = await store.claim("t")
            assert (claim.epoch, claim.head, claim.digest) == (2, 5, owner.digest)
            assert (await store.row("t")).epoch == 2

    async def test_a_task_that_is_owned_cannot_be_claimed(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            await Owner.create(store, "t")
            with pytest.raises(TaskBusy) as refused:
                await store.claim("t")
            assert refused.value.task_id == "t"
            assert (await store.row("t")).epoch == 1

    async def test_of_many_claims_at_once_one_succeeds(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            await (await Owner.create(store, "t")).release()
            claims = await asyncio.gather(*(store.claim("t") for _ in range(20)), return_exceptions=True)
            assert sorted(type(c).__name__ for c in claims) == ["Claim", *["TaskBusy"] * 19]

    async def test_a_cancelled_claim_leaves_no_owner_behind(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            await (await Owner.create(store, "t")).release()
            claiming = asyncio.ensure_future(store.claim("t"))
            await asyncio.sleep(0)
            claiming.cancel()
            ended = (await asyncio.gather(claiming, return_exceptions=True))[0]
            if isinstance(ended, asyncio.CancelledError):
                await until(lambda: self.is_free(store, "t"))
                await store.claim("t")

    async def is_free(self, store: JournalStore, task_id: str) -> bool:
        """Whether nobody owns a task."""
        return (await store.row(task_id)).driver is None

    async def test_an_earlier_owner_is_fenced(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            stale = await Owner.create(store, "t")
            await stale.release()
            owner = await Owner.claim(store, "t")
            for commit in (
                stale.commit(stale.record()),
                stale.commit(state="failed"),
                stale.commit(release=True),
            ):
                with pytest.raises(Fenced):
                    await send(store, commit)
            await owner.write()
            assert [r.epoch for r in await store.read("t")] == [1, 2]

    async def test_an_epoch_that_was_never_given_is_fenced(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            owner = await Owner.create(store, "t")
            with pytest.raises(Fenced):
                await replace(owner, epoch=2).write()

    async def test_a_record_must_follow_the_last_one(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            owner = await Owner.create(store, "t")
            await owner.write(3)
            before = await dump(store)
            for seq in (0, 1, 2, 3, 5, 99):  # the next one has to begin behind event 4
                with pytest.raises(Fenced):
                    await replace(owner, seq=seq).write(2)
            with pytest.raises(Fenced):
                await send(store, owner.commit(replace(owner.record(), seq=4, count=0)))
            assert await dump(store) == before

    async def test_the_same_commit_again_is_accepted_without_a_change(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            owner = Owner(store, "t")
            await store_create(store, owner)
            await store.post("t", item("i"))
            lost = owner.commit(
                owner.record(2, blobs={"b": b"x"}),
                state="completed",
                release=True,
                taken=("i",),
                thread=add(0),
            )
            assert await send(store, lost) == Committed(released=True)
            before = await dump(store, ["talk"])
            assert await send(store, lost) == Committed(released=True)
            assert await dump(store, ["talk"]) == before

    async def test_the_same_creation_again_is_accepted_and_another_is_not(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            owner = Owner(store, "t")
            lost = owner.commit(owner.record(), create=new_task("t"))
            assert await send(store, lost) == await send(store, lost) == Committed()
            with pytest.raises(TaskExists):
                await send(store, owner.commit(owner.record(1, b"other words"), create=new_task("t")))
            with pytest.raises(TaskExists):
                await send(store, owner.commit(create=new_task("t")))

    async def test_another_record_in_the_same_place_is_refused(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            owner = await Owner.create(store, "t")
            twin = replace(owner)
            await owner.write(2, b"first")
            with pytest.raises(Fenced):
                await twin.write(2, b"second")
            assert (await store.read("t"))[1].data == b"first"

    async def test_release_is_refused_while_the_inbox_holds_unread_items(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            owner = await Owner.create(store, "t")
            await store.post("t", item("i"))
            assert await owner.write(state="waiting", release=True) == Committed(released=False)
            row = await store.row("t")
            assert row.state == "waiting"
            assert row.driver is not None
            assert await owner.write(release=True, taken=("i",)) == Committed(released=True)
            assert (await store.row("t")).driver is None

    # --------------------------------------------------------------------------- refusals and groups

    async def test_a_refused_commit_has_written_nothing(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            owner, other = await Owner.create(store, "t"), await Owner.create(store, "u")
            await store.post("t", item("i"))
            await other.write(thread=add(0), release=True)
            before = await dump(store, ["talk", "new"])
            everything: dict[str, Any] = {"state": "completed", "release": True}
            new = new_task("v", base="nobody", base_seq=1)
            cases: list[tuple[type[Exception], Commit]] = [
                (Fenced, replace(owner, epoch=7).commit(_with_blob(owner), taken=("i",), **everything)),
                (Fenced, owner.commit(_with_blob(replace(owner, seq=9)), taken=("i",), **everything)),
                (InboxWaiting, owner.commit(_with_blob(owner), seal=True, thread=add(1), **everything)),
                (ThreadMoved, owner.commit(_with_blob(owner), taken=("i",), thread=add(0), **everything)),
                (
                    AlreadyFinalized,
                    owner.commit(_with_blob(owner), taken=("i",), thread=remove(), **everything),
                ),
                (AlreadyFinalized, owner.commit(_with_blob(owner), thread=remove("new"), **everything)),
                (TaskExists, owner.commit(_with_blob(owner), create=new_task("t"), taken=("i",))),
                (TaskNotFound, Commit("v", 1, _with_blob(Owner(store, "v", seq=1)), create=new)),
                (Fenced, Commit("v", 1, create=replace(new, base="u", base_seq=99))),
                (Fenced, Commit("v", 1, _with_blob(Owner(store, "v", seq=4)), create=new_task("v"))),
            ]
            for refusal, commit in cases:
                with pytest.raises(refusal):
                    await send(store, commit)
                assert await dump(store, ["talk", "new"]) == before
            # Blobs are shared by digest: had a refused commit stored one, its bytes would come back here.
            await owner.write(blobs={"b": b"mine"})
            assert (await store.read("t"))[-1].blobs == {"b": b"mine"}

    async def test_a_refused_commit_harms_no_other_of_its_group(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            owners = await asyncio.gather(*(Owner.create(store, f"t{n:03}") for n in range(303)))
            await owners[50].write(thread=add(0))
            await store.post("t200", item("i"))
            commits = [owner.commit(owner.record()) for owner in owners]
            commits[10] = replace(owners[10], epoch=0).commit(replace(owners[10], epoch=0).record())
            commits[100] = owners[100].commit(owners[100].record(), thread=add(0))
            commits[200] = owners[200].commit(owners[200].record(), seal=True)
            results = await asyncio.gather(*(send(store, c) for c in commits), return_exceptions=True)
            refused = {n: type(r) for n, r in enumerate(results) if r != Committed()}
            assert refused == {10: Fenced, 100: ThreadMoved, 200: InboxWaiting}
            heads = {row.task_id: row.head for row in await store.rows(TaskFilter(limit=400))}
            assert {key for key, head in heads.items() if head == 1} == {"t010", "t100", "t200"}
            assert len(heads) == 303

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

    # ------------------------------------------------------------------------------------------ inbox

    async def test_an_item_sent_twice_is_there_once_also_after_it_was_taken(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            owner = await Owner.create(store, "t")
            assert await store.post("t", item("i", text="a")) is True
            assert await store.post("t", item("i", text="b")) is False
            assert await store.inbox("t") == [item("i", text="a")]
            await owner.write(taken=("i",))
            assert await store.post("t", item("i")) is False
            assert await store.inbox("t") == []

    async def test_items_wait_in_the_order_of_their_arrival_until_they_are_taken(
        self, tmp_path: Path
    ) -> None:
        async with self.opened(tmp_path) as store:
            owner, other = await Owner.create(store, "t"), await Owner.create(store, "u")
            for name in ("z", "a", "m"):
                await store.post("t", item(name))
                await store.post("u", item(name))
            await owner.write(taken=("a", "unknown"))
            assert [i.item_id for i in await store.inbox("t")] == ["z", "m"]
            assert [i.item_id for i in await store.inbox("u")] == ["z", "a", "m"]
            with pytest.raises(InboxWaiting):
                await owner.write(seal=True, taken=("z",))
            await owner.write(seal=True, taken=("z", "m"))
            assert await store.inbox("t") == []
            await other.release()
            assert (await store.row("u")).driver is not None

    async def test_anyone_may_post_to_a_task_nobody_owns(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            await (await Owner.create(store, "t")).release()
            data: Any = {"text": "ü\n", "n": [1, 2.5, None, {"x": True}]}
            assert await store.post("t", item("i", **data))
            assert (await store.inbox("t"))[0].data == data

    # ---------------------------------------------------------------------------------------- threads

    async def test_a_thread_grows_by_reference_and_only_from_the_expected_version(
        self, tmp_path: Path
    ) -> None:
        async with self.opened(tmp_path) as store:
            assert await store.thread("talk") == (0, [])
            one, two = await Owner.create(store, "t"), await Owner.create(store, "u")
            await one.write(3, thread=add(0))
            with pytest.raises(ThreadMoved) as moved:
                await two.write(thread=add(0))
            assert moved.value.version == 1
            await two.write(thread=add(1))
            members = [ThreadMember(1, "t", 4), ThreadMember(2, "u", 2)]
            assert await store.thread("talk") == (2, members)
            assert await store.thread("talk", version=1) == (1, members[:1])
            assert await store.thread("talk", version=0) == (0, [])

    async def test_only_the_newest_member_can_be_taken_out_and_versions_only_grow(
        self, tmp_path: Path
    ) -> None:
        async with self.opened(tmp_path) as store:
            one, two = await Owner.create(store, "t"), await Owner.create(store, "u")
            await one.write(thread=add(0))
            await two.write(thread=add(1))
            with pytest.raises(AlreadyFinalized) as refused:
                await one.write(thread=remove())
            assert refused.value.task_id == "t"
            await two.write(thread=remove())
            assert await store.thread("talk") == (3, [ThreadMember(1, "t", 2)])
            assert await store.thread("talk", version=2) == (
                2,
                [ThreadMember(1, "t", 2), ThreadMember(2, "u", 2)],
            )
            await one.write(thread=remove())
            await one.write(thread=add(4))
            assert await store.thread("talk") == (5, [ThreadMember(5, "t", 4)])
            with pytest.raises(AlreadyFinalized):
                await two.write(thread=remove())

    async def test_a_thread_change_without_a_record_refers_to_the_last_event(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            owner = await Owner.create(store, "t")
            await owner.write(6)
            await owner.send(thread=add(0))
            assert await store.thread("talk") == (1, [ThreadMember(1, "t", 7)])

    # ------------------------------------------------------------------------------------------ forks

    async def test_a_fork_shares_the_events_before_its_point(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            base = await Owner.create(store, "t")
            await base.write(4)
            fork = await Owner.create(store, "f", base="t", base_seq=3)
            row = await store.row("f")
            assert (row.base, row.base_seq, row.head) == ("t", 3, 3)
            assert spans(await store.read("f")) == [(1, 1, None), (2, 5, 3)]
            await fork.release()
            claim = await store.claim("f")
            assert (claim.head, claim.digest) == (3, base.digest)
            fork = Owner.of(store, "f", claim)
            await fork.write(2)
            await base.write()
            assert spans(await store.read("f")) == [(1, 1, None), (2, 5, 3), (4, 5, None)]
            assert spans(await store.read("f", after=3)) == [(4, 5, None)]
            assert spans(await store.read("f", after=1, upto=2)) == [(2, 5, 3)]
            assert spans(await store.read("t")) == [(1, 1, None), (2, 5, None), (6, 6, None)]

    async def test_a_chain_of_forks_is_read_through(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            base = await Owner.create(store, "a")
            await base.write(9, blobs={"x": b"shared"})
            await (await Owner.create(store, "b", base="a", base_seq=5)).write(4)
            await (await Owner.create(store, "c", base="b", base_seq=7)).write(2)
            await Owner.create(store, "d", base="c", base_seq=3)
            assert spans(await store.read("c")) == [(1, 1, None), (2, 10, 5), (6, 9, 7), (8, 9, None)]
            assert spans(await store.read("c", after=5)) == [(6, 9, 7), (8, 9, None)]
            assert spans(await store.read("d")) == [(1, 1, None), (2, 10, 3)]
            assert (await store.read("d"))[1].blobs == {"x": b"shared"}
            await send(store, Commit("d", 1, release=True))
            assert (await store.claim("d")).digest == base.digest

    async def test_a_fork_may_begin_with_a_record_of_its_own_or_share_nothing(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            await Owner.create(store, "t")
            fork = Owner(store, "f", seq=1)
            await fork.write(2, create=new_task("f", base="t", base_seq=1), release=True)
            assert spans(await store.read("f")) == [(1, 1, None), (2, 3, None)]
            await (await Owner.create(store, "g", base="t", base_seq=0)).release()
            assert await store.read("g") == []
            assert await store.claim("g") == replace(await store.claim("f"), head=0, digest=b"")

    # ----------------------------------------------------------------------------------------- delete

    async def test_delete_removes_a_task_and_its_children(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            for name, parent in (("t", None), ("child", "t"), ("grandchild", "child"), ("other", None)):
                owner = await Owner.create(store, name, parent=parent)
                await store.post(name, item("i"))
                await owner.write(taken=("i",), release=True)
            await store.delete("t")
            assert [row.task_id for row in await store.rows(TaskFilter())] == ["other"]
            for name in ("t", "child", "grandchild"):
                for ask in (store.row, store.claim, store.inbox, store.read, store.delete):
                    with pytest.raises(TaskNotFound):
                        await ask(name)
                with pytest.raises(TaskNotFound):
                    await store.post(name, item("j"))
            await Owner.create(store, "t")
            assert (await store.row("t")).head == 1
            assert await store.post("t", item("i")) is True

    async def test_delete_is_refused_while_the_task_or_a_child_is_driven(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            parent = await Owner.create(store, "t")
            child = await Owner.create(store, "child", parent="t")
            with pytest.raises(TaskBusy) as refused:
                await store.delete("t")
            await parent.release()
            with pytest.raises(TaskBusy) as refused:
                await store.delete("t")
            assert refused.value.task_id == "child"
            assert len(await store.rows(TaskFilter())) == 2
            await child.release()
            await store.delete("t")
            assert await store.rows(TaskFilter()) == []

    async def test_a_deleted_tasks_owner_is_fenced(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            owner = await Owner.create(store, "t")
            await owner.release()
            await store.delete("t")
            with pytest.raises(Fenced):
                await owner.write()

    async def test_what_forks_share_stays_until_the_last_fork_is_deleted(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            base = await Owner.create(store, "t")
            await base.write(4, blobs={"kept": b"1"})
            await base.write(blobs={"gone": b"1"}, release=True)
            for name, at in (("f", 3), ("g", 1)):
                await (await Owner.create(store, name, base="t", base_seq=at)).release()
            shared = await store.read("f")
            await store.delete("t")
            assert await store.read("f") == shared
            assert [row.task_id for row in await store.rows(TaskFilter())] == ["g", "f"]
            for ask in (store.row, store.claim, store.delete):
                with pytest.raises(TaskNotFound):
                    await ask("t")
            with pytest.raises(TaskExists):
                await Owner.create(store, "t")
            with pytest.raises(TaskNotFound):
                await Owner.create(store, "h", base="t", base_seq=1)
            assert spans(await store.read("t")) == [(1, 1, None), (2, 5, None)]
            assert await self.bytes_of_blob(store, "gone") == b"fresh"
            await store.delete("f")
            assert await self.bytes_of_blob(store, "kept") == b"fresh"
            assert spans(await store.read("t")) == [(1, 1, None)]
            await store.delete("g")
            with pytest.raises(TaskNotFound):
                await store.read("t")

    async def test_a_chain_of_forks_deleted_from_the_root_goes_with_its_tip(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            for name, base in (("a", None), ("b", "a"), ("c", "b")):
                owner = await Owner.create(store, name, base=base, base_seq=0 if base is None else 2)
                await owner.write(2, release=True)
            shown = await store.read("c")
            await store.delete("a")
            await store.delete("b")
            assert await store.read("c") == shown
            await store.delete("c")
            for name in "abc":
                with pytest.raises(TaskNotFound):
                    await store.read(name)

    async def test_what_a_thread_refers_to_stays_while_the_thread_has_a_task(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            one = await Owner.create(store, "t", thread_id="talk")
            await one.write(thread=add(0))
            await one.write(blobs={"later": b"1"}, release=True)
            two = await Owner.create(store, "u", thread_id="talk")
            await two.write(thread=add(1), release=True)
            await store.delete("t")
            with pytest.raises(TaskNotFound):
                await store.row("t")
            assert await store.thread("talk") == (2, [ThreadMember(1, "t", 2), ThreadMember(2, "u", 2)])
            assert spans(await store.read("t", upto=2)) == [(1, 1, None), (2, 2, None)]
            assert await self.bytes_of_blob(store, "later") == b"fresh"
            await store.delete("u")
            assert await store.thread("talk") == (0, [])
            for name in ("t", "u"):
                with pytest.raises(TaskNotFound):
                    await store.read(name)

    async def test_a_member_that_was_taken_out_of_its_thread_does_not_stay(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            one = await Owner.create(store, "t", thread_id="talk")
            await one.write(thread=add(0))
            two = await Owner.create(store, "u", thread_id="talk")
            await two.write(thread=add(1))
            await two.write(thread=remove(), release=True)
            await store.delete("u")
            with pytest.raises(TaskNotFound):
                await store.read("u")
            assert await store.thread("talk") == (3, [ThreadMember(1, "t", 2)])
            assert await store.thread("talk", version=2) == (2, [ThreadMember(1, "t", 2)])

    async def test_a_blob_is_stored_once_and_freed_with_its_last_record(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            one, two = await Owner.create(store, "t"), await Owner.create(store, "u")
            await one.write(blobs={"b": b"first"}, release=True)
            await two.write(blobs={"b": b"never stored, for the digest is known", "c": b"x"})
            await two.write(blobs={"b": b"nor this"}, release=True)
            assert [r.blobs for r in await store.read("u")] == [
                {},
                {"b": b"first", "c": b"x"},
                {"b": b"first"},
            ]
            await store.delete("t")
            assert [r.blobs for r in await store.read("u")] == [
                {},
                {"b": b"first", "c": b"x"},
                {"b": b"first"},
            ]
            await store.delete("u")
            assert await self.bytes_of_blob(store, "b") == b"fresh"

    async def bytes_of_blob(self, store: JournalStore, digest: str) -> bytes:
        """What a store gives for a digest when it is offered `fresh` bytes: those, unless it still holds others."""
        probe = await Owner.create(store, "probe")
        await probe.write(blobs={digest: b"fresh"}, release=True)
        found = (await store.read("probe"))[-1].blobs[digest]
        await store.delete("probe")
        return found

    # ---------------------------------------------------------------------------------------- listing

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
                await owner.send(state="paused" if name in "bd" else "running")
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

    # --------------------------------------------------------------------------------- opening, closing

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
            end = store.watch(lambda: None)
            end()
            end()


async def store_create(store: JournalStore, owner: Owner) -> None:
    """Create the owner's task with one record."""
    await owner.write(create=new_task(owner.task_id))


def _with_blob(owner: Owner) -> Record:
    return owner.record(2, blobs={"b": b"of a refused commit"})
