"""Conformance of a `JournalStore`: the owner of a task, and the writes that the store refuses to others."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from treadle.errors import Fenced, TaskBusy
from treadle.ports import (
    Claim,
    Committed,
    InboxWaiting,
    JournalStore,
    TaskExists,
)
from treadle.testing.conformance.owner import (
    Owner,
    add,
    dump,
    item,
    new_task,
    send,
    until,
)
from treadle.testing.conformance.store_subject import StoreSubject


class OwnershipConformance(StoreSubject):
    """A task has one owner at a time; a claim ends the previous ownership, and a release the own one."""

    async def test_a_claim_raises_the_epoch_and_returns_the_end_of_the_journal(self, tmp_path: Path) -> None:
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

    async def test_a_cancelled_claim_leaves_the_time_of_adoption_as_it_was(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            for name in ("wanted", "rest"):
                await (await Owner.create(store, name)).send(release=True, due_at=int(name == "wanted"))
                claiming = asyncio.ensure_future(store.claim(name))
                await asyncio.sleep(0)
                claiming.cancel()
                ended = (await asyncio.gather(claiming, return_exceptions=True))[0]
                if isinstance(ended, Exception):  # the store failed: the owner is unknown
                    raise ended
                if isinstance(ended, Claim):  # the claim ended before the cancellation
                    await Owner.of(store, name, ended).send(release=True, due_at=ended.due_at)
                await until(lambda name=name: self.is_free(store, name))
            assert [row.task_id for row in await store.orphans(10)] == ["wanted"]

    async def is_free(self, store: JournalStore, task_id: str) -> bool:
        """Return whether a task has no owner."""
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

    async def test_an_unknown_epoch_is_fenced(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            owner = await Owner.create(store, "t")
            with pytest.raises(Fenced):
                await replace(owner, epoch=2).write()

    async def test_a_record_must_follow_the_last_one(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            owner = await Owner.create(store, "t")
            await owner.write(3)
            before = await dump(store)
            for seq in (0, 1, 2, 3, 5, 99):  # the next record must begin after event 4
                with pytest.raises(Fenced):
                    await replace(owner, seq=seq).write(2)
            with pytest.raises(Fenced):
                await send(store, owner.commit(replace(owner.record(), seq=4, count=0)))
            assert await dump(store) == before

    async def test_the_same_commit_again_is_accepted_without_a_change(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            owner = Owner(store, "t")
            await owner.write(create=new_task("t"))
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

    async def test_the_same_commit_again_is_accepted_after_the_task_has_another_owner(
        self, tmp_path: Path
    ) -> None:
        async with self.opened(tmp_path) as store:
            former = await Owner.create(store, "t")
            lost = former.commit(former.record(2), release=True)
            assert await send(store, lost) == Committed(released=True)
            owner = await Owner.claim(store, "t")
            await owner.write()
            before = await dump(store)
            assert await send(store, lost) == Committed(released=True)
            assert await dump(store) == before
            await owner.write()

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

    async def test_ownership_stays_while_the_inbox_holds_unread_items(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            owner = await Owner.create(store, "t")
            await store.post("t", item("i"))
            refused = owner.commit(owner.record(), state="waiting", release=True)
            for _ in ("sent", "sent again"):
                assert await send(store, refused) == Committed(released=False)
            assert refused.record is not None
            owner = replace(owner, seq=refused.record.seq, digest=refused.record.digest)
            row = await store.row("t")
            assert row.state == "waiting"
            assert row.driver is not None
            assert await owner.write(release=True, taken=("i",)) == Committed(released=True)
            assert (await store.row("t")).driver is None

    async def test_an_item_that_waits_to_be_written_holds_back_the_end_and_the_release_behind_it(
        self, tmp_path: Path
    ) -> None:
        async with self.opened(tmp_path) as store:
            owner, second = await Owner.create(store, "t"), await Owner.create(store, "u")
            # Calls that are queued while this one is written form one group.
            slow = send(store, second.commit(second.record(blobs={"b": bytes(self.many(4_000_000))})))
            posted = asyncio.ensure_future(store.post("t", item("i")))
            await asyncio.sleep(0)
            ending = send(store, owner.commit(owner.record(), state="completed", seal=True, release=True))
            released = send(store, owner.commit(state="waiting", release=True))
            with pytest.raises(InboxWaiting):
                await ending
            assert await released == Committed(released=False)
            assert await posted
            await slow
            assert [waiting.item_id for waiting in await store.inbox("t")] == ["i"]
            assert (await store.row("t")).driver is not None
