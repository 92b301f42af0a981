"""A planned task with a failing sub-task."""

import re
from json import dumps

from treadle import Agent, ScriptedModel, ToolContext, tool
from treadle.llm.scripted import call, text


async def unpay(call, ctx: ToolContext):
    pass


@tool(undo=unpay)
async def pay(n: int) -> str:
    return f"paid {n}"


@tool(read_only=True)
async def look(n: int) -> str:
    return f"seen {n}"


def plan(*sub_tasks):
    return text(dumps({"sub_tasks": [{"id": key, "task": key, "after": after} for key, after in sub_tasks]}))


def says(request):
    words = "\n".join(message.text for message in request.messages)
    worked = re.findall(r"^Your sub-task, (.+):$", words, re.MULTILINE)
    ran = re.findall(r"^Plan (.+) has run", words, re.MULTILINE)
    called = any(message.role == "tool" for message in request.messages)
    if not worked:
        if not ran:
            return plan(("pay", []), ("look", []), ("fail", ["pay"]))
        return plan(("sum", ["pay", "look"])) if ran[-1] == "1" else text('{"answer": "Paid."}')
    if called and worked[0] == "1.fail":
        raise RuntimeError("no luck")
    if called or worked[0] == "2.sum":
        return text(f"{worked[0]} is done")
    return call("look", n=1) if worked[0] == "1.look" else call("pay", n=len(worked[0]))


agent = Agent(ScriptedModel(says), worker="plan_refine", tools=[pay, look])
