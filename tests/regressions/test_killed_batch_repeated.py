"""A batch of calls whose process was killed was repeated as a whole."""

from pathlib import Path

from treadle.testing.boundaries import crash_at_every_boundary

BATCH = """
from treadle import Agent, RunOptions, ScriptedModel, tool
from treadle.models import call, text

@tool
async def charge(n: int) -> str:
    return f"charged {n}"

calls = call("charge", n=0)
for n in range(1, 3):
    calls = calls + call("charge", n=n)
agent = Agent(ScriptedModel([calls, text("so")]), name="batch", tools=[charge])
"""


def test_a_call_of_a_killed_batch_starts_at_most_once_unless_it_is_settled_as_not_happened(
    tmp_path: Path,
) -> None:
    (tmp_path / "batch_to_kill.py").write_text(BATCH)
    points = ("start charge", "done charge", "before tool_ended", "inside tool_ended", "after tool_ended")
    report = crash_at_every_boundary(
        "batch_to_kill:agent",
        "go",
        cwd=tmp_path,
        kills_per_task=5,
        recovery=False,
        only=lambda point: point.startswith(points),
    )
    assert not report.broken, report
    assert not report.missed
    assert len(report.places) == 15
