"""The open requests of a task."""

import pytest

from treadle import Agent, Runner, ScriptedModel, tool
from treadle.llm.scripted import call
from treadle.results.pending import FOR_PEOPLE, OUTSIDE

pytestmark = pytest.mark.anyio


@tool(needs_approval=True)
def pay(cents: int) -> str:
    """Pay an amount."""
    return "paid"


async def test_a_request_has_the_call_that_waits_and_the_agents_above_it(runner: Runner) -> None:
    leaf = Agent(ScriptedModel([call("pay", cents=5)]), name="leaf", tools=[pay])
    root = Agent(ScriptedModel([call("leaf", input="Pay.")]), name="root", subagents=[leaf])
    result = await runner.run(root, "Go.", task_id="job")
    [stopped] = result.pending
    assert (stopped.kind, stopped.request_id, stopped.path) == ("subagent", "job.s1-0", ("root", "leaf"))
    assert stopped.text == "leaf (task job.s1-0) is waiting: pay waits for an approval: its tool asks for it"
    [asked] = (await runner.list_pending("job")).items
    assert (asked.kind, asked.tool, asked.arguments) == ("approval", "pay", {"cents": 5})
    assert (asked.task_id, asked.path) == ("job.s1-0", ("root", "leaf"))


def test_people_decide_some_of_the_requests_that_are_listed() -> None:
    assert set(FOR_PEOPLE) < set(OUTSIDE)
    assert "subagent" not in OUTSIDE
