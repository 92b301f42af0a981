"""What holds for every store that queues what it is to write, beside the contract of stores."""

from pathlib import Path

import pytest

from treadle.stores.queued import QueuedStore
from treadle.testing.conformance.owner import Owner
from treadle.testing.conformance.store_subject import StoreSubject


@pytest.mark.anyio
class QueuedCases(StoreSubject):
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
