"""Step functions that end, ask or wait when their step is not needed any more, or that end irregularly."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.cast import look, repeat
from tests.engine.function_workers import agent_of, planned, planning, sound
from treadle import (
    Agent,
    Breakpoint,
    FailurePolicy,
    Happened,
    Limits,
    NextStep,
    Runner,
    RunOptions,
    ScriptedModel,
    StepContext,
    StepResult,
    ToolCall,
    tool,
)
from treadle.errors import StepFailed, VersionRefused
from treadle.llm.scripted import call, fail
from treadle.testing.audit import Evidence, audit_store

pytestmark = pytest.mark.anyio


@pytest.fixture
async def runner() -> AsyncIterator[Runner]:
    async with Runner("memory:") as runner:
        yield runner


async def names(runner: Runner, task_id: str) -> list[str]:
    return [step.step.name for step in await runner.get_completed_steps(task_id)]


@pytest.mark.parametrize("both", [True, False])
async def test_a_step_that_ends_together_with_the_answer_does_not_end_twice(
    runner: Runner, both: bool
) -> None:
    @planning(NextStep("a"), NextStep("b"))
    async def worker(ctx: StepContext) -> StepResult:
        return StepResult(ctx.name, is_last=both or ctx.name == "a")

    result = await sound(runner, await runner.run(agent_of(worker), "go"))
    assert (result.state, result.output, result.steps) == ("completed", "a", 3)
    assert await names(runner, result.task_id) == ["start", "a", "b"]


async def test_a_step_that_ends_together_with_the_one_that_decides_a_join_does_not_end_twice(
    runner: Runner,
) -> None:
    @planning(NextStep("a"), NextStep("b"), NextStep("first", after=("a", "b"), join="any"))
    async def worker(ctx: StepContext) -> StepResult:
        return StepResult({**ctx.results, ctx.name: 1}, is_last=ctx.name == "first")

    result = await sound(runner, await runner.run(agent_of(worker), "go"))
    assert result.output == {"start": None, "a": {"start": None, "a": 1}, "first": 1}
    assert await names(runner, result.task_id) == ["start", "a", "b", "first"]


@pytest.mark.parametrize("ends_by", ["returning", "raising", "asking"])
async def test_a_step_function_that_ignores_its_cancellation_changes_nothing(
    runner: Runner, ends_by: str
) -> None:
    hanging = asyncio.Event()

    @planning(NextStep("a"), NextStep("b"), NextStep("first", after=("a", "b"), join="any"))
    async def worker(ctx: StepContext) -> StepResult:
        if ctx.name == "a":
            await hanging.wait()
        if ctx.name == "b":
            try:
                hanging.set()
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                if ends_by == "raising":
                    raise RuntimeError("stopped") from None
                if ends_by == "asking":
                    await ctx.call_tool("look")
        return StepResult(ctx.name, is_last=ctx.name != "a")

    result = await sound(runner, await runner.run(agent_of(worker, look), "go"))
    assert (result.state, result.output, result.tool_executions) == ("completed", "first", ())


async def test_an_error_raised_because_of_a_cancellation_is_not_a_failure(runner: Runner) -> None:
    entered = asyncio.Event()

    async def worker(ctx: StepContext) -> StepResult:
        if not entered.is_set():
            entered.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                raise RuntimeError("connection lost") from None
        return StepResult("done", is_last=True)

    handle = await runner.start(agent_of(worker), "go")
    await entered.wait()
    await handle.interrupt()
    assert (await sound(runner, await handle.result(), ended=False)).state == "interrupted"
    again = await sound(runner, await runner.resume(handle.task_id))
    assert (again.state, again.output) == ("completed", "done")


async def test_a_failure_inside_an_exception_group_is_treated_like_the_failure_itself(runner: Runner) -> None:
    async def worker(ctx: StepContext) -> StepResult:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.call_model("one"))
        return StepResult("done", is_last=True)

    agent = Agent(ScriptedModel([fail(400), "one", "two"]), worker=worker)

    options = RunOptions(on_failure=FailurePolicy(model="pause"))
    result = await sound(runner, await runner.run(agent, "go", options=options), ended=False)
    assert (result.state, "400" in str(result.pending or result.error)) == ("paused", True)


@pytest.mark.parametrize(
    "error",
    [BaseExceptionGroup("several", [SystemExit(3)]), SystemExit(3), asyncio.CancelledError()],
    ids=["group", "exit", "cancel"],
)
async def test_a_function_that_wants_to_end_the_process_fails_its_step_once_its_calls_have_ended(
    runner: Runner, error: BaseException
) -> None:
    async def worker(ctx: StepContext) -> StepResult:
        call_made = asyncio.ensure_future(ctx.call_tool("look"))
        await asyncio.sleep(0)
        call_made.add_done_callback(lambda done: done.exception())
        raise error

    result = await sound(runner, await runner.run(agent_of(worker, look), "go"))
    assert (result.state, [run.outcome for run in result.tool_executions]) == ("failed", ["ok"])


@pytest.mark.parametrize("effect", ["read", "write"])
async def test_an_undo_leaves_the_open_calls_of_siblings_alone(runner: Runner, effect: str) -> None:
    began, done = asyncio.Event(), list[str]()

    async def long(what: str) -> str:
        """Take long, the first time."""
        done.append(what)
        if not began.is_set():
            began.set()
            await asyncio.sleep(60)
        return what

    @planning(NextStep("a"), NextStep("b"), NextStep("join", after=("a", "b")))
    async def worker(ctx: StepContext) -> StepResult:
        if ctx.name == "b":
            return StepResult(await ctx.call_tool("long", {"what": "b"}))
        return StepResult(ctx.results, is_last=ctx.name == "join")

    slow = tool(read_only=True)(long) if effect == "read" else tool(long)
    options = RunOptions(on_unknown_outcome="wait")
    handle = await runner.start(agent_of(worker, slow), "go", options=options)
    await began.wait()
    while "a" not in await names(runner, handle.task_id):  # noqa: ASYNC110  its end has no event of its own
        await asyncio.sleep(0)
    await handle.interrupt()
    await runner.undo_step(handle.task_id, step="a")
    result = await sound(runner, await runner.resume(handle.task_id), ended=effect == "read")
    if effect == "write":
        assert (result.state, [item.kind for item in result.pending]) == ("waiting", ["settlement"])
        await handle.settle(result.pending[0].request_id, Happened("b, they say"))
        result = await sound(runner, await runner.resume(handle.task_id))
    assert (result.state, result.output["b"]) == ("completed", "b" if effect == "read" else "b, they say")
    assert done == (["b", "b"] if effect == "read" else ["b"])


@pytest.mark.parametrize("on_limit", ["final_answer", "fail", "pause"])
@pytest.mark.parametrize("asks", [True, False])
async def test_calls_that_a_limit_refused_are_made_once_the_limit_is_raised(
    runner: Runner, on_limit: Any, asks: bool
) -> None:
    @planning(NextStep("a"), NextStep("b"), NextStep("join", after=("a", "b")))
    async def worker(ctx: StepContext) -> StepResult:
        if ctx.name == "join":
            return StepResult(ctx.results, is_last=True)
        if asks:
            ended = await ctx.call_tools(await ctx.call_model())
            return StepResult([call.output for call in ended])
        return StepResult([await ctx.call_tool("look"), await ctx.call_tool("look")])

    agent = Agent(ScriptedModel(lambda _: (call("look"), call("look"))), worker=worker, tools=[look])
    options = RunOptions(limits=Limits(tool_calls=1), on_limit=on_limit)
    first = await sound(runner, await runner.run(agent, "go", options=options), ended=on_limit != "pause")
    for most in (2, 4):
        more = RunOptions(limits=Limits(tool_calls=most), on_limit=on_limit)
        again = await runner.resume(first.task_id, options=more)
        ran = [run for run in again.tool_executions if run.outcome == "ok"]
        assert len(ran) == most
    result = await sound(runner, again)
    assert (result.state, result.output) == (
        "completed",
        {"start": None, "a": ["seen"] * 2, "b": ["seen"] * 2},
    )


async def test_a_breakpoint_before_a_tool_stops_a_function_that_calls_it(runner: Runner) -> None:
    async def worker(ctx: StepContext) -> StepResult:
        return StepResult(await ctx.call_tool("look"), is_last=True)

    options = RunOptions(break_on=[Breakpoint(before_tool="look")])
    paused = await sound(runner, await runner.run(agent_of(worker, look), "go", options=options), ended=False)
    assert (paused.state, paused.tool_executions[0].outcome) == ("paused", None)
    result = await sound(runner, await runner.resume(paused.task_id))
    assert (result.state, result.output) == ("completed", "seen")


async def test_sibling_steps_may_make_calls_of_the_same_id(runner: Runner) -> None:
    @planning(NextStep("a"), NextStep("b"), NextStep("join", after=("a", "b")))
    async def worker(ctx: StepContext) -> StepResult:
        if ctx.name == "join":
            return StepResult(ctx.results, is_last=True)
        made = ToolCall("id1", "repeat", {"what": ctx.name})
        return StepResult([await ctx.call_tool(made), await ctx.call_tool(made)])

    result = await sound(runner, await runner.run(agent_of(worker, repeat), "go"))
    assert result.output == {"start": None, "a": ["a", "a"], "b": ["b", "b"]}
    assert len(result.tool_executions) == 2


async def test_a_value_wanted_by_several_at_a_time_is_worked_out_once(runner: Runner) -> None:
    worked_out: list[int] = []

    async def work_out() -> int:
        worked_out.append(1)
        await asyncio.sleep(0)
        return len(worked_out)

    async def worker(ctx: StepContext) -> StepResult:
        return StepResult(await asyncio.gather(*[ctx.once("it", work_out) for _ in range(3)]), is_last=True)

    result = await sound(runner, await runner.run(agent_of(worker), "go"))
    assert (result.output, worked_out) == ([1, 1, 1], [1])


async def test_a_replanned_step_waits_for_a_failed_sibling_that_runs_again(runner: Runner) -> None:
    @planning(NextStep("a"), NextStep("b"), NextStep("join", after=("a", "b")))
    async def worker(ctx: StepContext) -> StepResult:
        if ctx.name != "join" and len(tried) < 2:
            tried.append(ctx.name)
            raise RuntimeError("not yet")
        return StepResult(sorted(ctx.results), is_last=ctx.name == "join")

    tried: list[str] = []
    failed = await sound(runner, await runner.run(agent_of(worker), "go"))
    assert (failed.state, tried) == ("failed", ["a", "b"])
    await runner.undo_step(failed.task_id, step="b")
    result = await sound(runner, await runner.resume(failed.task_id))
    assert (result.state, result.output) == ("completed", ["a", "b", "start"])


async def test_a_step_that_fails_when_stepped_leaves_no_call_of_an_interrupted_sibling_without_an_end(
    runner: Runner,
) -> None:
    began = asyncio.Event()

    @tool(read_only=True)
    async def long() -> int:
        """Take long, the first time."""
        if not began.is_set():
            began.set()
            await asyncio.sleep(60)
        return 1

    @planning(NextStep("a"), NextStep("b"), NextStep("join", after=("a", "b")))
    async def worker(ctx: StepContext) -> StepResult:
        if ctx.name == "a" and not began.is_set():
            await asyncio.sleep(60)
        if ctx.name == "a" and ctx.attempt == 1:
            raise RuntimeError("not yet")
        return StepResult(await ctx.call_tool("long"), is_last=ctx.name == "join")

    handle = await runner.start(agent_of(worker, long), "go")
    await began.wait()
    await handle.interrupt()
    with pytest.raises(StepFailed, match="not yet"):
        await runner.run_step(handle.task_id, step="s2")
    assert await audit_store(runner.store, Evidence(ended=True)) == []
    result = await sound(runner, await runner.resume(handle.task_id))
    assert (result.state, [run.outcome for run in result.tool_executions]) == ("completed", ["ok"] * 3)


async def test_a_task_does_not_change_between_step_functions_and_other_workers(runner: Runner) -> None:
    @planning(NextStep("end"))
    async def worker(ctx: StepContext) -> StepResult:
        return StepResult(await ctx.call_tool("look"), is_last=True)

    functions = Agent(ScriptedModel([]), worker=worker, tools=[look])
    calls = Agent(ScriptedModel([call("look"), "done"]), tools=[look])
    for first, other, output in ((functions, calls, "seen"), (calls, functions, "done")):
        task = await runner.create_task(first, "go")
        await runner.run_step(task)
        with pytest.raises(VersionRefused, match="functions; use the agent that it began with"):
            await runner.resume(task, agent=other)
        result = await sound(runner, await runner.resume(task, agent=first))
        assert (result.state, result.output) == ("completed", output)
    untouched = await runner.create_task(calls, "go")
    assert (await runner.resume(untouched, agent=functions)).output == "seen"


def test_a_function_in_a_thread_that_does_not_end_holds_no_exit_up() -> None:
    def worker(ctx: StepContext) -> StepResult:
        if ctx.name == "start":
            return planned(*[NextStep(f"n{i}") for i in range(40)])
        hanging.release()
        over.wait(20)
        return StepResult("late", is_last=True)

    async def main() -> str:
        async with Runner("memory:") as runner:
            options = RunOptions(max_parallel_steps=40)
            handle = await runner.start(agent_of(worker), "go", options=options)
            for _ in range(40):
                assert await asyncio.to_thread(hanging.acquire, timeout=10)
            await handle.interrupt()
            return (await handle.result()).state

    hanging, over = threading.Semaphore(0), threading.Event()
    began = time.monotonic()
    assert asyncio.run(main()) == "interrupted"
    assert time.monotonic() - began < 10
    over.set()
