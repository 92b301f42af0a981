"""A task with guardrails is killed around each decision: nothing goes on unchecked, nothing is checked twice."""

from pathlib import Path

import pytest

from treadle.testing.boundaries import CrashReport, crash_at_every_boundary

AGENT = """
from treadle import Agent, AskPerson, Guardrail, Rewrite, ScriptedModel, tool
from treadle.models import call

@tool
async def pay(amount: int) -> str:
    return f"paid {amount} with 4111"

def hide(request):
    return Rewrite(request.text.replace("4111", "[card]")) if "4111" in request.text else None

async def ask(request):
    return AskPerson(reason="It is an answer.") if "Done" in request.text else None

guardrails = [
    Guardrail(hide, on=["input", "output", "result"], blocking=BLOCKING),
    Guardrail(ask, on="output"),
]
agent = Agent(
    ScriptedModel([call("pay", amount=5), "Done with 4111."]), name="guarded", tools=[pay], guardrails=guardrails
)
"""


def killed(folder: Path, *points: str, blocking: bool = False) -> CrashReport:
    name = f"guarded_crashes_{'blocking' if blocking else 'beside'}"
    (folder / f"{name}.py").write_text(AGENT.replace("BLOCKING", str(blocking)))
    return crash_at_every_boundary(
        f"{name}:agent",
        "Pay with 4111.",
        cwd=folder,
        kills_per_task=4,
        recovery=not points,
        only=lambda point: not points or any(each in point for each in points),
    )


def test_a_decision_of_guardrails_survives_a_crash(tmp_path: Path) -> None:
    report = killed(tmp_path, "after answer_held", "before guardrail_judged", blocking=True)
    assert (report.broken, report.missed, report.answer) == ([], [], ("completed", "Done with [card]."))
    assert any("answer_held" in place for place in report.places), report.places


@pytest.mark.full
@pytest.mark.parametrize("blocking", [True, False])
def test_a_task_with_guardrails_survives_a_crash_at_every_boundary(tmp_path: Path, blocking: bool) -> None:
    report = killed(tmp_path, blocking=blocking)
    assert (report.broken, report.missed) == ([], [])
