"""A replay did not apply the decision on a call whose step had been undone while it waited, and taken again."""

from typing import Any

import pytest

from treadle import Agent, Policy, Rule, Runner, ScriptedModel, ToolContext, tool
from treadle.models import call, text
from treadle.replay import record, replay

pytestmark = pytest.mark.anyio


@tool(needs_approval=True, idempotent=True, undo=lambda made, ctx: None)
def pay(cents: int) -> str:
    """Pay."""
    return "paid"


@tool(idempotent=True, undo=lambda made, ctx: None)
async def ask(cents: int, ctx: ToolContext[Any]) -> str:
    """Ask."""
    return str(await ctx.ask("How many?", int))


@tool(idempotent=True, undo=lambda made, ctx: None)
def send(cents: int) -> str:
    """Send."""
    return "sent"


async def decide(runner: Runner, name: str, *, deny: bool = False) -> None:
    if name == "ask":
        await runner.answer("t", value=3)
    elif deny:
        await runner.deny("t", reason="too much")
    else:
        await runner.approve("t", arguments={"cents": 4})


@pytest.mark.parametrize("undone", ["while pending", "after it was decided", "twice"])
@pytest.mark.parametrize("name", ["pay", "ask", "send"])
@pytest.mark.parametrize("deny", [False, True], ids=["approved", "denied"])
async def test_a_replay_applies_the_decision_on_the_step_that_stayed(
    name: str, undone: str, deny: bool
) -> None:
    model = ScriptedModel([call(name, cents=5), text("done")])
    policy = Policy(Rule("ask-send", "ask", tool="send"))
    agent = Agent(model, name="a", tools=[pay, ask, send], policy=policy)
    async with Runner("memory:", agents=[agent]) as runner:
        await runner.run(agent, "go", task_id="t")
        if undone == "after it was decided":
            await decide(runner, name)
            await runner.resume("t")
        for _ in range(2 if undone == "twice" else 1):
            await runner.undo_step("t", to=0)
            await runner.resume("t")
        await decide(runner, name, deny=deny)
        assert (await runner.resume("t")).state == "completed"
        report = await replay(await record(runner, "t", agent), agent)
        assert report.ok, str(report)
