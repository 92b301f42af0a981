"""Runs and streams of a client over servers that are killed: nothing is lost, doubled or out of order."""

import asyncio
import random
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.client.killed_server import STEPS
from tests.client.served import client
from tests.forked import Forked
from treadle import Client
from treadle import events as e
from treadle.client import connection
from treadle.errors import TaskBusy, TaskFinished

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[2]


def free_port() -> int:
    """Return a port that stays free while its server is down: the system gives none below 32,768 by itself."""
    while True:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", random.randrange(20_000, 32_000)))
            return int(probe.getsockname()[1])


@contextmanager
def server(port: int, store: str, steps: int) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.client.killed_server", str(port), store, str(steps)]
    with Forked(command, cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.kill()


async def kill_now_and_then(
    port: int, store: str, chance: random.Random, begun: asyncio.Event, done: asyncio.Event
) -> int:
    """Start servers and kill them at random instants until the test is done; return how many.

    The first one is killed once work has begun, which it cannot finish.
    """
    kills = 0
    while True:
        with server(port, store, steps=STEPS if kills else 3) as process:
            await _answering(port, done)
            await begun.wait()
            with suppress(TimeoutError):
                await asyncio.wait_for(done.wait(), chance.uniform(0.1, 0.8) if kills < 3 else 60)
            process.kill()
        if done.is_set():
            return kills
        kills += 1


async def _answering(port: int, done: asyncio.Event) -> None:
    """Return once a server takes connections, or the test is done."""
    while not done.is_set():
        with suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(done.wait(), 0.02)


async def streamed(remote: Client, task_id: str, begun: asyncio.Event) -> list[Any]:
    agent: Any = "seeker"
    seen: list[Any] = []
    async with remote.run_stream(agent, "Where is it?", task_id=task_id) as stream:
        async for event in stream:
            seen.append(event)
            begun.set()
    assert stream.result.state == "completed"
    assert stream.result.steps == STEPS + 1
    return seen


async def stepped(remote: Client, task_id: str) -> None:
    agent: Any = "seeker"
    task = await remote.create_task(agent, "Where is it?", task_id=task_id)
    outputs: list[Any] = []
    with suppress(TaskBusy, TaskFinished):  # a server that adopts a task in a step takes it to its end
        while not outputs or not outputs[-1].is_last:
            outputs.append(await remote.run_step(task))
    indexes = [output.step.index for output in outputs]
    assert indexes == sorted(set(indexes))
    if outputs and outputs[-1].is_last:
        assert (await remote.finalize(task)).state == "completed"
    assert (await remote.handle(task).result()).state == "completed"
    assert len(await remote.get_completed_steps(task)) == STEPS + 1


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(12))
async def test_runs_streams_and_steps_go_on_over_killed_servers(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "LONGEST_PAUSE", 0.3)
    monkeypatch.setattr(connection, "FIRST_CONTACT", 60)  # it may be killed before it ever answered
    port, store = free_port(), f"sqlite:///{tmp_path}/journal.db?lease=1"
    begun, done = asyncio.Event(), asyncio.Event()
    killing = asyncio.ensure_future(kill_now_and_then(port, store, random.Random(seed), begun, done))
    agent: Any = "seeker"
    try:
        async with client(f"http://127.0.0.1:{port}", patience=60) as remote, asyncio.timeout(100):
            await _answering(port, done)
            async with asyncio.TaskGroup() as group:
                first = group.create_task(streamed(remote, "streamed", begun))
                second = group.create_task(streamed(remote, "watched", begun))
                ran = group.create_task(remote.run(agent, "Where is it?", task_id="ran"))
                group.create_task(stepped(remote, "stepped"))
            seen, watched, result = first.result(), second.result(), ran.result()
            assert (result.state, result.steps) == ("completed", STEPS + 1)
            for task_id, events in (("streamed", seen), ("watched", watched)):
                stored = [event.seq for event in events if isinstance(event, e.Event)]
                assert stored == list(range(1, len(stored) + 1))
                assert stored[-1] == (await remote.get_task(task_id)).head
            for task_id in ("streamed", "watched", "ran", "stepped"):
                report = await remote.verify(task_id)
                assert not report.findings
    finally:
        begun.set()
        done.set()
        kills = await killing
    assert kills > 0
