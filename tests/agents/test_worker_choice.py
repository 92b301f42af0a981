"""Workers by name: which values an agent's worker may have."""

from typing import Any

import pytest

from treadle import (
    Agent,
    React,
    ScriptedModel,
    StepContext,
    tool,
)
from treadle.errors import ConfigurationError


def test_workers_are_checked_when_an_agent_is_made() -> None:
    for wrong in ("ract", 7, React, object()):
        with pytest.raises(ConfigurationError, match=r"worker must be .*'react'"):
            Agent("openai:x", worker=wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"Agent 'a': .* 'finish'"):
        Agent("openai:x", name="a", tools=[tool(lambda: None, name="finish")], worker="planner")
    for wrong in (
        {"header": "no place"},
        {"header": 7},
        {"parser": 7},
        {"max_parse_errors": 0},
        {"max_parse_errors": True},
    ):
        with pytest.raises(ConfigurationError, match=f"React: {next(iter(wrong))}"):
            React(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "worker",
    ["fnction_calling", 7, StepContext, None, object()],
    ids=["typo", "number", "class", "none", "object"],
)
def test_a_value_that_is_not_a_worker_is_refused(worker: Any) -> None:
    with pytest.raises(ConfigurationError, match="worker must be 'function_calling'"):
        Agent(ScriptedModel([]), worker=worker)
