"""A drive: what it waits for itself, for which waits it releases its task, and how soon an end is durable."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.cast import Gate
from tests.engine.timed_models import IN_TIME, SECOND, Again, Timed, asks_or_works
from tests.runner.acts import until
from treadle import Agent, NextStep, Runner, ScriptedModel, StepContext, StepResult
from treadle.core.events import ToolEnded
from treadle.errors import TaskParked
from treadle.llm.scripted import call, text
from treadle.models import fail
from treadle.stores.memory import MemoryStore
from treadle.testing import clock
from treadle.testing.audit import audit_store

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


async def test_a_task_with_a_long_wait_is_released_and_adopted_when_its_timer_is_due():
    store = MemoryStore()
    model = Again([fail(429), text("At last.")], [600.0])
    agent = Agent(model, name="patient")
    async with clock.runner(store, agents=[agent]) as one:
        result = await one.run(agent, "Now?", task_id="t")
        assert (result.state, [p.kind for p in result.pending]) == ("waiting", ["timer"])
        assert "asked again at" in result.pending[0].text
        row = await one.store.row("t")
        assert (row.state, row.driver, row.due_at) == ("waiting", None, result.pending[0].due)
        with pytest.raises(TaskParked, match="asked again at"):
            await one.run_step("t")
        assert len(model.requests) == 1, "a server's wait is a lower bound"
        await one.send("t", "Or later?")
        row = await one.store.row("t")
        assert (row.driver, row.due_at) == (None, result.pending[0].due), (
            "a message does not change the time of the timer"
        )
    async with clock.runner(store, agents=[agent], adopt=True) as two:
        await asyncio.sleep(580)
        assert len(model.requests) == 1
        await asyncio.sleep(40)
        assert (await two.get_task("t")).state == "completed"
        assert await audit_store(two.store) == []


async def test_a_wait_of_a_minute_is_waited_out_and_a_longer_one_gives_the_task_back(runner: Runner):
    for seconds, state in ((60.0, "completed"), (61.0, "waiting")):
        agent = Agent(Again([fail(429), text("Yes.")], [seconds]))
        assert (await runner.run(agent, "Now?")).state == state


async def test_a_timer_that_fires_between_two_looks_at_the_clock_is_not_waited_for():
    due, looks = clock.BEGIN + 5 * SECOND, []

    def ticking() -> int:
        """Be a moment early once, as a clock that is slowed down is when a wait has ended."""
        now = clock.now()
        if now >= due:
            looks.append(now)
        return due - 1 if len(looks) == 1 else now

    model = Timed()
    async with Runner("memory:", clock=ticking) as runner:
        assert (await runner.run(Agent(model, worker=asks_or_works), "Go.")).state == "completed"
    assert model.asked == IN_TIME


async def test_a_task_is_not_released_while_a_step_runs_beside_a_waiting_step(runner: Runner):
    model = Timed()

    async def worker(ctx: StepContext) -> StepResult:
        if ctx.name == "start":
            return StepResult(next_steps=(NextStep("600"), NextStep("work")))
        return await asks_or_works(ctx)

    result = await runner.run(Agent(model, worker=worker), "Go.", task_id="t")
    assert (result.state, asyncio.get_running_loop().time()) == ("waiting", pytest.approx(60, abs=1))
    assert [step.step.name for step in await runner.get_completed_steps("t")] == ["start", "work"]


class HeldStore(MemoryStore):
    """A store whose commits end only when the test lets them, once it holds them."""

    def __init__(self) -> None:
        super().__init__()
        self.holds = False
        self.held: list[Callable[[], None]] = []

    def commit(self, commit: Any, done: Any) -> None:
        if self.holds:
            super().commit(commit, lambda verdict: self.held.append(lambda: done(verdict)))
        else:
            super().commit(commit, done)

    def let_go(self) -> None:
        self.holds = False
        for end in self.held:
            end()


async def test_the_end_of_a_call_is_durable_while_its_siblings_still_run() -> None:
    store = HeldStore()
    gates = [Gate(name, read_only=True) for name in ("first", "second", "slow")]
    agent = Agent(
        ScriptedModel([[call(gate.name) for gate in gates], text("done")]),
        tools=[gate.tool for gate in gates],
    )
    async with Runner(store) as runner:
        handle = await runner.start(agent, "go")
        for gate in gates:
            await gate.entered.wait()
        store.holds = True
        gates[0].let_go.set()
        await until(lambda: bool(store.held))
        gates[1].let_go.set()
        await asyncio.sleep(0.01)
        store.let_go()
        ended: set[str] = set()
        async with asyncio.timeout(20):
            async for event in handle.events():
                if isinstance(event, ToolEnded):
                    ended.add(event.call)
                if ended == {"s1-0", "s1-1"}:
                    gates[2].let_go.set()
        assert (await handle.result()).state == "completed"
