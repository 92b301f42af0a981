"""A task whose conversation moves to another agent is killed around each move: nothing is repeated, nothing is lost."""

from pathlib import Path

import pytest

from treadle.testing.boundaries import CrashReport, crash_at_every_boundary

AGENTS = """
from treadle import Agent, Handoff, Route, ScriptedModel, tool
from treadle.models import call, text

@tool
async def pay(amount: int) -> str:
    return f"paid {amount}"

clerk = Agent(ScriptedModel([call("pay", amount=5), text("Paid.")]), name="clerk", tools=[pay])
desk = Agent(
    ScriptedModel([call("pay", amount=1) + call("transfer_to_clerk")]), name="desk", tools=[pay], handoffs=[clerk]
)
routed = Agent(ScriptedModel([text("unused")]), name="routed", router=lambda request: Route(clerk), handoffs=[clerk])
"""


def killed(folder: Path, agent: str, *points: str) -> CrashReport:
    (folder / "handing_over.py").write_text(AGENTS)
    return crash_at_every_boundary(
        f"handing_over:{agent}",
        "Pay.",
        cwd=folder,
        kills_per_task=4,
        recovery=not points,
        only=lambda point: not points or any(each in point for each in points),
    )


def test_a_move_survives_a_crash(tmp_path: Path) -> None:
    report = killed(tmp_path, "desk", "agent_changed")
    assert (report.broken, report.missed, report.answer) == ([], [], ("completed", "Paid."))
    assert any("agent_changed" in place for place in report.places), report.places


@pytest.mark.full
@pytest.mark.parametrize("agent", ["desk", "routed"])
def test_a_task_that_is_handed_over_survives_a_crash_at_every_boundary(tmp_path: Path, agent: str) -> None:
    report = killed(tmp_path, agent)
    assert (report.broken, report.missed, report.answer) == ([], [], ("completed", "Paid."))
