"""A forced undo that was interrupted did not go on without force: it was refused for what had been agreed to.

Meanwhile `pending` of the task named a child that a resume would take up, and the resume was refused.
"""

import asyncio
from typing import Any

import pytest

from treadle import Agent, Happened, Node, NotHappened, Pipeline, Runner, ScriptedModel, ToolCall, tool
from treadle.errors import UndoUnfinished
from treadle.models import call, text

pytestmark = pytest.mark.anyio


@tool
def letter() -> str:
    """Send a letter."""
    return "sent"


@pytest.mark.parametrize("verdict", [Happened(), NotHappened()], ids=["happened", "not happened"])
@pytest.mark.parametrize("where", [{}, {"to": 0}], ids=["the last step", "to the first"])
async def test_a_forced_undo_that_was_interrupted_goes_on_without_force(
    store: Any, verdict: Any, where: dict[str, Any]
) -> None:
    began, starts = asyncio.Event(), 0

    async def unpay(made: ToolCall, ctx: Any) -> None:
        nonlocal starts
        starts += 1
        began.set()
        if starts == 1:
            await asyncio.Event().wait()

    @tool(undo=unpay, idempotent=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    agent = Agent(
        ScriptedModel([call("letter") + call("pay"), text("done")]), name="clerk", tools=[letter, pay]
    )
    async with Runner(store, agents=[agent]) as runner:
        await runner.run(agent, "go", task_id="t")
        undoing = asyncio.ensure_future(runner.undo_step("t", to=0, force=True))
        await began.wait()
        await runner.interrupt("t")
        assert not (await undoing).complete
        pending = (await runner.result("t")).pending
        assert [item.kind for item in pending] == ["settlement"]
        with pytest.raises(UndoUnfinished):
            await runner.resume("t")
        foreseen = await runner.undo_step("t", **where, dry_run=True)
        assert "the compensation of pay" in str(foreseen.problem), "that alone keeps it from its end"
        await runner.undo_step("t", **where)
        await runner.settle("t", pending[0].request_id, verdict)
        report = await runner.undo_step("t", **where) if (await runner.get_task("t")).steps else None
        state = await runner.result("t")
        assert (report is None or report.complete, state.steps) == (True, 0)


async def test_pending_names_no_child_that_a_resume_takes_up_during_an_undo(store: Any) -> None:
    began = asyncio.Event()

    async def unpay(made: ToolCall, ctx: Any) -> None:
        began.set()
        await asyncio.Event().wait()

    @tool(undo=unpay, idempotent=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    @tool(needs_approval=True)
    def sign() -> str:
        """Sign."""
        return "signed"

    signer = Agent(ScriptedModel([call("sign"), text("done")]), name="signer", tools=[sign])
    nodes = Pipeline([Node("paid", "pay"), Node("signed", "signer", input={"input": "go"})])
    agent = Agent(ScriptedModel([]), name="clerk", tools=[pay], subagents=[signer], worker=nodes)
    async with Runner(store, agents=[agent]) as runner:
        await runner.run(agent, "go", task_id="t")
        undoing = asyncio.ensure_future(runner.undo_step("t", step="paid", force=True))
        await began.wait()
        await runner.interrupt("t")
        await undoing
        await runner.approve("t")
        with pytest.raises(UndoUnfinished):
            await runner.resume("t")
        assert not [
            item.text for item in (await runner.result("t")).pending if "`resume` goes on" in item.text
        ]
