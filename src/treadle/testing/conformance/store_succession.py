"""Conformance of a shared `JournalStore`: a process that wakes after it was silent longer than its lease."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from treadle.errors import Fenced, TaskBusy
from treadle.ports import Claim, JournalStore
from treadle.testing.conformance.owner import Owner, item, last_of, until
from treadle.testing.conformance.store_subject import StoreSubject
from treadle.testing.conformance.store_turns import create_in_queue, request_thread

LEASE = 0.5
"""Lease in seconds, the shortest allowed, so that heartbeats come soon."""


class SuccessionConformance(StoreSubject):
    """The tasks that a driver loses with its lease, and those that it keeps or claims again when it wakes."""

    def leased(self, place: Path, seconds: float) -> JournalStore:
        """Return a store like `make`, with leases of a number of seconds."""
        raise NotImplementedError

    async def let_leases_pass(self, place: Path) -> None:
        """End all leases in the database itself, as if each process had been stopped for that long."""
        pytest.skip("there is no way to make the leases of this store pass")

    @asynccontextmanager
    async def one_and_two(
        self, place: Path, seconds: float = LEASE
    ) -> AsyncGenerator[tuple[JournalStore, JournalStore]]:
        """Open the same store twice, with leases of a number of seconds."""
        first, second = self.leased(place, seconds), self.leased(place, seconds)
        await first.open()
        await second.open()
        try:
            yield first, second
        finally:
            await first.close()
            await second.close()

    async def take_over(self, place: Path, store: JournalStore, task_id: str) -> Owner:
        """Claim a task whose driver misses its heartbeats."""
        while True:
            await self.let_leases_pass(place)
            try:
                return await Owner.claim(store, task_id)
            except TaskBusy:  # a heartbeat came in between
                continue

    async def test_a_driver_that_lost_a_task_and_claimed_it_again_keeps_it_though_its_old_epoch_is_fenced(
        self, tmp_path: Path
    ) -> None:
        async with self.one_and_two(tmp_path) as (first, second):
            former = await Owner.create(first, "t")
            await (await self.take_over(tmp_path, second, "t")).release()
            present = await Owner.claim(first, "t")
            with pytest.raises(Fenced):
                await former.write()
            before = await lease(second, "t")

            async def is_prolonged() -> bool:
                return await lease(second, "t") > before

            await until(is_prolonged)
            assert abs(await lease(second, "t") / 1e6 - time.time()) < 60
            await present.write()

    @pytest.mark.parametrize("forgotten", [False, True])
    async def test_a_claim_begins_with_a_whole_lease_however_long_its_process_was_idle(
        self, tmp_path: Path, forgotten: bool
    ) -> None:
        async with self.one_and_two(tmp_path) as (first, second):
            await (await Owner.create(first, "t")).release()
            if forgotten:
                await Owner.create(second, "u")  # its heartbeats delete dead drivers that own nothing
            await self.let_leases_pass(tmp_path)
            await asyncio.sleep(LEASE / 2)
            await first.claim("t")
            driver = (await second.row("t")).driver
            assert driver is not None
            assert driver.alive

    async def test_heartbeats_go_on_though_the_clock_of_their_host_was_set_back(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with self.one_and_two(tmp_path) as (store, _):
            await Owner.create(store, "t")
            now = time.time
            monkeypatch.setattr(time, "time", lambda: now() - 3_600)
            before = await lease(store, "t")

            async def is_another() -> bool:
                return await lease(store, "t") != before

            await until(is_another)

    async def test_a_task_that_lost_its_thread_can_be_claimed_though_its_driver_wakes(
        self, tmp_path: Path
    ) -> None:
        async with self.one_and_two(tmp_path) as (first, second):
            holders = [(await create_in_queue(first, name, "enqueue", name))[0] for name in ("a", "b")]
            await second.post("a", item("looked at before"))
            for name in ("a", "b"):
                next_one, position = await create_in_queue(second, f"{name}2", "enqueue", name)
                while not position.held:
                    await self.let_leases_pass(tmp_path)
                    posted = second.post(name, item("posted meanwhile"))
                    position = await last_of(next_one.write(), posted, request_thread(next_one))
            await Owner.create(first, "awake")

            async def is_awake(task_id: str) -> bool:
                driver = (await second.row(task_id)).driver
                return driver is not None and driver.alive

            for name in ("awake", "a2"):
                await until(lambda name=name: is_awake(name))
            assert {("a", 2), ("b", 2)} <= {(row.task_id, row.epoch) for row in await second.orphans(10)}
            for holder in holders:
                assert (await second.claim(holder.task_id)).epoch == 3
                with pytest.raises(Fenced):
                    await holder.write()

    async def test_a_cancelled_claim_of_a_dead_drivers_task_leaves_it_wanted(self, tmp_path: Path) -> None:
        async with self.one_and_two(tmp_path, 60) as (first, second):
            await Owner.create(first, "t")
            await self.let_leases_pass(tmp_path)
            claiming = asyncio.ensure_future(second.claim("t"))
            await asyncio.sleep(0)
            claiming.cancel()
            ended = (await asyncio.gather(claiming, return_exceptions=True))[0]
            if isinstance(ended, Claim):  # the claim ended before the cancellation
                await Owner.of(second, "t", ended).send(release=True, due_at=ended.due_at)

            async def is_free() -> bool:
                return (await second.row("t")).driver is None

            await until(is_free)
            assert [row.task_id for row in await second.orphans(10)] == ["t"]

    async def test_a_claim_of_a_dead_drivers_task_does_not_get_its_thread(self, tmp_path: Path) -> None:
        async with self.one_and_two(tmp_path, 60) as (first, second):
            await create_in_queue(first, "t", "enqueue")
            await self.let_leases_pass(tmp_path)
            assert (await second.claim("t")).place is None
            _, position = await create_in_queue(second, "u", "enqueue")
            assert position.held

    async def test_a_process_cannot_claim_its_own_task_however_late_its_heartbeat_is(
        self, tmp_path: Path
    ) -> None:
        async with self.one_and_two(tmp_path, 60) as (store, _):
            owner, _ = await create_in_queue(store, "t", "enqueue")
            await self.let_leases_pass(tmp_path)
            with pytest.raises(TaskBusy):
                await store.claim("t")
            with pytest.raises(TaskBusy):
                await store.delete("t")
            _, position = await create_in_queue(store, "u", "enqueue")
            assert (position.held, position.holders) == (False, ("t",))
            await owner.write()

    async def test_an_ended_task_is_an_orphan_if_its_driver_died_before_it_released_it(
        self, tmp_path: Path
    ) -> None:
        async with self.one_and_two(tmp_path, 60) as (first, second):
            await (await Owner.create(first, "t")).send(state="completed")
            assert await second.orphans(10) == []
            await self.let_leases_pass(tmp_path)
            assert [row.display_state for row in await second.orphans(10)] == ["completed"]


async def lease(store: JournalStore, task_id: str) -> int:
    """Return the end of the lease of a task's driver."""
    driver = (await store.row(task_id)).driver
    assert driver is not None
    assert driver.lease is not None
    return driver.lease
