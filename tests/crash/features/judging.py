"""A task whose requests to models, and whose calls, are judged by rules."""

from treadle import Agent, Policy, Rule, ScriptedModel, tool
from treadle.models import call


@tool
async def pay(amount: int) -> str:
    return f"paid {amount}"


policy = Policy(
    Rule("cap", "replace", tool="pay", when={"arguments.amount": {"above": 1}}, arguments={"amount": 1}),
    Rule("small", "allow", tool="pay"),
    Rule("dear", "ask", model="*", when={"tool_calls": {"above": 0}}, reason="It is dear."),
)
agent = Agent(ScriptedModel([call("pay", amount=5), "Done."]), name="judged", tools=[pay], policy=policy)
