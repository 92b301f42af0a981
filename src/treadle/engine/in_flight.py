"""The effects of one drive that are in the air: how they begin, are awaited, cut short, and land.

An effect that flies alone is awaited in the asyncio task that carries the drive, for a task of its own would cost more
than many an effect. As soon as anything else wants attention meanwhile (the inbox, the clock, a cut), that task is
relieved: another carries the drive on, and it is the effect's own from then on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextvars import copy_context
from functools import partial
from types import coroutine
from typing import Any, Final, TypeVar

from treadle.core import events as e
from treadle.core.effects import CallModel, CallTool, Effect, Reconcile, RunAgent, StopAgent, UndoCall
from treadle.core.observation import error_text
from treadle.engine import abandoned
from treadle.engine.agent_calls import AgentCallInFlight, AgentStopInFlight
from treadle.engine.effect_context import EffectContext, StopChild
from treadle.engine.effect_in_flight import CancelReason, EffectInFlight
from treadle.engine.journal_writer import Recorder
from treadle.engine.model_calls import ModelCallInFlight
from treadle.engine.tool_calls import CompensationInFlight, ReconciliationInFlight, ToolCallInFlight

T = TypeVar("T")

GRACE: Final = 2.0
"""Seconds a cancelled call has to end before it is cancelled again, and soon after that given up as abandoned."""

INSIST: Final = 0.2
"""Seconds between the second cancel and giving up."""


class _Kinds(dict[type, type[EffectInFlight[Any]]]):
    """For each effect the class that performs it. Those of step functions are imported when one is first wanted."""

    def __missing__(self, effect: type) -> type[EffectInFlight[Any]]:
        from treadle.engine import step_functions

        self |= step_functions.KINDS
        return step_functions.KINDS[effect]


KINDS: Final = _Kinds(
    {
        CallModel: ModelCallInFlight,
        CallTool: ToolCallInFlight,
        UndoCall: CompensationInFlight,
        Reconcile: ReconciliationInFlight,
        RunAgent: AgentCallInFlight,
        StopAgent: AgentStopInFlight,
    }
)


class EffectsInFlight:
    """What is in the air; `running` by effect id, `finished` in the order of their ends.

    Args:
        context: what effects are performed with; None where none will begin.
        record: takes the begin of an effect down.
        wake: is called when something landed.
        carry_on: is called when the task that carries the drive is needed elsewhere: another has to carry it on.
        stop_child: cancels a child of the task.
    """

    def __init__(
        self,
        context: EffectContext | None,
        record: Recorder,
        wake: Callable[[], None],
        spawn_loop_task: Callable[[], None],
        stop_child: StopChild,
    ) -> None:
        self._context = context
        self._stop_child = stop_child
        self._record = record
        self._wake = wake
        self._spawn_loop_task = spawn_loop_task
        self._loop = asyncio.get_running_loop()
        self._inline: EffectInFlight[Any] | None = None
        self.running: dict[str, EffectInFlight[Any]] = {}
        self.finished: list[EffectInFlight[Any]] = []

    # ---------------------------------------------------------------------------------------- begin

    def start(self, effect: Effect) -> bool:
        """Begin one effect in an asyncio task of its own; False when it ended without starting."""
        in_flight = self.begin(effect)
        if in_flight is None:
            return False
        self.running[effect.id] = in_flight
        in_flight.task = self._loop.create_task(self._run(in_flight))
        in_flight.task.add_done_callback(partial(self._on_done, in_flight))
        return True

    def begin(self, effect: Effect) -> EffectInFlight[Any] | None:
        """Record the begin of an effect and return it; None when it ended without starting."""
        # A drive without an agent has no context, and wants only to stop agents, which needs none.
        context: Any = self._context
        in_flight = KINDS[type(effect)](effect, context, self._stop_child)
        if not in_flight.begin(self._record):
            return None
        if in_flight.timeout is not None:
            in_flight.on_entry = partial(self._start_timeout, in_flight, in_flight.timeout)
        return in_flight

    def _start_timeout(self, in_flight: EffectInFlight[Any], seconds: float) -> None:
        if in_flight.cancel_reason is None:
            in_flight.timer = self._loop.call_later(seconds, self.cancel, in_flight, "timeout")

    # ------------------------------------------------------------------------------------------ end

    async def run_inline(
        self, in_flight: EffectInFlight[Any], me: asyncio.Task[Any], on_wait: Callable[[], None]
    ) -> list[e.Event] | None:
        """Await a lone effect in the task that carries the drive; None if another carries it by now.

        `on_wait` is called when the effect first waits, if it does.
        """
        in_flight.task, self._inline = me, in_flight
        try:
            ends = await in_own_context(in_flight.run(), on_wait)
        except BaseException:
            self.detach_inline()
            raise
        if me.cancelling():
            self.detach_inline()
        if self._inline is not in_flight:
            self._finish(in_flight, ends)
            return None
        self._inline = None
        if in_flight.timer is not None:
            in_flight.timer.cancel()
        return ends

    def detach_inline(self) -> None:
        """Let another task carry the drive on, if the one that does awaits an effect."""
        in_flight, self._inline = self._inline, None
        if in_flight is not None and in_flight.task is not None and not self._loop.is_closed():
            self.running[in_flight.effect.id] = in_flight
            in_flight.task.add_done_callback(partial(self._on_done, in_flight))
            self._spawn_loop_task()

    async def _run(self, in_flight: EffectInFlight[Any]) -> None:
        """Carry an effect to its end; the drive hears of it from here, a round of the event loop before `_on_done`."""
        self._finish(in_flight, await in_flight.run())

    def _on_done(self, in_flight: EffectInFlight[Any], task: asyncio.Task[None]) -> None:
        """Take down the end of an effect that has none of its own: cancelled before it began, or broken."""
        if task.cancelled():
            self._finish(in_flight, in_flight.cut_off())
        elif (error := task.exception()) is not None:
            self._finish(in_flight, in_flight.broken(error_text(error)))

    def disconnect(self) -> None:
        """Tell nobody any more: the drive is over, and what was abandoned may still end."""
        self._record = self._wake = self._spawn_loop_task = _ignore

    def _finish(self, in_flight: EffectInFlight[Any], ends: list[e.Event]) -> None:
        if in_flight.timer is not None:
            in_flight.timer.cancel()
        if in_flight.ends is None:
            in_flight.ends = ends
            self.finished.append(in_flight)
            self._wake()

    # ------------------------------------------------------------------------------------- stopping

    def cancel(self, in_flight: EffectInFlight[Any], why: CancelReason) -> None:
        """Stop an effect: cancel, after a grace cancel again, then give it up as abandoned."""
        if in_flight.cancel_reason is not None or in_flight.task is None or in_flight.ends is not None:
            return
        if in_flight is self._inline:
            self.detach_inline()
        in_flight.cancel_reason = why
        in_flight.task.cancel()
        if in_flight.timer is not None:
            in_flight.timer.cancel()
        if in_flight.has_own_grace:
            return
        in_flight.timer = self._loop.call_later(GRACE, self._insist, in_flight)

    def _insist(self, in_flight: EffectInFlight[Any]) -> None:
        if in_flight.task is not None and not in_flight.task.done():
            in_flight.task.cancel()
            in_flight.timer = self._loop.call_later(INSIST, self._abandon, in_flight)

    def _abandon(self, in_flight: EffectInFlight[Any]) -> None:
        if in_flight.task is None or in_flight.task.done() or in_flight.ends is not None:
            return
        assert self._context is not None, "effects that are cancelled twice have a context"
        abandoned.give_up(in_flight.task, in_flight.name, self._context.state.task_id, in_flight.effect.id)
        in_flight.cancel_reason = "abandoned"
        in_flight.ends = in_flight.cut_off()
        self.finished.append(in_flight)
        self._wake()


def _ignore(*_: Any, **__: Any) -> None:
    pass


@coroutine
def in_own_context(
    work: Coroutine[Any, Any, T], on_wait: Callable[[], None] | None
) -> Generator[Any, Any, T]:
    """Await a coroutine in this task, but in a copy of its context: what it sets there reaches nobody else.

    `on_wait` is called when the coroutine first waits for something, if it does.
    """
    run = copy_context().run
    resume, value = work.send, None
    while True:
        try:
            waits_for = run(resume, value)
        except StopIteration as end:
            return end.value
        if on_wait is not None:
            on_wait()
            on_wait = None
        try:
            resume, value = work.send, (yield waits_for)
        except GeneratorExit:
            work.close()
            raise
        except BaseException as error:  # noqa: BLE001  it is the coroutine's to deal with
            resume, value = work.throw, error
