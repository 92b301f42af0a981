"""What a task wants done next: derived from its state, never stored. A place in the task is an effect's identity.

`decide` answers with one of three: an event (a fact that follows from the state: journal it and ask again), a tuple of
effects (all that is wanted now, in flight or not: the difference to what runs is what to start and what to stop), or
`Wait`.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from treadle.core.data import mutable
from treadle.core.events import Event
from treadle.core.state import CallState, StepState

WaitReason = Literal[
    "ended",
    "answered",
    "paused",
    "interrupted",
    "settlement",
    "undo_failed",
    "undo_unknown",
    "idle",
    "thread",
]


@mutable
class CallModel:
    """Ask the model. `final` wants an answer without tools."""

    id: str
    step: StepState
    final: bool = False


@mutable
class CallTool:
    """Execute a call the model asked for."""

    id: str
    call: CallState


@mutable
class UndoCall:
    """Take a finished call back, by its tool's `undo=`."""

    id: str
    call: CallState


@mutable
class Reconcile:
    """Find out by the tool's `reconcile=` whether a lost call took effect."""

    id: str
    call: CallState


@mutable
class Wait:
    """Nothing can be done now, and why; `calls` are those that wait for a person."""

    reason: WaitReason
    calls: tuple[CallState, ...] = ()


Effect: TypeAlias = CallModel | CallTool | UndoCall | Reconcile
Decision: TypeAlias = Event | tuple[Effect, ...] | Wait
