"""A router, a worker or an own tool's `undo` that called `sys.exit()` ended the event loop, and all tasks in it."""

import asyncio
from typing import Any

import pytest

from tests.cast import nap
from treadle import Agent, NextStep, Runner, ScriptedModel, StepResult
from treadle.core.tools import ToolSpec
from treadle.models import call

pytestmark = pytest.mark.anyio

ERRORS = [SystemExit(3), BaseExceptionGroup("several", [SystemExit(3)])]
each_error = pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)


def other_task(runner: Runner) -> "asyncio.Task[Any]":
    agent = Agent(ScriptedModel([call("nap", seconds=0.05), "Fine."]), name="other", tools=[nap])
    return asyncio.ensure_future(runner.run(agent, "go"))


@each_error
@pytest.mark.parametrize("kind", ["async", "in a thread"])
async def test_of_a_router(error: BaseException, kind: str) -> None:
    async def route(ctx: Any) -> None:
        raise error

    def route_in_a_thread(ctx: Any) -> None:
        raise error

    router = route if kind == "async" else route_in_a_thread
    async with Runner("memory:") as runner:
        other = other_task(runner)
        helper = Agent(ScriptedModel([]), name="helper")
        agent = Agent(ScriptedModel(["Hi."]), router=router, subagents=[helper])
        result = await runner.run(agent, "go")
        assert (result.state, (await other).state) == ("failed", "completed")
    assert result.error is not None
    assert "the router of agent failed" in result.error.message


@each_error
@pytest.mark.parametrize("method", ["initialize_step", "finalize_task"])
async def test_of_a_worker(error: BaseException, method: str) -> None:
    class Exits:
        def initialize_step(self, task: Any) -> NextStep:
            if method == "initialize_step":
                raise error
            return NextStep("only")

        def run_step(self, ctx: Any) -> StepResult:
            return StepResult("done", is_last=True)

        def finalize_task(self, task: Any, output: Any) -> Any:
            raise error

    async with Runner("memory:") as runner:
        other = other_task(runner)
        result = await runner.run(Agent(ScriptedModel([]), worker=Exits()), "go")
        assert (result.state, (await other).state) == ("failed", "completed")
    assert result.error is not None
    assert f"{method} failed" in result.error.message


class Own:
    """A tool of a class of the user's own."""

    spec = ToolSpec(name="own", undoable=True, reconcilable=True)

    def __init__(self, error: BaseException, *, at: str) -> None:
        self.error, self.at = error, at

    def validate(self, arguments: dict[str, Any]) -> Any:
        if self.at == "validate":
            raise self.error
        return arguments

    async def call(self, arguments: Any, ctx: Any) -> Any:
        from treadle import ToolOutput

        return ToolOutput("done")

    async def undo(self, call: Any, ctx: Any) -> None:
        raise self.error

    async def reconcile(self, call: Any, ctx: Any) -> Any:
        raise self.error


@each_error
async def test_of_the_arguments_of_an_own_tool(error: BaseException) -> None:
    async with Runner("memory:") as runner:
        other = other_task(runner)
        agent = Agent(ScriptedModel([call("own"), "Done."]), tools=[Own(error, at="validate")])
        result = await runner.run(agent, "go")
        assert (result.state, (await other).state) == ("completed", "completed")
    assert result.tool_executions[0].outcome == "invalid"


@each_error
async def test_of_the_undo_of_an_own_tool(error: BaseException) -> None:
    async with Runner("memory:") as runner:
        other = other_task(runner)
        agent = Agent(ScriptedModel([call("own"), "Done."]), tools=[Own(error, at="undo")])
        task = await runner.create_task(agent, "go")
        await runner.run_step(task)
        report = await runner.undo_step(task)
        assert (await other).state == "completed"
    assert [(item.tool, item.verdict) for item in report.calls] == [("own", "not_compensated")]
    assert not report.complete
