"""Watching tasks that other runners drive: all watchers of a task share what is read of it, and miss nothing."""

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from tests.runner.acts import Gate, gate_agent, until
from treadle import Agent, Runner, ScriptedModel, tool
from treadle.core.events import Event, TaskStood
from treadle.llm.scripted import call, text, turn
from treadle.runner import shared_look
from treadle.runner.shared_look import differs

pytestmark = pytest.mark.anyio


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


class Reads:
    """Counts how often the journals and rows of a store are read."""

    def __init__(self, store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.journals = self.rows = 0
        read, row = store.read, store.row

        async def counted_read(*args: Any, **kwargs: Any) -> Any:
            self.journals += 1
            return await read(*args, **kwargs)

        async def counted_row(*args: Any, **kwargs: Any) -> Any:
            self.rows += 1
            return await row(*args, **kwargs)

        monkeypatch.setattr(store, "read", counted_read)
        monkeypatch.setattr(store, "row", counted_row)


async def collected(events: Any, into: list[Any]) -> None:
    async for event in events:
        into.append(event)  # noqa: PERF401  it is looked at meanwhile


def is_rest(item: Any, head: int) -> bool:
    return isinstance(item, TaskStood) and not item.driven and item.head == head


async def test_many_watchers_of_a_task_read_the_store_no_more_often_than_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []
    for watchers in (1, 30):
        path = tmp_path / f"{watchers}.db"
        async with Runner(path) as driver, Runner(path) as watcher:
            task = await driver.create_task(napping(20), "Go")
            seen: list[list[Any]] = [[] for _ in range(watchers)]
            work = [
                asyncio.create_task(collected(watcher.handle(task).events(follow=True), items))
                for items in seen
            ]
            await until(lambda seen=seen: all(any(isinstance(i, Event) for i in items) for items in seen))
            reads = Reads(watcher.store, monkeypatch)
            await driver.resume(task, agent=napping(20))
            head = (await driver.get_task(task)).head
            await until(lambda seen=seen, head=head: all(is_rest(items[-1], head) for items in seen))
            for each in work:
                each.cancel()
            await asyncio.wait(work)
        for items in seen:
            assert [item.seq for item in items if isinstance(item, Event)] == list(range(1, head + 1))
        counts.append(reads.journals + reads.rows)
    assert counts[1] < 3 * counts[0] + 20, counts


@pytest.mark.parametrize("case", range(3))
async def test_each_watcher_gets_every_event_once_wherever_the_task_is_driven(store: Any, case: int) -> None:
    """The task moves between two runners, and watchers of both come and go at any time."""
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    agent = napping(30)
    async with Runner(store) as one, Runner(store) as two:
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

        await until(are_done, 15)
        for each in work:
            each.cancel()
        await asyncio.wait(work)
    for after, items in watched:
        seqs = [item.seq for item in items if isinstance(item, Event)]
        assert seqs == list(range(after + 1, head + 1)), f"seed {seed}"
        last = [item for item in items if isinstance(item, TaskStood)][-1]
        assert (last.state, last.driven, last.live) == ("completed", False, False), f"seed {seed}"


async def test_watchers_in_other_event_loops_are_shown_the_same(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with Runner(path) as driver, Runner(path) as watcher:
        task = await driver.create_task(napping(10), "Go")

        async def seen() -> list[int]:
            events = watcher.handle(task).events(follow=True)
            seqs: list[int] = []
            async for event in events:
                seqs += [event.seq] if isinstance(event, Event) else []
                if isinstance(event, TaskStood) and event.state == "completed":
                    return seqs
            raise AssertionError("the task was not deleted")

        threads = [asyncio.create_task(asyncio.to_thread(asyncio.run, seen())) for _ in range(3)]
        here = asyncio.create_task(seen())
        await asyncio.sleep(0.1)
        await driver.resume(task, agent=napping(10))
        head = (await driver.get_task(task)).head
        async with asyncio.timeout(10):
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
