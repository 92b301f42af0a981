"""Limits are shared by a whole tree of tasks: 13 agents, each limit alone and all together, and siblings in a race."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.runner.acts import assert_journal_makes_sense, journal, only, results_seen
from treadle import Agent, Limits, Runner, RunOptions, ScriptedModel, tool
from treadle.core.model import Usage
from treadle.llm.scripted import call, turn
from treadle.models import Price

pytestmark = pytest.mark.anyio

STATES: dict[Any, str] = {"final_answer": "degraded", "fail": "failed", "pause": "waiting"}


class Tree:
    """1 + 3 + 9 agents: each works with a tool for some turns; those above the leaves first call three below them."""

    def __init__(self, turns: int = 3, **limits: Any) -> None:
        self.asked: list[str] = []
        self.worked = 0
        self.turns = turns

        @tool(read_only=True)
        async def work() -> str:
            self.worked += 1
            await asyncio.sleep(0)
            return "worked"

        leaves = [self._agent(f"leaf{n}", [], work) for n in range(9)]
        middle = [self._agent(f"middle{n}", leaves[3 * n : 3 * n + 3], work) for n in range(3)]
        self.root = self._agent("root", middle, work)

    def _agent(self, name: str, below: list[Agent[Any]], work: Any) -> Agent[Any]:
        def say(request: Any) -> Any:
            self.asked.append(name)
            usage = Usage(1_000, 1_000)
            if not request.tools or request.turn >= self.turns:
                return turn(f"answer of {name}", usage=usage)
            if request.turn == 0 and below:
                return turn("", [call(other.name, input="go") for other in below], usage=usage)
            return turn("", [call("work")], usage=usage)

        limits = Limits(repeats=0)
        return Agent(ScriptedModel(say), name=name, tools=[work], subagents=below, limits=limits)

    async def run(self, runner: Runner, on_limit: Any = "final_answer", **limits: Any) -> Any:
        options = RunOptions(limits=Limits(**limits), on_limit=on_limit)
        return await asyncio.wait_for(runner.run(self.root, "go", options=options), 20)


async def tasks_of(runner: Runner) -> list[str]:
    return [task.task_id for task in (await runner.list_tasks()).items]


async def test_without_limits_all_thirteen_answer(runner: Runner) -> None:
    tree = Tree()
    result = await tree.run(runner)
    assert (result.state, result.final_text) == ("completed", "answer of root")
    assert len(await tasks_of(runner)) == 13
    assert len(tree.asked) == 13 * 4
    assert tree.worked == 9 * 3 + 4 * 2


@pytest.mark.sampled(7)
@pytest.mark.parametrize("on_limit", STATES)
@pytest.mark.parametrize("most", [1, 2, 5, 10, 17, 30, 51])
async def test_requests_of_a_tree(runner: Runner, most: int, on_limit: Any) -> None:
    tree = Tree()
    result = await tree.run(runner, on_limit, model_calls=most)
    assert len(tree.asked) <= most
    if on_limit == "final_answer":
        assert (result.state, len(tree.asked)) == ("degraded", most)
        assert result.final_text == "answer of root"
        assert result.degraded_reasons == ("limit reached: model_calls",)
    else:
        assert result.state in (STATES[on_limit], "paused")
    for task_id in await tasks_of(runner):
        await assert_journal_makes_sense(runner, task_id)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("most", [0, 1, 3, 7, 12, 30, 46])
async def test_tool_calls_of_a_tree(runner: Runner, most: int) -> None:
    tree = Tree()
    await tree.run(runner, tool_calls=most)
    children = len(await tasks_of(runner)) - 1
    assert tree.worked + children == most


@pytest.mark.sampled(2)
@pytest.mark.parametrize("most", [2_000, 10_000, 33_000, 100_000])
async def test_tokens_of_a_tree_are_overrun_by_at_most_what_is_in_flight(runner: Runner, most: int) -> None:
    tree = Tree()
    await tree.run(runner, tokens=most)
    assert most - 6_000 < 2_000 * len(tree.asked) < most + 2_000


@pytest.mark.parametrize("dollars", [1, 7, 20])
async def test_money_of_a_tree(store: Any, dollars: int) -> None:
    tree = Tree()
    async with Runner(store, prices={"scripted": Price(500, 500)}) as runner:
        result = await tree.run(runner, cost=dollars)
        assert len(tree.asked) == dollars
        assert result.cost == dollars == sum(one.cost for one in result.usage.per_agent.values())
        assert result.degraded_reasons == ("limit reached: cost",)


async def test_time_of_a_tree(runner: Runner) -> None:
    tree = Tree(turns=10**6)
    result = await tree.run(runner, seconds=0.1)
    assert result.state == "degraded"
    assert result.degraded_reasons == ("limit reached: seconds",)
    states = {(await runner.get_task(task_id)).state for task_id in await tasks_of(runner)}
    assert states <= {"degraded", "cancelled", "completed"}
    request_count = len(tree.asked)
    await asyncio.sleep(0.03)
    assert len(tree.asked) == request_count


@pytest.mark.parametrize("deep", [0, 1, 2])
async def test_depth_of_a_tree(runner: Runner, deep: int) -> None:
    tree = Tree()
    result = await tree.run(runner, depth=deep)
    assert result.state == "completed"
    assert len(await tasks_of(runner)) == [1, 4, 13][deep]
    if deep < 2:
        ends = [event for task in await tasks_of(runner) for event in await only(runner, task, "tool_ended")]
        refused = [event.error for event in ends if event.outcome == "refused"]
        assert {(error.source, error.kind) for error in refused} == {("limit", "depth")}


@pytest.mark.parametrize("many", [0, 1, 4, 11])
async def test_children_of_a_tree(runner: Runner, many: int) -> None:
    tree = Tree()
    result = await tree.run(runner, children=many)
    assert result.state == "completed"
    assert len(await tasks_of(runner)) == 1 + many


async def test_four_levels_and_twenty_children_are_the_default(runner: Runner) -> None:
    def dig(request: Any) -> Any:
        if request.turn:
            return turn(" ".join(results_seen(request.messages)))
        return turn("", [call("digger", input="dig")])

    digger = Agent(ScriptedModel(dig), name="digger", subagents=["digger"])
    result = await runner.run(digger, "go")
    assert len(await tasks_of(runner)) == 5
    assert "the limit of 4 levels of subagents is reached" in result.final_text

    def spread(request: Any) -> Any:
        if request.turn:
            return turn(" ".join(results_seen(request.messages)))
        return turn("", [call("leaf", input=f"{n}") for n in range(25)])

    leaf = Agent(ScriptedModel([turn("done")]), name="leaf")
    result = await runner.run(Agent(ScriptedModel(spread), name="boss", subagents=[leaf]), "go")
    assert len((await runner.list_tasks(parent=result.task_id)).items) == 20
    assert [one.outcome for one in result.tool_executions].count("refused") == 5


async def test_all_limits_together(runner: Runner) -> None:
    tree = Tree()
    result = await tree.run(
        runner, model_calls=20, tool_calls=15, tokens=39_000, seconds=30, depth=2, children=11
    )
    children = len(await tasks_of(runner)) - 1
    assert result.state == "degraded"
    assert len(tree.asked) <= 20
    assert tree.worked + children <= 15
    assert children <= 11


async def test_an_agents_own_limits_hold_for_what_it_calls(runner: Runner) -> None:
    tree = Tree()
    middle = [agent for agent in tree.root.subagents if not isinstance(agent, str)]
    bound = [agent.replace(limits=Limits(model_calls=5)) for agent in middle]
    result = await runner.run(tree.root.replace(subagents=bound), "go")
    assert result.state == "completed"
    below = [name for name in tree.asked if name != "root"]
    assert len(below) == 15


@pytest.mark.parametrize("depth", [1, 2])
async def test_twenty_siblings_at_once_get_no_more_than_ten_requests(runner: Runner, depth: int) -> None:
    task_ids: list[str] = []

    async def answer(request: Any) -> Any:
        task_ids.append(request.task_id)
        await asyncio.sleep(0.01)
        return turn("done", usage=Usage(10, 10))

    leaf = Agent(ScriptedModel(answer), name="leaf")

    def spread(request: Any) -> Any:
        task_ids.append(request.task_id)
        if request.turn or not request.tools:
            return turn("all done")
        return turn("", [call("leaf", input=f"{n}") for n in range(20)])

    boss = Agent(ScriptedModel(spread), name="boss", subagents=[leaf])
    if depth == 2:

        def call_boss(request: Any) -> Any:
            return turn("ok") if request.turn or not request.tools else turn("", [call("boss", input="go")])

        boss = Agent(ScriptedModel(call_boss), name="top", subagents=[boss])
    result = await runner.run(boss, "go", options=RunOptions(limits=Limits(model_calls=10, children=30)))
    assert len(task_ids) + (2 if depth == 2 else 0) == 10
    assert result.final_text


async def test_a_raised_limit_applies_to_existing_children(runner: Runner) -> None:
    tree = Tree()
    result = await tree.run(runner, "pause", model_calls=10)
    assert result.state in ("waiting", "paused")
    first = len(tree.asked)
    assert first <= 10
    result = await runner.resume(result.task_id, options=RunOptions(limits=Limits(model_calls=20)))
    assert first < len(tree.asked) <= 20
    result = await runner.resume(result.task_id, options=RunOptions(limits=Limits(model_calls=52)))
    assert (result.state, len(tree.asked)) == ("completed", 52)
    started = [
        event for task in await tasks_of(runner) for event in await only(runner, task, "model_started")
    ]
    assert len(started) == 52


async def test_spending_before_an_interrupt_counts_after_it(tmp_path: Path) -> None:
    tree, options = Tree(turns=20), RunOptions(limits=Limits(model_calls=30))
    for _ in range(5):
        async with Runner(tmp_path / "journal.db", agents=[tree.root]) as runner:
            before = len(tree.asked)
            running = asyncio.ensure_future(runner.run(tree.root, "go", task_id="job", options=options))
            while len(tree.asked) < before + 4 and not running.done():  # noqa: ASYNC110
                await asyncio.sleep(0)
            running.cancel()
            await asyncio.wait([running])
    async with Runner(tmp_path / "journal.db", agents=[tree.root]) as runner:
        result = await runner.resume("job")
        assert result.state == "degraded"
        assert len(tree.asked) <= 30
        started = [e for task in await tasks_of(runner) for e in await only(runner, task, "model_started")]
        assert len(started) == 30
        assert (await journal(runner, "job"))[-1].kind == "task_ended"


async def test_a_child_that_was_interrupted_goes_on_though_no_more_calls_and_children_are_left(
    runner: Runner,
) -> None:
    async def slow_at_first(request: Any) -> Any:
        if request.attempt == 1:
            await asyncio.sleep(30)
        return turn("a poem")

    poet = Agent(ScriptedModel(slow_at_first), name="poet")
    asks = ScriptedModel([call("poet", input="a poem"), turn("Here it is.")])
    boss = Agent(asks, name="boss", subagents=[poet], limits=Limits(children=1, tool_calls=1))
    handle = await runner.start(boss, "go")
    async for event in handle.events():
        if event.kind == "child_event" and event.event.kind == "model_started":  # type: ignore[union-attr]
            break
    await handle.interrupt()
    result = await runner.resume(handle.task_id)
    assert (result.state, [call.outcome for call in result.tool_executions]) == ("completed", ["ok"])
