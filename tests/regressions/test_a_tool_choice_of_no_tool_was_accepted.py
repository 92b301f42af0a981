"""`tool_choice="nix"` and `metadata=object()` passed the construction of an agent, and failed at a run or never."""

from typing import Any

import pytest

from tests.cast import look
from treadle import Agent, ModelSettings, ScriptedModel
from treadle.errors import ConfigurationError


def agent(**settings: Any) -> Agent[Any]:
    return Agent(ScriptedModel(["x"]), name="desk", **settings)


@pytest.mark.parametrize("choice", ["auto", "none", "required", "look"])
def test_a_word_and_the_name_of_a_tool_are_taken(choice: str):
    assert (
        agent(tools=[look], model_settings=ModelSettings(tool_choice=choice)).model_settings.tool_choice
        == choice
    )


@pytest.mark.parametrize(
    ("choice", "advice"),
    [("nix", "it has look"), ("lok", "did you mean 'look'"), ("require", "did you mean 'required'")],
)
def test_another_name_is_refused_with_what_there_is(choice: str, advice: str):
    with pytest.raises(ConfigurationError, match=f"tool_choice must be .*{advice}"):
        agent(tools=[look], model_settings=ModelSettings(tool_choice=choice))


def test_an_agent_that_is_called_is_a_tool_too():
    helper = Agent(ScriptedModel(["x"]), name="helper")
    assert agent(subagents=[helper], model_settings=ModelSettings(tool_choice="helper"))


def test_metadata_is_json_data():
    assert agent(metadata={"team": ["a", 1]}).metadata == {"team": ["a", 1]}
    with pytest.raises(ConfigurationError, match="Agent 'desk': metadata"):
        agent(metadata=object())
