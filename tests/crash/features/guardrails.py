"""A task whose texts are rewritten and held by guardrails, which wait for their decision or not."""

from treadle import Agent, AskPerson, Guardrail, Rewrite, ScriptedModel, tool
from treadle.models import call


@tool
async def pay(amount: int) -> str:
    return f"paid {amount} with 4111"


def hide(request):
    return Rewrite(request.text.replace("4111", "[card]")) if "4111" in request.text else None


async def ask(request):
    return AskPerson(reason="It is an answer.") if "Done" in request.text else None


def guarded(*, blocking: bool) -> Agent:
    guardrails = [
        Guardrail(hide, on=["input", "output", "result"], blocking=blocking),
        Guardrail(ask, on="output"),
    ]
    model = ScriptedModel([call("pay", amount=5), "Done with 4111."])
    return Agent(model, name="guarded", tools=[pay], guardrails=guardrails)


waiting, beside = guarded(blocking=True), guarded(blocking=False)
