"""The next actions of a task, derived from its state and never stored. An effect's identity is its place in the task.

`decide` returns an event, a tuple of effects, or `Wait`. An event follows from the state: the driver journals it and
calls `decide` again. The tuple has all effects that should run now, so the driver starts and stops the difference to
those that do run.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from treadle.core.checks import Check
from treadle.core.data import mutable
from treadle.core.events import Event, GuardedContent, Outcome
from treadle.core.graph import StepNode
from treadle.core.messages import Json
from treadle.core.steps import CallState, ModelCall, StepState

WaitReason = Literal[
    "ended",
    "answered",
    "paused",
    "interrupted",
    "settlement",
    "approval",
    "question",
    "undo_failed",
    "undo_unknown",
    "idle",
    "thread",
    "timer",
    "handoff",
    "background",
]


@mutable
class CallModel:
    """Send a request of a step to the model. `final` asks for an answer without tools."""

    id: str
    step: StepState
    call: ModelCall
    final: bool = False


@mutable
class JudgeRequest:
    """Let the policies decide whether a request to a model may be sent."""

    id: str
    step: StepState
    call: ModelCall
    final: bool = False


@mutable
class CallTool:
    """Execute a call that the model asked for."""

    id: str
    call: CallState


@mutable
class JudgeCall:
    """Let the policies and the tool itself decide whether a call may start."""

    id: str
    call: CallState


@mutable
class JudgeContent:
    """Let guardrails decide whether a content passes. `place` is its id, `content` its present value.

    `tool` is the tool of a result.
    """

    id: str
    step: str
    place: str
    guards: GuardedContent
    content: dict[str, Json]
    tool: str = ""


@mutable
class ReleaseAnswer:
    """Release an answer that guardrails held and have passed."""

    id: str
    step: StepState
    call: ModelCall


@mutable
class RunAgent:
    """Run a called agent as its own task, from the start or from its present state."""

    id: str
    call: CallState


@mutable
class StopAgent:
    """End the task of a called agent, and the call, with this outcome and reason.

    With `retries`, the call begins again with a new task instead of ending.
    """

    id: str
    call: CallState
    outcome: Outcome
    why: str
    retries: bool = False


@mutable
class UndoCall:
    """Undo a finished call with its tool's `undo=`."""

    id: str
    call: CallState


@mutable
class Reconcile:
    """Ask the tool's `reconcile=` whether a lost call took effect."""

    id: str
    call: CallState


@mutable
class ChooseRoute:
    """Ask the agent's router for the next step."""

    id: str
    step: StepState


@mutable
class RunFunction:
    """Enter a step function. Its earlier requests and calls are answered from the journal."""

    id: str
    node: StepNode


@mutable
class ConsultWorker:
    """Let a custom worker choose the first step, or inspect the answer before the task ends."""

    id: Literal["initialize", "finalize"]


@mutable
class Wait:
    """Nothing can be done now, for this reason. `calls` are the calls and contents that wait for a person."""

    reason: WaitReason
    calls: tuple[CallState | Check, ...] = ()


Effect: TypeAlias = (
    CallModel
    | JudgeRequest
    | CallTool
    | JudgeCall
    | JudgeContent
    | ReleaseAnswer
    | RunAgent
    | StopAgent
    | UndoCall
    | Reconcile
    | ChooseRoute
    | RunFunction
    | ConsultWorker
)
Decision: TypeAlias = Event | tuple[Effect, ...] | Wait
