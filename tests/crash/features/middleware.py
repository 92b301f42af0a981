"""A task whose tools are wrapped."""

from treadle import Agent, ScriptedModel, ToolOutput, tool
from treadle.models import call
from treadle.tools import timed


async def at_most_10(call, next):
    arguments = {name: min(value, 10) for name, value in call.arguments.items()}
    return await next(call.with_arguments(arguments))


async def knows_one(call, next):
    if call.arguments == {"n": 1}:
        return ToolOutput(1)
    return await next(call)


@tool(middleware=[at_most_10])
async def pay(amount: int) -> str:
    return f"paid {amount}"


@tool(idempotent=True, middleware=[at_most_10])
async def book(amount: int) -> str:
    return f"booked {amount}"


@tool(read_only=True, middleware=[knows_one])
async def look(n: int) -> int:
    return n


script = [[call("pay", amount=50), call("look", n=1), call("look", n=2)], [call("book", amount=50)], "Done."]
agent = Agent(ScriptedModel(script), name="wrapped", tools=[pay, book, look], middleware=[timed()])
