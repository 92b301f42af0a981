"""Imports of LlamaIndex's runners and workers had no counterpart, or a misleading one, such as the nearest name."""

from typing import Any

import pytest

import treadle
from treadle import Agent, Runner, ScriptedModel
from treadle.errors import WrongArguments


@pytest.mark.parametrize(
    ("name", "counterpart"),
    [
        ("BaseAgentWorker", "`from treadle import AgentWorker`"),
        ("CustomSimpleAgentWorker", "`from treadle import AgentWorker`"),
        ("FnAgentWorker", "`Agent(model, worker=function)`"),
        ("FunctionCallingAgent", "`Agent(model, tools=[...])`"),
        ("FunctionCallingAgentWorker", "`Agent(model, tools=[...])`"),
        ("MultimodalReActAgentWorker", "worker='react'"),
        ("ReActChatFormatter", "React(header=..., parser=...)"),
        ("ParallelAgentRunner", "runner.run_ready_steps(task)"),
        ("QueryPipelineAgentWorker", "worker=Pipeline("),
        ("QueryEngineTool", "*llamaindex_tools(tool)"),
        ("AgentStream", "events.Delta"),
        ("HumanResponseEvent", "runner.answer(task, value=...)"),
    ],
)
def test_an_import_of_llamaindex_names_its_counterpart(name: str, counterpart: str) -> None:
    with pytest.raises(AttributeError) as raised:
        getattr(treadle, name)
    assert counterpart in str(raised.value)


def test_the_root_agent_is_the_agent_of_a_run() -> None:
    runner: Any = Runner("memory:")
    agent = Agent(ScriptedModel([]), name="root")
    with pytest.raises(WrongArguments, match=r"write agent=\.\.\., or the agent first"):
        runner.run_sync(input="?", root_agent=agent)
    verb: Any = Runner
    with pytest.raises(WrongArguments, match=r"write agents=\[agent\]"):
        verb("memory:", root_agent=agent)
