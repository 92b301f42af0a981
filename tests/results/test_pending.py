"""The open requests of a task."""

import time

import pytest

from tests.cast import scripted_agent
from tests.runner.acts import journal
from treadle import Agent, Policy, Rule, Runner, RunOptions, ScriptedModel, tool
from treadle.errors import ToolOutcomeUnknown
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


async def test_a_listed_request_says_when_of_whom_and_whether_the_caller_may_decide(runner: Runner) -> None:
    rule = Rule("four-eyes", "ask", tool="pay", approvers=["ann", "bob"], excluded=["labels.user"])
    agent = Agent(ScriptedModel([call("pay", cents=5)]), name="clerk", tools=[pay])
    runner.set_policy(Policy(rule))
    before = time.time_ns() // 1_000
    task = await runner.run(agent, "Pay.", options=RunOptions(labels={"user": "bob"}))
    [asked] = (await runner.list_pending()).items
    assert before <= (asked.asked or 0) <= time.time_ns() // 1_000
    assert (asked.agent, asked.labels, asked.head) == (
        "clerk",
        {"user": "bob"},
        (await runner.get_task(task.task_id)).head,
    )
    assert (asked.approvers, asked.excluded, asked.may_decide) == (("ann", "bob"), ("bob",), None)
    for name, may in (("ann", True), ("bob", False), ("eve", False)):
        for items in (
            (await runner.scoped(by=name).list_pending()).items,
            (await runner.scoped(by=name).list_pending(task.task_id)).items,
        ):
            assert [item.may_decide for item in items] == [may], name


async def test_an_unknown_outcome_says_since_when_it_is_unknown(runner: Runner) -> None:
    @tool
    async def send() -> str:
        """Send a letter."""
        raise ToolOutcomeUnknown("no answer came")

    await runner.run(scripted_agent(call("send"), "Sent.", tools=[send]), "Send.")
    [asked] = (await runner.list_pending()).items
    stops = [event.time for event in await journal(runner, asked.task_id) if event.kind == "tool_stopped"]
    assert (asked.kind, asked.asked) == ("settlement", stops[0])
