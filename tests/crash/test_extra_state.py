"""Tasks whose calls and functions change the state are killed at every boundary: each ends with the same state."""

import random
from hashlib import sha256
from pathlib import Path

import pytest

from treadle.testing.boundaries import crash_at_every_boundary
from treadle.testing.postgres import PostgresServer

AGENT = """
import asyncio
import json

from treadle import Agent, Happened, NextStep, Node, Pipeline, ScriptedModel, StepResult, ToolContext, tool
from treadle.errors import TaskNotFound
from treadle.models import call
from treadle.replay.recording import journal_of

async def unadd(done, ctx):
    dict(ctx.state)

@tool(idempotent=True, undo=unadd)
async def add(n: int, ctx: ToolContext) -> int:
    ctx.state["sum"] = ctx.state.get("sum", 0) + n
    ctx.state.setdefault("added", []).append(n)
    await asyncio.sleep(0)
    return ctx.state["sum"]

@tool(read_only=True)
def put(name: str, ctx: ToolContext) -> str:
    ctx.state[name] = {"by": ctx.call_id.partition("r")[0]}
    ctx.state["last"] = name
    ctx.state.pop("gone", None)
    return name

@tool(read_only=True, return_direct=True)
async def tell(ctx: ToolContext) -> str:
    return json.dumps(dict(ctx.state), sort_keys=True)

calls = [call("add", n=1), call("put", name="a") + call("add", n=2) + call("put", name="b"), call("add", n=3),
         call("tell")]
calling = Agent(ScriptedModel(calls), name="calling", tools=[add, put, tell])

async def worker(ctx):
    ctx.state.setdefault("steps", {})
    if ctx.name == "start":
        await ctx.call_tool("add", {"n": 1})
        n = ctx.state["sum"]
        await ctx.call_tool("add", {"n": n + 1})
        ctx.state["sum"] += 10
        return StepResult(next_steps=[NextStep("a"), NextStep("b"), NextStep("end", after=("a", "b"))])
    if ctx.name == "end":
        return StepResult(json.dumps(dict(ctx.state), sort_keys=True), is_last=True)
    await ctx.call_tool("put", {"name": ctx.name})
    await asyncio.sleep(0.05 if ctx.name == "a" else 0)  # it ends last, and b comes later in the plan
    ctx.state["last step"] = ctx.name
    return StepResult(ctx.name)

functions = Agent(ScriptedModel([]), name="functions", worker=worker, tools=[add, put])

async def beside(ctx):
    ctx.step.state["who"] = ctx.step.name
    await ctx.step.call_tool("put", {"name": ctx.step.name})
    await asyncio.sleep(0.05 if ctx.step.name == "a" else 0)  # it ends last, and b comes later in the plan
    ctx.step.state["n"] = ctx.step.state.get("n", 0) + 1
    return ctx.step.name

def all_of_it(ctx):
    return json.dumps(dict(ctx.step.state), sort_keys=True)

line = Pipeline([Node("a", beside), Node("b", beside), Node("end", all_of_it, after=("a", "b"))])
nodes = Agent(ScriptedModel([]), name="nodes", worker=line, tools=[put])

async def undone(runner, agent, task_id):
    # Run a task, take its last steps back once, and run it again.
    try:
        kinds = [event.kind for event in await journal_of(runner.store, task_id)]
    except TaskNotFound:
        kinds = []
        await runner.create_task(agent, "go", task_id=task_id, extra_state={"gone": 1})
    if "rewound" not in kinds:
        if "undo_requested" not in kinds:
            await runner.resume(task_id, agent=agent)
        while "rewound" not in [event.kind for event in await journal_of(runner.store, task_id)]:
            await runner.undo_step(task_id, to=1, agent=agent)
            for pending in (await runner.result(task_id)).pending:  # a compensation was cut off: it happened
                await runner.settle(task_id, pending.request_id, Happened())
        told = (await runner.get_task(task_id)).extra_state
        assert told == {"gone": 1, "sum": 1, "added": [1]}, told
    return await runner.resume(task_id, agent=agent)
"""

ENDS = {
    "calling": '{"a": {"by": "s2-0"}, "added": [1, 2, 3], "b": {"by": "s2-2"}, "last": "b", "sum": 6}',
    "functions": '{"a": {"by": "s2-c1"}, "added": [1, 2], "b": {"by": "s3-c1"}, "last": "b", "last step": "b", '
    '"steps": {}, "sum": 13}',
    "nodes": '{"a": {"by": "s1-c1"}, "b": {"by": "s2-c1"}, "last": "b", "n": 1, "who": "b"}',
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "state_crashes.py").write_text(AGENT)
    return tmp_path


@pytest.mark.parametrize(
    "agent", ["calling", *(pytest.param(name, marks=pytest.mark.full) for name in ("functions", "nodes"))]
)
def test_a_task_killed_at_its_boundaries_ends_with_the_same_state(folder: Path, agent: str) -> None:
    seed = random.random()
    print(f"seed {seed}")
    report = crash_at_every_boundary(
        f"state_crashes:{agent}",
        "go",
        cwd=folder,
        kills_per_task=10,
        recovery=False,
        only=lambda point: random.Random(f"{seed} {point}").random() < 1 / 3,
    )
    assert (report.broken, report.missed) == ([], [])
    assert report.answer == ("completed", ENDS[agent])
    assert len(report.places) > 10


def store_for(name: str, request: pytest.FixtureRequest) -> str | None:
    """Return the URL of a store, None for a SQLite file of the trials' own."""
    if name == "sqlite":
        return None
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.in_schema(f"crashes_{sha256(request.node.name.encode()).hexdigest()[:16]}")


@pytest.mark.full
@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_a_task_killed_at_the_boundaries_of_its_undo_ends_with_the_same_state(
    folder: Path, store: str, request: pytest.FixtureRequest
) -> None:
    report = crash_at_every_boundary(
        "state_crashes:calling",
        "go",
        script="state_crashes:undone",
        store=store_for(store, request),
        cwd=folder,
        kills_per_task=10,
        recovery=False,
    )
    assert (report.broken, report.missed) == ([], [])
    state, answer = report.answer
    assert state == "completed"
    assert '"added": [1, 2, 3]' in answer
    assert '"sum": 6' in answer


@pytest.mark.full
@pytest.mark.parametrize("agent", ENDS)
@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_a_task_killed_at_every_boundary_and_that_of_its_recovery_ends_with_the_same_state(
    folder: Path, agent: str, store: str, request: pytest.FixtureRequest
) -> None:
    url = store_for(store, request)
    report = crash_at_every_boundary(f"state_crashes:{agent}", "go", store=url, cwd=folder, kills_per_task=4)
    assert (report.broken, report.missed) == ([], [])
    assert report.answer == ("completed", ENDS[agent])
