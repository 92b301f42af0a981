"""A pause whose call failed after it was recorded: it holds for adopters, and a later resume lifts it."""

from pathlib import Path
from typing import Any

import pytest

from tests.stores.nth_fault import FaultyPort, Port
from treadle import Agent, Runner, ScriptedModel
from treadle.errors import StoreUnavailable
from treadle.stores.sqlite import SQLiteStore

pytestmark = pytest.mark.anyio


async def paused_in_vain(runner: Runner, port: Port, agent: Agent[Any], verb: str) -> None:
    """Ask a task to stop; the store fails once its inbox holds the command."""
    await runner.create_task(agent, "go", task_id="t")
    port.failing(1, "before once")
    with pytest.raises(StoreUnavailable):
        await getattr(runner, verb)("t")
    port.heal()
    assert [item.kind for item in await runner.store.inbox("t")] == [verb]


@pytest.fixture
def port() -> Port:
    return Port(frozenset(("claim",)))


@pytest.mark.parametrize("verb", ["pause", "interrupt"])
async def test_a_resume_lifts_a_pause_that_was_requested_before_it(
    port: Port, tmp_path: Path, verb: str
) -> None:
    store: Any = FaultyPort(SQLiteStore(tmp_path / "journal.db"), port)
    agent = Agent(ScriptedModel(["done"]))
    async with Runner(store) as runner:
        await paused_in_vain(runner, port, agent, verb)
        result = await runner.resume("t")
        assert (result.state, result.final_text) == ("completed", "done")
        kinds = [event.kind async for event in runner.handle("t").events(deltas=False)]
        requested_at = kinds.index(f"{verb}_requested")
        assert kinds[requested_at : requested_at + 2] == [f"{verb}_requested", "resumed"]
        assert await runner.store.inbox("t") == []


async def test_an_adopter_obeys_it(port: Port, tmp_path: Path) -> None:
    store: Any = FaultyPort(SQLiteStore(tmp_path / "journal.db"), port)
    agent = Agent(ScriptedModel(["done"]))
    async with Runner(store) as runner:
        await paused_in_vain(runner, port, agent, "pause")
        assert (await runner.run(agent, "go", task_id="t")).state == "paused"
        assert (await runner.resume("t")).state == "completed"
