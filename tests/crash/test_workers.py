"""Tasks of other workers, and of agents with tool selection, are killed at every boundary."""

from pathlib import Path

import pytest

from treadle.testing.boundaries import crash_at_every_boundary

AGENT = """
import json
import os

from treadle import Agent, Limits, ScriptedModel, ToolContext, tool
from treadle.llm.scripted import call, fail
from treadle.models import Retry

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

def by_process(ctx):
    # Each process would choose otherwise; what a request held that is made again is in the journal.
    return ["pay", "look", *[tool for tool in ctx.tools if tool.spec.name == f"t{os.getpid() % 7}"]]

more = [tool(lambda: None, name=f"t{n}", read_only=True) for n in range(7)]
calls = [call("look", n=1), call("t7", n=2), call("pay", n=3), "Done."]
choosing_agent = Agent(ScriptedModel(calls), name="choosing", tools=[pay, look, *more], offer=by_process)

stumbles = [fail(503), fail(429, retry_after=0.01), call("look", n=1), fail(500), call("pay", n=2), fail(503), "Done."]
stubborn_agent = Agent(Retry(ScriptedModel(stumbles), base=0.01), name="stubborn", tools=[pay, look])

leaf = Agent(ScriptedModel([call("pay", n=1), "paid"]), name="leaf", tools=[pay])
pays = ScriptedModel([call("leaf", input="Pay."), call("look", n=1), "seen to"])
middle = Agent(pays, name="middle", tools=[look], subagents=[leaf])
sees_to_it = ScriptedModel([call("middle", input="See to it."), call("pay", n=2), "Done."])
calling_agent = Agent(sees_to_it, name="root", tools=[pay], subagents=[middle], limits=Limits(model_calls=40))
"""


@pytest.mark.full
@pytest.mark.parametrize(
    "agent", ["react_agent", "planner_agent", "choosing_agent", "stubborn_agent", "calling_agent"]
)
def test_a_task_survives_a_crash_at_every_boundary(tmp_path: Path, agent: str) -> None:
    (tmp_path / "worker_crashes.py").write_text(AGENT)
    report = crash_at_every_boundary(f"worker_crashes:{agent}", "Pay.", cwd=tmp_path, kills_per_task=4)
    assert (report.broken, report.missed) == ([], [])
    assert report.answer == ("completed", "Done.")
