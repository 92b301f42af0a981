"""The rows of the table: for each a workload, its reference and Treadle, and what the first release has to reach.

A sampler returns one figure in the row's unit; it is called once per round, in an order that is shuffled anew.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from itertools import count, pairwise
from pathlib import Path
from statistics import median
from time import perf_counter

from bench import references, subjects
from treadle import Agent, Breakpoint, Runner, RunOptions

Sampler = Callable[[], Awaitable[float]]
MICRO = 1e6


@dataclass
class Row:
    """One line of the table. `limit` bounds the ratio to the reference, or the value itself with `absolute`."""

    key: str
    what: str
    unit: str
    reference: str
    samplers: dict[str, Sampler]
    limit: float | None = None
    absolute: bool = False
    rounds: int | None = None
    samples: dict[str, list[float]] = field(default_factory=dict)


class BenchFolder:
    """Where the run keeps its files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._numbers = count()

    def new(self) -> Path:
        return self.folder / f"{next(self._numbers)}.db"


def per_step(work: Callable[[], Awaitable[None]], turns: int, seconds: float) -> Sampler:
    """Microseconds a step takes when runs follow one another."""

    async def sample() -> float:
        await work()
        gc.collect()
        runs, begin = 0, perf_counter()
        while (spent := perf_counter() - begin) < seconds:
            await work()
            runs += 1
        return spent / runs / turns * MICRO

    return sample


def in_treadle(store: Callable[[], str], agent: Agent, turns: int, seconds: float) -> Sampler:
    async def sample() -> float:
        async with Runner(store()) as runner:
            return await per_step(lambda: subjects.run(runner, agent), turns, seconds)()

    return sample


def in_sqlite(place: BenchFolder, kind: type, turns: int, seconds: float) -> Sampler:
    model, runs = references.model(turns), count()

    async def sample() -> float:
        writer = kind(place.new())

        async def work() -> None:
            await references.bare(model, writer.of(f"r{next(runs)}"))

        try:
            return await per_step(work, turns, seconds)()
        finally:
            writer.close()

    return sample


def steps(place: BenchFolder, seconds: float) -> Iterable[Row]:
    """Rows 1 and 3: what a step costs."""

    async def bare() -> None:
        await references.bare(references.model(4))

    async def featured() -> None:
        await references.featured(references.model(4))

    four = subjects.agent(subjects.Fake(4))
    yield Row(
        "1",
        "step in memory, 4-turn runs",
        "us",
        "featured",
        {
            "bare": per_step(bare, 4, seconds),
            "featured": per_step(featured, 4, seconds),
            "treadle": in_treadle(lambda: "memory:", four, 4, seconds),
        },
        limit=4.0,
    )
    writing = subjects.Fake(4, called="write")
    for key, name, model, turns, limit in (
        ("3", "durable step, read-only tool, 4-turn runs", subjects.Fake(4), 4, 1.6),
        ("3 long", "durable step, read-only tool, 100-turn runs", subjects.Fake(100), 100, 1.6),
        ("3w", "durable step, writing tool, 4-turn runs", writing, 4, 3.0),
    ):
        yield Row(
            key,
            name,
            "us",
            "alone",
            {
                "alone": in_sqlite(place, references.Alone, turns, 3 * seconds),
                "grouped": in_sqlite(place, references.Grouped, turns, 3 * seconds),
                "treadle": in_treadle(lambda: str(place.new()), subjects.agent(model), turns, 3 * seconds),
            },
            limit=limit,
        )


def consuming(seconds: float) -> Row:
    samplers = {
        name: in_treadle(lambda: "memory:", subjects.agent(model), 100, seconds)
        for name, model in (
            ("ignores", subjects.Fake(100)),
            ("treadle", subjects.Fake(100, consumes=True)),
        )
    }
    what = "step in memory, 100-turn runs, model that encodes its request"
    return Row("1c", what, "us", "ignores", samplers)


def growth(turns: int, rounds: int) -> Row:
    """Row 2: a step late in a run over one near its tenth turn, in the same run."""

    def factor(at: list[float]) -> float:
        seconds = [after - before for before, after in pairwise(at)]
        return median(seconds[-40:]) / median(seconds[5:45])

    async def reference() -> float:
        at: list[float] = []
        model = references.model(turns)

        async def asked(turn: int) -> dict[str, object]:
            at.append(perf_counter())
            return await model(turn)

        await references.featured(asked)
        return factor(at)

    async def treadle() -> float:
        model = subjects.Fake(turns)
        async with Runner("memory:") as runner:
            await subjects.run(runner, subjects.agent(model))
        return factor(model.at)

    return Row(
        f"2 {turns:,}",
        f"growth of a step, turn 10 to {turns:,}",
        "x",
        "featured",
        {"featured": reference, "treadle": treadle},
        limit=1.1 if turns <= 500 else 1.3,
        absolute=True,
        rounds=rounds,
    )


def stored(place: BenchFolder) -> Row:
    """Row 4: bytes of the file per step."""
    turns = 500

    async def alone() -> float:
        writer = references.Alone(place.new())
        before = writer.size()
        await references.bare(references.model(turns), writer.of("r"))
        size = writer.size() - before
        writer.close()
        return size / turns

    async def treadle() -> float:
        path = place.new()
        sizes: list[int] = []
        for model in (subjects.Fake(1), subjects.Fake(turns)):
            async with Runner(str(path)) as runner:
                await subjects.run(runner, subjects.agent(model))
            sizes.append(path.stat().st_size)
        return (sizes[1] - sizes[0]) / turns

    return Row(
        "4",
        "bytes stored per step, 500 turns",
        "B",
        "alone",
        {"alone": alone, "treadle": treadle},
        limit=1_000,
        absolute=True,
        rounds=1,
    )


def concurrent(place: BenchFolder, runs: int) -> Iterable[Row]:
    """Row 5: 1,000 runs at once; how much longer than the 0.2 s that the model alone takes."""
    ideal = 4 * 0.05

    async def timed(works: Iterable[Awaitable[object]]) -> float:
        gc.collect()
        begin = perf_counter()
        await asyncio.gather(*works)
        return (perf_counter() - begin) / ideal

    async def bare() -> float:
        return await timed(references.bare(references.model(4, 0.05)) for _ in range(runs))

    async def featured() -> float:
        return await timed(references.featured(references.model(4, 0.05)) for _ in range(runs))

    async def grouped() -> float:
        writer = references.Grouped(place.new())
        try:
            model = references.model(4, 0.05)
            return await timed(references.bare(model, writer.of(f"r{n}")) for n in range(runs))
        finally:
            writer.close()

    def treadle(store: Callable[[], str]) -> Sampler:
        async def sample() -> float:
            agent = subjects.agent(subjects.Fake(4, delay=0.05))
            async with Runner(store()) as runner:
                await subjects.run(runner, agent)
                return await timed(subjects.run(runner, agent) for _ in range(runs))

        return sample

    name = f"{runs:,} concurrent 4-turn runs, 50 ms model: wall over ideal"
    samplers = {"bare": bare, "featured": featured, "treadle": treadle(lambda: "memory:")}
    yield Row("5", f"{name}, memory", "x", "featured", samplers, limit=2.0, absolute=True)
    samplers = {"grouped": grouped, "treadle": treadle(lambda: str(place.new()))}
    yield Row("5 sqlite", f"{name}, SQLite", "x", "grouped", samplers, limit=3.0, absolute=True)


def memory(runs: int) -> Row:
    """Row 6: peak memory per concurrent run, each measured in a process of its own."""

    def measured(subject: str) -> Sampler:
        async def sample() -> float:
            return float(await _python("-m", "bench.footprint", subject, str(runs)))

        return sample

    return Row(
        "6",
        f"peak memory per run, {runs:,} at once",
        "KiB",
        "featured",
        {name: measured(name) for name in ("bare", "featured", "treadle")},
        limit=24,
        absolute=True,
        rounds=3,
    )


def importing(rounds: int) -> Row:
    """Row 7: what an import adds to the start of an interpreter."""

    def measured(statement: str) -> Sampler:
        async def sample() -> float:
            seconds: list[float] = []
            for code in ("pass", statement):
                begin = perf_counter()
                await _python("-c", code)
                seconds.append(perf_counter() - begin)
            return (seconds[1] - seconds[0]) * 1e3

        return sample

    return Row(
        "7",
        "import, beyond the interpreter's start",
        "ms",
        "stdlib",
        {"stdlib": measured("import asyncio, json, sqlite3"), "treadle": measured("import treadle")},
        limit=200,
        absolute=True,
        rounds=rounds,
    )


async def _python(*arguments: str) -> str:
    # Compiled modules are kept, as they are where people work; the first round may still have to write them.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=subprocess.PIPE, env=env
    )
    out, _ = await process.communicate()
    assert process.returncode == 0, arguments
    return out.decode().strip()


def streaming() -> Row:
    """Row 8: one text delta, from the model to whoever watches the run."""
    words = 2_000

    async def bare() -> float:
        begin = perf_counter()
        assert await references.deltas(words) == words
        return (perf_counter() - begin) / words * MICRO

    async def once(runner: Runner, agent: Agent) -> float:
        begin, seen = perf_counter(), 0
        async with runner.run_stream(agent, references.QUESTION) as stream:
            async for event in stream:
                seen += type(event).__name__ == "Delta"
        assert seen == words, seen
        return perf_counter() - begin

    async def treadle() -> float:
        async with Runner("memory:") as runner:
            without = subjects.agent(subjects.Fake(1))
            async with runner.run_stream(without, references.QUESTION) as stream:
                _ = [event async for event in stream]
            return await once(runner, subjects.agent(subjects.Fake(1, words=words))) / words * MICRO

    return Row("8", "one streamed text delta", "us", "bare", {"bare": bare, "treadle": treadle}, 5.0, True)


def parallel() -> Row:
    """Row 9: 50 tool calls of 20 ms in one turn."""

    async def featured() -> float:
        begin = perf_counter()
        await references.featured(references.model(2, fan=50))
        return (perf_counter() - begin) * 1e3

    async def treadle() -> float:
        agent = subjects.agent(subjects.Fake(2, fan=50))
        async with Runner("memory:") as runner:
            await subjects.run(runner, subjects.agent(subjects.Fake(2)))
            begin = perf_counter()
            await subjects.run(runner, agent)
            return (perf_counter() - begin) * 1e3

    samplers = {"featured": featured, "treadle": treadle}
    return Row("9", "50 parallel tool calls of 20 ms: wall", "ms", "featured", samplers, 25.0, True)


async def reopening(place: BenchFolder) -> Row:
    """Row 10: open a file, take one more step of a task of 500 steps, close it."""
    turns = 500
    long, own = place.new(), place.new()
    writer = references.Alone(long)
    model = references.model(turns + 1)
    persist = writer.of("r")

    async def stop_before_the_last(turn: int) -> dict[str, object]:
        if turn > turns:
            raise _Enough
        return await model(turn)

    try:
        await references.bare(stop_before_the_last, persist)
    except _Enough:
        writer.size()
        writer.close()
    agent = subjects.agent(subjects.Fake(turns + 1))
    async with Runner(str(own)) as runner:
        pause = RunOptions(break_on=[Breakpoint(after_step=turns)])
        task = (await runner.run(agent, references.QUESTION, options=pause)).task_id

    async def bare() -> float:
        path = place.new()
        shutil.copy(long, path)
        begin = perf_counter()
        assert await references.reopen(path, "r", model) == references.ANSWER
        return (perf_counter() - begin) * 1e3

    async def treadle() -> float:
        path = place.new()
        shutil.copy(own, path)
        begin = perf_counter()
        async with Runner(str(path)) as runner:
            result = await runner.resume(task, agent=agent)
        seconds = perf_counter() - begin
        assert result.final_text == references.ANSWER, result
        assert result.steps == turns + 1, result.steps
        return seconds * 1e3

    name = "reopen a 500-step task, one more step, close"
    return Row("10", name, "ms", "bare", {"bare": bare, "treadle": treadle}, limit=3.5)


class _Enough(Exception):
    pass


async def all_rows(place: BenchFolder, *, quick: bool) -> list[Row]:
    """Every row, in the order of the table."""
    seconds = 0.05 if quick else 0.15
    runs = 200 if quick else 1_000
    return [
        *steps(place, seconds),
        growth(500, 3 if quick else 7),
        *([] if quick else [growth(5_000, 3)]),
        stored(place),
        *concurrent(place, runs),
        memory(runs),
        importing(3 if quick else 7),
        streaming(),
        parallel(),
        await reopening(place),
        consuming(seconds),
    ]


def document(rows: list[Row]) -> str:
    """Everything measured, as JSON."""
    return json.dumps({row.key: {"unit": row.unit, "samples": row.samples} for row in rows}, indent=1)
