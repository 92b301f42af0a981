"""One task being driven: decide, journal, start, wait for any, journal, apply, repeat.

    commands from the inbox become events
    decide(state) -> event     journal it and ask again
                  -> Wait      park: give the task back, unless something arrived for it
                  -> effects   start what does not run yet, stop what is not wanted any more, wait for an end

The same loop serves a free run, one step, an undo and a command to a task at rest; they differ in where it stops.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from treadle.agents.decide import lifecycle
from treadle.agents.decide.rules import Rules
from treadle.core import events as e
from treadle.core.data import mutable
from treadle.core.effects import Decision, Effect, RunFunction, Wait
from treadle.core.fold import RUNNER
from treadle.core.schedule import UNNEEDED
from treadle.core.state import StepState, TaskState
from treadle.engine.broadcast import Channel
from treadle.engine.effect_context import EffectContext, StopChild
from treadle.engine.effect_in_flight import EffectInFlight
from treadle.engine.in_flight import EffectsInFlight
from treadle.engine.inbox import as_event
from treadle.engine.journal_writer import JournalWriter, Recorder
from treadle.engine.options import Breakpoint, RunOptions
from treadle.engine.results import resting_word
from treadle.engine.thread_queue import RECHECK_SECONDS, ThreadAdmission, wait_for_thread
from treadle.ports import AT_ONCE, InboxItem, InboxWaiting, JournalStore, ThreadChange, ThreadMoved

if TYPE_CHECKING:
    from treadle.engine.step_requests import StepRequests

DRIVER_CLOSED: Final = "its driver was closed"
"""Why a task is interrupted when the runner that drives it ends."""

MAX_UNSUBMITTED: Final = 12
"""How many events may wait while effects end as soon as they start: about two steps."""

MAX_EVENTS_IN_A_ROW: Final = 16
"""How many events in a row are recorded, none of them awaited, before other tasks of the event loop have their turn."""

MAX_TIMER_WAIT: Final = 60.0
"""Seconds that a task is kept for while it waits for a timer; for longer it is given back, and the process may end."""

CHILD_ITEM: Final = "child"
"""The kind of item by which a task hears that a child of its may go on."""

Goal = Literal["end", "step", "finalize", "undo", "attend"]
"""Where a drive stops: at the task's end, after one step, finalized, rewound, or as soon as the inbox is read."""

STATE_WORDS: Final = {
    "answered": "answered",
    "settlement": "waiting",
    "undo_unknown": "waiting",
    "undo_failed": "waiting",
}


@mutable
class DriveSpec:
    """What a drive goes by: where it stops, the rules it decides by, the options and the worker."""

    goal: Goal
    rules: Rules
    options: RunOptions
    work: lifecycle.DecideFunction


def idle(state: TaskState, rules: Rules) -> Decision:
    """Want nothing: the worker of a drive that only carries out what was commanded."""
    return Wait("idle")


class DriveLoop:
    """The driver of one task in this process, from claim to release."""

    def __init__(
        self,
        store: JournalStore,
        writer: JournalWriter,
        channel: Channel,
        state: TaskState,
        spec: DriveSpec,
        context: EffectContext | None,
        stop_child: StopChild,
        admission: ThreadAdmission | None = None,
        *,
        was_wanted: int = 0,
    ) -> None:
        self.state = state
        self._admission = admission
        self._store = store
        self._writer = writer
        self._spec = spec
        self._loop = asyncio.get_running_loop()
        self._waker: asyncio.Future[None] | None = None
        writer.on_failure = self._wake
        self._record: Recorder = self._record_and_stop if spec.options.break_on else writer.record
        self._step_requests = context.step_requests if context is not None else None
        if self._step_requests is not None:
            self._step_requests.wake = self._wake
            self._record = partial(self._record_for_functions, self._record, self._step_requests)
        self._steps_to_do = len(spec.rules.only_steps or ("the next one",))
        self._subagents = context.subagents if context is not None else None
        self._effects = EffectsInFlight(context, self._record, self._wake, self._spawn_loop_task, stop_child)
        self._finalizes = spec.goal in ("end", "finalize")
        self._inbox_waits = not writer.is_new
        self.step_done: StepState | None = None
        self._late = False
        self._deadline: asyncio.TimerHandle | None = None
        self.over = False
        self._leavers: list[Future[None]] = []
        self._leave: tuple[str, str] | None = None
        """who wants the task interrupted, and why"""

        self._hurries = False
        """whether what runs is to be stopped for that, and not only let end"""

        self._undo_waits = False
        """whether an undo was asked for that waits for what runs"""

        self._was_wanted = was_wanted
        self._goes_on = was_wanted == AT_ONCE
        self._loop_task: asyncio.Task[None] | None = None
        self._context_variables: Context | None = None
        """the caller's context variables: whoever wakes the drive has others"""

        self._submits_soon = False
        self._finish: asyncio.Future[None] | None = None
        self._fault: BaseException | None = None

    # -------------------------------------------------------------------------------- from outside

    async def stop(self, reason: str, grace: float = 0.0) -> None:
        """Interrupt the task, since its driver shuts down, and return when it is given back; from any loop.

        For `grace` seconds nothing new starts and what runs may end; then it is stopped.
        """

        def leave() -> None:
            if grace > 0:
                self._loop.call_later(grace, self._ask_to_leave, RUNNER, reason)
            self._ask_to_leave(RUNNER, reason, hurry=grace <= 0)

        done: Future[None] = Future()
        self._leavers.append(done)
        with suppress(RuntimeError):  # its loop is closed: the drive is over
            if self._spec.goal != "attend":  # that one only writes down what was said, and ends
                self._loop.call_soon_threadsafe(leave)
        if not self.over:
            await asyncio.wrap_future(done)

    def _ask_to_leave(self, by: str, reason: str, *, hurry: bool = True) -> None:
        self._leave = self._leave or (by, reason)
        self._hurries = self._hurries or hurry
        self._wake()

    def read_inbox_soon(self) -> None:
        """Look into the inbox soon; from any thread."""
        self._inbox_waits = True
        self._wake_from_anywhere()

    @property
    def inbox_unread(self) -> bool:
        """Whether `read_inbox_soon` was called since the inbox was last read: the task was released already."""
        return self._inbox_waits

    # --------------------------------------------------------------------------------------- the loop

    async def run(self) -> None:
        """Drive the task to where its goal lies; a caller who is cancelled leaves it interrupted and resumable."""
        cancelled: asyncio.CancelledError | None = None
        if self._admission is None:
            self._watch_the_clock()
        self._context_variables = copy_context()
        self._spawn_loop_task()
        while not self.over:
            self._finish = self._loop.create_future()
            try:
                await self._finish
            except asyncio.CancelledError as error:
                cancelled = error
                self._ask_to_leave("caller", "the caller was cancelled or gone")
        self._let_go()
        if self._fault is not None:
            raise self._fault
        if cancelled is not None:
            raise cancelled

    def _let_go(self) -> None:
        """Part from what points back here, so that all is freed now and not when the collector comes by."""
        self._writer.on_failure = None
        self._effects.disconnect()
        self._loop_task = self._context_variables = None
        self._record = self._writer.record
        if self._step_requests is not None:
            self._step_requests.close()

    def _spawn_loop_task(self) -> None:
        """Let a new carrier go on with the drive; the one before, if any, is left with its effect."""
        # Made like this it never begins before it is known, whatever factory of tasks the loop has.
        self._loop_task = asyncio.Task(self._run_loop(), loop=self._loop, context=self._context_variables)
        self._loop_task.add_done_callback(self._on_loop_task_done)

    def _on_loop_task_done(self, loop_task: asyncio.Task[None]) -> None:
        """Replace a carrier that was cancelled before it began, as the end of an event loop does to all its tasks."""
        if loop_task is self._loop_task and not self.over and not self._loop.is_closed():
            self._ask_to_leave("caller", "the event loop was stopped")
            self._spawn_loop_task()

    async def _run_loop(self) -> None:
        """Take turn after turn until the drive is over, or another carrier has it."""
        me, over = self._loop_task, False
        if me is not None:
            me.remove_done_callback(self._on_loop_task_done)
        try:
            while self._loop_task is me and not over:
                try:
                    over = await self._turn()
                except asyncio.CancelledError:
                    # The event loop ends, or something that a tool left behind hit the wrong task.
                    self._ask_to_leave("caller", "the event loop was stopped")
                    over = self._writer.released or self.state.ended is not None
        except BaseException as error:
            if self._loop_task is not me or self._loop.is_closed():
                raise
            self._fault = error
        if self._loop_task is me:
            await self._end()

    async def _end(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        if self._admission is not None:
            self._admission.leave()
        try:
            await self._stop_all()
        finally:
            self.over = True
            for leaver in self._leavers:
                with suppress(InvalidStateError):  # whoever waited was cancelled
                    leaver.set_result(None)
            if self._finish is not None and not self._finish.done():
                self._finish.set_result(None)

    async def _turn(self) -> bool:
        """Record what follows until something is wanted, and see to that; True when the drive is over."""
        if self._writer.failure is not None:
            raise self._writer.failure
        if self._is_called():
            await self._listen()
        state, spec = self.state, self._spec
        if state.graph is not None:
            self._fire_timers()
        recorded = 0
        while True:
            if self.step_done is not None and not state.cancelling:
                return await self._park(resting_word(state))
            if self._effects.running and (state.cancelling or state.interrupting):
                # Looks at lost calls fly too, and no event tells of them: they are stopped here with the rest.
                await self._run_effects(self._ends_children() if state.cancelling else ())
                return False
            if self._undo_waits:
                await self._make_way_for_undo()
                return False
            if self._leave is not None and self._effects.running:
                # What runs may end, and nothing starts.
                await self._run_effects(
                    tuple([in_flight.effect for in_flight in self._effects.running.values()])
                )
                return False
            queues = self._admission is not None and spec.goal != "undo"
            work = wait_for_thread if queues else spec.work
            decision = lifecycle.decide(state, spec.rules, work, finalize=self._finalizes)
            if not isinstance(decision, e.Event):
                break
            if type(decision) is e.TaskEnded:
                return await self._seal(decision)
            self._record(decision)
            if type(decision) is e.StepCompleted and spec.goal == "step" and self._step_requests is None:
                self.step_done = state.steps[-1]
            recorded += 1
            if recorded == MAX_EVENTS_IN_A_ROW:
                await asyncio.sleep(0)
                return False
        if type(decision) is Wait:
            if decision.reason == "ended" and self._writer.released:
                return True
            if decision.reason == "thread" and self._admission is not None:
                await self._enter_thread(self._admission)
                return False
            if decision.reason == "timer":
                return await self._rest()
            return await self._park(STATE_WORDS.get(decision.reason) or resting_word(state))
        effects: tuple[Effect, ...] = decision  # type: ignore[assignment]
        if self._subagents is not None:
            if state.pausing:
                self._subagents.pause(effects)
            if self._subagents.resting:
                effects = self._subagents.without_resting(effects)
                if all(type(effect) is RunFunction for effect in effects):
                    return await self._park("waiting")
        if len(effects) == 1 and not self._effects.running and not self._effects.finished:
            await self._run_inline(effects[0])
        else:
            await self._run_effects(effects)
        return False

    def _ends_children(self) -> tuple[Effect, ...]:
        """Return what ends children for good, if it is under way: that goes on while the task is being cancelled."""
        running = self._effects.running.values()
        return tuple([in_flight.effect for in_flight in running if in_flight.survives_cancel])

    def _is_called(self) -> bool:
        """Whether the inbox, the clock or somebody who wants the task interrupted is to be heard first."""
        if (
            self._inbox_waits
            or self._late
            or (self._step_requests is not None and self._step_requests.has_unrecorded)
        ):
            return True
        return self._leave is not None and self._leaves_now()

    def _leaves_now(self) -> bool:
        if self._effects.running and not self._hurries:
            return False
        state = self.state
        stopping = state.cancelling or state.interrupting or (state.pausing and not self._effects.running)
        return state.ended is None and not stopping

    async def _listen(self) -> None:
        if self._inbox_waits:
            await self._read_inbox()
        if self._late:
            self._note_lateness()
        if self._step_requests is not None:
            self._step_requests.take_down(self._record)
        if self._leave is not None and self._leaves_now():
            # It stays: a resume that comes now does not keep alive what is about to end.
            self._writer.record(e.InterruptRequested(*self._leave))

    async def _make_way_for_undo(self) -> None:
        """Let the calls in flight end, so that what is undone is known; a model call is worth nothing any more."""
        calls = [
            in_flight.effect for in_flight in self._effects.running.values() if in_flight.ends_before_undo
        ]
        if self._effects.running:
            await self._run_effects(tuple(calls))
        else:
            self._undo_waits, self._inbox_waits = False, True

    def _turn_to_undo(self) -> None:
        """Carry out an undo that was asked for, and nothing after it: who undoes a step has something else in mind."""
        self._spec = DriveSpec("undo", self._spec.rules, self._spec.options, idle)
        self._finalizes = False

    async def _enter_thread(self, admission: ThreadAdmission) -> None:
        """Come into the thread, or wait in line for it until it may be free or somebody speaks."""
        if await admission.enter(self._wake_from_anywhere):
            self._admission = None
            self._watch_the_clock()
            return
        if admission.stirred or self._is_called():
            return
        await self._wait(RECHECK_SECONDS if admission.is_first else None)

    async def _rest(self) -> bool:
        """Wait for a timer: here if it fires soon; else the task is given back, and True says so."""
        left = self._fire_timers()
        if left is not None and left > MAX_TIMER_WAIT:
            return await self._park("waiting")
        if left:
            self._writer.flush()
            await self._wait(left)
        return False

    def _fire_timers(self) -> float | None:
        """Take down a timer that has fired; return the seconds until the next, 0 if one fired, or None."""
        now, left = self._writer.clock(), None
        for timer in tuple(self.state.timers()):
            if timer.due <= now:
                self._record(e.TimerFired(timer.step, timer.call))
                return 0.0
            seconds = (timer.due - now) / 1e6
            left = seconds if left is None else min(left, seconds)
        return left

    def _wake_from_anywhere(self) -> None:
        with suppress(RuntimeError):  # its loop is closed: the drive is over
            self._loop.call_soon_threadsafe(self._wake)

    # --------------------------------------------------------------------------------------- recording

    def _record_and_stop(self, event: e.Event, inbox: str | None = None) -> None:
        """Record an event, and a pause after it if a breakpoint says so."""
        self._writer.record(event, inbox)
        for stop in self._spec.options.break_on or ():
            if _meets(stop, event, self.state):
                self._writer.record(e.PauseRequested("breakpoint", _why(stop, event)))
                break

    def _record_for_functions(
        self, record: Recorder, step_requests: StepRequests, event: e.Event, inbox: str | None = None
    ) -> None:
        """Record an event, and give word of it to the function that waits for it."""
        record(event, inbox)
        if isinstance(event, e.ModelFailed) and event.retry_at is not None:
            return  # it is asked again
        if isinstance(event, (e.ToolEnded, e.ModelReturned, e.ModelFailed)):
            step_requests.tell(event)
        elif isinstance(event, e.StepSkipped) and self.state.graph is not None:
            step_requests.drop(list(self.state.graph.nodes[event.step].model_calls))
        if self._spec.goal == "step" and isinstance(event, (e.StepCompleted, e.StepSkipped, e.StepFailed)):
            graph = self.state.graph
            if graph is None or event.step in graph.failed:
                return  # the task cannot go on without it
            if type(event) is e.StepSkipped and event.by == UNNEEDED and not self._is_named(event.step):
                return  # what an earlier plan left over is not what was to be run
            self._steps_to_do -= 1
            if not self._steps_to_do:
                self.step_done = graph.nodes[event.step].step

    def _is_named(self, step_id: str) -> bool:
        return step_id in (self._spec.rules.only_steps or ())

    async def _seal(self, event: e.TaskEnded) -> bool:
        """End the task and change its thread in one transaction, or neither."""
        if self._effects.running:
            await self._run_effects(())
            return False
        state = self.state
        keeps = event.state in ("completed", "degraded") or self._spec.options.keep_in_thread == "always"
        if state.covers:
            keeps = event.state == "completed"
        event.kept = keeps and event.state in ("failed", "cancelled")
        if keeps and event.thread_version == 0:
            event.thread_version = state.base + 1
        while True:
            version = event.thread_version - 1
            change = ThreadChange("add", state.thread, version, state.covers) if keeps else None
            try:
                await self._writer.commit_alone(event, event.state, thread=change, seal=True)
            except ThreadMoved as moved:
                # Somebody else's words came first: ours go after them.
                event.thread_version = moved.version + 1
                if state.covers and await self._is_stale(moved.version):
                    text = "words that it summarises were taken out of the thread meanwhile"
                    return await self._seal(e.TaskEnded("failed", None, e.Failure("agent", "stale", text)))
                continue
            except InboxWaiting:
                self._inbox_waits = True
                return False
            return True

    async def _is_stale(self, now: int) -> bool:
        """Whether words that this task summarises were taken out of its thread since it was made."""
        covers = self.state.covers
        _, then = await self._store.thread(self.state.thread, version=self.state.base)
        _, there = await self._store.thread(self.state.thread, version=now)
        return [m for m in then if m.version <= covers] != [m for m in there if m.version <= covers]

    async def _park(self, word: str) -> bool:
        """Give the task back at rest; False when something arrived that must be read first."""
        if self._effects.finished or self._effects.running:
            await self._run_effects(())
            return False
        if self._subagents is not None:
            await self._subagents.wait_for_pause()
        verdict = await self._writer.commit_alone(None, word, release=True, wanted=self._wanted_from())
        if not verdict.released:
            self._inbox_waits = True
            return False
        return True

    def _wanted_from(self) -> int:
        """From when somebody who adopts tasks is to drive this one on, now that it is given back; 0: not at all."""
        state = self.state
        if state.ended is not None or state.pausing:
            return 0
        if state.interrupting:
            return AT_ONCE if state.shutdown else 0
        if self._spec.goal == "attend" and self._goes_on:
            return AT_ONCE
        if self._spec.goal in ("step", "attend") and not self._was_wanted:
            return 0  # who steps a task steps it on
        due = state.next_due()
        return self._writer.by_the_system(due) if due is not None else 0

    # --------------------------------------------------------------------------------------- the inbox

    async def _read_inbox(self) -> None:
        self._inbox_waits = False
        for item in await self._store.inbox(self.state.task_id):
            if item.item_id in self._writer.taken:
                continue
            if self.state.ended is not None:
                # Nothing follows the end, and a command that came too late is not to wait for the next attempt.
                self._writer.dismiss(item.item_id)
            else:
                if self._effects.running and (
                    item.kind == "undo" or (self._undo_waits and item.kind == "send")
                ):
                    self._undo_waits = True  # and so do words that were said after it
                    continue
                if item.kind == CHILD_ITEM:
                    self._hear_of_child(item)
                    continue
                event = as_event(self.state, item)
                if type(event) is e.UndoRequested:
                    if self.state.pausing or self.state.interrupting:
                        self._writer.record(e.Resumed(event.by))
                    self._turn_to_undo()
                self._record(event, item.item_id)
                self._goes_on = self._goes_on or type(event) is e.OutcomeSettled

    def _hear_of_child(self, item: InboxItem) -> None:
        """Go on with a child that stopped of its own: it may go on, or has ended."""
        self._writer.dismiss(item.item_id)
        self._goes_on = True
        if self._subagents is not None:
            self._subagents.resting.discard(str(item.data.get("call")))

    # --------------------------------------------------------------------------------------- effects

    async def _run_effects(self, wanted: tuple[Effect, ...]) -> None:
        """Start what is wanted and does not fly, stop what flies and is not wanted, and wait for an end."""
        effects = self._effects
        if effects.running:
            ids = {effect.id for effect in wanted}
            for key, in_flight in effects.running.items():
                if key not in ids:
                    effects.cancel(in_flight, "interrupted")
        over = 0
        for effect in wanted:
            if effect.id not in effects.running and not effects.start(effect):
                over += 1  # it ended without starting: what was to wait for that may begin
                if over == MAX_EVENTS_IN_A_ROW:
                    await asyncio.sleep(0)
                    return
        if effects.running and not over:
            await self._next_end()

    async def _run_inline(self, effect: Effect) -> None:
        """Start a lone effect and wait for its end; afterwards the drive may be in the hands of another carrier."""
        if self._is_called() or self._loop_task is None:
            return
        in_flight = self._effects.begin(effect)
        if in_flight is None:
            return
        if len(self._writer.pending) >= MAX_UNSUBMITTED:
            self._writer.flush()
        # What is recorded is submitted once the effect really waits: one that is over at once shares the next commit.
        ends = await self._effects.run_inline(in_flight, self._loop_task, self._writer.flush)
        if ends is not None:
            for event in ends:
                self._record(event)
            if in_flight.runs_foreign_code:
                # What a tool leaves behind in its asyncio task, such as a timer, must not hit what comes after it.
                self._spawn_loop_task()

    async def _next_end(self) -> None:
        """Submit what is recorded, wait until an effect ends or somebody speaks, and record the ends."""
        effects = self._effects
        if not effects.finished:
            self._submit_soon()
            if not self._is_called():
                await self._wait(self._fire_timers() if self.state.graph is not None else None)
        if self._writer.failure is not None:
            raise self._writer.failure
        finished, effects.finished = effects.finished, []
        for in_flight in finished:
            del effects.running[in_flight.effect.id]
            if in_flight.is_overtaken(self.state):
                continue
            for event in self._ends_of(in_flight):
                self._record(event)

    async def _wait(self, at_most: float | None = None) -> None:
        """Wait until something lands or wants attention, for so many seconds at most."""
        self._waker = self._loop.create_future()
        timer = self._loop.call_later(at_most, self._wake) if at_most is not None else None
        try:
            await self._waker
        finally:
            self._waker = None
            if timer is not None:
                timer.cancel()

    def _ends_of(self, in_flight: EffectInFlight[Any]) -> list[e.Event]:
        """Return the ends of an effect; one that was stopped by nobody but itself has failed, and is not repeated."""
        ends = in_flight.ends or []
        first = ends[0] if ends else None
        asked = in_flight.cancel_reason is not None or self.state.interrupting or self.state.cancelling
        is_stop = isinstance(first, (e.ToolStopped, e.ModelStopped)) and first.reason == "interrupted"
        if not asked and (is_stop or not ends):  # a look at a lost call that is stopped leaves no event
            return in_flight.broken("CancelledError: it cancelled itself")
        return ends

    def _submit_soon(self) -> None:
        """Submit what is recorded once effects in tasks of their own have begun, unless one of them is over by then."""
        if len(self._writer.pending) >= MAX_UNSUBMITTED:
            self._writer.flush()
        elif not self._submits_soon:
            self._submits_soon = True
            self._loop.call_soon(self._submit_unless_over)

    def _submit_unless_over(self) -> None:
        self._submits_soon = False
        if self._effects.running and not self._effects.finished:
            self._writer.flush()

    def _wake(self) -> None:
        self._effects.detach_inline()
        if self._waker is not None and not self._waker.done():
            self._waker.set_result(None)

    async def _stop_all(self) -> None:
        """After a fault nothing more is recorded, but who takes the task up is not to meet what still runs."""
        if self._loop.is_closed():
            return
        running = self._effects.running.values()
        for in_flight in running:
            self._effects.cancel(in_flight, "interrupted")
        while any(in_flight.ends is None for in_flight in running):
            await self._wait()

    def _watch_the_clock(self) -> None:
        seconds = self._spec.rules.limits.seconds
        if seconds is not None and self._spec.goal in ("end", "step"):
            unseen = self._subagents.unseen if self._subagents is not None else 0
            left = seconds - (self.state.driven + unseen) / 1e6
            self._deadline = self._loop.call_later(max(0.0, left), self._out_of_time)

    def _out_of_time(self) -> None:
        self._late = True
        self._wake()

    def _note_lateness(self) -> None:
        self._late = False
        state, seconds = self.state, self._spec.rules.limits.seconds
        if seconds is not None and state.ended is None and state.limit != "seconds" and not state.answered:
            self._writer.record(e.LimitReached("seconds", seconds, max(seconds, state.driven / 1e6)))


def _meets(stop: Breakpoint, event: e.Event, state: TaskState) -> bool:
    if stop.event is not None:
        return event.kind == stop.event
    if stop.after_step is not None:
        if type(event) is not e.StepCompleted or state.answered:
            return False
        ended = next(step for step in reversed(state.steps) if step.id == event.step)
        return stop.after_step in (0, ended.index)
    if type(event) is e.CallRequested:
        return stop.before_tool in ("*", event.name)
    if type(event) is not e.ModelReturned or event.call is not None:
        return False  # of what a function was told it may want something else, or nothing
    gives = event.typed.call if event.typed is not None else None
    return any(stop.before_tool in ("*", call.name) for call in event.message.tool_calls if call.id != gives)


def _why(stop: Breakpoint, event: e.Event) -> str:
    if stop.before_tool is not None:
        return f"before the tool {stop.before_tool}"
    return f"after the event {event.kind} (number {event.seq})"
