"""A task whose calls wait for approvals."""

from treadle import Agent, ScriptedModel, tool
from treadle.models import call


@tool(needs_approval=True)
async def pay(amount: int) -> str:
    return f"paid {amount}"


@tool(read_only=True, needs_approval=lambda n: n > 1)
async def look(n: int) -> int:
    return n


script = [[call("pay", amount=1), call("look", n=1), call("look", n=2)], call("pay", amount=2), "Done."]
agent = Agent(ScriptedModel(script), name="asking", tools=[pay, look])
