"""One task being driven: decide, journal, start, wait for any, journal, apply, repeat.

    commands from the inbox become events
    decide(state) -> Record    journal it and ask again
                  -> Wait      park: give the task back, unless something arrived for it
                  -> effects   start what does not run yet, stop what is not wanted any more, wait for an end

The same loop serves a free run, one step, an undo and a command to a task at rest; they differ in where it stops.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

from treadle.agents import lifecycle
from treadle.agents.setup import Setup
from treadle.core import events as e
from treadle.core.effects import CallModel, CallTool, Effect, Reconcile, Record, UndoCall, Wait
from treadle.core.fold import RUNNER
from treadle.core.messages import copied
from treadle.core.observation import error_text, unknown_tool_text
from treadle.core.state import StepState, TaskState
from treadle.errors import ToolArgumentsInvalid
from treadle.ports import InboxWaiting, JournalStore, ThreadChange, ThreadMoved
from treadle.runner import perform
from treadle.runner.channel import Channel
from treadle.runner.inbox import as_event
from treadle.runner.line import LOOK, Entrance, in_line
from treadle.runner.options import Breakpoint, RunOptions
from treadle.runner.perform import Cut, Flight, Stage
from treadle.runner.results import resting_word
from treadle.runner.writer import JournalWriter

GRACE: Final = 2.0
"""Seconds a cancelled call has to end before it is cancelled again, and soon after that given up as abandoned."""

INSIST: Final = 0.2
"""Seconds between the second cancel and giving up."""

CLOSING: Final = "its driver was closed"
"""Why a task is interrupted when the runner that drives it ends."""

UNSUBMITTED: Final = 12
"""How many events may wait while effects end as soon as they start: about two steps."""

Goal = Literal["end", "step", "finalize", "undo", "attend"]
"""Where a drive stops: at the task's end, after one step, finalized, rewound, or as soon as the inbox is read."""

STATE_WORDS: Final = {
    "answered": "answered",
    "paused": "paused",
    "interrupted": "interrupted",
    "settlement": "waiting",
    "undo_unknown": "waiting",
    "undo_failed": "waiting",
}


@dataclass(slots=True)
class Terms:
    """What a drive goes by: where it stops, the rules it decides by, the options and the worker."""

    goal: Goal
    setup: Setup
    options: RunOptions
    work: lifecycle.Worker


class Drive:
    """The driver of one task in this process, from claim to release."""

    def __init__(
        self,
        store: JournalStore,
        writer: JournalWriter,
        channel: Channel,
        state: TaskState,
        terms: Terms,
        stage: Stage | None,
        entrance: Entrance | None = None,
        *,
        was_wanted: bool = False,
    ) -> None:
        self.state = state
        self._entrance = entrance
        self._store = store
        self._writer = writer
        self._channel = channel
        self._terms = terms
        self._stage = stage
        self._loop = asyncio.get_running_loop()
        self._flights: dict[str, Flight] = {}
        self._landed: list[Flight] = []
        self._waker: asyncio.Future[None] | None = None
        writer.on_failure = self._wake
        self._inbox_waits = not writer.is_new
        self.step_done: StepState | None = None
        self._late = False
        self._deadline: asyncio.TimerHandle | None = None
        self.over: Future[None] = Future()
        self.over.set_running_or_notify_cancel()  # so that one who waits and is cancelled cannot cancel it for all
        self._leave: str | None = None
        self._hurries = False
        self._goes_on = was_wanted
        self.abandoned: list[str] = []

    # -------------------------------------------------------------------------------- from outside

    async def stop(self, reason: str, grace: float = 0.0) -> None:
        """Interrupt the task, since its driver shuts down, and return when it is given back; from any loop.

        For `grace` seconds nothing new starts and what runs may end; then it is stopped.
        """

        def leave() -> None:
            self._leave = reason
            if grace > 0:
                self._loop.call_later(grace, self._hurry)
            else:
                self._hurry()
            self._wake()

        with suppress(RuntimeError):  # its loop is closed: the drive is over
            self._loop.call_soon_threadsafe(leave)
        await asyncio.wrap_future(self.over)

    def _hurry(self) -> None:
        self._hurries = True
        self._wake()

    def poke(self) -> None:
        """Look into the inbox soon; from any thread."""

        def look() -> None:
            self._inbox_waits = True
            self._wake()

        with suppress(RuntimeError):  # its loop is closed: the drive is over
            self._loop.call_soon_threadsafe(look)

    # --------------------------------------------------------------------------------------- the loop

    async def run(self) -> None:
        """Drive the task to where its goal lies; a caller who is cancelled leaves it interrupted and resumable."""
        cancelled: asyncio.CancelledError | None = None
        if self._entrance is None:
            self._watch_the_clock()
        try:
            while True:
                try:
                    if await self._turn():
                        break
                except asyncio.CancelledError as error:
                    state = self.state
                    if self._writer.released or state.ended is not None:
                        cancelled = error
                        break
                    if cancelled is None and not state.cancelling:
                        self._writer.record(
                            e.InterruptRequested("caller", "the caller was cancelled or gone")
                        )
                    cancelled = error
        finally:
            if self._deadline is not None:
                self._deadline.cancel()
            if self._entrance is not None:
                self._entrance.leave()
            try:
                await self._stop_all()
            finally:
                self.over.set_result(None)
        if cancelled is not None:
            raise cancelled

    async def _turn(self) -> bool:
        """Take one decision and do what it says; True when the drive is over."""
        if self._inbox_waits:
            await self._read_inbox()
        if self._late:
            self._note_lateness()
        if self._leave is not None and self.state.ended is None:
            if self._flights and not self._hurries:
                await self._fly(tuple([flight.effect for flight in self._flights.values()]))
                return False
            if not self.state.pausing or self._flights:
                self._writer.record(e.InterruptRequested(RUNNER, self._leave))
            self._leave = None
        if self.step_done is not None:
            return await self._park(resting_word(self.state))
        if self._flights and (self.state.cancelling or self.state.interrupting):
            # Looks at lost calls fly too, and no event tells of them: they are stopped here with the rest.
            await self._fly(())
            return False
        work = self._terms.work if self._entrance is None else in_line
        decision = lifecycle.decide(self.state, self._terms.setup, work, finalize=self._finalizes())
        if type(decision) is Record:
            return await self._record(decision.event)
        if type(decision) is Wait:
            if decision.reason == "ended" and self._writer.released:
                return True
            if self._entrance is not None and decision.reason == "thread":
                await self._enter_thread(self._entrance)
                return False
            return await self._park(self._word_for(decision))
        await self._fly(decision)  # type: ignore[arg-type]
        return False

    async def _enter_thread(self, entrance: Entrance) -> None:
        """Come into the thread, or wait in line for it until it may be free or somebody speaks."""
        if await entrance.comes_in(self._wake_from_anywhere):
            self._entrance = None
            self._watch_the_clock()
            return
        if entrance.stirred or self._inbox_waits:
            return
        self._waker = self._loop.create_future()
        timer = self._loop.call_later(LOOK, self._wake) if entrance.is_first else None
        try:
            await self._waker
        finally:
            self._waker = None
            if timer is not None:
                timer.cancel()
        if self._writer.failure is not None:
            raise self._writer.failure

    def _wake_from_anywhere(self) -> None:
        with suppress(RuntimeError):  # its loop is closed: the drive is over
            self._loop.call_soon_threadsafe(self._wake)

    def _finalizes(self) -> bool:
        return self._terms.goal in ("end", "finalize")

    def _word_for(self, wait: Wait) -> str:
        return STATE_WORDS.get(wait.reason) or resting_word(self.state)

    # --------------------------------------------------------------------------------------- recording

    async def _record(self, event: e.Event) -> bool:
        if type(event) is e.TaskEnded:
            return await self._seal(event)
        self._note(event)
        if self._terms.goal == "step" and type(event) is e.StepCompleted:
            self.step_done = self.state.steps[-1]
        return False

    def _note(self, event: e.Event, inbox: str | None = None) -> None:
        """Record an event, and a pause after it if a breakpoint says so."""
        self._writer.record(event, inbox)
        for stop in self._terms.options.break_on or ():
            if _meets(stop, event, self.state):
                self._writer.record(e.PauseRequested("breakpoint", _why(stop, event)))
                break

    async def _seal(self, event: e.TaskEnded) -> bool:
        """End the task and change its thread in one transaction, or neither."""
        if self._flights:
            await self._fly(())
            return False
        state = self.state
        keeps = event.state in ("completed", "degraded") or self._terms.options.keep_in_thread == "always"
        event.kept = keeps and event.state in ("failed", "cancelled")
        if keeps and event.thread_version == 0:
            event.thread_version = state.base + 1
        while True:
            change = ThreadChange("add", state.thread, event.thread_version - 1) if keeps else None
            try:
                await self._writer.commit_alone(event, event.state, thread=change, seal=True)
            except ThreadMoved as moved:
                # Somebody else's words came first: ours go after them.
                event.thread_version = moved.version + 1
                continue
            except InboxWaiting:
                self._inbox_waits = True
                return False
            return True

    async def _park(self, word: str) -> bool:
        """Give the task back at rest; False when something arrived that must be read first."""
        if self._landed or self._flights:
            await self._fly(())
            return False
        verdict = await self._writer.commit_alone(None, word, release=True, wanted=self._is_wanted())
        if not verdict.released:
            self._inbox_waits = True
            return False
        return True

    def _is_wanted(self) -> bool:
        """Whether somebody who adopts tasks is to drive this one on, now that it is given back."""
        state = self.state
        if state.ended is not None or state.pausing:
            return False
        if state.interrupting:
            return state.shutdown
        return self._terms.goal == "attend" and self._goes_on

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
                event = as_event(self.state, item)
                self._note(event, item.item_id)
                self._goes_on = self._goes_on or type(event) is e.OutcomeSettled

    # --------------------------------------------------------------------------------------- effects

    async def _fly(self, wanted: tuple[Effect, ...]) -> None:
        """Start what is wanted and does not fly, stop what flies and is not wanted, and wait for an end."""
        if self._flights:
            ids = {effect.id for effect in wanted}
            for key, flight in self._flights.items():
                if key not in ids:
                    self._cut(flight, "interrupted")
        fresh = False
        for effect in wanted:
            if effect.id not in self._flights:
                fresh = self._start(effect) or fresh
        if fresh or self._flights:
            await self._next_end()

    def _start(self, effect: Effect) -> bool:
        """Start one effect; False when it ended without starting."""
        stage = self._stage
        assert stage is not None, "effects are wanted only by those who know the agent"
        flight = Flight(effect)
        record = self._note
        if type(effect) is CallTool:
            arguments = self._admitted(stage, effect)
            if arguments is None:
                return False
            spec = stage.tools[effect.call.name].spec
            record(
                e.ToolStarted(
                    effect.call.step, effect.id, spec.effect, effect.call.attempt + 1, spec.undoable
                )
            )
            work = partial(perform.call_tool, stage, flight, effect, arguments)
            if spec.timeout is not None:
                flight.timer = self._loop.call_later(spec.timeout, self._cut, flight, "timeout")
        elif type(effect) is CallModel:
            attempt = effect.step.model_attempt + 1
            record(e.ModelStarted(effect.step.id, stage.model.name, attempt, effect.final))
            work = partial(perform.call_model, stage, flight, effect)
        elif type(effect) is UndoCall:
            call = effect.call
            record(e.ToolStarted(call.step, effect.id, "write", call.undo_attempt + 1, undoes=call.id))
            work = partial(perform.undo_call, stage, flight, effect)
        else:
            work = partial(perform.reconcile, stage, flight, effect)  # type: ignore[arg-type]
        self._flights[effect.id] = flight
        flight.task = self._loop.create_task(self._carry(flight, work))
        flight.task.add_done_callback(partial(self._land, flight))
        return True

    def _admitted(self, stage: Stage, effect: CallTool) -> Any:
        """Return the arguments of a call as its tool wants them; None when the call ended as invalid."""
        call = effect.call
        tool = stage.tools.get(call.name)
        if tool is None:
            text = unknown_tool_text(call.name, list(stage.tools))
        elif call.problem is not None:
            text = f"{call.name} was not run: its arguments were {call.problem}. Send the whole call again."
        else:
            try:
                # A tool may change what it is given; the journal keeps what the model asked for.
                return tool.validate(copied(call.arguments))
            except ToolArgumentsInvalid as error:
                text = f"{call.name} was not run: {error}"
            except Exception as error:  # noqa: BLE001  tools are anybody's code, and harm only their own call
                text = f"{call.name} was not run: its arguments could not be checked: {error_text(error)}"
        failure = e.Failure("tool", "invalid", text, call.id)
        self._writer.record(e.ToolEnded(call.step, call.id, "invalid", error=failure))
        return None

    async def _carry(self, flight: Flight, work: Callable[[], Coroutine[Any, Any, list[e.Event]]]) -> None:
        """Carry an effect to its end; the drive hears of it from here, a round of the event loop before `_land`."""
        self._take_down(flight, await work())

    def _land(self, flight: Flight, task: asyncio.Task[None]) -> None:
        """Take down the end of an effect that has none of its own: cancelled before it began, or broken."""
        if task.cancelled():
            self._take_down(flight, perform.given_up(flight))
        elif (error := task.exception()) is not None:
            self._take_down(flight, perform.broken(flight, error))

    def _take_down(self, flight: Flight, ends: list[e.Event]) -> None:
        if flight.timer is not None:
            flight.timer.cancel()
        if flight.ends is None:
            flight.ends = ends
            self._landed.append(flight)
            self._wake()

    async def _next_end(self) -> None:
        """Submit what is recorded, wait until an effect ends or somebody speaks, and record the ends."""
        if not self._landed:
            self._submit_soon()
        if not self._landed and not self._inbox_waits and not self._late:
            self._waker = self._loop.create_future()
            try:
                await self._waker
            finally:
                self._waker = None
        if self._writer.failure is not None:
            raise self._writer.failure
        landed, self._landed = self._landed, []
        for flight in landed:
            del self._flights[flight.effect.id]
            if type(flight.effect) is Reconcile and flight.effect.call.status != "lost":
                continue  # somebody settled the call while its tool was still looking
            for event in self._ends_of(flight):
                await self._record(event)

    def _ends_of(self, flight: Flight) -> list[e.Event]:
        """Return the ends of an effect; one that was stopped by nobody but itself has failed, and is not repeated."""
        ends = flight.ends or []
        first = ends[0] if ends else None
        asked = flight.cut is not None or self.state.interrupting or self.state.cancelling
        if isinstance(first, (e.ToolStopped, e.ModelStopped)) and first.reason == "interrupted" and not asked:
            return perform.broken(flight, asyncio.CancelledError("it cancelled itself"))
        return ends

    def _submit_soon(self) -> None:
        """Submit what is recorded once the effects really wait: one that is over at once shares the next commit."""
        if self._writer.waiting >= UNSUBMITTED:
            self._writer.flush()
        else:
            self._loop.call_soon(self._submit_unless_over)

    def _submit_unless_over(self) -> None:
        if not self._landed:
            self._writer.flush()

    def _wake(self) -> None:
        if self._waker is not None and not self._waker.done():
            self._waker.set_result(None)

    # ------------------------------------------------------------------------------------- stopping

    def _cut(self, flight: Flight, why: Cut) -> None:
        """Stop an effect: cancel, after a grace cancel again, then give it up as abandoned."""
        if flight.cut is not None or flight.task is None or flight.ends is not None:
            return
        flight.cut = why
        flight.task.cancel()
        if flight.timer is not None:
            flight.timer.cancel()
        flight.timer = self._loop.call_later(GRACE, self._insist, flight)

    def _insist(self, flight: Flight) -> None:
        if flight.task is not None and not flight.task.done():
            flight.task.cancel()
            flight.timer = self._loop.call_later(INSIST, self._abandon, flight)

    def _abandon(self, flight: Flight) -> None:
        if flight.task is None or flight.task.done() or flight.ends is not None:
            return
        self.abandoned.append(flight.name)
        flight.cut = "abandoned"
        flight.ends = perform.given_up(flight)
        self._landed.append(flight)
        self._wake()

    async def _stop_all(self) -> None:
        """After a fault nothing more is recorded, but who takes the task up is not to meet what still runs."""
        if self._loop.is_closed():
            return
        for flight in self._flights.values():
            self._cut(flight, "interrupted")
        while any(flight.ends is None for flight in self._flights.values()):
            self._waker = self._loop.create_future()
            await self._waker

    def _watch_the_clock(self) -> None:
        seconds = self._terms.setup.limits.seconds
        if seconds is not None and self._terms.goal in ("end", "step"):
            left = seconds - self.state.driven / 1e6
            self._deadline = self._loop.call_later(max(0.0, left), self._out_of_time)

    def _out_of_time(self) -> None:
        self._late = True
        self._wake()

    def _note_lateness(self) -> None:
        self._late = False
        state, seconds = self.state, self._terms.setup.limits.seconds
        if seconds is not None and state.ended is None and state.limit != "seconds" and not state.answered:
            self._writer.record(e.LimitReached("seconds", seconds, max(seconds, state.driven / 1e6)))


def _meets(stop: Breakpoint, event: e.Event, state: TaskState) -> bool:
    if stop.event is not None:
        return event.kind == stop.event
    if stop.after_step is not None:
        ended = type(event) is e.StepCompleted and not event.last
        return ended and stop.after_step in (0, state.steps[-1].index)
    if type(event) is not e.ModelReturned:
        return False
    return any(stop.before_tool in ("*", call.name) for call in event.message.tool_calls)


def _why(stop: Breakpoint, event: e.Event) -> str:
    if stop.before_tool is not None:
        return f"before the tool {stop.before_tool}"
    return f"after the event {event.kind} (number {event.seq})"
