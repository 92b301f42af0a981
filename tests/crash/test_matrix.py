"""The golden task is killed at every place it passes, brought to its end by the command line, and audited."""

from __future__ import annotations

import random

import pytest

from tests.crash.golden import VARIANTS
from tests.crash.invariants import lost
from tests.crash.trials import Trials

ALL = pytest.mark.parametrize("trials", VARIANTS, indirect=True)


def survives(trials: Trials, points: list[str]) -> None:
    """Kill a fresh golden task at each place; name every promise that broke, and where."""
    broken: dict[str, list[str]] = {}
    for point in points:
        trial = trials.new()
        trial.kill_at("script", point)
        found = trial.broken()
        if found:
            broken[f"{trials.variant}: {point} ({trial.path}: {trial.commands})"] = found
    assert not broken, broken


@pytest.mark.full
@ALL
def test_each_variant_is_killed_at_each_place(trials: Trials) -> None:
    survives(trials, trials.places())


@pytest.mark.parametrize("trials", ["inline", "threads"], indirect=True)
@pytest.mark.parametrize("call", ["book s1-1", "pay s1-2"])
def test_a_call_that_may_write_starts_only_once_its_begin_is_durable(trials: Trials, call: str) -> None:
    killed = trials.new().kill_at("script", f"start {call}")
    assert call.split()[1] in killed.journal.open_calls()


# -------------------------------------------------------------------------------- crash during recovery


def survives_twice(trials: Trials, first: str, every: int) -> None:
    """Kill at a place, then kill what carries on at each (or every so many) of its places."""
    killed = trials.new()
    killed.kill_at("script", first)
    rehearsal = killed.copy(trials.folder())
    before = len(rehearsal.places)
    assert rehearsal.job("carry_on", rehearsal.store, trials.variant) == 0, rehearsal.trouble
    broken: dict[str, list[str]] = {}
    for point in rehearsal.places[before:][::every]:
        trial = killed.copy(trials.folder())
        trial.kill_at("carry_on", point)
        found = trial.broken()
        if found:
            broken[f"{trials.variant}: {first}, then {point} ({trial.path})"] = found
    assert not broken, broken


@pytest.mark.full
@pytest.mark.parametrize(
    ("trials", "first"),
    [
        ("inline", "done pay s1-2"),
        ("threads_reconcile", "start pay s1-2"),
        ("inline", "start undo book s1-1-undo"),
        ("threads", "after tool_ended s1b1-1"),
    ],
    indirect=["trials"],
)
def test_a_recovery_that_is_killed_in_its_turn_is_recovered(trials: Trials, first: str) -> None:
    survives_twice(trials, first, every=9)


@pytest.mark.full
@ALL
def test_recovery_is_killed_at_each_place_after_each_kill_around_a_tool(trials: Trials) -> None:
    tools = [point for point in trials.places() if point.startswith(("enter", "start", "done"))]
    for first in tools:
        survives_twice(trials, first, every=1)


@pytest.mark.full
@ALL
def test_recovery_is_killed_at_any_place_after_a_kill_at_any_place(trials: Trials) -> None:
    for first in random.sample(trials.places()[3:], 25):
        survives_twice(trials, first, every=5)


# ------------------------------------------------------------------------------------ the harness itself


@pytest.mark.parametrize(
    "place",
    [
        "done pay s1-2",
        pytest.param("start undo book s1-1-undo", marks=pytest.mark.full),
        pytest.param("after model_returned s2b1", marks=pytest.mark.full),
        pytest.param("inside task_ended", marks=pytest.mark.full),
    ],
)
def test_resuming_in_a_process_of_its_own_is_no_different_from_a_fork(trials: Trials, place: str) -> None:
    trial = trials.new(real=True)
    trial.kill_at("script", place)
    assert trial.broken() == []


@pytest.mark.parametrize("trials", ["lying"], indirect=True)
def test_a_writing_tool_that_is_started_twice_is_noticed(trials: Trials) -> None:
    trial = trials.new()
    trial.kill_at("script", "done pay s1-2")
    assert any("effects: pay s1-2 happened 2 times" in violation for violation in trial.broken())


@pytest.mark.parametrize("trials", ["hasty"], indirect=True)
def test_an_acknowledged_event_that_is_lost_is_noticed(trials: Trials) -> None:
    # The process may crash before it wrote down an acknowledgement, as it often does on a busy machine: one is enough.
    kills = (trials.new().kill_at("script", "before tool_ended s1-1-undo") for _ in range(20))
    violations = (text for killed in kills for text in lost(killed, killed.journal))
    assert any("tool_ended s1-2-undo was acknowledged" in text for text in violations)
