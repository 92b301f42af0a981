"""Of several callers that asked for one step at the same time, under one command id, some were refused.

A caller is held before each of its calls of the store in turn, while others come, and goes on once they wait.
"""

import asyncio
import inspect
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import ContextVar
from itertools import count
from typing import Any

import pytest

from tests.cast import Gate, gate_agent
from treadle import Agent, Node, Pipeline, Runner, ScriptedModel, tool
from treadle.errors import TaskBusy
from treadle.ports import Commit, CommitDone
from treadle.testing import clock
from treadle.testing.wrappers import WrappedStore
from treadle.wiring import open_store

LONG = 2
"""Seconds of virtual time after which all that can go on has gone on."""


class Hold:
    """Holds what a caller asks of the store from its nth call on."""

    def __init__(self, calls: int) -> None:
        self._left = calls
        self._commits: list[Callable[[], None]] = []
        self._open = asyncio.Event()
        self._reached = asyncio.Event()

    def _holds(self) -> bool:
        self._left -= 1
        if self._left < 0 and not self._open.is_set():
            self._reached.set()
        return self.reached and not self._open.is_set()

    @property
    def reached(self) -> bool:
        """Whether a call was held."""
        return self._reached.is_set()

    async def until_reached(self, caller: "asyncio.Task[Any]") -> None:
        """Return once a call is held, or the caller is done."""
        reached = asyncio.ensure_future(self._reached.wait())
        await asyncio.wait((caller, reached), return_when=asyncio.FIRST_COMPLETED)
        reached.cancel()

    async def pass_(self) -> None:
        if self._holds():
            await self._open.wait()

    def submit(self, commit: Callable[[], None]) -> None:
        if self._holds():
            self._commits.append(commit)
        else:
            commit()

    def release(self) -> None:
        self._open.set()
        for commit in self._commits:
            commit()


HOLD: ContextVar[Hold | None] = ContextVar("HOLD", default=None)


class HeldStore(WrappedStore):
    """A store whose calls wait for the hold of their caller."""

    def commit(self, commit: Commit, done: CommitDone) -> None:
        hold = HOLD.get()
        if hold is None:
            self._store.commit(commit, done)
        else:
            hold.submit(lambda: self._store.commit(commit, done))

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._store, name)
        if not inspect.iscoroutinefunction(attribute):
            return attribute

        async def held(*args: Any, **options: Any) -> Any:
            if (hold := HOLD.get()) is not None:
                await hold.pass_()
            return await attribute(*args, **options)

        return held


def held(hold: Hold | None, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
    """Begin work as a caller with a hold."""
    token = HOLD.set(hold)
    try:
        return asyncio.ensure_future(work)
    finally:
        HOLD.reset(token)


def runner(store: Any, agent: Agent[Any]) -> Runner:
    """Return a runner in virtual time whose calls of the store can be held."""
    return Runner(HeldStore(clock.runner(store).store), clock=clock.now, agents=[agent])  # pyright: ignore[reportAbstractUsage]


@tool(idempotent=True)
def note(line: str) -> str:
    """Write a line down."""
    return "noted"


def sayer() -> Agent[Any]:
    return Agent(ScriptedModel(lambda _: "Hello."), name="sayer")


def clerk() -> Agent[Any]:
    nodes = [Node(name, "note", input={"line": name}, after=()) for name in ("here", "there")]
    nodes.append(Node("last", "note", input={"line": "last"}, after=("here", "there")))
    return Agent(ScriptedModel([]), name="clerk", tools=[note], worker=Pipeline(nodes))


PLAN = {"first": (), "here": ("first",), "there": ("first",)}


async def run_step(runner: Runner, task: str) -> list[str]:
    return [(await runner.run_step(task, input="And?", command_id="c1")).step.step_id]


async def stream_step(runner: Runner, task: str) -> list[str]:
    async with runner.stream_step(task, input="And?", command_id="c1") as stream:
        async for _ in stream:
            pass
    return [stream.output.step.step_id]


async def run_ready_steps(runner: Runner, task: str) -> list[str]:
    return [each.step.step_id for each in await runner.run_ready_steps(task, command_id="c1")]


VERBS = {
    "run_step": (run_step, sayer),
    "stream_step": (stream_step, sayer),
    "run_ready_steps": (run_ready_steps, clerk),
}


async def check(runner: Runner, task: str, outcomes: list[Any], moment: str) -> None:
    """Assert that all callers were given the same steps, which ran once."""
    assert all(outcome == outcomes[0] for outcome in outcomes), f"{moment}: {outcomes}"
    tally = Counter([event.kind async for event in await runner.get_events(task, limit=200)])
    assert tally["step_requested"] == 1, moment
    assert tally["step_completed"] == len(outcomes[0]), moment
    assert tally["input_received"] <= 1, moment


async def gathered(*callers: "asyncio.Task[Any]") -> list[Any]:
    return await asyncio.gather(*callers, return_exceptions=True)


VIRTUAL = pytest.mark.parametrize("store", ["memory", "sqlite"], indirect=True)
"""The stores that do not wait by the clock of the event loop."""


@VIRTUAL
@pytest.mark.parametrize("name", VERBS)
@pytest.mark.sampled(2)
def test_callers_that_come_at_any_moment_of_a_step_are_given_that_step(store: Any, name: str) -> None:
    verb, agent = VERBS[name]

    async def at_each_moment() -> None:
        async with runner(store, agent()) as one, runner(store, agent()) as two:
            for moment in count():
                task = (await one.create_task(agent(), "Go", task_id=f"t{moment}")).task_id
                hold = Hold(moment)
                first = held(hold, verb(one, task))
                await asyncio.sleep(LONG)
                others = [held(None, verb(each, task)) for each in (one, two, two)]
                await asyncio.sleep(LONG)
                hold.release()
                await check(one, task, await gathered(first, *others), f"call {moment}")
                if not hold.reached:
                    break
            assert moment > 5

    clock.run(at_each_moment())


@VIRTUAL
@pytest.mark.parametrize("name", VERBS)
@pytest.mark.sampled(2)
def test_a_caller_that_is_held_up_at_any_moment_is_given_the_step_that_ran_meanwhile(
    store: Any, name: str
) -> None:
    verb, agent = VERBS[name]

    async def at_each_moment() -> None:
        async with runner(store, agent()) as one, runner(store, agent()) as two:
            for begun in (4, 8):
                for moment in count():
                    task = (await one.create_task(agent(), "Go", task_id=f"t{begun}-{moment}")).task_id
                    first_hold, second_hold = Hold(begun), Hold(moment)
                    first = held(first_hold, verb(one, task))
                    await asyncio.sleep(LONG)
                    second = held(second_hold, verb(two, task))
                    await asyncio.sleep(LONG)
                    first_hold.release()
                    third = held(None, verb(two, task))
                    await asyncio.sleep(LONG)
                    second_hold.release()
                    outcomes = await gathered(first, second, third)
                    await check(one, task, outcomes, f"calls {begun}, {moment}")
                    if not second_hold.reached:
                        break

    clock.run(at_each_moment())


@VIRTUAL
def test_callers_of_other_ready_steps_are_given_those_of_the_first(store: Any) -> None:
    nodes = [Node(name, "note", input={"line": name}, after=after) for name, after in PLAN.items()]
    agent = Agent(ScriptedModel([]), name="clerk", tools=[note], worker=Pipeline(nodes))

    async def one_after_the_other() -> None:
        async with runner(store, agent) as one, runner(store, agent) as two:
            for moment in count():
                task = (await one.create_task(agent, "Go", task_id=f"t{moment}")).task_id
                hold = Hold(moment)
                first = held(hold, run_ready_steps(one, task))
                await asyncio.sleep(LONG)
                with suppress(TaskBusy):
                    await two.run_step(task)
                second = held(None, run_ready_steps(two, task))
                await asyncio.sleep(LONG)
                hold.release()
                outcomes = await gathered(first, second)
                assert outcomes[0] == outcomes[1] != [], f"call {moment}: {outcomes}"
                if not hold.reached:
                    break

    clock.run(one_after_the_other())


@VIRTUAL
@pytest.mark.parametrize("name", VERBS)
def test_a_step_of_a_task_that_is_driven_for_something_else_is_refused_while_that_goes_on(
    store: Any, name: str
) -> None:
    verb, _ = VERBS[name]

    async def beside_a_run() -> None:
        gate = Gate(read_only=True)
        worker = gate_agent(gate)
        async with runner(store, worker) as one, runner(store, worker) as two:
            running = await one.start(worker, "Go", thread_id="thread")
            await gate.entered.wait()
            queued = await one.start(worker, "Go", thread_id="thread")
            await asyncio.sleep(LONG)
            for task in (running.task_id, queued.task_id):
                for each in (one, two):
                    with pytest.raises(TaskBusy):
                        await verb(each, task)
            gate.let_go.set()
            assert [(await handle.result()).state for handle in (running, queued)] == ["completed"] * 2

    clock.run(beside_a_run())


@pytest.mark.full
@pytest.mark.anyio
@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
@pytest.mark.parametrize("name", VERBS)
async def test_callers_that_are_held_up_are_given_the_same_step_of_a_server(store: Any, name: str) -> None:
    verb, made = VERBS[name]
    agent = made()
    stores = [HeldStore(open_store(store)) for _ in range(2)]  # pyright: ignore[reportAbstractUsage]
    async with Runner(stores[0], agents=[agent]) as one, Runner(stores[1], agents=[agent]) as two:
        for moment in range(10):
            for later in (2, 4, 6):
                task = (await one.create_task(agent, "Go", task_id=f"t{moment}-{later}")).task_id
                callers = list[asyncio.Task[Any]]()
                holds = [Hold(moment), *[Hold(later) for _ in range(3)]]
                for each, hold in zip((one, one, two, two), holds, strict=True):
                    callers.append(held(hold, verb(each, task)))
                    await hold.until_reached(callers[-1])
                for hold in holds:
                    hold.release()
                await check(one, task, await gathered(*callers), f"calls {moment}, {later}")
