"""Random graphs of steps: their result is the same for any speed, crash, undo or fork.

Each seed makes a worker (which steps plan which, which steps wait for which, the work of each) and a fate (how long
each step takes, when its process crashes, what is undone or forked). The plain run of the worker gives the expected
result.
"""

import asyncio
import random
from contextlib import suppress
from typing import Any

import pytest

from tests.property.mortal import MortalStore, next_life
from treadle import (
    Agent,
    NextStep,
    Runner,
    RunOptions,
    RunResult,
    ScriptedModel,
    StepContext,
    StepResult,
    ToolContext,
    tool,
)
from treadle.core.model import ModelRequest
from treadle.errors import StepNotFound, StoreError
from treadle.llm.scripted import Turn, text
from treadle.stores.memory import MemoryStore
from treadle.testing.audit import Evidence, LedgerEntry, audit_store

pytestmark = pytest.mark.anyio

OPTIONS = RunOptions(on_unknown_outcome="tell_model")
DEPTH, WIDTH = 3, 4


def model_answer(request: ModelRequest) -> Turn:
    shown = "/".join(message.text[-12:] for message in request.messages)
    return text(f"{len(request.messages)}:{hash_of(shown)}")


def hash_of(text: str) -> int:
    return sum((i + 1) * ord(letter) for i, letter in enumerate(text)) % 9973


class Graph:
    """A worker that does, under each name, what the seed says."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.fate = random.Random(seed)
        self.ledger: list[LedgerEntry] = []
        self.entered: list[str] = []
        self.patience = 0
        self.agent: Agent[Any] = Agent(
            ScriptedModel(model_answer), worker=self.step, tools=list(self.tools())
        )

    def tools(self) -> Any:
        def note(ctx: ToolContext, effect: Any) -> None:
            self.ledger.append(LedgerEntry(ctx.call_id, ctx.idempotency_key, effect, "start", ctx.task_id))

        async def unwrite(call: Any, ctx: ToolContext) -> None:
            note(ctx, "write")

        @tool(undo=unwrite)
        async def write(what: str, ctx: ToolContext) -> str:
            """Write."""
            note(ctx, "write")
            await self.wait()
            return f"wrote {what}"

        @tool(read_only=True)
        async def look(what: str) -> str:
            """Look."""
            await self.wait()
            return f"saw {what}"

        return (write, look)

    async def wait(self) -> None:
        for _ in range(self.fate.randint(0, self.patience)):
            await asyncio.sleep(0)

    async def step(self, ctx: StepContext) -> StepResult:
        self.entered.append(ctx.name)
        chance = random.Random(f"{self.seed}/{ctx.name}")
        await self.wait()
        results: list[Any] = [ctx.name, dict(ctx.results)]
        for _ in range(chance.randint(0, 3)):
            match chance.randint(0, 3):
                case 0:
                    results.append(await ctx.call_tool("write", {"what": ctx.name}))
                case 1:
                    results.append((await ctx.call_model()).message.text)
                case 2:
                    results.append((await ctx.call_model(f"aside {ctx.name}")).message.text)
                case _:
                    both = [ctx.call_tool("look", {"what": f"{ctx.name}{i}"}) for i in range(2)]
                    results.append(await asyncio.gather(*both))
        if ctx.name == "end":
            return StepResult(digest(results), is_last=True)
        return StepResult(digest(results), next_steps=self.plan(ctx.name, chance))

    def plan(self, name: str, chance: random.Random) -> list[NextStep]:
        depth = name.count(".")
        if name == "start":
            names = [f"n.{i}" for i in range(chance.randint(1, WIDTH))]
        elif depth < DEPTH and chance.random() < 0.4:
            names = [f"{name}.{i}" for i in range(chance.randint(1, 2))]
        else:
            return []
        steps: list[NextStep] = []
        for i, each in enumerate(names):
            after = tuple(name for name in names[:i] if chance.random() < 0.3)
            steps.append(NextStep(each, {"of": name}, after, chance.choice(["all", "optional"])))
        if name == "start":
            chain = [NextStep("before the end", after=tuple(names))]
            steps += [*chain, NextStep("end", after=("before the end", *(names[:1])))]
        return steps


def digest(results: list[Any]) -> list[Any]:
    return [results[0], hash_of(str(results)), len(results)]


def outcome(result: RunResult) -> Any:
    messages = [(message.role, message.text) for message in result.messages]
    return (
        result.state,
        result.output,
        messages,
        sorted((run.name, str(run.output)) for run in result.tool_executions),
    )


def comparable(seed: int, result: RunResult) -> Any:
    """What has to be the same; steps that nothing waits for may be stopped by the end, so their traces are not."""
    return result.state, result.output


async def plain(seed: int) -> RunResult:
    graph = Graph(seed)
    async with Runner("memory:", options=OPTIONS) as runner:
        return await runner.run(graph.agent, "go")


async def judged(graph: Graph, store: Any, *, ended: bool = True) -> None:
    assert await audit_store(store, Evidence(ledger=graph.ledger, ended=ended)) == [], graph.seed


async def with_a_fate(seed: int) -> tuple[Graph, RunResult]:
    """Run a graph whose steps take random times, in a process that may die, and take steps back now and then."""
    graph = Graph(seed)
    graph.patience = graph.fate.choice([0, 3, 12])
    store: Any = MortalStore(MemoryStore())
    await store.real.open()
    store.commits_left = graph.fate.choice([None, graph.fate.randint(1, 12)])
    store.dies_after_writing = graph.fate.random() < 0.5
    options = (
        OPTIONS
        if graph.fate.random() < 0.5
        else RunOptions(on_unknown_outcome="tell_model", max_parallel_steps=2)
    )
    result: RunResult | None = None
    for _ in range(40):
        try:
            async with Runner(store, options=options, agents=[graph.agent]) as runner:
                result = await runner.run(graph.agent, "go", task_id="t1")
                break
        except StoreError:
            store = await next_life(store, None)
            store.commits_left = graph.fate.choice([None, None, graph.fate.randint(1, 9)])
    assert result is not None
    async with Runner(store.real, options=options, agents=[graph.agent]) as runner:
        for _ in range(graph.fate.randint(0, 2)):
            steps = await runner.get_completed_steps("t1")
            if result.state != "completed" or not steps:
                break
            step = graph.fate.choice(steps).step.step_id
            if graph.fate.random() < 0.6:
                await runner.undo_step("t1", step=step, force=True)
                result = await runner.resume("t1")
            else:
                fork = await runner.fork("t1", at=step)
                assert comparable(seed, await runner.resume(fork)) == comparable(seed, result), (seed, step)
                with suppress(StepNotFound):  # it did nothing of its own
                    await runner.undo_step(fork, to=0, force=True)
                    assert comparable(seed, await runner.resume(fork)) == comparable(seed, result), (
                        seed,
                        step,
                    )
        indexes = [step.step.index for step in await runner.get_completed_steps("t1")]
        assert len(indexes) == len(set(indexes)), (seed, indexes)
        await judged(graph, runner.store)
    return graph, result


async def holds(seed: int) -> dict[str, bool]:
    expected = await plain(seed)
    graph, result = await with_a_fate(seed)
    unknown = any(run.outcome == "unknown" for run in result.tool_executions)
    if not (unknown or result.state == "failed"):
        assert comparable(seed, result) == comparable(seed, expected), seed
    names = [name for name in graph.entered if name != "start"]
    return {
        "completed": result.state == "completed",
        "entered again": len(names) != len(set(names)),
        "unknown": unknown,
        "nested": any(name.count(".") > 1 for name in names),
    }


MET = (18, 38, 0, 1)
"""Seeds that between them meet all there is."""


async def test_random_graphs_have_the_same_result_after_any_interruption() -> None:
    first = random.randrange(10**9)
    met: dict[str, int] = {}
    for seed in (*MET, *range(first, first + 16)):
        for name, is_so in (await holds(seed)).items():
            met[name] = met.get(name, 0) + is_so
    assert all(met.values()), met


@pytest.mark.full
async def test_thousands_of_random_graphs_come_to_the_same() -> None:
    for seed in range(1_000, 4_000):
        await holds(seed)
