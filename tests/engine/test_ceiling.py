"""Options under a ceiling: of two numbers the smaller counts, and no default is raised."""

import pytest

from treadle import Breakpoint, FailurePolicy, Limits, ModelSettings, RunOptions
from treadle.runner.scope import both, changed_options, fork_options, new_task_options

NOTHING = RunOptions()


def test_of_two_numbers_the_smaller_counts_and_all_else_is_as_the_ceiling_says() -> None:
    ceiling = RunOptions(
        context_tokens=4_000,
        on_unknown_outcome="wait",
        on_failure=FailurePolicy(tool="fail"),
        model_settings=ModelSettings(max_tokens=100, temperature=0.0),
        break_on=[Breakpoint(tool="pay")],
        labels={"team": "a"},
    )
    asked = RunOptions(
        context_tokens=9_000,
        on_unknown_outcome="tell_model",
        on_failure=FailurePolicy(tool="continue"),
        model_settings=ModelSettings(max_tokens=10, temperature=1.0),
        break_on=[Breakpoint(after_step=1)],
        labels={"team": "b", "run": "7"},
        keep_in_thread="always",
    )
    assert both(asked, ceiling) == RunOptions(
        context_tokens=4_000,
        on_unknown_outcome="wait",
        on_failure=FailurePolicy(tool="fail"),
        model_settings=ModelSettings(max_tokens=10, temperature=0.0),
        break_on=(Breakpoint(tool="pay"), Breakpoint(after_step=1)),
        labels={"team": "a", "run": "7"},
        keep_in_thread="always",
    )


@pytest.mark.parametrize(
    ("agent", "asked", "ceiling", "steps"),
    [
        (None, None, 500, None),
        (None, None, 100, 100),
        (None, 300, 500, 300),
        (None, 900, 500, 500),
        (300, None, 500, 500),
        (900, None, 500, 500),
        (50, 900, 500, 500),
    ],
)
def test_a_ceiling_above_a_default_does_not_raise_it(
    agent: int | None, asked: int | None, ceiling: int, steps: int | None
) -> None:
    options = new_task_options(
        RunOptions(limits=Limits(steps=asked)) if asked else NOTHING,
        RunOptions(limits=Limits(steps=ceiling), max_parallel_tools=100, max_parallel_steps=3),
        Limits(steps=agent),
    )
    assert options.limits is not None
    assert options.limits.steps == steps
    assert (options.max_parallel_tools, options.max_parallel_steps) == (None, 3)


def test_a_ceiling_without_a_limit_on_repeats_leaves_the_default() -> None:
    ceiling = RunOptions(limits=Limits(repeats=0))
    assert new_task_options(NOTHING, ceiling, Limits()).limits == Limits()
    asked = RunOptions(limits=Limits(repeats=0))
    assert new_task_options(asked, RunOptions(limits=Limits(repeats=3)), Limits()).limits == Limits(repeats=3)


def test_what_a_resume_leaves_open_stays_as_the_task_has_it() -> None:
    ceiling = RunOptions(limits=Limits(steps=5), max_parallel_tools=8, interaction="headless")
    assert changed_options(RunOptions(keep_in_thread="always"), ceiling) == RunOptions(
        keep_in_thread="always"
    )
    changed = changed_options(RunOptions(limits=Limits(tokens=10), interaction="external"), ceiling)
    assert changed == RunOptions(limits=Limits(tokens=10, steps=5), interaction="headless")


def test_a_fork_is_under_its_ceiling_and_keeps_what_its_task_has() -> None:
    ceiling = RunOptions(limits=Limits(steps=5), max_parallel_tools=8, max_parallel_steps=100)
    assert fork_options(None, NOTHING, ceiling) == RunOptions(limits=Limits(steps=5), max_parallel_tools=8)
    asked = RunOptions(limits=Limits(steps=3), max_parallel_tools=9)
    assert fork_options(asked, NOTHING, ceiling) == RunOptions(limits=Limits(steps=3), max_parallel_tools=8)
    stored = RunOptions(limits=Limits(tokens=9), max_parallel_tools=2, tell_steps_left=True)
    assert fork_options(None, stored, ceiling) == RunOptions(
        limits=Limits(steps=5, tokens=9), max_parallel_tools=2, tell_steps_left=True
    )


def test_a_breakpoint_of_a_ceiling_is_kept_once() -> None:
    ceiling = RunOptions(break_on=[Breakpoint(tool="pay")])
    stored = RunOptions(break_on=[Breakpoint(tool="pay"), Breakpoint(after_step=1)])
    assert fork_options(None, stored, ceiling) == RunOptions(
        break_on=(Breakpoint(tool="pay"), Breakpoint(after_step=1))
    )
