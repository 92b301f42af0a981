"""What holds for every store that queues what it is to write, beside the contract of stores."""

from pathlib import Path

import pytest

from treadle.stores.queued import QueuedStore
from treadle.testing.conformance.owner import Owner, until
from treadle.testing.conformance.store_succession import SuccessionConformance


@pytest.mark.anyio
class QueuedCases(SuccessionConformance):
    async def test_a_claim_given_back_late_takes_nothing_from_who_owns_the_task_by_then(
        self, tmp_path: Path
    ) -> None:
        async with self.opened(tmp_path) as store:
            assert isinstance(store, QueuedStore)
            owner = await Owner.create(store, "t")
            await owner.release()
            present = await Owner.claim(store, "t")
            await store._submit(store._active(), "disown", ("t", owner.epoch))
            assert (await store.row("t")).driver is not None
            await store._submit(store._active(), "disown", ("t", present.epoch))
            assert (await store.row("t")).driver is None

    async def test_a_process_that_lost_all_it_owned_beats_no_more(self, tmp_path: Path) -> None:
        async with self.one_and_two(tmp_path) as (one, two):
            assert isinstance(one, QueuedStore)
            await Owner.create(one, "t")
            await (await self.taken_over(tmp_path, two, "t")).release()
            await two.delete("t")

            async def sleeps() -> bool:
                return one._active()._pause() is None

            await until(sleeps)
