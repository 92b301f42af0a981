"""What a guardrail is: a function, what it checks, and the terms on which it does."""

from typing import Any

import pytest

from treadle import Agent, Guardrail, Runner, ScriptedModel
from treadle.errors import ConfigurationError
from treadle.policy.guardrails import guardrails_for


def fine(request: Any) -> None:
    return None


def test_a_guardrail_has_the_name_of_its_function_unless_it_is_named() -> None:
    assert Guardrail(fine, on="input").id == "fine"
    assert repr(Guardrail(fine, on=["input", "output"], id="all")) == "Guardrail('all', on='input, output')"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"function": "fine", "on": "input", "id": "a"}, "takes a function of a GuardrailRequest"),
        ({"on": "all"}, "on must be one or several of input, output, result"),
        ({"on": []}, "on must be one or several"),
        ({"function": lambda request: None, "on": "input"}, "give it id="),
        ({"on": "output", "piece": 0}, "piece must be a number of characters from 1 up"),
        ({"on": "input", "piece": 5}, "piece is for checks on output"),
        ({"on": "output", "blocking": True}, "blocking is for checks on input"),
        ({"on": "input", "deadline": 0}, "deadline must be a number of seconds above 0"),
        ({"on": "input", "agents": 5}, "agents must be a pattern"),
        ({"on": "result", "tools": []}, "tools must be a pattern"),
    ],
)
def test_a_mistake_is_told_where_it_is_made(arguments: dict[str, Any], why: str) -> None:
    function = arguments.pop("function", fine)
    with pytest.raises(ConfigurationError, match=why):
        Guardrail(function, **arguments)


def test_a_guardrail_never_changes() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        Guardrail(fine, on="input").blocking = True


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (Guardrail(fine, on="input"), "must be a list of Guardrail"),
        ([fine], r"must list Guardrail\(function, on=...\)"),
        ([Guardrail(fine, on="input"), Guardrail(fine, on="output")], "two have the id 'fine'"),
    ],
)
def test_agents_and_runners_take_lists_of_guardrails(value: Any, why: str) -> None:
    with pytest.raises(ConfigurationError, match=f"Agent 'a': guardrails:? ?{why}"):
        Agent(ScriptedModel([]), name="a", guardrails=value)
    with pytest.raises(ConfigurationError, match=f"Runner: guardrails:? ?{why}"):
        Runner("memory:", guardrails=value)


@pytest.mark.parametrize(
    ("on", "tool", "checks"),
    [("input", "", False), ("result", "fetch_page", True), ("result", "look", False), ("output", "", True)],
)
def test_what_a_guardrail_checks(on: Any, tool: str, checks: bool) -> None:
    assert Guardrail(fine, on=["output", "result"], tools="fetch*").checks(on, tool) is checks


def test_a_guardrail_holds_for_the_agents_that_it_names() -> None:
    every, desks = Guardrail(fine, on="input"), Guardrail(fine, on="input", agents=["desk*", "front"])
    assert guardrails_for("desk-2", [every, desks]) == (every, desks)
    assert guardrails_for("back", [every, desks]) == (every,)
