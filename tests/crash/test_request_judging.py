"""A task whose requests to models are judged is killed around each judgement: no request goes out unjudged."""

from pathlib import Path

import pytest

from treadle.testing.boundaries import CrashReport, crash_at_every_boundary

AGENT = """
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
"""


def killed(folder: Path, *points: str) -> CrashReport:
    (folder / "judged_crashes.py").write_text(AGENT)
    return crash_at_every_boundary(
        "judged_crashes:agent",
        "Pay.",
        cwd=folder,
        kills_per_task=4,
        recovery=not points,
        only=lambda point: not points or any(each in point for each in points),
    )


def test_a_judgement_survives_a_crash_and_is_not_made_twice(tmp_path: Path) -> None:
    report = killed(tmp_path, "request_judged", "pause_requested")
    assert (report.broken, report.missed, report.answer) == ([], [], ("completed", "Done."))
    assert any("request_judged" in place for place in report.places), report.places


@pytest.mark.full
def test_a_task_with_a_policy_survives_a_crash_at_every_boundary(tmp_path: Path) -> None:
    report = killed(tmp_path)
    assert (report.broken, report.missed) == ([], [])
