"""Servers of one store, killed at random under the streams that clients read from them.

    python -m tests.server.storm [--client] [--streams 1000] [--kills 200] [--servers 2] [--readers 25]
                                 [--store sqlite|postgresql] [--seed N]

Each stream is of a task of its own, which is posted to any server under a key. It is opened again at any server from
the last number on, until its task has ended. What a reader was told then is compared with the journal: every event,
once, and in order; and no key made two tasks. With `--client` the readers are those of `client_storm.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import tempfile
import time
from collections import Counter
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

from bench.load import lent
from tests.server.processes import ServerProcess, servers, stream
from treadle import Runner

LOST = (httpx2.TransportError, httpx2.HTTPStatusError, TimeoutError)


@dataclass
class Storm:
    """How much of a storm, and what became of it."""

    folder: Path
    store: str
    streams: int
    kills: int
    servers: int = 2
    readers: int = 25
    seed: int = 0
    told: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    opened: int = 0
    killed: int = 0
    unable: Counter[str] = field(default_factory=Counter[str])
    longest: float = 0.0
    """the seconds for which a reader was told nothing while its task went on"""

    latest: float = 0.0
    """the seconds after which an event was told in a stream that was open when it happened"""

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.running: list[ServerProcess] = []
        self.begun = 0
        self.has_ended = asyncio.Event()

    async def run(self) -> None:
        """Let it rage until enough streams were read and enough servers killed."""
        options = [("--lease", "1")] * self.servers
        self.running = await servers(self.folder, self.store, *options)
        killing = asyncio.ensure_future(self._kill())
        try:
            await asyncio.gather(*[self._read() for _ in range(self.readers)])
            self.has_ended.set()
            await killing
        finally:
            killing.cancel()
            for server in self.running:
                server.close()
                self._note(server)

    def _note(self, server: ServerProcess) -> None:
        """Count what a server could not drive, and why."""
        for line in server.lines:
            if line.get("kind") in ("failed", "given_up", "suspect", "scan_failed"):
                self.unable[f"{line['kind']}: {line['text'].partition(': ')[2][:200]}"] += 1

    async def _kill(self) -> None:
        while self.killed < self.kills:
            await asyncio.sleep(self.chance.uniform(0.1, 1.0))
            victim = self.running.pop(self.chance.randrange(len(self.running)))
            await asyncio.to_thread(victim.kill)
            self.killed += 1
            victim.close()
            self._note(victim)
            if self.killed % 10 == 0:
                print(f"{self.killed} kills, {len(self.told)} tasks, {self.opened} streams", flush=True)
            self.running += await servers(self.folder, self.store, ("--lease", "1"))

    def _any(self) -> httpx2.AsyncClient:
        return self.chance.choice(self.running).client(f"reader-{self.chance.random()}")

    async def _read(self) -> None:
        while self.begun < self.streams or self.killed < self.kills:
            self.begun += 1
            key = f"key-{self.begun}"
            task = await self._post(key)
            assert task not in self.told, f"{key} made a task that another key has made"
            self.told[task] = []
            await self._follow(task, self.told[task])

    async def _post(self, key: str) -> str:
        """Post a task until an answer arrives."""
        while True:
            try:
                async with self._any() as client:
                    body = {"agent": "short", "input": key, "run": True}
                    made = await client.post("/v1/tasks", json=body, headers={"Idempotency-Key": key})
                    if made.status_code in (200, 201):
                        return made.json()["task_id"]
            except LOST:
                pass
            await asyncio.sleep(0.05)

    async def _follow(self, task: str, told: list[int]) -> None:
        """Read the events of a task to its end, at one server after the other."""
        heard = time.monotonic()
        while True:
            try:
                async with (
                    self._any() as client,
                    aclosing(stream(client, task, told[-1] if told else 0)) as read,
                ):
                    self.opened += 1
                    opened = 0.0
                    async for frame in read:
                        opened = opened or time.time()
                        if frame.seq is not None:
                            self.latest = max(
                                self.latest, time.time() - max(frame.data["time"] / 1e6, opened)
                            )
                            self.longest = max(self.longest, time.monotonic() - heard)
                            heard = time.monotonic()
                            told.append(frame.seq)
                        if frame.event == "task_ended":
                            return
            except LOST:
                pass
            await asyncio.sleep(0.05)

    async def check(self) -> str:
        """Return what happened, in a line; raises `AssertionError` if a reader was not told what the journal holds."""
        async with Runner(self.store) as runner:
            for task, told in self.told.items():
                head = (await runner.store.row(task)).head
                assert told == list(range(1, head + 1)), f"task {task} up to {head}: {told}"
            listed = (await runner.count_tasks()).tasks
            assert listed == len(self.told), f"{listed} tasks of {len(self.told)} keys"
        return (
            f"{len(self.told)} tasks read in {self.opened} streams over {self.killed} kills, none lost or doubled; "
            f"events were told at most {self.latest:.1f} s late, and at most {self.longest:.1f} s after the one "
            f"before; seed {self.seed}"
        )


async def main() -> None:
    from tests.server.client_storm import ClientStorm  # which is a storm

    parser = argparse.ArgumentParser(prog="python -m tests.server.storm")
    parser.add_argument("--client", action="store_true")
    parser.add_argument("--streams", type=int, default=1_000)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--readers", type=int, default=25)
    parser.add_argument("--store", default="sqlite")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    given = parser.parse_args()
    here = os.getcwd()  # noqa: PTH109
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=here) as folder, lent(given.store) as url:
        numbers = (given.streams, given.kills, given.servers, given.readers, given.seed)
        storm = (ClientStorm if given.client else Storm)(Path(folder), url, *numbers)
        began = time.monotonic()
        await storm.run()
        print(f"{given.store}: {await storm.check()}, {time.monotonic() - began:.0f} s")
        for why, times in storm.unable.most_common():
            print(f"{times} times {why}")


if __name__ == "__main__":
    asyncio.run(main())
