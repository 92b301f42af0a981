"""`list_pending()` failed as a whole where the journal of one waiting task could not be read."""

from pathlib import Path

import apsw
import pytest

from tests.cast import pay
from treadle import Agent, Runner, ScriptedModel
from treadle.errors import JournalCorrupt
from treadle.models import call


@pytest.mark.anyio
async def test_what_other_tasks_wait_for_is_listed_beside_a_damaged_task(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    agent = Agent(ScriptedModel([call("pay", amount=1), call("pay", amount=2)]), tools=[pay])
    async with Runner(path) as runner:
        for name in ("damaged", "whole"):
            await runner.run(agent, "Pay.", task_id=name)
        assert len((await runner.list_pending()).items) == 2
    connection = apsw.Connection(str(path))
    connection.execute(
        "UPDATE records SET data = x'00' WHERE task = (SELECT id FROM tasks WHERE key = 'damaged') AND seq > 3"
    )
    connection.close()
    async with Runner(path) as runner:
        assert [item.task_id for item in await runner.list_pending()] == ["whole"]
        with pytest.raises(JournalCorrupt):
            await runner.list_pending("damaged")
        assert (await runner.verify()).findings
