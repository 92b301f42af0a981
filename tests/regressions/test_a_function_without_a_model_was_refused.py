"""An agent of a step function that asks no model was refused for its missing model.

Its function also met two bare errors: the task's input is no JSON data, and unknown names of its context had no hint.
"""

import pytest

from treadle import Agent, Limits, Runner, RunOptions, StepContext, StepResult, tool
from treadle.errors import UnknownAttribute

pytestmark = pytest.mark.anyio


@tool(read_only=True)
def fetch(url: str) -> str:
    """Fetch a page."""
    return f"page of {url}"


async def flow(ctx: StepContext) -> StepResult:
    return StepResult(await ctx.call_tool("fetch", {"url": ctx.task_text}), is_last=True)


async def asks(ctx: StepContext) -> StepResult:
    return StepResult((await ctx.call_model()).message.text, is_last=True)


async def passes_parts(ctx: StepContext) -> StepResult:
    return StepResult(await ctx.call_tool("fetch", {"url": ctx.task_input}), is_last=True)  # type: ignore[dict-item]


@pytest.mark.parametrize("limits", [Limits(), Limits(cost=1), Limits(seconds=60)])
async def test_a_function_that_asks_no_model_needs_none(runner: Runner, limits: Limits) -> None:
    agent = Agent(name="flow", worker=flow, tools=[fetch])
    result = await runner.run(agent, "example.org", options=RunOptions(limits=limits))
    assert (result.state, result.output) == ("completed", "page of example.org")


async def test_a_request_without_a_model_fails_and_says_which_to_name(runner: Runner) -> None:
    result = await runner.run(Agent(name="flow", worker=asks), "Hi")
    assert result.state == "failed"
    assert "agent 'flow' names no model, and the runner has none" in str(result.error)


async def test_a_call_with_the_parts_of_the_input_names_their_text(runner: Runner) -> None:
    result = await runner.run(Agent(name="flow", worker=passes_parts, tools=[fetch]), "example.org")
    assert "must be JSON data" in str(result.error)
    assert "the text of the task's input is ctx.task_text" in str(result.error)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("execute_activity", "ctx.call_tool("),
        ("wait_condition", "ctx.ask("),
        ("execute_child_workflow", "ctx.run_agent("),
        ("patched", "another name"),
        ("info", "ctx.task_id"),
    ],
)
async def test_a_name_of_temporal_has_its_counterpart(runner: Runner, name: str, advice: str) -> None:
    async def tries(ctx: StepContext) -> StepResult:
        with pytest.raises(UnknownAttribute) as error:
            getattr(ctx, name)
        return StepResult(str(error.value), is_last=True)

    assert advice in str((await runner.run(Agent(name="flow", worker=tries), "Hi")).output)
