"""Tasks whose conversation moves to another agent."""

from treadle import Agent, Route, ScriptedModel, tool
from treadle.models import call, text


@tool
async def pay(amount: int) -> str:
    return f"paid {amount}"


clerk = Agent(ScriptedModel([call("pay", amount=5), text("Paid.")]), name="clerk", tools=[pay])
desk = Agent(
    ScriptedModel([call("pay", amount=1) + call("transfer_to_clerk")]),
    name="desk",
    tools=[pay],
    handoffs=[clerk],
)
routed = Agent(
    ScriptedModel([text("unused")]), name="routed", router=lambda request: Route(clerk), handoffs=[clerk]
)
