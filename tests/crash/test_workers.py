"""Tasks of models that only write text are killed wherever they can be."""

from pathlib import Path

import pytest

from treadle.testing.boundaries import crash_at_every_boundary

AGENT = """
import json

from treadle import Agent, ScriptedModel, ToolContext, tool

async def unpay(call, ctx: ToolContext):
    pass

@tool(undo=unpay)
async def pay(n: int) -> str:
    return f"paid {n}"

@tool(read_only=True)
async def look(n: int) -> str:
    return f"seen {n}"

def planner(name, **given):
    return json.dumps({"thought": "so", "name": name, "arguments": given})

def react(name, **given):
    if name == "finish":
        return f"Thought: so\\nAnswer: {given['answer']}"
    return f"Thought: so\\nAction: {name}\\nAction Input: {json.dumps(given)}\\nObservation: made up"

def agent(worker, write):
    unclosed = write("pay", n=3).partition("3")[0]
    script = [write("look", n=1), write("pay", n=2), unclosed, write("pay", n=3), write("finish", answer="Done.")]
    return Agent(ScriptedModel(script), name=worker, worker=worker, tools=[pay, look])

react_agent = agent("react", react)
planner_agent = agent("planner", planner)
"""


@pytest.mark.full
@pytest.mark.parametrize("agent", ["react_agent", "planner_agent"])
def test_a_task_in_words_survives_a_crash_at_every_boundary(tmp_path: Path, agent: str) -> None:
    (tmp_path / "worker_crashes.py").write_text(AGENT)
    report = crash_at_every_boundary(f"worker_crashes:{agent}", "Pay.", cwd=tmp_path, kills_per_task=4)
    assert (report.broken, report.missed) == ([], [])
    assert report.answer == ("completed", "Done.")
