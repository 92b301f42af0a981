"""After a deletion of a thread with a fork elsewhere, every import refused each export of the whole store.

The deletion had dropped the events that only the thread needed, and an export still named its old end. An export also
left out the conversations whose tasks had all been deleted.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cast import look
from tests.property.thread_algebra import shown
from treadle import Agent, Runner, ScriptedModel
from treadle.errors import ImportRefused
from treadle.models import call, text
from treadle.stores.memory import MemoryStore
from treadle.testing.audit import audit_store

pytestmark = pytest.mark.anyio


AGENT = Agent(
    ScriptedModel(lambda request: call("look") if request.turn < 2 else text("done")), name="a", tools=[look]
)


async def prune(runner: Runner) -> None:
    while not (await runner.prune(0)).threads:
        pass  # its last event is from this very microsecond


async def carried(runner: Runner, folder: Path) -> Runner:
    """Return a runner on a new store that holds an import of all; `verify` finds nothing in either."""
    await runner.export_tasks(folder / "all.jsonl")
    other = Runner(MemoryStore(), agents=[AGENT])
    await other.import_tasks(folder / "all.jsonl")
    assert await shown(other) == await shown(runner)
    for each in (runner, other):
        assert (await each.verify()).findings == ()
        assert await audit_store(each.store) == []
    return other


@pytest.mark.parametrize("at", ["s1", None])
@pytest.mark.parametrize(
    "delete", [lambda runner: runner.delete_thread("talk"), prune], ids=["delete", "prune"]
)
async def test_an_export_is_imported_after_a_thread_with_a_fork_elsewhere_was_deleted(
    store: Any, tmp_path: Path, at: str | None, delete: Callable[[Runner], Awaitable[None]]
) -> None:
    async with Runner(store, agents=[AGENT]) as runner:
        await runner.run(AGENT, "go", task_id="base", thread_id="talk")
        fork = await runner.fork("base", at=at)
        await delete(runner)
        async with await carried(runner, tmp_path) as other:
            assert (await other.resume(fork)).final_text == "done", "the fork has what it shares"
            await other.run(AGENT, "anew", thread_id="talk")
            await other.delete_thread("talk")
            await other.delete_task(fork)
            await other.delete_thread((await runner.get_task(fork)).thread_id)
            assert await shown(other) == ([], [], []), "the import can be deleted like the original"


async def test_an_export_of_all_holds_the_conversations_of_deleted_tasks(store: Any, tmp_path: Path) -> None:
    async with Runner(store, agents=[AGENT]) as runner:
        await runner.run(AGENT, "remember", task_id="gone", thread_id="talk")
        await runner.delete_task("gone")
        async with await carried(runner, tmp_path) as other:
            assert (await other.get_thread("talk"))[0].text == "remember"


async def test_verify_finds_an_end_of_a_thread_that_an_import_would_refuse(tmp_path: Path) -> None:
    from tests.transfer.test_verifying import sql

    path = tmp_path / "journal.db"
    async with Runner(path, agents=[AGENT]) as runner:
        await runner.run(AGENT, "go", task_id="gone", thread_id="talk")
        await runner.delete_task("gone")
    sql(path, "UPDATE members SET seq = 99")
    async with Runner(path, agents=[AGENT]) as runner, Runner(MemoryStore(), agents=[AGENT]) as other:
        await runner.export_tasks(tmp_path / "all.jsonl")
        with pytest.raises(ImportRefused, match="at event 99"):
            await other.import_tasks(tmp_path / "all.jsonl")
        assert [finding.problem for finding in (await runner.verify()).findings] == ["thread"]
