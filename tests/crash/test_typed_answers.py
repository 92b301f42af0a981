"""A task with typed answers is killed between an invalid answer and the next, and at every other boundary."""

from pathlib import Path

import pytest

from treadle.testing.boundaries import CrashReport, crash_at_every_boundary

AGENT = """
from dataclasses import dataclass

from treadle import Agent, ScriptedModel, tool
from treadle.models import call, call_raw, text

@dataclass
class Point:
    x: float

@tool
async def mark(n: int) -> str:
    return f"marked {n}"

by_tool = [call("final_answer", x="far"), call("mark", n=1) + call("final_answer"), call("final_answer", x=1)]
in_words = [text('{"x": "far"}'), call("mark", n=1), text('{"x": 1}')]
tool_agent = Agent(ScriptedModel(by_tool), name="typed", tools=[mark], output_type=Point, output_mode="tool")
prompt_agent = Agent(ScriptedModel(in_words), name="typed", tools=[mark], output_type=Point, output_mode="prompt")
"""


def killed(folder: Path, agent: str, *points: str) -> CrashReport:
    (folder / "typed_crashes.py").write_text(AGENT)
    return crash_at_every_boundary(
        f"typed_crashes:{agent}",
        "Where?",
        cwd=folder,
        kills_per_task=4,
        recovery=not points,
        only=lambda point: not points or point.startswith(points),
    )


@pytest.mark.parametrize("agent", ["tool_agent", pytest.param("prompt_agent", marks=pytest.mark.full)])
def test_an_invalid_answer_is_known_after_a_crash_and_sent_back_once(tmp_path: Path, agent: str) -> None:
    report = killed(tmp_path, agent, "before model_returned", "inside model_returned", "after model_returned")
    assert (report.broken, report.missed) == ([], [])
    assert len(report.places) >= 9


@pytest.mark.full
@pytest.mark.parametrize("agent", ["tool_agent", "prompt_agent"])
def test_a_typed_task_survives_a_crash_at_every_boundary(tmp_path: Path, agent: str) -> None:
    report = killed(tmp_path, agent)
    assert (report.broken, report.missed) == ([], [])
