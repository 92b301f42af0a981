"""A forgotten `await` and `ctx["n"] = 1` in a step function failed with Python's text alone, and no line of code."""

from collections.abc import Callable
from typing import Any

import pytest

from treadle import Agent, Runner, ScriptedModel, StepContext, StepResult

pytestmark = pytest.mark.anyio


async def forgets_await(ctx: Any) -> StepResult:
    answer = ctx.call_model("?")
    try:
        return StepResult(answer.message.text, is_last=True)
    finally:
        answer.close()  # else Python warns when it is collected


def forgets_wait(ctx: Any) -> StepResult:
    answer = ctx.call_model("?")
    try:
        return StepResult(answer.message.text, is_last=True)
    finally:
        answer.close()  # else Python warns when it is collected


async def sets_an_item(ctx: Any) -> StepResult:
    ctx["n"] = 1
    return StepResult("Set.", is_last=True)


async def reads_an_item(ctx: Any) -> StepResult:
    return StepResult(ctx["n"], is_last=True)


async def has_its_own_mistake(ctx: StepContext) -> StepResult:
    text: Any = ctx.name
    return StepResult(text.message, is_last=True)


@pytest.mark.parametrize(
    ("worker", "advice"),
    [
        (
            forgets_await,
            "; write `await ctx.call_model(...)`, or `ctx.wait(ctx.call_model(...))` in a plain function",
        ),
        (
            forgets_wait,
            "; write `await ctx.call_model(...)`, or `ctx.wait(ctx.call_model(...))` in a plain function",
        ),
        (sets_an_item, "; write `ctx.state[...]` for the state of the task"),
        (reads_an_item, "; write `ctx.state[...]` for the state of the task"),
        (has_its_own_mistake, ""),
    ],
    ids=lambda each: getattr(each, "__name__", None),
)
async def test_a_mistake_is_explained(worker: Callable[..., Any], advice: str) -> None:
    async with Runner("memory:") as runner:
        result = await runner.run(Agent(ScriptedModel(["Hello."]), worker=worker), "?")
    assert result.error is not None
    python, found, text = result.error.message.partition("; ")
    assert found + text == advice
    assert python.startswith(("AttributeError: ", "TypeError: "))
    assert (
        str(result)
        == f"failed: {result.error.message}. Next: `result.error.traceback` shows the line of your code"
    )
    assert f"in {worker.__name__}" in result.error.traceback
