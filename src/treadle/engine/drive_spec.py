"""What a drive goes by: where it stops, the rules it decides by, the options and the worker."""

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
"""Where a drive stops: at the task's end, after one step, finalized, rewound, or as soon as the inbox is read."""


@mutable
class DriveSpec:
    """What a drive goes by. An undo that arrives during the drive changes the goal and the worker."""

    goal: Goal
    rules: Rules
    options: RunOptions
    work: lifecycle.DecideFunction


def failing(failure: e.Failure) -> lifecycle.DecideFunction:
    """Return the `decide` of a task that has to fail before its agent can do anything."""

    def decide(state: TaskState, rules: Rules) -> Decision:
        return fail(state, failure)

    return decide


def idle(state: TaskState, rules: Rules) -> Decision:
    """Want nothing: the worker of a drive that only carries out what was commanded."""
    return Wait("idle")
