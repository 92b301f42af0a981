"""A task whose tools are wrapped is killed at every boundary: what ran stands in the journal, and ran once."""

from pathlib import Path

import pytest

from treadle.testing.boundaries import CrashReport, crash_at_every_boundary

AGENT = """
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
"""


def killed(folder: Path, *points: str) -> CrashReport:
    (folder / "wrapped_crashes.py").write_text(AGENT)
    return crash_at_every_boundary(
        "wrapped_crashes:agent",
        "Pay.",
        cwd=folder,
        kills_per_task=4,
        recovery=not points,
        only=lambda point: not points or point.startswith(points),
    )


def test_rewritten_arguments_survive_a_crash_and_the_call_runs_once(tmp_path: Path) -> None:
    report = killed(tmp_path, "before arguments_rewritten", "after arguments_rewritten")
    assert (report.broken, report.missed) == ([], [])
    assert report.places


@pytest.mark.full
def test_a_task_with_middleware_survives_a_crash_at_every_boundary(tmp_path: Path) -> None:
    report = killed(tmp_path)
    assert (report.broken, report.missed) == ([], [])
