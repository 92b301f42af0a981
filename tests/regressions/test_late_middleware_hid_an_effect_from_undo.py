"""Middleware that raised after its tool had returned hid a writing call from undo: neither refused nor compensated."""

from typing import Any

import pytest

from treadle import Agent, Runner, ScriptedModel, ToolCall, tool
from treadle.errors import IrreversibleStep
from treadle.models import call, text

pytestmark = pytest.mark.anyio


async def breaks_late(made: Any, next: Any) -> Any:
    await next(made)
    raise RuntimeError("after the tool")


async def breaks_early(made: Any, next: Any) -> Any:
    raise RuntimeError("before the tool")


def payer(middleware: Any, **declared: Any) -> Agent[Any]:
    @tool(middleware=[middleware], **declared)
    def pay() -> str:
        """Pay."""
        return "receipt 7"

    return Agent(ScriptedModel([call("pay"), text("done")]), name="payer", tools=[pay])


@pytest.mark.parametrize(
    "declared",
    [{}, {"idempotent": True}, {"idempotent": True, "retries": 1}],
    ids=["write", "same", "retried"],
)
async def test_an_undo_is_refused_for_a_call_that_failed_after_its_tool_returned(
    store: Any, declared: dict[str, Any]
) -> None:
    agent = payer(breaks_late, **declared)
    async with Runner(store, agents=[agent]) as runner:
        assert (await runner.run(agent, "go", task_id="t")).tool_executions[0].outcome != "ok"
        assert not (await runner.undo_step("t", to=0, dry_run=True)).complete
        with pytest.raises(IrreversibleStep):
            await runner.undo_step("t", to=0)


@pytest.mark.parametrize("declared", [{}, {"idempotent": True, "retries": 1}], ids=["write", "retried"])
async def test_the_compensation_of_such_a_call_gets_what_the_tool_returned(
    store: Any, declared: dict[str, Any]
) -> None:
    taken_back: list[Any] = []

    async def unpay(made: ToolCall, ctx: Any) -> None:
        taken_back.append(made.output)

    agent = payer(breaks_late, undo=unpay, **declared)
    async with Runner(store, agents=[agent]) as runner:
        await runner.run(agent, "go", task_id="t")
        foreseen = await runner.undo_step("t", to=0, dry_run=True)
        report = await runner.undo_step("t", to=0)
        assert [undone.verdict for undone in (*foreseen.calls, *report.calls)] == ["compensated"] * 2
        assert taken_back == ["receipt 7"]


async def test_a_call_whose_middleware_raised_before_the_tool_is_not_an_effect(store: Any) -> None:
    agent = payer(breaks_early)
    async with Runner(store, agents=[agent]) as runner:
        await runner.run(agent, "go", task_id="t")
        assert (await runner.undo_step("t", to=0)).complete
