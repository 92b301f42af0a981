"""Options of a run: which values are accepted, how they are merged and stored, and which rules they give a drive."""

from typing import Any

import pytest

from tests.cast import calculator, sayer
from treadle import Breakpoint, FailurePolicy, Limits, ModelSettings, Runner, RunOptions
from treadle.engine.options import from_json, rules_for, to_json
from treadle.errors import ConfigurationError

pytestmark = pytest.mark.anyio


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


def test_options_stored_with_a_task_are_read_back_unchanged() -> None:
    assert from_json(to_json(FULL)) == FULL
    assert to_json(RunOptions()) is None
    assert from_json(None) == RunOptions()


def test_options_of_a_later_version_are_left_out() -> None:
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
    capped = calculator(limits=Limits(steps=2))
    options = RunOptions(limits=Limits(steps=5, tokens=7))
    assert rules_for(capped, options).limits == Limits(steps=2, tokens=7)
    assert rules_for(capped, options, raised=True).limits == Limits(steps=5, tokens=7)
    by = rules_for(capped, RunOptions())
    assert (by.on_limit, by.on_model_failure, by.on_tool_failure) == ("final_answer", "fail", "continue")
    assert (by.on_unknown_outcome, by.max_parallel_tools, list(by.tools)) == (
        "wait",
        64,
        ["read_output", "add", "multiply"],
    )
    assert not rules_for(None, RunOptions()).knows_agent


async def test_labels_of_the_runner_and_of_the_run_are_joined(store: Any) -> None:
    options = RunOptions(labels={"team": "blue", "stage": "test"})
    async with Runner(store, options=options) as runner:
        task = await runner.create_task(sayer(), "?", options=RunOptions(labels={"stage": "live"}))
        assert task.labels == {"team": "blue", "stage": "live"}
        (listed,) = (await runner.list_tasks()).items
        assert listed.labels == task.labels


def test_an_option_set_to_false_overrides_the_default() -> None:
    usual = RunOptions(tell_steps_left=True, break_on=[Breakpoint(after_step=1)])
    merged = RunOptions(tell_steps_left=False, break_on=[]).over(usual)
    assert (merged.tell_steps_left, merged.break_on) == (False, [])


def test_settings_of_the_model_are_merged_field_by_field_and_stored() -> None:
    runner = RunOptions(model_settings=ModelSettings(temperature=0, max_tokens=50, extra={"seed": 1}))
    run = RunOptions(model_settings=ModelSettings(temperature=1, extra={"top_k": 2}))
    merged = run.over(runner)
    expected = ModelSettings(temperature=1, max_tokens=50, extra={"seed": 1, "top_k": 2})
    assert merged.model_settings == expected
    assert from_json(to_json(merged)).model_settings == expected
    assert RunOptions().over(runner).model_settings == runner.model_settings


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"temperature": 0}, r"RunOptions.model_settings must be ModelSettings\(...\)"),
        (
            ModelSettings(extra={"extra_headers": {"X-Api-Key": "sk-very-secret"}}),
            "extra holds a key, and options are stored with the task",
        ),
        (ModelSettings(extra={"what": "half \ud800"}), "cannot be stored: extra is"),
    ],
)
def test_settings_of_a_run_that_no_journal_may_hold_are_refused(settings: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        RunOptions(model_settings=settings)
