"""What an agent, its limits and its options accept, refuse by name, and come to together."""

from typing import Any

import pytest

from treadle import Agent, FailurePolicy, Limits, ModelSettings, RunOptions, ScriptedModel, tool
from treadle.engine.options import Breakpoint, from_json, rules_for, to_json
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


@pytest.mark.parametrize("name", ["steps", "model_calls", "tool_calls", "tokens", "seconds"])
@pytest.mark.parametrize("value", [-1, True, "5", float("nan")])
def test_a_limit_that_is_no_amount_is_named(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"Limits.{name}"):
        Limits(**{name: value})


def test_a_limit_of_calls_is_a_whole_number_and_one_of_time_need_not_be() -> None:
    with pytest.raises(ConfigurationError, match="whole number"):
        Limits(steps=1.5)  # type: ignore[arg-type]
    assert Limits(seconds=0.5).seconds == 0.5


def test_of_two_limits_the_smaller_counts_and_zero_is_a_limit() -> None:
    both = Limits(steps=5, tokens=0).tightest(Limits(steps=3, tokens=9, seconds=1))
    assert both == Limits(steps=3, tokens=0, seconds=1)
    assert (Limits().allowed_steps, Limits(steps=0).allowed_steps) == (200, 0)


# -------------------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"on_limit": "stop"}, "on_limit"),
        ({"on_unknown_outcome": "retry"}, "on_unknown_outcome"),
        ({"on_version_change": "ignore"}, "on_version_change"),
        ({"keep_in_thread": "never"}, "keep_in_thread"),
        ({"limits": 5}, "limits"),
        ({"on_failure": "fail"}, "on_failure"),
        ({"max_parallel_tools": 0}, "max_parallel_tools"),
        ({"max_parallel_tools": True}, "max_parallel_tools"),
        ({"tool_output_max_chars": 99}, "tool_output_max_chars"),
        ({"break_on": ["s1"]}, "break_on"),
        ({"labels": {"a": 1}}, "labels"),
    ],
)
def test_a_wrong_option_is_named(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        RunOptions(**wrong)


@pytest.mark.parametrize(("source", "word"), [("model", "continue"), ("tool", "ignore"), ("model", "")])
def test_a_failure_policy_accepts_only_its_values(source: str, word: str) -> None:
    with pytest.raises(ConfigurationError, match=f"FailurePolicy.{source} must be one of"):
        FailurePolicy(**{source: word})  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [{}, {"before_tool": "*", "after_step": 0}])
def test_a_breakpoint_has_exactly_one_condition(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="exactly one"):
        Breakpoint(**wrong)


FULL = RunOptions(
    limits=Limits(steps=3, seconds=0.5),
    on_limit="pause",
    on_failure=FailurePolicy(model="degrade", tool="pause"),
    on_unknown_outcome="tell_model",
    on_version_change="refuse",
    keep_in_thread="always",
    break_on=(Breakpoint(after_step=0), Breakpoint(before_tool="look")),
    max_parallel_tools=2,
    tool_output_max_chars=100,
)


def test_options_stored_with_a_task_are_read_back_unchanged() -> None:
    assert from_json(to_json(FULL)) == FULL
    assert to_json(RunOptions()) is None
    assert from_json(None) == RunOptions()


def test_what_a_later_version_adds_to_options_is_left_out() -> None:
    assert from_json({"on_limit": "fail", "later": 1, "limits": {"steps": 2, "moons": 3}}) == RunOptions(
        on_limit="fail", limits=Limits(steps=2)
    )


def test_options_left_open_are_taken_from_the_defaults_field_by_field() -> None:
    mine = RunOptions(on_limit="fail", limits=Limits(steps=9, tokens=5), labels={"a": "1"})
    both = mine.over(
        RunOptions(on_limit="pause", max_parallel_tools=2, limits=Limits(steps=3), labels={"b": "2"})
    )
    assert (both.on_limit, both.max_parallel_tools) == ("fail", 2)
    assert both.limits == Limits(steps=3, tokens=5)
    assert both.labels == {"a": "1", "b": "2"}
    assert mine.over(None) is mine


def test_a_drive_goes_by_the_smallest_limits_unless_they_were_raised() -> None:
    capped = agent(limits=Limits(steps=2))
    options = RunOptions(limits=Limits(steps=5, tokens=7))
    assert rules_for(capped, options).limits == Limits(steps=2, tokens=7)
    assert rules_for(capped, options, raised=True).limits == Limits(steps=5, tokens=7)
    by = rules_for(capped, RunOptions())
    assert (by.on_limit, by.on_model_failure, by.on_tool_failure) == ("final_answer", "fail", "continue")
    assert (by.on_unknown_outcome, by.max_parallel_tools, list(by.tools)) == ("wait", 64, ["look"])
    assert not rules_for(None, RunOptions()).knows_agent
