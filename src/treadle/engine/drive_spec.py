"""The specification of a drive: its goal, its rules, its options and its worker."""

from __future__ import annotations

from typing import Literal

from treadle.agents.decide import lifecycle
from treadle.agents.decide.failures import fail
from treadle.agents.decide.rules import Rules
from treadle.core import events as e
from treadle.core.data import mutable
from treadle.core.effects import Decision, Wait
from treadle.core.state import TaskState
from treadle.engine.options import RunOptions

Goal = Literal["end", "step", "finalize", "undo", "attend"]
"""The goal of a drive: the task's end, one step, its finalisation, an undo, or only reading the inbox."""


@mutable
class DriveSpec:
    """The specification of a drive. An undo that arrives during the drive changes the goal."""

    goal: Goal
    rules: Rules
    options: RunOptions
    work: lifecycle.DecideFunction


def failing(failure: e.Failure) -> lifecycle.DecideFunction:
    """Return the `decide` of a task that must fail before its agent can run."""

    def decide(state: TaskState, rules: Rules) -> Decision:
        return fail(state, failure)

    return decide


def idle(state: TaskState, rules: Rules) -> Decision:
    """Decide nothing: the worker of a drive that only carries out commands."""
    return Wait("idle")
