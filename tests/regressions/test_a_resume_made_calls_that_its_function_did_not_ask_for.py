"""A resume of a failed step function repeated all its failed calls at once, also those that it did not make again."""

import pytest

from tests.runner.acts import journal
from treadle import Agent, Runner, RunOptions, ScriptedModel, StepContext, StepResult, tool
from treadle.core import events as e
from treadle.errors import ToolCallFailed

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("max_parallel_tools", [1, 64])
async def test_a_failed_cancellation_is_not_repeated_by_a_pass_that_books(
    runner: Runner, max_parallel_tools: int
) -> None:
    sold_out, done = [True], list[str]()

    @tool
    def book(what: str) -> str:
        """Book."""
        done.append(f"book {what}")
        if what == "car" and sold_out:
            raise RuntimeError("no car")
        return what

    @tool
    def cancel(what: str) -> str:
        """Cancel."""
        done.append(f"cancel {what}")
        raise RuntimeError("no answer")

    async def trip(ctx: StepContext) -> StepResult:
        try:
            booked = [await ctx.call_tool("book", {"what": what}) for what in ("flight", "car")]
        except ToolCallFailed:
            await ctx.call_tool("cancel", {"what": "flight"})
            raise
        return StepResult(booked, is_last=True)

    agent = Agent(name="trip", worker=trip, tools=[book, cancel], model=ScriptedModel(["unused"]))
    options = RunOptions(max_parallel_tools=max_parallel_tools)
    task = await runner.create_task(agent, "Go.", options=options)
    assert (await runner.resume(task)).state == "failed"
    sold_out.clear()
    result = await runner.resume(task)
    assert (result.state, result.output) == ("completed", ["flight", "car"])
    assert done == ["book flight", "book car", "cancel flight", "book car"]
    ends = [event for event in await journal(runner, task.task_id) if isinstance(event, e.ToolEnded)]
    assert [(end.call, end.outcome) for end in ends[3:]] == [("s1-c2r2", "ok"), ("s1-c3r2", "refused")]
