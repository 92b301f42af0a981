"""The drive loop, which drives one task from claim to release.

Theory of operation
-------------------

A drive takes *turns*. One turn is:

    listen     only if the drive is called: inbox items, the deadline, requests of step functions and an
               interruption become events
    decide     lifecycle.decide(state) returns one of three:
                 an event   record it, and decide again
                 effects    start the missing ones, cancel running ones that are no longer wanted, wait for an end and
                            record it; the turn is over
                 Wait       wait here if the wait is short (the thread, a timer due soon); else release the task, and
                            the drive is over

The state changes only by recording: an event is applied at once and committed in the background (`journal_writer`). So
each turn starts from the state alone, whether an earlier turn or a crashed process recorded its events. A drive that
resumes a task takes the same turns.

    claimed ---> turn ---> turn ---> ... ---> released at rest   (paused, interrupted, waiting, answered, ...)
                  ^  |                   +--> ended              (sealed together with the change of its thread)
                  |  v
                effects in flight

The same loop serves a free run, a single step, an undo and a command to a task at rest. The goal of its `DriveSpec`
determines where it stops. Its parts are:

    loop_task      the asyncio task that takes the turns, and how it waits and is woken
    in_flight      the effects that run
    inbox          commands and messages become events
    interruption   the driver, the caller or the event loop goes away; the limit on time
    recording      breakpoints, answers to step functions, counting steps
    release        the end of the task, or its release at rest

Invariants. The begin of an effect is its first event. A task is released only without running effects and unread inbox
items. A caller that needs the drive sets a flag and calls `wake`. Flags are never lost, since they are read again
before each wait.

Example: a model calls a tool, and then answers.

    turn 1    decide -> CallModel         ModelStarted ... ModelReturned         (inline, in the loop task)
    turn 2    decide -> CallTool          ToolStarted ... ToolEnded              (inline; a new loop task goes on)
    turn 3    decide -> StepCompleted, then CallModel again                      ModelStarted ... ModelReturned
    turn 4    decide -> StepCompleted, then TaskEnded                            sealed, released: over
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from treadle.agents.agent import Agent
from treadle.agents.decide import lifecycle
from treadle.core import events as e
from treadle.core.effects import Effect, Wait
from treadle.core.events.control import RUNNER
from treadle.core.state import TaskState
from treadle.core.steps import StepState
from treadle.core.tools import ToolSpec
from treadle.engine.agent_calls import effects_to_run
from treadle.engine.effect_context import DriveSpec, EffectContext, StopChild, idle
from treadle.engine.in_flight import MAX_EVENTS_IN_A_ROW, EffectsInFlight
from treadle.engine.inbox import InboxReader
from treadle.engine.journal_writer import JournalWriter, Recorder
from treadle.engine.loop_task import LoopTask
from treadle.engine.pending_callback import PendingCallback
from treadle.engine.recording import (
    BreakpointRecorder,
    PlainStepRecorder,
    StepFunctionRecorder,
    StepGoal,
    fire_timers,
    fire_timers_while_driving,
)
from treadle.engine.release import Deadline, Interruption, adoption_due_at, end_task
from treadle.engine.task_log import is_heard
from treadle.engine.thread_queue import RECHECK_SECONDS, ThreadAdmission, wait_for_thread
from treadle.ports import JournalStore
from treadle.results.states import state_at_rest

MAX_TIMER_WAIT: Final = 60.0
"""Longest wait for a timer within a drive, in seconds. For a longer wait the task is released."""

PARKED_STATES: Final = {
    "settlement": "waiting",
    "approval": "waiting",
    "question": "waiting",
    "background": "waiting",
    "undo_unknown": "waiting",
    "undo_failed": "waiting",
}
"""The displayed state of a released task, by the reason of its wait. Other reasons keep the state itself."""


HandOver: TypeAlias = Callable[
    [Agent[Any], Recorder, Callable[[], bool]], Awaitable[tuple[DriveSpec, EffectContext | None] | None]
]
"""Records that the conversation moved to another agent, and returns the next spec and context.

The third argument returns whether the drive is needed elsewhere. Then the call does not record the move and returns
None.
"""


class DriveLoop:
    """The driver of one task in this process, from claim to release.

    Args:
        spec: the goal, the rules, the options and the worker.
        context: the context of the effects. None: the drive needs no agent.
        stop_child: cancels a child of the task.
        admission: the admission to its thread, if the task has not entered it yet.
        was_wanted: when a driver was to adopt the task, by the system's clock; 0 for never.
        on_pending: reports requests to people to a user's front end.
        hand_over: see `HandOver`.
    """

    def __init__(
        self,
        store: JournalStore,
        writer: JournalWriter,
        state: TaskState,
        spec: DriveSpec,
        context: EffectContext | None,
        stop_child: StopChild,
        admission: ThreadAdmission | None = None,
        *,
        was_wanted: int = 0,
        on_pending: PendingCallback | None = None,
        hand_over: HandOver | None = None,
    ) -> None:
        self.state = state
        self._store = store
        self._writer = writer
        self._spec = spec
        self._admission = admission
        self._was_wanted = was_wanted
        self._hand_over = hand_over
        self._agent = context.runtime.agent if context is not None else None
        self._finalizes = spec.goal in ("end", "finalize")
        self._loop_task = LoopTask()
        self._subagents = context.subagents if context is not None else None
        self._step_requests = context.step_requests if context is not None else None
        self._step_goal = StepGoal(spec) if spec.goal == "step" else None
        self._work = spec.work if admission is None or spec.goal == "undo" else wait_for_thread
        breakpoints = spec.options.break_on
        record: Recorder = BreakpointRecorder(writer, state, breakpoints) if breakpoints else writer.record
        if self._step_requests is not None:
            record = StepFunctionRecorder(record, state, self._step_requests, self._step_goal)
        elif self._step_goal is not None:
            record = PlainStepRecorder(record, state, self._step_goal)
        self._record = record
        self._effects = EffectsInFlight(
            context, state, writer, record, self._loop_task, self._is_called, stop_child
        )
        running = self._effects.running
        self._interruption = Interruption(state, running)
        seconds = spec.rules.limits.seconds if spec.goal in ("end", "step") else None
        self._deadline = Deadline(state, seconds, self._subagents) if seconds is not None else None
        self._inbox = InboxReader(store, writer, state, running, self._subagents, was_wanted=was_wanted)
        self._callbacks = (
            on_pending.of(state, writer.durable, self._loop_task.wake) if on_pending is not None else None
        )
        self.over = False
        self._judges_anew = False
        writer.on_failure, writer.is_heard = self._loop_task.wake, is_heard()
        if self._step_requests is not None:
            self._step_requests.wake = self._loop_task.wake

    # --------------------------------------------------------------------------------- from outside

    async def stop(self, reason: str, grace: float = 0.0) -> None:
        """Interrupt the task because its driver shuts down, and return when it is released. Safe in any event loop.

        For `grace` seconds running effects may end and no new one starts. Then they are cancelled.
        """
        done = self._interruption.wait()
        if self._spec.goal != "attend":  # that drive only reads the inbox
            self._loop_task.call_soon(self._stop_soon, reason, grace)
        if not self.over:
            await asyncio.wrap_future(done)

    def _stop_soon(self, reason: str, grace: float) -> None:
        if grace > 0:
            asyncio.get_running_loop().call_later(grace, self.interrupt, RUNNER, reason)
        self._interruption.ask(RUNNER, reason, immediate=grace <= 0)
        self._loop_task.wake()

    def interrupt(self, by: str, reason: str) -> None:
        """Interrupt the task at once."""
        self._interruption.ask(by, reason)
        self._loop_task.wake()

    def read_inbox_soon(self) -> None:
        """Read the inbox soon, from any thread."""
        self._inbox.is_unread = True
        self._loop_task.wake_from_anywhere()

    def judge_anew(self) -> None:
        """Apply a changed policy of the runner soon, from any thread."""
        self._judges_anew = True
        self._loop_task.wake_from_anywhere()

    @property
    def inbox_unread(self) -> bool:
        """Whether `read_inbox_soon` was called after the last read of the inbox."""
        return self._inbox.is_unread

    @property
    def tools(self) -> Mapping[str, ToolSpec]:
        """The declarations of the current agent's tools, including those of its toolsets."""
        return self._spec.rules.tools

    @property
    def step_done(self) -> StepState | None:
        """The step that a single-step drive has completed, if any."""
        return self._step_goal.last_step if self._step_goal is not None else None

    async def run(self) -> None:
        """Drive the task to its goal. If the caller is cancelled, the task stays interrupted and resumable."""
        if self._admission is None and self._deadline is not None:
            self._deadline.start(self._loop_task.wake)
        error = await self._loop_task.run(self)
        self._writer.on_failure = None
        self._effects.disconnect()
        if self._step_requests is not None:
            self._step_requests.close()
        if error is not None:
            raise error

    # ------------------------------------------------------------------------------ for the loop task

    async def turn(self) -> bool:
        """Decide and record until effects are wanted, and run them. Return whether the drive is over."""
        if self._writer.failure is not None:
            raise self._writer.failure
        if self._is_called():
            await self._listen()
        state, in_flight, goal = self.state, self._effects, self._step_goal
        if self._spec.goal != "attend":
            fire_timers_while_driving(state, self._writer, self._record)
            if self._callbacks is not None:
                self._callbacks.begin(in_flight.running)
        for _ in range(MAX_EVENTS_IN_A_ROW):
            if goal is not None and goal.is_reached(state):
                return await self._park(state_at_rest(state))
            if in_flight.running and (allowed := self._allowed_to_go_on()) is not None:
                await in_flight.run(allowed)
                return False
            decision = lifecycle.decide(state, self._spec.rules, self._work, finalize=self._finalizes)
            if not isinstance(decision, e.Event):
                break
            if type(decision) is e.TaskEnded:
                return await self._end_task(decision)
            self._record(decision)
        else:
            await asyncio.sleep(0)
            return False
        if type(decision) is Wait:
            return await self._rest(decision)
        effects: tuple[Effect, ...] = decision  # type: ignore[assignment]
        if self._subagents is not None:
            active = effects_to_run(self._subagents, state, effects)
            if active is None:
                return await self._park("waiting")
            effects = active
        if len(effects) == 1 and not in_flight.running and not in_flight.finished:
            if not self._is_called():
                await in_flight.run_inline(effects[0])
        else:
            await in_flight.run(effects)
        return False

    async def end(self) -> None:
        """Cancel the running effects. After a fault, recording stops."""
        if self._deadline is not None:
            self._deadline.cancel()
        if self._admission is not None:
            self._admission.leave()
        try:
            if self._callbacks is not None:
                await self._callbacks.cancel()
            await self._effects.cancel_all()
        finally:
            self.over = True
            self._interruption.release_waiters()

    def is_settled(self) -> bool:
        """Return whether the task has ended or was released, so that no turn is left."""
        return self._writer.released or self.state.ended is not None

    # ---------------------------------------------------------------------------------- before the next effect

    def _is_called(self) -> bool:
        """Return whether the inbox, the clock, a step function or an interruption comes before the next effect."""
        if (
            self._inbox.is_unread
            or self._judges_anew
            or (self._deadline is not None and self._deadline.is_reached)
            or (self._inbox.undo_waits and not self._effects.running)
        ):
            return True
        if self._step_requests is not None and self._step_requests.has_unrecorded:
            return True
        return self._interruption.request is not None and self._interruption.is_due()

    async def _listen(self) -> None:
        if self._inbox.is_due and await self._inbox.read(self._record):
            # The caller of an undo decides how the task continues, so the drive stops deciding after the undo.
            self._spec.goal, self._work = "undo", idle
            self._finalizes = False
        if self._deadline is not None and self._deadline.is_reached:
            self._deadline.record(self._writer)
        if self._step_requests is not None:
            self._step_requests.record_all(self._record)
        if self._interruption.is_due():
            # The request stays, so a resume that arrives now does not keep alive a task that is about to end.
            self._interruption.record(self._writer)
        if self._judges_anew:
            self._judges_anew = False
            if (context := self._effects.context) is not None:
                self._spec.rules = context.rules_judged(self._spec.rules)

    def _allowed_to_go_on(self) -> list[Effect] | None:
        """Return the running effects that may continue while starts are held back, or None if starts are allowed."""
        state = self.state
        running = self._effects.running.values()
        if state.cancelling:
            # Reconciliations run too, without a begin event, so they are cancelled here with the rest.
            return [in_flight.effect for in_flight in running if in_flight.survives_cancel]
        if state.interrupting:
            return []
        if self._inbox.undo_waits:
            return [in_flight.effect for in_flight in running if in_flight.ends_before_undo]
        if self._interruption.request is not None:
            return [in_flight.effect for in_flight in running]
        return None

    # ---------------------------------------------------------------------------------- rest and end

    async def _rest(self, wait: Wait) -> bool:
        """Wait here for events that are due soon, or release the task. Return whether the drive is over."""
        if self._stays_for(wait):
            self._writer.flush()
            if not self._is_called():
                await self._loop_task.wait(fire_timers(self.state, self._writer, self._record))
            return False
        if wait.reason == "ended" and self._writer.released:
            return True
        if wait.reason == "handoff" and self._hand_over is not None and self._agent is not None:
            await self._go_on_with_next_agent(self._hand_over, self._agent)
            return False
        if wait.reason == "thread" and self._admission is not None:
            await self._enter_thread(self._admission)
            return False
        if wait.reason != "timer":
            return await self._park(PARKED_STATES.get(wait.reason) or state_at_rest(self.state))
        seconds_left = fire_timers(self.state, self._writer, self._record)
        if seconds_left is not None and seconds_left > MAX_TIMER_WAIT:
            return await self._park("waiting")
        if seconds_left:
            self._writer.flush()
            await self._loop_task.wait(seconds_left)
        return False

    def _stays_for(self, wait: Wait) -> bool:
        """Return whether the drive stays although the task waits for people or for background work."""
        if wait.reason in ("approval", "question"):
            return self._callbacks is not None and bool(self._callbacks.running)
        return wait.reason == "background" and self._spec.rules.at_end == "wait"

    async def _go_on_with_next_agent(self, hand_over: HandOver, agent: Agent[Any]) -> None:
        """Move the conversation. From now on, the drive uses the rules and the context of the next agent."""
        moved = await hand_over(agent, self._record, self._is_called)
        if moved is None:
            return  # it waited for a toolset of the next agent, and the next turn handles the call
        spec, context = moved
        if context is None:
            return
        self._agent = context.runtime.agent
        self._spec.rules, self._spec.options, self._work = spec.rules, spec.options, spec.work
        self._effects.context = context
        self._subagents = self._inbox.subagents = context.subagents
        seconds = spec.rules.limits.seconds
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = Deadline(self.state, seconds, self._subagents) if seconds is not None else None
        if self._deadline is not None:
            self._deadline.start(self._loop_task.wake)
        # A timer that the instructions function leaves behind in this asyncio task must not hit the code after it.
        self._loop_task.spawn()

    async def _enter_thread(self, admission: ThreadAdmission) -> None:
        """Enter the thread, or wait in its queue until the thread may be free or the drive is called."""
        if await admission.enter(self._loop_task.wake_from_anywhere):
            self._admission, self._work = None, self._spec.work
            if self._deadline is not None:
                self._deadline.start(self._loop_task.wake)
        elif not admission.recheck_wanted and not self._is_called():
            await self._loop_task.wait(RECHECK_SECONDS if admission.is_first else None)

    async def _end_task(self, event: e.TaskEnded) -> bool:
        """End the task for good. Return False if effects still run or the inbox must be read first."""
        if self._effects.running:
            await self._effects.run(())
            return False
        keeps = self._spec.options.keep_in_thread == "always"
        if await end_task(self._store, self._writer, self.state, event, keep_in_thread=keeps):
            return True
        self._inbox.is_unread = True
        return False

    async def _park(self, state_word: str) -> bool:
        """Release the task at rest. Return False if effects still run or the inbox must be read first."""
        if self._effects.finished or self._effects.running:
            await self._effects.run(())
            return False
        if self._subagents is not None:
            await self._subagents.wait_for_pause()
        goes_on = self._inbox.goes_on
        due_at = adoption_due_at(
            self.state,
            self._writer,
            self._spec,
            was_wanted=bool(self._was_wanted),
            goes_on=goes_on,
            hands_on=self._inbox.hands_on,
        )
        verdict = await self._writer.commit_alone(None, state_word, release=True, wanted=due_at)
        if not verdict.released:
            self._inbox.is_unread = True
        return verdict.released
