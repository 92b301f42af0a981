"""Conformance of a `JournalStore`: the queue of a thread, which one running task holds at a time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from treadle.errors import TaskNotFound, ThreadBusy, ThreadNotFound
from treadle.ports import (
    Commit,
    JournalStore,
    OnBusyThread,
    QueuePosition,
    TaskExists,
    TaskFilter,
    ThreadMember,
    ThreadRow,
)
from treadle.testing.conformance.owner import Owner, add, item, last_of, new_task, send
from treadle.testing.conformance.store_subject import StoreSubject


async def create_in_queue(
    store: JournalStore, task_id: str, enter: OnBusyThread, thread: str = "talk"
) -> Any:
    """Create a task that requests its thread in the same commit; return its owner and its position."""
    owner = Owner(store, task_id)
    committed = await owner.write(create=new_task(task_id, thread_id=thread), enter=enter)
    return owner, committed.place


async def request_thread(owner: Owner, enter: OnBusyThread = "enqueue") -> QueuePosition:
    """Request the task's thread, perhaps again."""
    position = (await owner.send(enter=enter)).place
    assert position is not None
    return position


class TurnConformance(StoreSubject):
    """One task holds a thread, others wait for it in order, and the next one gets it at a release."""

    async def test_the_first_task_has_the_thread_and_later_ones_wait_in_the_order_of_arrival(
        self, tmp_path: Path
    ) -> None:
        async with self.opened(tmp_path) as store:
            first, position = await create_in_queue(store, "t", "enqueue")
            assert position == QueuePosition(True, 0)
            second, position = await create_in_queue(store, "u", "enqueue")
            third, waits_too = await create_in_queue(store, "v", "enqueue")
            assert (position.held, position.holders) == (False, ("t",))
            assert 0 < position.number < waits_too.number
            assert await request_thread(first) == QueuePosition(True, 0), "the holder keeps it"
            await first.write(thread=add(0))
            await first.release()
            assert await request_thread(third) == replace(waits_too, version=1, holders=()), (
                "it is not its turn"
            )
            assert await request_thread(second) == QueuePosition(True, 1)
            assert await request_thread(third) == replace(waits_too, version=1, holders=("u",))
            assert (await last_of(third.write(), second.release(), request_thread(third))).held

    async def test_one_of_many_tasks_that_ask_at_once_gets_the_thread(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            entered = await asyncio.gather(
                *(create_in_queue(store, f"t{n:02}", "enqueue") for n in range(20))
            )
            assert sum(position.held for _, position in entered) == 1
            waiting = sorted(entered, key=lambda pair: pair[1].number)
            for owner, _ in waiting:
                positions = await asyncio.gather(*(request_thread(owner) for owner, _ in waiting))
                assert [o.task_id for (o, _), p in zip(waiting, positions, strict=True) if p.held] == [
                    owner.task_id
                ]
                await owner.release()
                waiting = [pair for pair in waiting if pair[0] is not owner]

    async def test_a_task_that_rejects_a_busy_thread_is_refused_and_leaves_no_trace(
        self, tmp_path: Path
    ) -> None:
        async with self.opened(tmp_path) as store:
            first, position = await create_in_queue(store, "t", "reject")
            assert position == QueuePosition(True, 0)
            with pytest.raises(ThreadBusy) as refused:
                await create_in_queue(store, "u", "reject")
            assert (refused.value.task_id, refused.value.thread_id) == ("t", "talk")
            with pytest.raises(TaskNotFound):
                await store.row("u")
            older = await Owner.create(store, "waits", thread_id="elsewhere")
            await create_in_queue(store, "holds", "enqueue", "elsewhere")
            await request_thread(older)
            with pytest.raises(ThreadBusy, match="held by task holds"):
                await create_in_queue(store, "u", "reject", "elsewhere")
            second = await Owner.create(store, "u", thread_id="talk")
            before = await store.row("u")
            with pytest.raises(ThreadBusy):
                await second.write(2, blobs={"b": b"x"}, state="paused", enter="reject")
            assert await store.row("u") == before
            assert (await request_thread(first, "reject")).held, "the holder is not refused"
            third, _ = await create_in_queue(store, "v", "enqueue")
            assert (await request_thread(first, "reject")).held, "nor when other tasks wait for it"
            await third.release()
            await first.release()
            assert (await request_thread(second, "reject")).held

    async def test_an_interrupting_task_stands_before_waiting_ones(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            first, _ = await create_in_queue(store, "t", "enqueue")
            second, _ = await create_in_queue(store, "u", "enqueue")
            third, position = await create_in_queue(store, "v", "interrupt")
            assert (position.held, position.holders) == (False, ("t",))
            assert (await request_thread(third, "interrupt")) == position
            fourth, before = await create_in_queue(store, "w", "interrupt")
            assert before.number < position.number
            assert (await request_thread(third, "interrupt")) == position, (
                "a task that asks again keeps its place"
            )
            await fourth.release()
            await first.release()
            assert not (await request_thread(second)).held
            assert (await request_thread(third)).held
            await third.release()
            assert (await request_thread(second)).held

    async def test_a_waiting_task_that_interrupts_moves_to_the_front_of_the_queue(
        self, tmp_path: Path
    ) -> None:
        async with self.opened(tmp_path) as store:
            await create_in_queue(store, "t", "enqueue")
            (first, head), (later, _) = [await create_in_queue(store, name, "enqueue") for name in ("u", "v")]
            position = await request_thread(later, "interrupt")
            assert (position.held, position.holders) == (False, ("t",))
            assert position.number < head.number
            assert position.number < (await request_thread(first)).number

    async def test_later_tasks_wait_for_one_that_entered_in_parallel(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            first, _ = await create_in_queue(store, "t", "enqueue")
            second, position = await create_in_queue(store, "u", "parallel")
            assert position is None
            third, position = await create_in_queue(store, "v", "enqueue")
            assert sorted(position.holders) == ["t", "u"]
            await first.release()
            assert (await request_thread(third)).holders == ("u",)
            await second.release()
            assert (await request_thread(third)).held

    async def test_only_owned_tasks_that_asked_hold_a_thread(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            created = await Owner.create(store, "made", thread_id="talk")
            parked, _ = await create_in_queue(store, "parked", "enqueue")
            await parked.release()
            _, elsewhere = await create_in_queue(store, "x", "enqueue", "another thread")
            assert elsewhere.held
            owner, position = await create_in_queue(store, "t", "enqueue")
            assert position == QueuePosition(True, 0), "created, parked and other threads' tasks hold nothing"
            await owner.write(thread=add(0), release=True)
            assert await request_thread(created) == QueuePosition(True, 1)

    async def test_a_claim_enters_the_thread_if_it_is_asked_to(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            for name in "tuv":
                await (await Owner.create(store, name, thread_id="talk")).release()
            assert (await store.claim("t")).place is None
            claim = await store.claim("u", enter=True)
            assert claim.place == QueuePosition(True, 0)
            position = await store.claim("v", enter=True)
            assert position.place is not None
            assert (position.place.held, position.place.holders) == (False, ("u",))
            await Owner.of(store, "u", claim).release()
            assert (await request_thread(Owner.of(store, "v", position))).held

    async def test_a_task_kept_for_its_inbox_keeps_its_thread(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            first, _ = await create_in_queue(store, "t", "enqueue")
            second, _ = await create_in_queue(store, "u", "enqueue")
            await store.post("t", item("i"))
            await first.release()
            assert (await request_thread(second)).holders == ("t",)
            await first.send(release=True, taken=("i",))
            assert (await request_thread(second)).held

    async def test_a_released_task_has_no_place_and_no_task_waits_for_it(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            first, _ = await create_in_queue(store, "t", "enqueue")
            await first.release()
            assert (await send(store, Commit("t", 1, None, enter="enqueue"))).place is None
            await store.delete("t")
            second, position = await create_in_queue(store, "u", "enqueue")
            assert position.held
            await second.release()
            assert (await create_in_queue(store, "v", "enqueue"))[1].held
            assert (await store.row("u")).epoch == second.epoch, "no other task took it since"

    async def test_a_thread_that_was_only_entered_has_no_version_yet(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            owner, _ = await create_in_queue(store, "t", "enqueue")
            await owner.release()
            with pytest.raises(TaskExists):
                await Owner(store, "t").write(2, create=new_task("t", thread_id="other"), enter="enqueue")
            assert await store.threads(10) == []
            with pytest.raises(ThreadNotFound):
                await store.delete_thread("other")
            await store.restore_thread("talk", 2, [ThreadMember(2, "t", 1)])
            assert await store.threads(10) == [ThreadRow("talk", 2, 1)]

    async def test_the_same_commit_again_is_answered_with_its_place(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            owner = Owner(store, "t")
            record = owner.record()
            commit = owner.commit(record, create=new_task("t", thread_id="talk"), enter="enqueue")
            first = await send(store, commit)
            assert first == await send(store, commit)
            assert first.place == QueuePosition(True, 0)
            assert len(await store.rows(TaskFilter())) == 1

    async def test_the_same_commit_again_is_answered_with_a_place_that_it_keeps(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            one, _ = await create_in_queue(store, "t", "enqueue")
            owner = Owner(store, "u")
            lost = owner.commit(owner.record(), create=new_task("u", thread_id="talk"), enter="enqueue")
            assert (await send(store, lost)).place == QueuePosition(False, 0, ("t",), 1)
            await one.release()
            assert (await send(store, lost)).place == QueuePosition(True, 0)
            assert (await create_in_queue(store, "v", "enqueue"))[1].holders == ("u",)
