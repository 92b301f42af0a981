"""A fork of a fork was imported with events behind the fork point of the first one.

A fork point may lie inside a record. The importer applied all events of that record to the second fork, and left out
those of the first fork with the same numbers: it refused the file, or checked the second fork against a wrong state.
"""

from pathlib import Path

import pytest

from tests.cast import look
from treadle import Agent, Runner, ScriptedModel
from treadle.models import call, text
from treadle.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio


AGENT = Agent(ScriptedModel([call("look"), call("look"), text("done")]), tools=[look])


async def test_a_fork_of_a_fork_inside_a_record_is_imported(tmp_path: Path) -> None:
    async with Runner(MemoryStore(), agents=[AGENT]) as runner:
        await runner.run(AGENT, "go", task_id="base")
        first = await runner.fork("base", at="s1")
        shared = (await runner.get_task(first)).forked_at
        assert all(record.seq != shared for record in await runner.store.read("base")), "no record ends there"
        await runner.resume(first)
        second = await runner.fork(first, at="s2")
        await runner.resume(second)
        await runner.export_tasks(tmp_path / "all.jsonl")
    async with Runner(MemoryStore(), agents=[AGENT]) as other:
        await other.import_tasks(tmp_path / "all.jsonl")
        assert (await other.result(second)).final_text == "done"
        (await other.verify()).raise_for_findings()
