"""Agents: which arguments they accept, which they refuse by name, and what their fingerprints cover."""

from functools import partial
from typing import Any

import pytest

from treadle import Agent, Limits, ModelSettings, ScriptedModel, tool
from treadle.errors import ConfigurationError


@tool(read_only=True)
def look(what: str) -> str:
    """Look something up."""
    return what


def model() -> ScriptedModel:
    return ScriptedModel(["hello"])


def agent(**more: Any) -> Agent[Any]:
    return Agent(model(), name="math", tools=[look], **more)


# --------------------------------------------------------------------------------------------- agents


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"name": ""}, "name"),
        ({"name": "no spaces"}, "name"),
        ({"name": "x" * 65}, "name"),
        ({"model": ""}, "model"),
        ({"model": 5}, "model"),
        ({"model": ScriptedModel}, "model"),
        ({"instructions": 5}, "instructions"),
        ({"worker": "magic"}, "worker"),
        ({"tools": look}, "tools"),
        ({"tools": [lambda: None]}, "tools"),
        ({"tools": [look, look]}, "two tools"),
        ({"limits": {"steps": 1}}, "limits"),
        ({"model_settings": {"temperature": 1}}, "model_settings"),
    ],
)
def test_a_wrong_argument_of_an_agent_is_named(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        Agent(**{"model": model(), "name": "math", **wrong})


def test_an_agent_cannot_be_changed_but_replaced() -> None:
    first = agent()
    with pytest.raises(AttributeError, match=r"agent.replace\(name=...\)"):
        first.name = "other"
    second = first.replace(name="other")
    assert (first.name, second.name, second.tools) == ("math", "other", first.tools)
    with pytest.raises(ConfigurationError, match="nmae"):
        first.replace(nmae="x")


def test_the_fingerprint_covers_what_the_model_sees_and_nothing_else() -> None:
    first = agent()
    assert first.fingerprint == agent().fingerprint
    for other in (
        agent(instructions="Be brief."),
        first.replace(name="other"),
        first.replace(tools=[]),
        first.replace(model=ScriptedModel([], name="another")),
    ):
        assert other.fingerprint != first.fingerprint
    for same in (
        agent(limits=Limits(steps=1)),
        agent(metadata=1),
        agent(model_settings=ModelSettings(temperature=1)),
    ):
        assert same.fingerprint == first.fingerprint


# --------------------------------------------------------------------------------------------- limits


# -------------------------------------------------------------------------------------------- options


def test_instructions_are_read_from_a_file_when_the_agent_is_made(tmp_path):
    prompt = tmp_path / "support.md"
    prompt.write_text("\nBe kind.\nBe brief — always.\n", encoding="utf-8")
    agent = Agent("openai:gpt-x", name="support", instructions=prompt)
    assert agent.instructions == "Be kind.\nBe brief — always."
    assert agent.fingerprint == agent.replace(instructions="Be kind.\nBe brief — always.").fingerprint
    prompt.write_text("Be rude.", encoding="utf-8")
    assert agent.replace(name="other").instructions == agent.instructions
    assert Agent("openai:gpt-x", name="support", instructions=prompt).fingerprint != agent.fingerprint


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "No such file"), (b" \n", "is empty"), (b"\xff\xfe\x00", "is not UTF-8")],
)
def test_a_file_without_instructions_is_named(tmp_path, content, said):
    prompt = tmp_path / "support.md"
    if content is not None:
        prompt.write_bytes(content)
    with pytest.raises(ConfigurationError, match=rf"Agent 'a': instructions: .*support.md.* {said}"):
        Agent("openai:gpt-x", name="a", instructions=prompt)


def test_instructions_may_be_any_callable():
    class Greeting:
        def __call__(self, ctx):
            return "Be kind."

    def greet(name, ctx):
        return f"Be kind to {name}."

    fingerprints = {
        Agent("openai:gpt-x", instructions=instructions).fingerprint
        for instructions in (Greeting(), partial(greet, "Ada"), partial(greet, "Bob"), lambda ctx: "Be kind.")
    }
    assert len(fingerprints) == 3, "a partial has the name of the function that it calls"
