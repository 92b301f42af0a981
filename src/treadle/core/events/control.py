"""Events of commands: pause, interrupt, resume, cancel, undo."""

from __future__ import annotations

from typing import Literal

from treadle.core.data import frozen, mutable
from treadle.core.events.occurrence import Event


@mutable
class PauseRequested(Event):
    """Running calls may end, nothing new starts."""

    says = "a pause was requested"

    by: str | None = None
    reason: str | None = None
    inbox: str | None = None


@mutable
class InterruptRequested(Event):
    """What runs is stopped; the task can be resumed."""

    says = "an interrupt was requested"

    by: str | None = None
    reason: str | None = None
    inbox: str | None = None


@mutable
class Resumed(Event):
    """A paused or interrupted task goes on."""

    says = "the task goes on"

    by: str | None = None
    inbox: str | None = None


@mutable
class StepRequested(Event):
    """A caller asked for these steps in a command that it may repeat; `with_input`: the next event is its input.

    The event changes nothing. A repeat of the command finds in it which steps it ran.
    """

    says = "a caller asked for a step"

    ignorable = True
    steps: tuple[str, ...]
    with_input: bool = False
    by: str | None = None
    inbox: str | None = None


@mutable
class CancelRequested(Event):
    """The task is to end, for good."""

    says = "a cancel was requested"

    by: str | None = None
    reason: str | None = None
    inbox: str | None = None


@mutable
class CommandRejected(Event):
    """A command from the inbox did not fit the task any more."""

    says = "the command {it.command} no longer fitted the task"

    command: str
    reason: str
    inbox: str


@mutable
class DriverSurvived(Event):
    """The driver that owned the task under `epoch` lost it, or gave it back, and lives: it did not die of it."""

    says = "the driver of epoch {it.epoch} is alive"

    epoch: int
    inbox: str | None = None


@mutable
class UndoRequested(Event):
    """Steps are to be taken back: those after index `to`; `calls` are compensated first, in this order."""

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
    """What became of one call of an undone step."""

    call: str
    tool: str
    verdict: UndoVerdict
    why: str | None = None


@mutable
class Rewound(Event):
    """The task stands again where it stood after step index `to`; what comes next is a new branch.

    `steps` are those taken back, if steps depend on each other.
    """

    says = "rewound to step {it.to}"

    to: int
    branch: int
    calls: tuple[UndoneCall, ...] = ()
    steps: tuple[str, ...] = ()
