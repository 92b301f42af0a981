"""Tasks with calls in the background, and with sleeps."""

from typing import Any

from treadle import Agent, ScriptedModel, StepResult, ToolContext, tool
from treadle.models import call


@tool(background=True, idempotent=True)
async def render(title: str, ctx: ToolContext) -> Any:
    return ctx.background({"job": title})


@tool(background=True)
def ship(order: str, ctx: ToolContext) -> Any:
    return ctx.background({"parcel": order})


@tool(background=True, read_only=True)
async def watch(ctx: ToolContext) -> Any:
    return ctx.background(expires=0.01)


@tool(idempotent=True)
async def nap(ctx: ToolContext) -> str:
    await ctx.sleep(0.01)
    return "rested"


calls = [call("render", title="a"), call("ship", order="17"), call("watch"), call("nap")]
tools = [render, ship, watch, nap]
films = Agent(ScriptedModel([calls, "So.", "So.", "So."]), name="films", tools=tools)


async def work(ctx):
    film = await ctx.call_tool("render", {"title": "a"})
    await ctx.sleep(0.01)
    return StepResult(f"{film} {await ctx.call_tool('nap')}", is_last=True)


steps = Agent(ScriptedModel([]), name="steps", worker=work, tools=[render, nap])
