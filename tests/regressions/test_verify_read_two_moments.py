"""`verify` and `export` of a store in use read tasks and threads at different moments.

While other processes wrote, `verify` reported damage where none was ("thread 'th2' does not hold it as of version 6"),
and an export did not verify where it was taken in.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from pathlib import Path
from threading import Event as ThreadEvent
from threading import Thread
from typing import Any

import pytest

from treadle import Agent, Runner, ScriptedModel
from treadle.errors import TreadleError
from treadle.ports import TaskFilter
from treadle.stores.memory import MemoryStore

AGENT: Agent[Any] = Agent(ScriptedModel(lambda request: f"re: {request.messages[-1].text}"), name="talker")


async def work(store: Any, worker: int, stop: "Event | ThreadEvent") -> None:
    """Run turns of two threads, take some back and finish them again, until told to stop."""
    async with Runner(store, agents=[AGENT]) as runner:
        turn = 0
        while not stop.is_set():
            await asyncio.sleep(0.005)  # others have to come to their turn
            turn += 1
            task = f"w{worker}-{turn}"
            try:
                await runner.run(AGENT, f"turn {turn}", task_id=task, thread_id=f"th{turn % 2}")
                await runner.undo_step(task, to=0)
                await runner.resume(task)
                if turn % 3 == 0:
                    await runner.delete_task(task)
            except TreadleError:
                continue  # others finish turns of the same threads: not each can be taken back


def in_a_process(store: str, worker: int, stop: Event) -> None:
    asyncio.run(work(store, worker, stop))


@contextmanager
def at_work(store: Any, processes: bool) -> Iterator[None]:
    """Let two workers write meanwhile: threads, or processes, with runners of their own."""
    stop: Any
    if processes:
        context = get_context("spawn")
        stop = context.Event()
        workers: list[Any] = [context.Process(target=in_a_process, args=(store, n, stop)) for n in range(3)]
    else:
        stop = ThreadEvent()
        workers = [Thread(target=asyncio.run, args=(work(store, n, stop),)) for n in range(2)]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        stop.set()
        for worker in workers:
            worker.join()


@pytest.mark.sampled(1)
@pytest.mark.anyio
@pytest.mark.parametrize("processes", [False, pytest.param(True, marks=pytest.mark.full)])
@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgresql"])
async def test_a_store_in_use_is_verified_and_exported_from_one_snapshot(
    kind: str, processes: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if kind == "memory" and processes:
        pytest.skip("a store in memory belongs to one process")
    store: Any = MemoryStore() if kind == "memory" else str(tmp_path / "journal.db")
    if kind == "postgresql":
        server = request.getfixturevalue("postgres")
        store = server.in_schema(f"t{sha256(str(tmp_path).encode()).hexdigest()[:20]}")
    async with Runner(store, agents=[AGENT]) as runner:
        await runner.run(AGENT, "first", thread_id="th0")
        with at_work(store, processes):
            for round_ in range(20 if processes else 5):
                async with asyncio.timeout(60):
                    while len(await runner.store.rows(TaskFilter(limit=1_000))) < 4 * round_:  # noqa: ASYNC110
                        await asyncio.sleep(0.01)
                findings = (await runner.verify()).findings
                assert findings == ()
                exported = tmp_path / f"{round_}.jsonl"
                await runner.export_tasks(exported)
                async with Runner("memory:", agents=[AGENT]) as other:
                    await other.import_tasks(exported)
                    assert (await other.verify()).findings == ()
