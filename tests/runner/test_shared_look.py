"""Watching tasks that other runners drive: all watchers of a task share what is read of it, and miss nothing."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from threading import Event as Signal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cast import Gate, gate_agent
from tests.runner.acts import until
from treadle import Agent, Runner, ScriptedModel, tool
from treadle.core.events import Event, TaskStood
from treadle.llm.scripted import call, text, turn
from treadle.ports import JournalStore
from treadle.runner import shared_look
from treadle.runner.shared_look import differs
from treadle.stores.memory import MemoryStore
from treadle.testing import clock
from treadle.testing.wrappers import WrappedStore

pytestmark = pytest.mark.anyio

LONG = 60
"""Seconds of virtual time after which all that can go on has gone on."""


@tool(read_only=True)
async def nap(n: int) -> str:
    """Take a nap."""
    await asyncio.sleep(0.002)
    return "rested"


def napping(naps: int) -> Agent[Any]:
    script = [
        *(turn(f"I nap, {n}.", call("nap", n=n), chunk=4) for n in range(naps)),
        text("Awake.", chunk=2),
    ]
    return Agent(ScriptedModel(script), name="sleeper", tools=[nap])


class CountingStore(WrappedStore):
    """Counts how often journals and rows are read."""

    reads = 0

    async def read(self, *arguments: Any, **options: Any) -> Any:
        self.reads += 1
        return await self._store.read(*arguments, **options)

    async def row(self, task_id: str) -> Any:
        self.reads += 1
        return await self._store.row(task_id)


class LateStore(WrappedStore):
    """A store whose reads and commits take a random while of virtual time."""

    def __init__(self, store: JournalStore, chance: random.Random) -> None:
        super().__init__(store)
        self._chance = chance
        self._commits: asyncio.Queue[tuple[Any, Any]] | None = None

    async def _while(self) -> None:
        await asyncio.sleep(self._chance.choice((0, 0, 0.001, 0.004, 0.01)))

    async def read(self, *arguments: Any, **options: Any) -> Any:
        await self._while()
        records = await self._store.read(*arguments, **options)
        await self._while()
        return records

    async def row(self, task_id: str) -> Any:
        await self._while()
        row = await self._store.row(task_id)
        await self._while()
        return row

    def commit(self, commit: Any, done: Any) -> None:
        if self._commits is None:
            self._commits = asyncio.Queue()
            self._committing = asyncio.ensure_future(self._commit_in_order(self._commits))
        self._commits.put_nowait((commit, done))

    async def _commit_in_order(self, commits: asyncio.Queue[tuple[Any, Any]]) -> None:
        while True:
            commit, done = await commits.get()
            await self._while()
            self._store.commit(commit, done)


async def collected(events: Any, into: list[Any]) -> None:
    async for event in events:
        into.append(event)  # noqa: PERF401  it is looked at meanwhile


def is_rest(item: Any, head: int) -> bool:
    return isinstance(item, TaskStood) and not item.driven and item.head == head


def test_many_watchers_of_a_task_read_the_store_no_more_often_than_one() -> None:
    async def reads(watchers: int) -> int:
        memory = MemoryStore()
        store: Any = CountingStore(memory)
        async with clock.runner(memory) as driver, Runner(store, clock=clock.now) as watcher:
            task = await driver.create_task(napping(20), "Go")
            seen: list[list[Any]] = [[] for _ in range(watchers)]
            work = [
                asyncio.create_task(collected(watcher.handle(task).events(follow=True), items))
                for items in seen
            ]
            await asyncio.sleep(LONG)
            store.reads = 0
            await driver.resume(task, agent=napping(20))
            head = (await driver.get_task(task)).head
            await asyncio.sleep(LONG)
            for each in work:
                each.cancel()
            await asyncio.wait(work)
        for items in seen:
            assert [item.seq for item in items if isinstance(item, Event)] == list(range(1, head + 1))
            assert is_rest(items[-1], head)
        return store.reads

    alone, together = clock.run(reads(1)), clock.run(reads(30))
    assert together < 3 * alone, (alone, together)


async def watched_by_turns(
    one: Runner, two: Runner, chance: random.Random, over: Callable[[Callable[[], bool]], Awaitable[None]]
) -> None:
    """Move a task between two runners, while watchers of both come and go, and check what they were shown.

    Args:
        one: a runner.
        two: another one.
        chance: decides what happens.
        over: returns once the watchers are told of the end, as its argument returns.
    """
    agent = napping(12)
    task = await one.create_task(agent, "Go")
    watched: list[tuple[int, list[Any]]] = []
    work: list[asyncio.Task[None]] = []

    def watch_more() -> None:
        for _ in range(chance.randrange(0 if watched else 1, 3)):
            runner, after = chance.choice((one, two)), chance.choice((0, 0, 1, 5, 40))
            items: list[Any] = []
            watched.append((after, items))
            events = runner.handle(task).events(follow=True, after=after, deltas=chance.random() < 0.5)
            work.append(asyncio.create_task(collected(events, items)))

    result: Any = None
    while result is None or result.state != "completed":
        watch_more()
        runner = chance.choice((one, two))
        driving = asyncio.create_task(runner.resume(task, agent=agent))
        await asyncio.sleep(chance.random() * 0.05)
        watch_more()
        if chance.random() < 0.7:
            await chance.choice((one, two)).interrupt(task)
        result = await driving
    watch_more()  # such a watcher is told first of all how the task stands, before its events
    head = (await one.get_task(task)).head

    def are_done() -> bool:
        return all(
            any(isinstance(i, TaskStood) and i.state == "completed" for i in items)
            and any(isinstance(i, Event) and i.seq == head for i in items)
            for _, items in watched
        )

    await over(are_done)
    for each in work:
        each.cancel()
    await asyncio.wait(work)
    for after, items in watched:
        seqs = [item.seq for item in items if isinstance(item, Event)]
        assert seqs == list(range(after + 1, head + 1))
        last = [item for item in items if isinstance(item, TaskStood)][-1]
        assert (last.state, last.driven, last.live) == ("completed", False, False)


@pytest.mark.parametrize("case", range(3))
async def test_each_watcher_gets_every_event_once_wherever_the_task_is_driven(store: Any, case: int) -> None:
    async with Runner(store) as one, Runner(store) as two:
        await watched_by_turns(one, two, random.Random(case), until)


@given(st.integers(0, 2**32 - 1))
def test_each_watcher_gets_every_event_once_however_late_the_store_answers(seed: int) -> None:
    chance, memory = random.Random(seed), MemoryStore()

    async def over(_: Callable[[], bool]) -> None:
        await asyncio.sleep(LONG)

    async def by_turns() -> None:
        stores: list[Any] = [LateStore(memory, chance) for _ in range(2)]
        async with Runner(stores[0], clock=clock.now) as one, Runner(stores[1], clock=clock.now) as two:
            await watched_by_turns(one, two, chance, over)

    clock.run(by_turns())


async def test_watchers_in_other_event_loops_are_shown_the_same(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with Runner(path) as driver, Runner(path) as watcher:
        task = await driver.create_task(napping(10), "Go")

        begun = [Signal() for _ in range(4)]

        async def seen(begins: Signal) -> list[int]:
            events = watcher.handle(task).events(follow=True)
            seqs: list[int] = []
            async for event in events:
                begins.set()
                seqs += [event.seq] if isinstance(event, Event) else []
                if isinstance(event, TaskStood) and event.state == "completed":
                    return seqs
            raise AssertionError("the task was not deleted")

        threads = [asyncio.create_task(asyncio.to_thread(asyncio.run, seen(each))) for each in begun[1:]]
        here = asyncio.create_task(seen(begun[0]))
        await until(lambda: all(each.is_set() for each in begun))
        await driver.resume(task, agent=napping(10))
        head = (await driver.get_task(task)).head
        async with asyncio.timeout(60):
            assert [await each for each in (*threads, here)] == [list(range(1, head + 1))] * 4


async def test_a_rest_that_no_store_told_of_is_found_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that wrote may crash before it tells, and no message survives that."""
    monkeypatch.setattr(shared_look, "REST_SECONDS", 0.1)
    path = tmp_path / "journal.db"
    async with Runner(path) as driver, Runner(path) as watcher:
        monkeypatch.setattr(watcher.store, "watch", lambda wake: lambda: None)
        gate = Gate(read_only=True)
        task = await driver.create_task(gate_agent(gate), "go")
        seen: list[Any] = []
        work = asyncio.create_task(collected(watcher.handle(task).events(follow=True), seen))
        await until(lambda: bool(seen))
        running = asyncio.create_task(driver.resume(task, agent=gate_agent(gate)))
        await gate.entered.wait()
        await until(lambda: any(isinstance(i, TaskStood) and i.driven for i in seen))
        gate.let_go.set()
        await running
        await until(lambda: isinstance(seen[-1], TaskStood) and seen[-1].state == "completed")
        work.cancel()
        await asyncio.wait([work])


async def test_the_last_watcher_that_leaves_ends_the_look(runner: Runner) -> None:
    task_id = (await runner.run(napping(1), "Go")).task_id
    events = [runner.handle(task_id).events(follow=True) for _ in range(3)]
    for each in events:
        await anext(each)
    channels: Any = runner._driver.owned.channels  # pyright: ignore[reportPrivateUsage]
    (look,) = channels._channels[task_id].looks.values()
    for each in events:
        await each.aclose()
    assert look._timer is None or look._timer.cancelled()
    assert task_id not in channels._channels


def test_a_task_stands_differently_when_its_state_or_its_driver_does() -> None:
    first = TaskStood("running", driven=True, live=True, head=4)
    assert not differs(first, TaskStood("running", driven=True, live=True, head=9))
    assert differs(first, None)
    assert differs(first, TaskStood("running", driven=True, live=False, head=4))
    assert differs(first, TaskStood("running", driven=False, live=False, head=4))
    assert differs(first, TaskStood("waiting", driven=True, live=True, head=4))
