"""A task with calls in the background, and with sleeps, is killed at every boundary: each result is delivered once."""

from pathlib import Path

import pytest

from treadle.testing.boundaries import CrashReport, crash_at_every_boundary

AGENT = """
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
"""


def killed(folder: Path, agent: str, *points: str) -> CrashReport:
    (folder / "background_crashes.py").write_text(AGENT)
    return crash_at_every_boundary(
        f"background_crashes:{agent}",
        "Go.",
        cwd=folder,
        kills_per_task=4,
        recovery=not points,
        only=lambda point: not points or point.startswith(points),
    )


def test_a_ticket_survives_a_crash_between_the_hand_out_and_the_deferral(tmp_path: Path) -> None:
    points = ("after ticket_issued", "before call_deferred", "after call_deferred", "before ticket_completed")
    report = killed(tmp_path, "films", *points)
    assert (report.broken, report.missed) == ([], [])
    assert report.places


@pytest.mark.full
@pytest.mark.parametrize("agent", ["films", "steps"])
def test_a_task_with_background_work_survives_a_crash_at_every_boundary(tmp_path: Path, agent: str) -> None:
    report = killed(tmp_path, agent)
    print(report.head)
    assert (report.broken, report.missed) == ([], [])
