"""The interface of an effect in flight, which every kind of effect implements.

An effect is a request of the core. An *effect in flight* is its execution in this process. Each kind of effect has one
class, and all classes have the same few methods:

    begin        journal the begin and return True; or journal the end and return False, if it must not start
    run          carry it out and return its end, also if the code it calls raises
    name         its name for people
    cut_off      its end if `run` returns none: cancelled before it ran, or abandoned because it does not stop
    fails_drive  whether an error of `run` fails the drive, instead of ending the effect
    broken       its end if `run` raised an unexpected error or cancelled itself
    is_overtaken whether its end is no longer of use

An end is a list of events, and every effect that began has exactly one end. A call that may write waits in `run` until
its begin is durable. Only then it enters the code that acts (`enter`).

The classes are in `model_calls`, `tool_calls`, `agent_calls` and `step_functions`. Their table is in `in_flight`.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

from treadle.core import events as e
from treadle.core.effects import CallModel, Effect
from treadle.core.state import TaskState

if TYPE_CHECKING:
    from treadle.core.tracebacks import Stack
    from treadle.engine.effect_context import EffectContext, StopChild
    from treadle.engine.journal_writer import Recorder
    from treadle.ports import Tool, ToolContext

E = TypeVar("E", bound=Effect)

CancelReason = Literal["interrupted", "timeout", "abandoned"]
"""The reason why an effect in flight was stopped."""


class EffectInFlight(ABC, Generic[E]):
    """An effect that a drive began and whose end is not recorded yet.

    Args:
        effect: the request of the core.
        context: the context of the drive's effects. A drive without an agent has none, and its effects need none.
        stop_child: cancels a child of the task.
    """

    __slots__ = (
        *(
            "cancel_reason",
            "context",
            "effect",
            "ends",
            "entered",
            "on_entry",
            "secrets",
            "stop_child",
            "task",
        ),
        *("timeout", "timer"),
    )

    runs_foreign_code: ClassVar[bool] = True
    """Whether it runs code of tools or workers, which may leave timers in its asyncio task."""

    has_own_grace: ClassVar[bool] = False
    """Whether it ends within its own grace periods, so that it is cancelled once and never abandoned."""

    ends_before_undo: ClassVar[bool] = True
    """Whether an undo waits for its end, to know all effects. Otherwise the undo cancels it."""

    survives_cancel: ClassVar[bool] = False
    """Whether it continues while its task is being cancelled."""

    def __init__(self, effect: E, context: EffectContext, stop_child: StopChild) -> None:
        self.effect = effect
        self.context = context
        self.stop_child = stop_child
        self.task: asyncio.Task[None] | None = None
        self.entered = False
        """whether the user's code was reached"""

        self.cancel_reason: CancelReason | None = None
        self.ends: list[e.Event] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.timeout: float | None = None
        """seconds that it may take from `enter` on"""

        self.on_entry: Callable[[], None] | None = None
        self.secrets: frozenset[str] = frozenset()
        """the names of the secrets that its tool's code has read"""

    @abstractmethod
    def begin(self, record: Recorder) -> bool:
        """Record the begin of the effect. If it must not start, record its end and return False."""

    @abstractmethod
    async def run(self) -> list[e.Event]:
        """Carry out the effect, and return its end."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the effect for people."""

    @abstractmethod
    def cut_off(self) -> list[e.Event]:
        """Return the end of an effect whose `run` returned none, since it was abandoned or cancelled before it ran."""

    @abstractmethod
    def broken(self, text: str, traceback: str = "") -> list[e.Event]:
        """Return the end of an effect after an error of its code.

        Args:
            text: the error for a model.
            traceback: the error for people.
        """

    def fails_drive(self, error: BaseException) -> bool:
        """Return whether an error of `run` fails the drive. Otherwise it ends the effect."""
        return False

    def failed(self, error: BaseException) -> list[e.Event]:
        """Return the end of an effect after an error of the user's code."""
        return self.broken(self.context.vault.error_text(error), self.traceback_of(error))

    def traceback_of(self, error: BaseException, function: str = "") -> str:
        """Log an error of the user's code and return its traceback, for people.

        Args:
            error: the error.
            function: the name of the function for people; by default that of the effect.
        """
        from treadle.engine.user_errors import kept

        return kept(error, self.context.state, self.context.vault, **self._error_place(function))

    def hang_of(self, stack: Stack, function: str = "") -> str:
        """Log the position of the user's code when its time was up, and return it as a traceback, for people.

        Args:
            stack: the frames when the time was up.
            function: the name of the function for people; by default that of the effect.
        """
        from treadle.engine.user_errors import kept_hang

        return kept_hang(stack, self.context.state, self.context.vault, **self._error_place(function))

    def _error_place(self, function: str) -> dict[str, str]:
        """Return the function, the step and the call of an error of the user's code."""
        effect: Any = self.effect
        call = getattr(effect, "call", None)
        step: Any = (
            getattr(effect, "step", None) or getattr(effect, "node", None) or getattr(call, "step", "")
        )
        return {
            "function": function or self.name,
            "step": step if isinstance(step, str) else step.id,
            "call": "" if call is None or isinstance(effect, CallModel) else call.id,
        }

    def is_overtaken(self, state: TaskState) -> bool:
        """Whether a later event makes the end of this effect useless."""
        return False

    def enter(self) -> None:
        """Note that the user's code is reached. The timeout counts from here, without the wait for the disk."""
        self.entered = True
        if self.on_entry is not None:
            self.on_entry()

    def enter_by(self, tool: Tool, ctx: ToolContext[Any]) -> None:
        """Note that a tool's code is reached. A tool on a host reports that itself."""
        if tool.spec.host is None:
            self.enter()
        else:
            ctx.on_start = self.enter

    def cancelled_itself(self) -> bool:
        """Whether the effect itself raised its `CancelledError`, because no other code cancelled it."""
        if self.cancel_reason is not None:
            return False
        task: asyncio.Task[Any] | None = asyncio.current_task()
        return task is None or task.cancelling() == 0
