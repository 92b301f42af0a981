"""A task whose calls wait for approvals is killed at every boundary: each call runs once, and none unapproved."""

from pathlib import Path

import pytest

from treadle.testing.boundaries import CrashReport, crash_at_every_boundary

AGENT = """
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
"""


def killed(folder: Path, *points: str) -> CrashReport:
    (folder / "asking_crashes.py").write_text(AGENT)
    return crash_at_every_boundary(
        "asking_crashes:agent",
        "Pay.",
        cwd=folder,
        kills_per_task=4,
        recovery=not points,
        only=lambda point: not points or point.startswith(points),
    )


def test_an_approval_survives_a_crash_and_its_call_runs_once(tmp_path: Path) -> None:
    report = killed(tmp_path, "before approval_given", "after approval_given", "after tool_started s2-0")
    assert (report.broken, report.missed) == ([], [])
    assert report.places


@pytest.mark.full
def test_a_task_with_approvals_survives_a_crash_at_every_boundary(tmp_path: Path) -> None:
    report = killed(tmp_path)
    assert (report.broken, report.missed) == ([], [])
