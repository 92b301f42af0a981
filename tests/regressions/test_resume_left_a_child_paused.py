"""A resume that came while its tasks were being released left a child paused."""

import asyncio
from typing import Any

import pytest

from treadle import Agent, Runner, ScriptedModel, tool
from treadle.models import call
from treadle.ports import Commit, CommitDone, InboxItem
from treadle.stores.memory import MemoryStore
from treadle.testing import clock
from treadle.testing.wrappers import WrappedStore

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "asyncio", {"loop_factory": clock.VirtualTimeLoop}


class Delayed(WrappedStore):
    """A store that delivers the pauses of parents only on request."""

    gate: asyncio.Event

    async def post(self, task_id: str, item: InboxItem) -> bool:
        if item.item_id.startswith("pause-"):
            await self.gate.wait()
        return await self._store.post(task_id, item)


class Held(WrappedStore):
    """A store that releases the root task only on request."""

    gate: asyncio.Event

    def commit(self, commit: Commit, done: CommitDone) -> None:
        if not (commit.release and commit.task_id == "job" and not self.gate.is_set()):
            self._store.commit(commit, done)
            return

        async def later() -> None:
            await self.gate.wait()
            self._store.commit(commit, done)

        self.releasing = asyncio.ensure_future(later())


def leaf_that_rests(seconds: float) -> tuple[asyncio.Event, Agent[Any]]:
    """Return an agent whose tool takes so long, and an event that is set when it begins."""
    resting = asyncio.Event()

    @tool(read_only=True)
    async def rest() -> str:
        """Rest."""
        resting.set()
        await asyncio.sleep(seconds)
        return "rested"

    return resting, Agent(ScriptedModel([call("rest"), "a rose"]), name="leaf", tools=[rest])


@pytest.mark.parametrize("paused", ["job.s1-0", "job.s1-0.s1-0"])
async def test_a_resume_that_attaches_while_its_task_stops_for_a_paused_task_below_goes_on(
    paused: str,
) -> None:
    resting, below = leaf_that_rests(0.05)
    if paused.endswith(".s1-0.s1-0"):
        script = [call("leaf", input="go"), "a stem"]
        below = Agent(ScriptedModel(script), name="stem", subagents=[below])
    root = Agent(ScriptedModel([call(below.name, input="go"), "a poem"]), name="root", subagents=[below])
    store = Held(MemoryStore())
    store.gate = asyncio.Event()
    async with Runner(store, agents=[root]) as runner:
        handle = await runner.start(root, "Write.", task_id="job")
        await resting.wait()
        assert (await runner.pause(paused)).state == "paused"
        resuming = asyncio.ensure_future(runner.resume("job"))
        await asyncio.sleep(0.05)
        store.gate.set()
        assert (await resuming).state == "completed"
        assert (await handle.result()).state == "completed"


async def test_a_child_that_is_paused_after_the_resume_stays_paused() -> None:
    resting, leaf = leaf_that_rests(0.1)
    root = Agent(ScriptedModel([call("leaf", input="go"), "a poem"]), name="root", subagents=[leaf])
    async with Runner(MemoryStore(), agents=[root]) as runner:
        await runner.start(root, "Write.", task_id="job")
        await resting.wait()
        resuming = asyncio.ensure_future(runner.resume("job"))
        await asyncio.sleep(0.01)
        assert (await runner.pause("job.s1-0")).state == "paused"
        assert (await resuming).state == "waiting"


async def test_a_resume_that_comes_while_a_pause_reaches_a_child_lifts_it_there_too() -> None:
    resting, leaf = leaf_that_rests(0.1)
    stem = Agent(ScriptedModel([call("leaf", input="go"), "a stem"]), name="stem", subagents=[leaf])
    root = Agent(ScriptedModel([call("stem", input="go"), "a poem"]), name="root", subagents=[stem])
    async with Runner(MemoryStore(), agents=[root]) as runner:
        handle = await runner.start(root, "Write.", task_id="job")
        await resting.wait()
        pausing = asyncio.ensure_future(runner.pause("job"))
        await asyncio.sleep(0.02)  # the leaf is told to pause, and still waits for its tool
        assert (await runner.resume("job")).state == "completed"
        assert (await handle.result()).state == "completed"
        assert (await pausing).state == "completed"
        assert (await runner.verify()).findings == ()


async def test_a_task_is_paused_only_once_its_pause_has_reached_a_child_that_stopped_by_itself() -> None:
    resting, leaf = leaf_that_rests(0.1)

    @tool(needs_approval=True)
    async def act() -> str:
        """Act."""
        return "acted"

    script = [call("rest"), call("act"), "a rose"]
    leaf = Agent(ScriptedModel(script), name="leaf", tools=[*leaf.tools, act])
    root = Agent(ScriptedModel([call("leaf", input="go"), "a poem"]), name="root", subagents=[leaf])
    store = Delayed(MemoryStore())
    store.gate = asyncio.Event()
    async with Runner(store, agents=[root]) as runner:
        await runner.start(root, "Write.", task_id="job")
        await resting.wait()
        pausing = asyncio.ensure_future(runner.pause("job"))
        await asyncio.sleep(1)  # the leaf waits for an approval
        assert not pausing.done()
        store.gate.set()
        assert (await pausing).state == "paused"
        assert (await runner.resume("job")).state == "waiting"
        assert (await runner.get_task("job.s1-0")).state == "waiting"


async def test_a_child_is_paused_again_by_a_drive_that_resumed_it() -> None:
    resting, leaf = leaf_that_rests(0.1)
    leaf = Agent(ScriptedModel([call("rest"), call("rest"), "a rose"]), name="leaf", tools=leaf.tools)
    root = Agent(ScriptedModel([call("leaf", input="go"), "a poem"]), name="root", subagents=[leaf])
    async with Runner(MemoryStore(), agents=[root]) as runner:
        await runner.start(root, "Write.", task_id="job")
        await resting.wait()
        first = asyncio.ensure_future(runner.pause("job"))
        await asyncio.sleep(0.02)
        resuming = asyncio.ensure_future(runner.resume("job"))
        resting.clear()
        await resting.wait()
        assert (await runner.pause("job")).state == "paused"
        assert (await runner.get_task("job.s1-0")).state == "paused"
        await asyncio.gather(first, resuming)
