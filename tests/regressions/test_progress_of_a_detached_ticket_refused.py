"""A report of progress was refused as if the ticket had expired, once its task had ended and left the work running."""

from typing import Any

import pytest

from treadle import Agent, Runner, RunOptions, ScriptedModel, ToolContext, tool
from treadle.errors import TicketClosed
from treadle.models import call, text
from treadle.testing.audit import audit_store

pytestmark = pytest.mark.anyio


async def test_work_that_outlived_its_task_reports_its_progress_and_its_result(store: Any) -> None:
    tickets: list[str] = []

    @tool(background=True, idempotent=True)
    async def render(ctx: ToolContext[Any]) -> Any:
        """Render."""
        tickets.append(ctx.ticket)
        return ctx.background({"job": 1})

    agent = Agent(ScriptedModel([call("render"), text("done")]), name="film", tools=[render])
    async with Runner(store, agents=[agent]) as runner:
        options = RunOptions(at_end="detach")
        assert (await runner.run(agent, "go", task_id="t", options=options)).state == "completed"
        await runner.progress(tickets[0], {"percent": 40}, by="farm")
        assert [item.progress for item in (await runner.result("t")).pending] == [{"percent": 40}]
        await runner.complete(tickets[0], {"frames": 7})
        result = await runner.result("t")
        assert (result.state, result.tool_executions[0].output) == ("completed", {"frames": 7})
        with pytest.raises(TicketClosed, match="it ended as ok"):
            await runner.progress(tickets[0], {"percent": 100})
        assert (await runner.verify()).findings == ()
        assert await audit_store(runner.store) == []
