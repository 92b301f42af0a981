"""`python -m bench.soak`: everything at once on one store, for as long as asked; exits with 1 when something grows.

    python -m bench.soak [--seconds 600] [--store sqlite | postgresql | URL] [--workers 8]

Workers tell stories, each of tasks of its own, which it deletes in the end: runs, streams, streams that are left,
watchers, cancel, pause and resume, feedback, undo, fork, threads with a summary, lost calls that are settled, failures,
verify, export. After each round nothing is under way and nothing is stored, so that what is left over can be counted:
memory, blocks of the allocator, descriptors, threads, asyncio tasks, rows and pages of the file. The first third is
warm-up, and so are the first 600 stories, which fill the runner's caches: a slow machine takes longer than asked. Of
memory and blocks the slope of the rest counts; of the others the last half of the rest may not all be above all before
it; and no row may be left.

The descriptors of the store's files are counted apart. The store keeps a connection for each read that was under way at
one time, so their number may rise at any time, up to what the workers can read at once.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import io
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import apsw

from bench.load import lent
from treadle import (
    Agent,
    Breakpoint,
    Happened,
    NotHappened,
    Runner,
    RunOptions,
    ScriptedModel,
    ToolCall,
    ToolContext,
    tool,
)
from treadle.errors import TaskNotFound, ThreadNotFound
from treadle.models import call, fail, text

ROUND_SECONDS = 2.5
MOST_GROWTH = 0.05
"""Which share of the memory and blocks after warm-up may be added: a runner keeps the newest few hundred agents."""
WARM_STORIES = 600
"""After how many stories the caches of a runner are full: it keeps 256 agents, and a story makes one or two."""
READS_OF_A_STORY = 4
"""How many reads of the store a story has under way at most: a driver and three watchers."""
TABLES = ("tasks", "records", "inbox", "blobs", "blob_refs", "threads", "members")


@tool(read_only=True)
async def look(words: int = 3) -> str:
    """Look."""
    await asyncio.sleep(0.002)
    return "seen " * words


@tool(read_only=True)
def reckon(a: int) -> int:
    """Work in a thread."""
    return a * a


def _tear(call: ToolCall, ctx: ToolContext[None]) -> None:
    """Take a written line back."""


@tool(undo=_tear)
async def write(line: str) -> str:
    """Write a line."""
    return line


@tool(timeout=0.2)
async def post() -> str:
    """Post a letter, and never hear of it."""
    await asyncio.sleep(3_600)
    return ""


def worker(*turns: object, name: str = "worker") -> Agent[None]:
    """An agent with all tools and a script."""
    return Agent(ScriptedModel([*turns], keep=1), name=name, tools=[look, reckon, write, post])


class Stories:
    """What a worker does; each story deletes all it made."""

    def __init__(self, runner: Runner, chance: random.Random) -> None:
        self.runner = runner
        self.chance = chance
        self.told: Counter[str] = Counter()
        self.all: dict[str, Callable[[], Awaitable[None]]] = {
            "run": self.run,
            "large": self.large,
            "stream": self.stream,
            "left": self.left,
            "cancelled caller": self.abandoned,
            "cancel": self.cancel,
            "pause": self.pause,
            "step and undo": self.undo,
            "fork": self.fork,
            "thread": self.thread,
            "settle": self.settle,
            "fail": self.fail,
            "feedback": self.feedback,
        }

    async def tell(self, until: float) -> None:
        while time.monotonic() < until:
            name = self.chance.choice(list(self.all))
            await self.all[name]()
            self.told[name] += 1

    async def delete(self, task_id: str) -> None:
        """Delete a task, and the thread where what it said would stay."""
        thread = (await self.runner.get_task(task_id)).thread_id
        await self.runner.delete_task(task_id)
        with suppress(ThreadNotFound):  # a cancelled task said nothing
            await self.runner.delete_thread(thread)

    async def run(self) -> None:
        agent = worker(call("look") + call("reckon", a=3), call("write", line="x"), text("Done."))
        result = await self.runner.run(agent, "Go")
        assert result.state == "completed", result
        report = await self.runner.verify(result.task_id)
        assert not report.findings, report
        await self.runner.export_tasks(io.BytesIO(), result.task_id)
        await self.delete(result.task_id)

    async def large(self) -> None:
        result = await self.runner.run(worker(call("look", words=40_000), text("Long.")), "Look long")
        assert result.state == "completed", result
        await self.delete(result.task_id)

    async def stream(self) -> None:
        agent = worker(call("look"), text("a word " * 50, chunk=5))
        async with self.runner.run_stream(agent, "Tell") as stream:
            async for _ in stream:
                pass
        assert stream.result.state == "completed", stream.result
        await self.delete(stream.task_id)

    async def left(self) -> None:
        agent = worker(call("look"), text("never read " * 20, chunk=5, pause=0.01), text("Read."))
        async with self.runner.run_stream(agent, "Tell") as stream:
            async for event in stream:
                if event.kind == "delta":
                    break
        assert stream.result.state == "interrupted", stream.result
        assert (await self.runner.resume(stream.task_id, agent=agent)).state == "completed"
        await self.delete(stream.task_id)

    async def abandoned(self) -> None:
        task_id = f"a{self.chance.getrandbits(64):x}"
        slow, quick = worker(text("Too late.", delay=30.0)), worker(text("In time."))
        with suppress(TimeoutError):
            await asyncio.wait_for(self.runner.run(slow, "Wait", task_id=task_id), 0.5)
        with suppress(TaskNotFound):  # it may have been left before it was made
            assert (await self.runner.resume(task_id, agent=quick)).state == "completed"
            await self.delete(task_id)

    async def cancel(self) -> None:
        handle = await self.runner.start(worker(call("look"), text("Never.", delay=30.0)), "Wait")
        watching = [asyncio.ensure_future(self._watch(handle.task_id, most)) for most in (1, 3, 1_000)]
        assert (await handle.cancel()).state == "cancelled"
        await asyncio.gather(*watching)
        await self.delete(handle.task_id)

    async def _watch(self, task_id: str, most: int) -> None:
        seen = 0
        async for _ in self.runner.handle(task_id).events():
            seen += 1
            if seen == most:
                break

    async def pause(self) -> None:
        agent = worker(*[call("look", words=n) for n in range(8)], text("Done."))
        handle = await self.runner.start(agent, "Look around")
        result = await handle.pause()
        if result.state != "completed":
            assert result.state == "paused", result
            result = await self.runner.resume(handle.task_id, agent=agent)
        assert result.state == "completed", result
        await self.delete(handle.task_id)

    async def undo(self) -> None:
        agent = worker(call("write", line="1"), call("write", line="2"), text("Written."))
        task = await self.runner.create_task(agent, "Write")
        await self.runner.run_step(task, agent=agent)
        report = await self.runner.undo_step(task, agent=agent)
        assert report.complete, report
        await self.runner.run_step(task, agent=agent)
        await self.runner.resume(task, agent=agent)
        await self.delete(task.task_id)

    async def fork(self) -> None:
        agent = worker(call("look"), call("reckon", a=2), text("One way."))
        result = await self.runner.run(agent, "Go")
        fork = await self.runner.fork(result.task_id, at="s1")
        other = worker(call("look"), text("Another way."))
        assert (await self.runner.resume(fork, agent=other)).final_text == "Another way."
        await self.runner.diff(result.task_id, fork)
        both = [result.task_id, fork.task_id]
        self.chance.shuffle(both)
        for task in both:  # also the one whose words the other shares first
            await self.delete(task)

    async def thread(self) -> None:
        thread = f"t{self.chance.getrandbits(64):x}"
        runs = [self.runner.run(worker(text(f"{n}")), f"Say {n}", thread_id=thread) for n in range(3)]
        await asyncio.gather(*runs)
        await self.runner.compact_thread(thread, keep=1, model=ScriptedModel([text("They counted.")]))
        last = await self.runner.run(worker(text("More.")), "Go on", thread_id=thread)
        if self.chance.random() < 0.5:
            await self.runner.delete_task(last.task_id)
        await self.runner.delete_thread(thread)

    async def settle(self) -> None:
        agent = worker(call("post"), text("Posted."))
        result = await self.runner.run(agent, "Post it")
        assert result.state == "waiting", result
        verdict = self.chance.choice([Happened("sent"), NotHappened()])
        await self.runner.settle(result.task_id, result.pending[0].request_id, verdict)
        result = await self.runner.resume(result.task_id, agent=agent)
        await self.delete(result.task_id)

    async def fail(self) -> None:
        agent = worker(fail(400), text("Yes."))
        result = await self.runner.run(agent, "Try")
        assert result.state == "failed", result
        assert (await self.runner.resume(result.task_id, agent=agent)).state == "completed"
        await self.delete(result.task_id)

    async def feedback(self) -> None:
        agent = worker(call("look"), text("Heard."), text("Heard again."))
        pause = RunOptions(break_on=[Breakpoint(after_step=1)])
        result = await self.runner.run(agent, "Listen", options=pause)
        await self.runner.send(result.task_id, "Hear this")
        assert (await self.runner.resume(result.task_id, agent=agent)).state == "completed"
        await self.delete(result.task_id)


def left_over(url: str) -> dict[str, float]:
    """Count what is there while nothing is under way."""
    for _ in range(3):
        gc.collect()
    of_store, others = _descriptors(Path(url).name)
    counted: dict[str, float] = {
        "memory, MiB": int(Path("/proc/self/statm").read_text().split()[1])
        * os.sysconf("SC_PAGE_SIZE")
        / 2**20,
        "blocks": sys.getallocatedblocks(),
        "descriptors": others,
        "descriptors of the store": of_store,
        "threads": threading.active_count(),
        "asyncio tasks": len(asyncio.all_tasks()),
    }
    counted["rows"], counted["pages"] = _rows(url)
    return counted


def _descriptors(store: str) -> tuple[int, int]:
    """Return how many open descriptors are of the store's files, and how many are others."""
    targets: list[str] = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the descriptor of this listing
            targets.append(descriptor.readlink().name)
    of_store = sum(target.startswith(store) for target in targets)
    return of_store, len(targets) - of_store


def _rows(url: str) -> tuple[int, int]:
    """Return how many rows there are in all tables of tasks, and of how many pages the store is."""
    sizes = " + ".join(f"(SELECT count(*) FROM {table})" for table in TABLES)
    if url.startswith("postgresql:"):
        import psycopg

        with psycopg.connect(url) as connection:
            connection.execute("SET search_path TO treadle")  # the default schema
            sizes_found = connection.execute(f"SELECT {sizes}").fetchone()
            return (sizes_found[0] if sizes_found else 0), 0
    file = apsw.Connection(url, flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        return file.execute(f"SELECT {sizes}").get, file.execute("PRAGMA page_count").get
    finally:
        file.close()


def growth(samples: list[float]) -> float:
    """Return by how much a line through samples rises from the first to the last."""
    n = len(samples)
    middle, mean = (n - 1) / 2, sum(samples) / n
    spread = sum((x - middle) ** 2 for x in range(n))
    return sum((x - middle) * (y - mean) for x, y in enumerate(samples)) / spread * (n - 1)


def judge(samples: list[dict[str, float]], warm: int, workers: int) -> list[str]:
    """Print what each figure did after warm-up, the first `warm` samples; return the names of those that grew."""
    steady = samples[warm:]
    grown: list[str] = []
    for name in samples[0]:
        values = [sample[name] for sample in steady]
        if name in ("memory, MiB", "blocks"):
            risen = growth(values)
            bad = risen > values[0] * MOST_GROWTH
            summary = f"slope {risen:+,.1f} in all"
        else:
            late = len(steady) // 2
            before = max(sample[name] for sample in samples[:-late])
            match name:
                case "rows":
                    bad = max(values) > 0
                case "descriptors of the store":
                    bad = max(values) > READS_OF_A_STORY * workers + 4  # the writer, and the files beside
                case _:
                    bad = min(values[-late:]) > before * 1.05
            summary = f"least {min(values):,.0f}, most {max(values):,.0f}"
        print(f"{name}: {values[0]:,.1f} -> {values[-1]:,.1f}, {summary}{'  GROWS' if bad else ''}")
        grown += [name] if bad else []
    return grown


async def soak(url: str, seconds: float, workers: int, seed: int) -> int:
    """Tell stories in rounds; return 1 if anything grew."""
    samples: list[dict[str, float]] = []
    async with Runner(url, agents=[worker(name="adopted")], adopt=True) as runner:
        stories = Stories(runner, random.Random(seed))
        until = time.monotonic() + seconds
        round_seconds = min(ROUND_SECONDS, seconds / 8)
        warm = 0
        while time.monotonic() < until or len(samples) < max(6, warm + 4):
            end = time.monotonic() + round_seconds
            await asyncio.gather(*(stories.tell(end) for _ in range(workers)))
            await asyncio.sleep(0.1)
            samples.append(left_over(url))
            if stories.told.total() < WARM_STORIES or warm < len(samples) // 3:
                warm += 1
        report = await runner.verify()
    summary = ", ".join(f"{count:,} {name}" for name, count in sorted(stories.told.items()))
    took = time.monotonic() - until + seconds
    print(
        f"{stories.told.total():,} stories in {took:.0f} s, {len(samples)} rounds, {warm} to warm up: {summary}"
    )
    grown = judge(samples, warm, workers)
    print(
        f"findings of verify: {len(report.findings)}; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )
    return 1 if grown or report.findings else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.soak")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--store", default="sqlite")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with lent(arguments.store) as url:
        return asyncio.run(soak(url, arguments.seconds, arguments.workers, arguments.seed))


if __name__ == "__main__":
    sys.exit(main())
