"""The nth operation of the disk fails, for every n: errors are typed, and no acknowledged write is lost.

A task of a read, a write and a read is run on it, beside an ended task and a task between two steps. Once
the disk works again the task is resumed, and everything is checked on a disk without faults.
"""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.stores.faulty_disk import Disk, Fault, OneConnectionStore, faulty_disk
from treadle import Agent, Runner, RunOptions, ScriptedModel, ToolContext, tool
from treadle.core import events as e
from treadle.core.tools import Happened
from treadle.errors import StoreUnavailable, TaskNotFound, TreadleError
from treadle.llm.scripted import call, text
from treadle.ports import Claim, Committed, Record, TaskFilter
from treadle.stores.sqlite import SQLiteStore
from treadle.testing.audit import audit_store
from treadle.testing.conformance.owner import Owner, dump, send, until

pytestmark = pytest.mark.anyio

FAULTS: tuple[Fault, ...] = ("error once", "error until healed", "full until healed")


def agent_with(starts: Counter[str]) -> Agent[Any]:
    @tool(read_only=True)
    async def look() -> str:
        """Look."""
        return "seen " * 3_000

    @tool
    async def pay(ctx: ToolContext[Any]) -> str:
        """Pay."""
        starts[ctx.idempotency_key] += 1
        return "paid"

    script = [call("look"), call("pay"), call("look"), text("done")]
    return Agent(ScriptedModel(script), name="payer", tools=[look, pay])


@pytest.fixture
async def template(tmp_path: Path) -> Path:
    """A store with tasks that must survive unchanged."""
    path = tmp_path / "template.db"
    agent = agent_with(Counter())
    async with Runner(path) as runner:
        await runner.run(agent, "go", task_id="ended", thread_id="ended")
        await runner.create_task(agent, "go", task_id="half")
        await runner.run_step("half")
    return path


@pytest.fixture
def disk() -> Iterator[Disk]:
    with faulty_disk() as disk:
        yield disk


async def others(store: Any) -> dict[str, Any]:
    return {name: content for name, content in (await dump(store)).items() if name != "t"}


async def goes_on(runner: Runner) -> str:
    result = await runner.resume("t")
    while result.state == "waiting":
        for pending in result.pending:
            await runner.settle("t", pending.request_id, Happened("paid"))
        result = await runner.resume("t")
    return result.state


async def trial(template: Path, path: Path, disk: Disk, at: int, fault: Fault) -> tuple[int, bool]:
    """Run with a fault at an operation; return how many operations there were, and whether the fault was met."""
    shutil.copy(template, path)
    starts: Counter[str] = Counter()
    agent, acknowledged = agent_with(starts), list[e.Event]()
    runner = Runner(OneConnectionStore(path), agents=[agent])
    disk.failing(at, fault)
    with suppress(TreadleError):
        async with runner.run_stream(agent, "go", task_id="t") as stream:
            async for event in stream:
                if isinstance(event, e.Event):
                    acknowledged.append(event)
    operations, met = disk.count, disk.count >= at
    disk.heal()
    try:
        assert await goes_on(runner) == "completed"
    except TaskNotFound:
        assert acknowledged == []
        assert (await runner.run(agent, "go", task_id="t")).state == "completed"
    await runner.aclose()
    async with Runner(SQLiteStore(path)) as healthy, Runner(SQLiteStore(template)) as before:
        await healthy.store.open()
        await before.store.open()
        journal = [event async for event in healthy.handle("t").events(deltas=False)]
        assert journal[: len(acknowledged)] == acknowledged
        assert max(starts.values()) == 1
        assert (await healthy.verify()).findings == ()
        assert await audit_store(healthy.store) == []
        assert await others(healthy.store) == await others(before.store)
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()
    return operations, met


@pytest.mark.parametrize("every", [23, pytest.param(1, marks=pytest.mark.full)])
@pytest.mark.parametrize("fault", FAULTS)
async def test_nothing_is_lost_whichever_operation_of_the_disk_fails(
    template: Path, disk: Disk, fault: Fault, every: int
) -> None:
    every = min(every, 11) if fault == "full until healed" else every  # of these there are fewer
    at, trials = 1 if every == 1 else 2, 0
    while True:
        async with asyncio.timeout(30):
            operations, met = await trial(template, template.with_name(f"{at}.db"), disk, at, fault)
        if not met:
            break
        at, trials = at + every, trials + 1
    print(f"{fault}: {trials} of {operations} operations failed in turn")
    assert trials >= operations // every - 1 > 2


async def test_small_writes_on_a_full_disk_succeed_and_large_writes_are_refused(
    template: Path, disk: Disk
) -> None:
    agent = agent_with(Counter())
    async with Runner(OneConnectionStore(template), agents=[agent]) as runner:
        await runner.store.open()
        disk.failing(1, "full until healed")
        with pytest.raises(StoreUnavailable, match="full"):
            await runner.run(agent, "go", task_id="t")
        assert (await runner.get_task("half")).steps == 1
        disk.heal()
        assert (await runner.run(agent, "go", task_id="t", options=RunOptions())).state == "completed"
        assert (await runner.resume("half")).state == "completed"


class Held:
    """Records whose iteration blocks the store, so that later calls become one group."""

    def __init__(self) -> None:
        self.let_go = threading.Event()

    def __iter__(self) -> Iterator[Record]:
        self.let_go.wait(5)
        return iter(())


@pytest.mark.parametrize("whole_thread", [False, pytest.param(True, marks=pytest.mark.full)])
async def test_a_delete_whose_log_could_not_be_cleaned_fails_no_item_of_its_group(
    template: Path, disk: Disk, tmp_path: Path, whole_thread: bool
) -> None:
    at, met, deleted = 0, True, 0
    while met:
        at += 1
        store = OneConnectionStore(tmp_path / f"{at}.db")
        shutil.copy(template, store.path)
        await store.open()
        for name in ("doomed", "free"):
            await (await Owner.create(store, name)).release()
        owner, held = await Owner.create(store, "t"), Held()
        restoring = asyncio.ensure_future(store.restore(replace(await store.row("free"), task_id="x"), held))
        await asyncio.sleep(0)
        disk.failing(at, "error once")
        delete = store.delete_thread("thread-of-doomed") if whole_thread else store.delete("doomed")
        requests = [delete, send(store, owner.commit(owner.record())), store.claim("free")]
        asking = asyncio.gather(*requests, return_exceptions=True)
        await asyncio.sleep(0)
        held.let_go.set()
        done_requests, met = await asyncio.wait_for(asking, 10), disk.count >= at
        disk.heal()
        await asyncio.gather(restoring, return_exceptions=True)
        if "doomed" not in [row.task_id for row in await store.rows(TaskFilter())]:
            deleted += 1
            assert [type(result) for result in done_requests] == [type(None), Committed, Claim], at
        await store.close()
    assert deleted > 2


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_claim_that_failed_leaves_its_task_to_the_next_claim(
    template: Path, tmp_path: Path, disk: Disk, fault: Fault
) -> None:
    at, refused = 0, True
    while refused:
        at += 1
        path = tmp_path / f"{at}.db"
        shutil.copy(template, path)
        store = OneConnectionStore(path)
        await store.open()
        owner = await Owner.create(store, "held")
        disk.failing(at, fault)
        try:
            await store.claim("half")
            refused = False
        except StoreUnavailable:
            disk.heal()
            await Owner.claim(store, "half")
        disk.heal()
        await owner.write()
        await store.close()
    assert 1 < at < 100


async def test_a_cancelled_claim_is_given_back_though_the_disk_failed_meanwhile(
    template: Path, tmp_path: Path, disk: Disk
) -> None:
    for at in range(1, 12):
        path = tmp_path / f"{at}.db"
        shutil.copy(template, path)
        store = OneConnectionStore(path)
        await store.open()
        owner = await Owner.create(store, "held")
        claiming = asyncio.ensure_future(store.claim("half"))
        await asyncio.sleep(0)
        claiming.cancel()
        with suppress(asyncio.CancelledError):
            await claiming
        while (await store.row("half")).epoch < 2:  # noqa: ASYNC110
            await asyncio.sleep(0)
        disk.failing(at, "error once")
        await asyncio.sleep(0.02)
        disk.heal()

        async def is_free(store: OneConnectionStore = store) -> bool:
            return (await store.row("half")).driver is None

        await until(is_free, 5)
        await owner.write()
        await store.close()
