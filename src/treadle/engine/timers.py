"""The timers of a task: record those that fired, or return how long to wait for the next."""

from __future__ import annotations

from treadle.core import events as e
from treadle.core.state import Expiry, TaskState, TicketExpiry, Timer
from treadle.core.steps import Sleep
from treadle.engine.journal_writer import JournalWriter, Recorder


def fire_timers(state: TaskState, writer: JournalWriter, record: Recorder) -> float | None:
    """Record all timers that have fired; return the seconds until the next one, 0 if any fired, None without timers."""
    now, seconds_left = writer.clock(), None
    for timer in tuple(state.timers()):
        seconds = max(timer.due - now, 0) / 1e6
        if seconds == 0:
            record(_fired(timer))
        seconds_left = seconds if seconds_left is None else min(seconds_left, seconds)
    return seconds_left


def fire_timers_while_driving(state: TaskState, writer: JournalWriter, record: Recorder) -> float | None:
    """Fire timers like `fire_timers`, but none for a task whose only timer is the retry of a plain step.

    Such a task does nothing else meanwhile, so the drive fires that timer when the task waits for it.
    """
    if state.graph is not None or state.open_approvals or state.questions or state.deferred or state.sleeps:
        return fire_timers(state, writer, record)
    return None


def _fired(timer: Timer | Expiry | Sleep | TicketExpiry) -> e.Event:
    """Return the event of a timer that has fired."""
    if isinstance(timer, TicketExpiry):
        return e.TicketExpired(timer.step, timer.call)
    if isinstance(timer, Sleep):
        return e.SleepEnded(timer.step, timer.call, timer.place)
    if not isinstance(timer, Expiry):
        return e.TimerFired(timer.step, timer.call)
    kind = e.QuestionExpired if timer.is_question else e.ApprovalExpired
    return kind(timer.step, timer.call, timer.number)
