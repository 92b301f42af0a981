"""A store any of whose calls fails, not commits alone: errors are typed, nothing stays owned, no other task changes.

That a claim was carried out and its answer lost is not tried: a runner cannot tell it from a claim of another runner on
the same store, so it is the store's own affair.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.attack.test_failing_store import booking, goes_on
from tests.stores.nth_fault import FaultyPort, Port, PortFault
from treadle import Agent, Runner
from treadle.errors import TaskNotFound, TreadleError
from treadle.ports import JournalStore
from treadle.stores.memory import MemoryStore
from treadle.stores.sqlite import SQLiteStore
from treadle.testing.audit import audit_store
from treadle.testing.conformance.owner import dump

pytestmark = pytest.mark.anyio

OTHERS = ("ended", "half")
METHODS = (
    *("open", "commit", "claim", "read", "row", "rows", "inbox", "post", "thread", "threads", "delete"),
    *("delete_thread", "watch"),
)


async def story(runner: Runner, agent: Agent[Any]) -> None:
    """Much of what a runner does with a task and its thread, each part whether or not the one before failed."""
    parts: list[Callable[[], Awaitable[Any]]] = [
        lambda: runner.run(agent, "Go.", task_id="first", thread_id="talk"),
        lambda: runner.create_task(agent, "Go.", task_id="t", thread_id="talk"),
        lambda: runner.run_step("t"),
        lambda: runner.send("t", "And this."),
        lambda: runner.pause("t"),
        lambda: runner.resume("t"),
        lambda: runner.get_task("t"),
        runner.list_tasks,
        runner.list_threads,
        lambda: forked_and_deleted(runner),
        runner.verify,
        lambda: runner.run(agent, "Go.", task_id="lost", thread_id="lost"),
        lambda: runner.delete_thread("lost"),
    ]
    for part in parts:
        try:
            await asyncio.wait_for(part(), 20)
        except TreadleError:
            continue


async def forked_and_deleted(runner: Runner) -> None:
    fork = await runner.fork("t")
    await runner.delete_task(fork)


async def prepared(store: JournalStore, agent: Agent[Any]) -> dict[str, Any]:
    async with Runner(store, agents=[agent]) as runner:
        await runner.run(agent, "go", task_id="ended", thread_id="ended")
        await runner.create_task(agent, "go", task_id="half")
        await runner.run_step("half")
        await store.open()
        return await others(store)


async def others(store: JournalStore) -> dict[str, Any]:
    return {name: content for name, content in (await dump(store)).items() if name in OTHERS}


async def nothing_is_lost(method: str, fault: PortFault, at: int, place: Path | None) -> bool:
    """Tell the story with a fault, heal, go on; return whether the fault was met."""
    inner: JournalStore = MemoryStore() if place is None else SQLiteStore(place / f"{at}.db")
    starts: Counter[str] = Counter()
    agent = booking(starts)
    before = await prepared(inner, agent)
    port = Port(frozenset([method]))
    failing: Any = FaultyPort(inner, port)
    await inner.open()
    runner = Runner(failing, agents=[agent])
    port.failing(at, fault)
    async with asyncio.timeout(20):
        await story(runner, agent)
    met = port.count >= at
    port.heal()
    async with asyncio.timeout(20):
        for task in ("first", "t", "lost"):
            try:
                state = await goes_on(runner, task)
                if state == "paused":  # the pause lay in the inbox, and was read only now
                    state = await goes_on(runner, task)
                assert state == "completed"
            except TaskNotFound:
                assert (await runner.run(agent, "Go.", task_id=task)).state == "completed"
        assert runner._driver.owned.tasks == {}
        rows = [row for row in (await dump(inner)) if (await inner.row(row)).driver is not None]
        assert rows == [], "still owned"
        assert await others(inner) == before
        assert (await runner.verify()).findings == ()
        assert await audit_store(inner) == []
        assert {key: n for key, n in starts.items() if n > 1 and not key.startswith("lost")} == {}
        await runner.aclose()
    return met


WRITES = ("open", "commit", "post", "delete", "delete_thread")
KINDS: list[Any] = [
    *(pytest.param(method, "before once", marks=pytest.mark.full) for method in METHODS),
    *((method, "before until healed") for method in METHODS),
    *((method, "after once") for method in WRITES),
]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.full)])
@pytest.mark.parametrize("kind", ["memory", pytest.param("sqlite", marks=pytest.mark.full)])
@pytest.mark.parametrize(("method", "fault"), KINDS)
async def test_tasks_can_be_resumed_after_any_call_of_the_store_failed(
    method: str, fault: PortFault, kind: str, every: int, tmp_path: Path
) -> None:
    at, trials = 1, 0
    while await nothing_is_lost(method, fault, at, tmp_path if kind == "sqlite" else None):
        at, trials = at + every, trials + 1
    print(f"{kind}, {method}, {fault}: {trials} trials")
    assert trials
