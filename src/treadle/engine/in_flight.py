"""The effects of one drive in flight: their start, run, end and cancellation.

Theory of operation
-------------------

    wanted --begin--> running --run returns--> finished --record--> gone
       |                 |                         ^
       |                 +--cancel-----------------+    CancelledError; after GRACE a second one; after INSIST abandoned
       +--begin records the end: not started

An effect begins by journalling its begin. Then it runs in one of two ways. If it is the only effect, it runs *inline*:
the loop task awaits it, and its end is recorded without any wake-up. Otherwise each effect has its own asyncio task,
and the drive waits until one finishes. A slow inline effect is *detached* as soon as the drive is needed elsewhere. It
keeps its asyncio task, and a new loop task continues the drive (see `loop_task`).

Each turn decides anew which effects are wanted. `run` compares them with the running ones. It starts the missing ones
and cancels the unwanted ones. So a cancelled task, a deadline, a reached budget and an undo all stop effects in the
same way.

A cancelled effect still returns its end, if it can. If it ignores two cancellations it is *abandoned*. Its end comes
from `cut_off`, the registry of abandoned calls lists it, and its later result is dropped.

Invariant: every effect that began contributes exactly one end, in `finished` or inline, even if its code misbehaves.
`ends` is set once, and a second end finds it set.

Example: two tool calls of one answer, and the limit on time is reached while they run.

    run({a, b})    ToolStarted a, ToolStarted b; a finishes: ToolEnded a is recorded
    wake           the deadline: LimitReached is recorded, and the next decision does not include b
    run(())        cancel b; it returns: ToolStopped b is recorded, and the task goes on to its last answer
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Generator
from contextvars import copy_context
from functools import partial
from types import coroutine
from typing import Any, Final, TypeVar

from treadle.core import events as e
from treadle.core.effects import (
    CallModel,
    CallTool,
    ChooseRoute,
    Effect,
    JudgeCall,
    JudgeContent,
    JudgeRequest,
    Reconcile,
    ReleaseAnswer,
    RunAgent,
    StopAgent,
    UndoCall,
)
from treadle.core.state import TaskState
from treadle.engine import abandoned
from treadle.engine.agent_calls import AgentCallInFlight, AgentStopInFlight
from treadle.engine.effect_context import EffectContext, StopChild
from treadle.engine.effect_in_flight import CancelReason, EffectInFlight
from treadle.engine.journal_writer import JournalWriter, Recorder
from treadle.engine.loop_task import LoopTask, nothing
from treadle.engine.model_calls import ModelCallInFlight
from treadle.engine.recording import fire_timers_while_driving
from treadle.engine.tool_calls import CompensationInFlight, ReconciliationInFlight, ToolCallInFlight

T = TypeVar("T")

GRACE: Final = 2.0
"""Seconds that a cancelled call has to end before it is cancelled again."""

INSIST: Final = 0.2
"""Seconds between the second cancellation and abandoning the call."""

MAX_UNSUBMITTED: Final = 12
"""Maximum number of unsubmitted events while effects end as soon as they start. These are about two steps."""

MAX_EVENTS_IN_A_ROW: Final = 16
"""Number of events recorded in a row before other tasks of the event loop get their turn."""


class _Kinds(dict[type, type[EffectInFlight[Any]]]):
    """The class that performs each kind of effect. Classes that few tasks need are imported on first use."""

    def __missing__(self, effect: type) -> type[EffectInFlight[Any]]:
        if effect is JudgeCall:
            from treadle.engine.judging import JudgementInFlight

            self[effect] = JudgementInFlight
            return JudgementInFlight
        if effect is ChooseRoute:
            from treadle.engine.routing import RouteInFlight

            self[effect] = RouteInFlight
            return RouteInFlight
        if effect is JudgeRequest:
            from treadle.engine.request_judging import RequestJudgementInFlight

            self[effect] = RequestJudgementInFlight
            return RequestJudgementInFlight
        if effect is JudgeContent or effect is ReleaseAnswer:
            from treadle.engine.guarding import AnswerReleaseInFlight, ContentJudgementInFlight

            self |= {JudgeContent: ContentJudgementInFlight, ReleaseAnswer: AnswerReleaseInFlight}
            return self[effect]
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
    """The effects of one drive.

    Args:
        context: the context of the effects. None: a drive without an agent.
        record: journals an event.
        loop_task: the asyncio task that takes the turns of the drive. A single effect runs in it.
        is_called: returns whether the drive is needed elsewhere.
        stop_child: cancels a child of the task.
    """

    def __init__(
        self,
        context: EffectContext | None,
        state: TaskState,
        writer: JournalWriter,
        record: Recorder,
        loop_task: LoopTask,
        is_called: Callable[[], bool],
        stop_child: StopChild,
    ) -> None:
        self.context = context
        self._state = state
        self._writer = writer
        self._record = record
        self._loop_task = loop_task
        self._is_called = is_called
        self._stop_child = stop_child
        self._loop = asyncio.get_running_loop()
        loop_task.detach_inline = self.detach_inline
        self._inline: EffectInFlight[Any] | None = None
        """the effect that the loop task awaits"""

        self._submits_soon = False
        self.running: dict[str, EffectInFlight[Any]] = {}
        """the effects with an asyncio task of their own whose end is not recorded yet, by id"""

        self.finished: list[EffectInFlight[Any]] = []
        """the running effects that have ended, in that order"""

    def disconnect(self) -> None:
        """Drop the references to the finished drive, since abandoned effects may still end."""
        self._record = _ignore
        self._is_called = _never
        self._loop_task.detach_inline = nothing

    # ------------------------------------------------------------------------------------- begin and run

    async def run(self, effects: Collection[Effect]) -> None:
        """Start missing effects, cancel unwanted ones, and record the next ends."""
        running = self.running
        if running:
            ids = {effect.id for effect in effects}
            for effect_id, in_flight in running.items():
                if effect_id not in ids:
                    self.cancel(in_flight, "interrupted")
        not_started, seq = 0, self._state.seq
        for effect in effects:
            if effect.id not in running and not self._start(effect):
                not_started += 1  # if its end is recorded, effects that waited for it may begin
                if not_started == MAX_EVENTS_IN_A_ROW:
                    await asyncio.sleep(0)
                    return
        if running and (not not_started or self._state.seq == seq):
            # A request that does not fit beside those in flight waits for their ends, before it is recorded.
            await self._record_next_ends()

    async def run_inline(self, effect: Effect) -> None:
        """Run an effect in the loop task and record its end. Afterwards another loop task may have the drive."""
        loop_task = self._loop_task
        me = loop_task.task
        if me is None:
            return
        in_flight = self._begin(effect)
        if in_flight is None:
            return
        if len(self._writer.pending) >= MAX_UNSUBMITTED:
            self._writer.flush()
        in_flight.task, self._inline = me, in_flight
        try:
            # Recorded events are submitted when the effect first waits. If it never waits, it shares the next commit.
            ends = await in_own_context(in_flight.run(), self._writer.flush)
        except (asyncio.CancelledError, GeneratorExit):
            self.detach_inline()
            raise
        except BaseException as error:  # noqa: BLE001  no end is lost
            ends = self._ends_of_error(in_flight, error)
        if me.cancelling():
            self.detach_inline()
        if self._inline is not in_flight:
            self._finish(in_flight, ends)
            return
        self._inline = None
        if in_flight.timer is not None:
            in_flight.timer.cancel()
        for event in ends:
            self._record(event)
        if in_flight.runs_foreign_code:
            # A timer that a tool leaves in its asyncio task must not hit the code after it.
            loop_task.spawn()

    def _start(self, effect: Effect) -> bool:
        """Begin an effect and run it in an asyncio task of its own. Return False if it ended without starting."""
        in_flight = self._begin(effect)
        if in_flight is None:
            return False
        self.running[effect.id] = in_flight
        in_flight.task = self._loop.create_task(self._run(in_flight))
        in_flight.task.add_done_callback(partial(self._on_done, in_flight))
        return True

    def _begin(self, effect: Effect) -> EffectInFlight[Any] | None:
        """Record the begin of an effect and return it. Return None if it ended without starting."""
        # A drive without an agent has no context. It only stops agents, which needs none.
        context: Any = self.context
        in_flight = KINDS[type(effect)](effect, context, self._stop_child)
        if not in_flight.begin(self._record):
            return None
        if in_flight.timeout is not None:
            in_flight.on_entry = partial(self._start_timeout, in_flight, in_flight.timeout)
        return in_flight

    def _start_timeout(self, in_flight: EffectInFlight[Any], seconds: float) -> None:
        if in_flight.timer is not None:
            in_flight.timer.cancel()
        if in_flight.cancel_reason is None:
            in_flight.timer = self._loop.call_later(seconds, self.cancel, in_flight, "timeout")

    def detach_inline(self) -> None:
        """Leave the loop task to the effect that it awaits, if any, and continue the drive in a new loop task."""
        in_flight, self._inline = self._inline, None
        if in_flight is not None and in_flight.task is not None and not self._loop.is_closed():
            self.running[in_flight.effect.id] = in_flight
            in_flight.task.add_done_callback(partial(self._on_done, in_flight))
            self._loop_task.spawn()

    # ---------------------------------------------------------------------------------------------- end

    async def _run(self, in_flight: EffectInFlight[Any]) -> None:
        """Run an effect, and report its end to the drive one round of the event loop before `_on_done`."""
        try:
            ends = await in_flight.run()
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001  no end is lost
            ends = self._ends_of_error(in_flight, error)
        self._finish(in_flight, ends)

    def _ends_of_error(self, in_flight: EffectInFlight[Any], error: BaseException) -> list[e.Event]:
        """Return the end of an effect after an error, or none if the error fails the drive."""
        if in_flight.fails_drive(error):
            self._writer.fail(error)
            return []
        return in_flight.failed(error)

    def _on_done(self, in_flight: EffectInFlight[Any], task: asyncio.Task[None]) -> None:
        """Note the end of an effect that returned none, because it was cancelled before it began or is broken."""
        if task.cancelled():
            self._finish(in_flight, in_flight.cut_off())
        elif (error := task.exception()) is not None:
            self._finish(in_flight, in_flight.broken(in_flight.context.vault.error_text(error)))

    def _finish(self, in_flight: EffectInFlight[Any], ends: list[e.Event]) -> None:
        if in_flight.timer is not None:
            in_flight.timer.cancel()
        if in_flight.ends is None:
            in_flight.ends = ends
            self.finished.append(in_flight)
            self._loop_task.wake()

    async def _record_next_ends(self) -> None:
        """Submit recorded events, wait until an effect ends or the drive is called, and record the ends."""
        if not self.finished:
            self._submit_soon()
            if not self._is_called():
                seconds_left = fire_timers_while_driving(self._state, self._writer, self._record)
                await self._loop_task.wait(seconds_left)
        if self._writer.failure is not None:
            raise self._writer.failure
        finished, self.finished = self.finished, []
        for in_flight in finished:
            del self.running[in_flight.effect.id]
            if not in_flight.is_overtaken(self._state):
                for event in self._ends_of(in_flight):
                    self._record(event)

    def _ends_of(self, in_flight: EffectInFlight[Any]) -> list[e.Event]:
        """Return the ends of an effect. One that stopped without a request is broken, so it is not repeated."""
        ends, state = in_flight.ends or [], self._state
        first = ends[0] if ends else None
        if type(first) is e.ToolEnded and first.outcome == "ok":
            return ends
        was_asked = in_flight.cancel_reason is not None or state.interrupting or state.cancelling
        is_stop = isinstance(first, (e.ToolStopped, e.ModelStopped)) and first.reason == "interrupted"
        if not was_asked and (is_stop or not ends):  # a stopped reconciliation returns no event
            return in_flight.broken("CancelledError: it cancelled itself")
        if type(first) is e.ToolEnded and self._is_completed(first.call):
            # Its ticket was completed between the failure of its tool and the record of that end.
            return [e.ToolStopped(first.step, first.call, "error", first.error)]
        return ends

    def _is_completed(self, call_id: str) -> bool:
        call = self._state.open_call(call_id)
        return call is not None and call.ticket is not None and call.ticket.completion is not None

    def _submit_soon(self) -> None:
        """Submit recorded events once the effects have begun, unless one of them has ended by then."""
        if len(self._writer.pending) >= MAX_UNSUBMITTED:
            self._writer.flush()
        elif not self._submits_soon:
            self._submits_soon = True
            self._loop.call_soon(self._submit_unless_finished)

    def _submit_unless_finished(self) -> None:
        self._submits_soon = False
        if self.running and not self.finished:
            self._writer.flush()

    # ------------------------------------------------------------------------------------------- cancel

    def cancel(self, in_flight: EffectInFlight[Any], reason: CancelReason) -> None:
        """Cancel an effect, after a grace cancel it again, and then abandon it."""
        if in_flight.cancel_reason is not None or in_flight.task is None or in_flight.ends is not None:
            return
        if in_flight is self._inline:
            self.detach_inline()
        in_flight.cancel_reason = reason
        # A tool reads the reason, as the first argument of its `CancelledError`: a cancelled task never continues it.
        in_flight.task.cancel("cancelled" if self._state.cancelling else reason)
        if in_flight.timer is not None:
            in_flight.timer.cancel()
        if not in_flight.has_own_grace:
            in_flight.timer = self._loop.call_later(GRACE, self._cancel_again, in_flight)

    def _cancel_again(self, in_flight: EffectInFlight[Any]) -> None:
        if in_flight.task is not None and not in_flight.task.done():
            in_flight.task.cancel()
            in_flight.timer = self._loop.call_later(INSIST, self._abandon, in_flight)

    def _abandon(self, in_flight: EffectInFlight[Any]) -> None:
        if in_flight.task is None or in_flight.task.done() or in_flight.ends is not None:
            return
        abandoned.give_up(in_flight.task, in_flight.name, self._state.task_id, in_flight.effect.id)
        in_flight.cancel_reason = "abandoned"
        self._finish(in_flight, in_flight.cut_off())

    async def cancel_all(self) -> None:
        """Cancel all effects and return when they have ended, so that later drives of the task meet none."""
        if self._loop.is_closed():
            return
        running = self.running.values()
        for in_flight in running:
            self.cancel(in_flight, "interrupted")
        while any(in_flight.ends is None for in_flight in running):
            await self._loop_task.wait()


def _ignore(event: e.Event, inbox: str | None = None) -> None:
    pass


def _never() -> bool:
    return False


@coroutine
def in_own_context(
    work: Coroutine[Any, Any, T], on_wait: Callable[[], None] | None
) -> Generator[Any, Any, T]:
    """Await a coroutine in this task, but in a copy of its context, so that its context changes stay there.

    `on_wait` is called when the coroutine first waits.
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
