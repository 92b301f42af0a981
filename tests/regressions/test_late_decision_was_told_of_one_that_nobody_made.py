"""A decision that came after a cancel or an undo was told `AlreadyDecided`, though no decision was made."""

from typing import Any

import pytest

from treadle import Agent, CallerTool, Runner, RunOptions, ScriptedModel, tool
from treadle.errors import AlreadyDecided, ConfigurationError, RequestClosed, TicketClosed
from treadle.models import call, text

pytestmark = pytest.mark.anyio

PLACE = CallerTool(
    "place",
    "Place an order.",
    {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
)
CALLERS = RunOptions(caller_tools=[PLACE])


@tool(needs_approval=True)
def pay(cents: int) -> str:
    """Pay."""
    return "paid"


def payer() -> Agent[Any]:
    return Agent(ScriptedModel([call("pay", cents=1), text("Done.")] * 2), name="payer", tools=[pay])


def placer(**how: Any) -> Agent[Any]:
    return Agent(ScriptedModel([call("place", x=1), text("Done.")]), name="placer", **how)


async def test_an_approval_after_a_cancel_says_that_the_request_is_closed(runner: Runner) -> None:
    task = await runner.run(payer(), "Pay.", task_id="t")
    await runner.cancel(task.task_id)
    with pytest.raises(RequestClosed, match="its call ended as cancelled"):
        await runner.approve("t", task.pending[0].request_id)


async def test_an_approval_after_an_undo_says_that_the_request_is_closed(runner: Runner) -> None:
    agent = payer()
    task = await runner.run(agent, "Pay.", task_id="t")
    await runner.undo_step("t", to=0, agent=agent)
    with pytest.raises(RequestClosed, match="was taken back"):
        await runner.approve("t", task.pending[0].request_id)


async def test_a_decision_after_another_one_is_still_told_of_that(runner: Runner) -> None:
    task = await runner.run(payer(), "Pay.", task_id="t")
    await runner.deny("t", by="ann")
    with pytest.raises(AlreadyDecided, match="denied by ann") as told:
        await runner.approve("t", task.pending[0].request_id)
    assert not isinstance(told.value, RequestClosed)


@pytest.mark.parametrize("named", ["request", "call"])
async def test_a_late_result_of_an_undone_call_of_the_caller_is_told_that_its_ticket_is_closed(
    runner: Runner, named: str
) -> None:
    agent = placer()
    task = await runner.run(agent, "Go.", task_id="t", options=CALLERS)
    await runner.undo_step("t", to=0, agent=agent)
    with pytest.raises(TicketClosed, match="not pending any more"):
        await runner.complete(task.pending[0].request_id if named == "request" else "s1-0", "late", task="t")


async def test_edited_arguments_of_a_tool_of_the_caller_are_checked_as_they_are_approved(
    runner: Runner,
) -> None:
    from treadle import Policy, Rule

    agent = placer(policy=Policy(Rule("ask", "ask", tool="place")))
    await runner.run(agent, "Go.", task_id="t", options=CALLERS)
    with pytest.raises(ConfigurationError, match="do not fit the tool place"):
        await runner.approve("t", arguments={"x": "y"})
    await runner.approve("t", arguments={"x": 2})
    (item,) = (await runner.resume("t")).pending
    assert (item.kind, item.arguments) == ("call", {"x": 2})
