"""The verbs for operators of a store, as a runner has them."""

from pathlib import Path

import pytest

from tests.transfer.exports import AGENT
from treadle import Runner
from treadle.errors import (
    TaskNotFound,
)
from treadle.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio


def test_the_sync_bridge_has_the_verbs(tmp_path: Path) -> None:
    runner, other = Runner(MemoryStore()), Runner(MemoryStore())
    runner.run_sync(AGENT, "go", task_id="t")
    assert runner.sync.export_tasks(tmp_path / "f", "t").tasks == ("t",)
    assert other.sync.import_tasks(tmp_path / "f").tasks == ("t",)
    assert other.sync.verify().findings == ()
    runner.sync.close()
    other.sync.close()


async def test_an_unknown_task_cannot_be_verified(store: Path) -> None:
    async with Runner(store) as runner:
        with pytest.raises(TaskNotFound):
            await runner.verify("missing")
