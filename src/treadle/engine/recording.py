"""Reactions of a drive to recorded events: pause at breakpoints, answer step functions, count steps.

The timers of a task: record those that fired, or return the wait for the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

from treadle.core import events as e
from treadle.core.ids import result_call, sleep_id
from treadle.core.rules.schedule import UNNEEDED
from treadle.core.spending import picodollars
from treadle.core.state import Expiry, TaskState, TicketExpiry, Timer
from treadle.core.steps import Sleep, StepState
from treadle.engine.effect_context import DriveSpec
from treadle.engine.journal_writer import JournalWriter, Recorder
from treadle.engine.options import Breakpoint
from treadle.engine.step_requests import StepRequests


def fire_timers(state: TaskState, writer: JournalWriter, record: Recorder) -> float | None:
    """Record all timers that have fired. Return the seconds until the next one: 0 if any fired, None without timers."""
    now, seconds_left = writer.clock(), None
    for timer in tuple(state.timers()):
        seconds = max(timer.due - now, 0) / 1e6
        if seconds == 0:
            record(_fired(timer))
        seconds_left = seconds if seconds_left is None else min(seconds_left, seconds)
    return seconds_left


def fire_timers_while_driving(state: TaskState, writer: JournalWriter, record: Recorder) -> float | None:
    """Fire timers like `fire_timers`, unless the only timer is the retry of a plain step.

    A task with only that timer does nothing else meanwhile, so the drive fires it when the task waits for it.
    """
    if state.graph is not None or state.open_approvals or state.questions or state.deferred or state.sleeps:
        return fire_timers(state, writer, record)
    return None


def _fired(timer: Timer | Expiry | Sleep | TicketExpiry) -> e.Event:
    if isinstance(timer, TicketExpiry):
        return e.TicketExpired(timer.step, timer.call)
    if isinstance(timer, Sleep):
        return e.SleepEnded(timer.step, timer.call, timer.place)
    if not isinstance(timer, Expiry):
        return e.TimerFired(timer.step, timer.call)
    kind = e.QuestionExpired if timer.is_question else e.ApprovalExpired
    return kind(timer.step, timer.call, timer.number)


_SETTLES: Final = (e.GuardrailJudged, e.ApprovalGiven)
"""Events that may release the result of a call that guardrails withheld."""

_ENDS_OF_STEPS: Final = (e.StepCompleted, e.StepSkipped, e.StepFailed)


class StepGoal:
    """The steps that a drive of single steps is to run: those that the spec names, else the next one."""

    def __init__(self, spec: DriveSpec) -> None:
        self._spec = spec
        self._step_ids = spec.rules.only_steps or frozenset[str]()
        self._steps_left = len(self._step_ids) or 1
        self.last_step: StepState | None = None
        """the step that reached the goal"""

    def is_reached(self, state: TaskState) -> bool:
        """Return whether the last step has ended, so that the task may stop."""
        if self.last_step is None or state.cancelling or state.overwritten:
            return False
        return state.team is None or state.team.next is None

    def note_plain(self, event: e.Event, state: TaskState) -> None:
        """Note the end of a step of a task without step functions."""
        if type(event) is e.StepCompleted and self._spec.goal == "step":
            self.last_step = state.steps[-1]

    def note(self, event: e.Event, state: TaskState) -> None:
        """Count the end of a step that is a function."""
        graph = state.graph
        if self._spec.goal != "step":
            return
        if not isinstance(event, _ENDS_OF_STEPS) or graph is None or event.step in graph.failed:
            return  # the task cannot continue without the failed step
        if type(event) is e.StepSkipped and event.by == UNNEEDED and event.step not in self._step_ids:
            return  # a leftover step of an earlier plan does not count
        self._steps_left -= 1
        if not self._steps_left:
            self.last_step = graph.nodes[event.step].step


class BreakpointRecorder:
    """Records events, and a pause after each event that meets a breakpoint."""

    def __init__(self, writer: JournalWriter, state: TaskState, breakpoints: Sequence[Breakpoint]) -> None:
        self._writer = writer
        self._state = state
        self._breakpoints = breakpoints
        self._spent = _spent(state)

    def __call__(self, event: e.Event, inbox: str | None = None) -> None:
        self._writer.record(event, inbox)
        before, self._spent = self._spent, _spent(self._state)
        for breakpoint_ in self._breakpoints:
            is_met = (
                _meets(breakpoint_, event, self._state)
                if breakpoint_.cost is None
                else before < picodollars(breakpoint_.cost) <= self._spent
            )
            if is_met:
                self._writer.record(e.PauseRequested("breakpoint", _reason(breakpoint_, event)))
                break


class PlainStepRecorder:
    """Records events, and notes the end of a step in a task without step functions."""

    def __init__(self, record: Recorder, state: TaskState, goal: StepGoal) -> None:
        self._record = record
        self._state = state
        self._goal = goal

    def __call__(self, event: e.Event, inbox: str | None = None) -> None:
        self._record(event, inbox)
        self._goal.note_plain(event, self._state)


class StepFunctionRecorder:
    """Records events, wakes the functions that wait for them, and counts ended steps."""

    def __init__(
        self, record: Recorder, state: TaskState, requests: StepRequests, goal: StepGoal | None
    ) -> None:
        self._record = record
        self._state = state
        self._requests = requests
        self._goal = goal

    def __call__(self, event: e.Event, inbox: str | None = None) -> None:
        given_up = event if isinstance(event, e.StepSkipped) else None
        node = self._state.graph.nodes.get(given_up.step) if given_up and self._state.graph else None
        open_ = (*node.model_calls, *node.questions) if node is not None else ()
        self._record(event, inbox)
        if isinstance(event, e.ModelFailed) and event.retry_at is not None:
            return  # the request is sent again
        if isinstance(event, (e.ToolEnded, e.ModelReturned, e.ModelFailed)):
            if not (type(event) is e.ToolEnded and self._requests.is_withheld(event.call)):
                self._requests.answer(event.call)
        elif isinstance(event, (e.QuestionAnswered, e.QuestionExpired)):
            self._requests.answer(event.request_id)
        elif isinstance(event, e.SleepEnded) and not event.call:
            self._requests.answer(sleep_id(event.step, event.place))
        elif isinstance(event, _SETTLES):
            place = event.place if isinstance(event, e.GuardrailJudged) else event.call
            if (call := result_call(place)) != place and not self._requests.is_withheld(call):
                self._requests.answer(call)
        self._requests.refuse_calls(open_)
        if self._goal is not None:
            self._goal.note(event, self._state)


def _spent(state: TaskState) -> int:
    """Return the known spending of a task and of the tasks below it, in pico-dollars."""
    return state.cost + sum([part.cost for below in state.children.values() for part in below])


def _meets(breakpoint_: Breakpoint, event: e.Event, state: TaskState) -> bool:
    if breakpoint_.event is not None:
        return event.kind == breakpoint_.event
    if breakpoint_.after_step is not None:
        if type(event) is not e.StepCompleted or state.answered:
            return False
        ended = next(step for step in reversed(state.steps) if step.id == event.step)
        return breakpoint_.after_step in (0, ended.index)
    if type(event) is e.CallRequested:
        return fnmatchcase(event.name, breakpoint_.tools or "")
    if type(event) is e.RouteChosen and event.message is not None:
        return any(fnmatchcase(call.name, breakpoint_.tools or "") for call in event.message.tool_calls)
    if type(event) is not e.ModelReturned or event.call is not None:
        return False  # a function may ignore the tool calls in an answer, or make others
    answer_call = event.typed.call if event.typed is not None else None
    return any(
        fnmatchcase(call.name, breakpoint_.tools or "")
        for call in event.message.tool_calls
        if call.id != answer_call
    )


def _reason(breakpoint_: Breakpoint, event: e.Event) -> str:
    if breakpoint_.tools is not None:
        return f"before the tool {breakpoint_.tools}"
    if breakpoint_.cost is not None:
        return f"${breakpoint_.cost} spent"
    return f"after the event {event.kind} (number {event.seq})"
