"""The log records of `treadle.tasks`: begins and stops of tasks, retries, takeovers and failures.

Records have no messages, arguments, results or texts of errors. Errors of the user's own code are the exception, which
`user_errors` logs with their tracebacks. A record also has the attributes `task_id`, `agent`, `thread_id` and `event`.
`event` is the tag of an event, or `drive_began`, `drive_ended`, `taken_over` or `lost`. Without a handler for a record,
it is not created, and recording a step costs the same as without this module.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from treadle.core import events as e
from treadle.core.calls_in_text import text_calls_warning
from treadle.core.display import one_line
from treadle.core.state import TaskState

_LOG: Final = logging.getLogger("treadle.tasks")

LEVELS: Final[dict[type[e.Event], int]] = {
    e.ModelFailed: logging.WARNING,
    e.ModelStopped: logging.INFO,
    e.ToolStopped: logging.WARNING,
    e.ToolEnded: logging.WARNING,
    e.StepFailed: logging.WARNING,
    e.StepSkipped: logging.WARNING,
    e.WorkerFailed: logging.WARNING,
    e.LimitReached: logging.WARNING,
    e.AgentChanged: logging.INFO,
    e.OutcomeUnresolved: logging.WARNING,
    e.CommandRejected: logging.WARNING,
    e.ApprovalRequested: logging.INFO,
    e.ApprovalExpired: logging.WARNING,
    e.ApprovalVoided: logging.WARNING,
    e.GuardrailJudged: logging.WARNING,
    e.CallDeferred: logging.INFO,
    e.TicketExpired: logging.WARNING,
    e.QuestionAsked: logging.INFO,
    e.QuestionExpired: logging.WARNING,
}
"""The logged events, each with its level. Ends of calls are only logged without a result, and judgements if they
refuse.
"""

_STATES: Final = {"failed": logging.ERROR, "degraded": logging.WARNING}
"""The levels of the states in which a task stops. Other states are logged as `INFO`."""


def is_heard(level: int = logging.WARNING) -> bool:
    """Whether a handler would get a record of this level."""
    return _LOG.isEnabledFor(level) and _LOG.hasHandlers()


def tell_event(state: TaskState, event: e.Event) -> None:
    """Log an event of a kind in `LEVELS`, unless it is a call's result or a content that passed."""
    if isinstance(event, e.ToolEnded) and event.outcome == "ok":
        return
    if isinstance(event, e.GuardrailJudged) and event.verdict != "deny":
        return
    text = event.description
    if isinstance(event, e.ModelFailed) and event.retry_at is not None:
        text += f"; it is asked again in {max(0, event.retry_at - event.time) / 1e6:.1f} s"
    elif isinstance(event, e.ToolStopped) and event.reason == "error":
        text += "; the call is tried again"
    _tell(state, LEVELS[type(event)], event.kind, text)


def tell_began(state: TaskState) -> None:
    """Log that a drive of a task begins."""
    if is_heard(logging.INFO):
        text = "is driven on" if state.began else "begins"
        _tell(state, logging.INFO, "drive_began", f"{text}, after event {state.seq}")


def tell_text_calls(state: TaskState, tools: tuple[str, ...]) -> None:
    """Log that the text of an answer looks like calls of tools."""
    if is_heard():
        _tell(state, logging.WARNING, "text_calls", text_calls_warning(tools))


def tell_ignored_choice(state: TaskState, choice: str) -> None:
    """Log that an answer calls no tool, although the request demanded a call."""
    if is_heard():
        text = (
            f"the answer calls no tool, although tool_choice={choice!r} demands it: the server or the model ignored it"
            '; start the server with a template for tools, or use Agent(worker="react")'
        )
        _tell(state, logging.WARNING, "ignored_choice", text)


def tell_stopped(state: TaskState, word: str) -> None:
    """Log that a task has stopped in a state."""
    level = _STATES.get(word, logging.INFO)
    if is_heard(level):
        why = f": {state.error.kind}" if word == "failed" and state.error is not None else ""
        _tell(state, level, "drive_ended", f"is {word}{why}, after event {state.seq}")


def tell_taken_over(state: TaskState, epoch: int) -> None:
    """Log that this process takes over a task whose driver crashed or let its lease expire."""
    if is_heard():
        _tell(
            state,
            logging.WARNING,
            "taken_over",
            f"is taken over under epoch {epoch}: its driver crashed or stalled",
        )


def tell_lost(state: TaskState, epoch: int) -> None:
    """Log that another driver took a task over from this process."""
    if is_heard():
        _tell(state, logging.WARNING, "lost", f"was lost to another driver; epoch {epoch} has passed")


def _tell(state: TaskState, level: int, event: str, text: str) -> None:
    facts: dict[str, Any] = {"task_id": state.task_id, "agent": state.agent, "thread_id": state.thread}
    _LOG.log(
        level,
        "task %s of %s: %s",
        one_line(state.task_id),
        state.agent,
        text,
        extra={**facts, "event": event},
    )
