"""Events of commands: pause, interrupt, resume, cancel, undo."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar

from treadle.core.data import frozen, mutable
from treadle.core.events.occurrence import CommandEvent, Event

__all__ = [
    "CancelRequested",
    "CommandRejected",
    "DriverSurvived",
    "InterruptRequested",
    "PauseRequested",
    "Resumed",
    "Rewound",
    "StepRequested",
    "UndoRequested",
    "UndoneCall",
]

E = TypeVar("E", bound=Event)

RUNNER: Final = "runner"
"""The requester of an interrupt that a driver's shutdown causes."""


class StopRequests(Protocol):
    """The requests to stop that the state of a task holds."""

    pausing: bool
    interrupting: bool
    cancelling: bool
    shutdown: bool
    stop_reason: str | None


Rule: TypeAlias = Callable[[StopRequests, E], None]

RULES: Final[dict[type[Event], Callable[[Any, Any], None]]] = {}
"""The rules of this module, by event. Rules that need more of the state are in `rules.fold`."""


def rule_of(cls: type[E]) -> Callable[[Rule[E]], Rule[E]]:
    """Return a decorator that makes a function the rule of a class of events."""

    def register(rule: Rule[E]) -> Rule[E]:
        RULES[cls] = rule
        return rule

    return register


@mutable
class PauseRequested(CommandEvent):
    """A pause was requested. Running calls may end, but no call starts."""

    says = "a pause was requested"
    command = "pause"

    by: str | None = None
    reason: str | None = None
    inbox: str | None = None


@mutable
class InterruptRequested(CommandEvent):
    """An interrupt was requested, so running calls are stopped. The task can be resumed."""

    says = "an interrupt was requested"
    command = "interrupt"

    by: str | None = None
    reason: str | None = None
    inbox: str | None = None


@rule_of(InterruptRequested)
def _interrupt(state: StopRequests, event: InterruptRequested) -> None:
    state.interrupting, state.stop_reason = True, event.reason
    state.shutdown = event.by == RUNNER and event.inbox is None


@mutable
class Resumed(CommandEvent):
    """A paused or interrupted task goes on."""

    says = "the task goes on"
    command = "resume"

    by: str | None = None
    inbox: str | None = None


@mutable
class StepRequested(Event):
    """A caller asked for these steps in a command that it may repeat. `with_input`: the next event is its input.

    The event changes nothing. A repeat of the command finds the steps that it ran in it.
    """

    says = "a caller asked for a step"

    ignorable = True
    steps: tuple[str, ...]
    with_input: bool = False
    by: str | None = None
    inbox: str | None = None


@mutable
class CancelRequested(CommandEvent):
    """A cancel was requested, so the task will end for good."""

    says = "a cancel was requested"
    command = "cancel"
    while_cancelling = True

    by: str | None = None
    reason: str | None = None
    inbox: str | None = None


@rule_of(CancelRequested)
def _cancel(state: StopRequests, event: CancelRequested) -> None:
    state.cancelling, state.stop_reason = True, event.reason


@mutable
class CommandRejected(Event):
    """A command from the inbox no longer fitted the task."""

    says = "the command {it.command} no longer fitted the task"

    command: str
    reason: str
    inbox: str


@mutable
class DriverSurvived(CommandEvent):
    """The driver of `epoch` lost or released the task and is alive, so the task did not crash it."""

    says = "the driver of epoch {it.epoch} is alive"
    command = "survived"
    while_cancelling = True

    epoch: int
    inbox: str | None = None


@mutable
class UndoRequested(Event):
    """An undo was requested of the steps after index `to`. `calls` are compensated first, in this order."""

    says = "an undo to step {it.to} was requested"

    to: int
    steps: tuple[str, ...]
    calls: tuple[str, ...] = ()
    forced: bool = False
    by: str | None = None
    inbox: str | None = None


UndoVerdict = Literal["compensated", "not_compensated", "nothing_to_compensate", "unknown"]


@frozen
class UndoneCall:
    """The outcome of one call of an undone step."""

    call: str
    tool: str
    verdict: UndoVerdict
    why: str | None = None


@mutable
class Rewound(Event):
    """The task was rewound to the state after step index `to`. Later steps belong to a new branch.

    `steps` are the undone steps, if steps depend on each other.
    """

    says = "rewound to step {it.to}"

    to: int
    branch: int
    calls: tuple[UndoneCall, ...] = ()
    steps: tuple[str, ...] = ()


ControlEvent: TypeAlias = (
    PauseRequested
    | InterruptRequested
    | Resumed
    | StepRequested
    | CancelRequested
    | CommandRejected
    | DriverSurvived
    | UndoRequested
    | Rewound
)
"""The events of this module."""
