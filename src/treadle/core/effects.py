"""What a task wants done next: derived from its state, never stored. A place in the task is an effect's identity.

`decide` answers with one of three: an event (a fact that follows from the state: journal it and ask again), a tuple of
effects (all that is wanted now, in flight or not: the difference to what runs is what to start and what to stop), or
`Wait`.
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
    """Ask the model a question of a step. `final` wants an answer without tools."""

    id: str
    step: StepState
    call: ModelCall
    final: bool = False


@mutable
class JudgeRequest:
    """Decide whether a request to a model may go out, by the policies."""

    id: str
    step: StepState
    call: ModelCall
    final: bool = False


@mutable
class CallTool:
    """Execute a call the model asked for."""

    id: str
    call: CallState


@mutable
class JudgeCall:
    """Decide whether a call may start: by the policies, and by what its tool says itself."""

    id: str
    call: CallState


@mutable
class JudgeContent:
    """Decide by guardrails whether a content may go on: `place` is its id, `content` what it is now.

    `tool` is the tool that a result is of.
    """

    id: str
    step: str
    place: str
    guards: GuardedContent
    content: dict[str, Json]
    tool: str = ""


@mutable
class ReleaseAnswer:
    """Let an answer go on that guardrails held and let pass."""

    id: str
    step: StepState
    call: ModelCall


@mutable
class RunAgent:
    """Run an agent that was called, as a task of its own: from the start, or from where that task stands."""

    id: str
    call: CallState


@mutable
class StopAgent:
    """End the task of an agent that was called, for good, and with it the call: by this outcome, and why.

    With `retries`, the call does not end and begins again with a new task.
    """

    id: str
    call: CallState
    outcome: Outcome
    why: str
    retries: bool = False


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
class ChooseRoute:
    """Ask the agent's router how a step goes on."""

    id: str
    step: StepState


@mutable
class RunFunction:
    """Enter a step that is a function; what it did before is served from the journal."""

    id: str
    node: StepNode


@mutable
class ConsultWorker:
    """Ask a worker of one's own for the first step, or have it look at the answer before the task ends."""

    id: Literal["initialize", "finalize"]


@mutable
class Wait:
    """Nothing can be done now, and why; `calls` are those that wait for a person, and what guardrails ask about."""

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
