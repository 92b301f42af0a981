"""Tests of every store that queues its writes, beside the contract of stores."""

from pathlib import Path

import pytest

from treadle.errors import StoreUnavailable
from treadle.stores.write_behind import WriteBehindStore
from treadle.testing.conformance.owner import Owner, new_task, until
from treadle.testing.conformance.store_succession import SuccessionConformance, lease

UNWRITABLE = "\ud800"
"""half a character: no database takes it"""


@pytest.mark.anyio
class QueuedCases(SuccessionConformance):
    async def test_a_claim_given_back_late_takes_nothing_from_the_next_owner(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            assert isinstance(store, WriteBehindStore)
            owner = await Owner.create(store, "t")
            await owner.release()
            present = await Owner.claim(store, "t")
            await store._submit(store._active(), "disown", ("t", owner.epoch))
            assert (await store.row("t")).driver is not None
            await store._submit(store._active(), "disown", ("t", present.epoch))
            assert (await store.row("t")).driver is None

    async def test_a_process_that_lost_all_its_tasks_renews_its_lease_no_more(self, tmp_path: Path) -> None:
        async with self.one_and_two(tmp_path) as (first, two):
            assert isinstance(first, WriteBehindStore)
            await Owner.create(first, "t")
            await (await self.take_over(tmp_path, two, "t")).release()
            await two.delete("t")

            async def sleeps() -> bool:
                return first._active()._wait_seconds() is None

            await until(sleeps)

    async def test_a_process_refused_one_task_claims_a_task_of_the_next_dead_driver(
        self, tmp_path: Path
    ) -> None:
        async with self.one_and_two(tmp_path, 60) as (first, two):
            with pytest.raises(StoreUnavailable):
                await Owner(first, "t").write(create=new_task("t", agent=UNWRITABLE))
            await Owner.create(two, "u")  # a row that was never written may have had the same number
            await self.let_leases_pass(tmp_path)
            await first.claim("u")
            driver = (await two.row("u")).driver
            assert driver is not None
            assert driver.alive

    async def test_a_process_that_failed_to_release_a_task_goes_on_renewing_its_lease(
        self, tmp_path: Path
    ) -> None:
        async with self.one_and_two(tmp_path) as (store, _):
            owner = await Owner.create(store, "t")
            with pytest.raises(StoreUnavailable):
                await owner.send(state=UNWRITABLE, release=True)
            await owner.write()
            before = await lease(store, "t")

            async def is_prolonged() -> bool:
                return await lease(store, "t") > before

            await until(is_prolonged)
