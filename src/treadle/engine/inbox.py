"""From what others put into a task's inbox to events: only the owner does this, naming the item."""

from __future__ import annotations

from typing import Final

from treadle.core import events as e
from treadle.core.codec import check_fit, decode_part
from treadle.core.ids import is_undo, undone_call
from treadle.core.state import TaskState
from treadle.engine.undo_plan import plan
from treadle.errors import NotFound, TaskStateError
from treadle.ports import InboxItem

SURVIVED: Final = "survived"
"""The kind of item by which a driver that lost a task says that it did not die of it."""


def as_event(state: TaskState, item: InboxItem) -> e.Event:
    """Return the event that an inbox item is for a task in this state; `CommandRejected` if it does not fit."""
    try:
        event = _event(state, item)
        check_fit(event)
        return event
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        # A foreign hand, or another version, wrote it: the task must not fail of it, each time it is taken up.
        return e.CommandRejected(item.kind, f"it cannot be read: {error!r}", item.item_id)


def _event(state: TaskState, item: InboxItem) -> e.Event:
    inbox, data = item.item_id, item.data
    if item.kind == SURVIVED:
        return e.DriverSurvived(int(data["epoch"]), inbox)
    by, reason = data.get("by"), data.get("reason")
    if state.cancelling and item.kind not in ("cancel", "send"):  # words are kept, though nobody reads them
        return e.CommandRejected(item.kind, "the task is being cancelled", inbox)
    match item.kind:
        case "cancel":
            return e.CancelRequested(by, reason, inbox)
        case "interrupt":
            return e.InterruptRequested(by, reason, inbox)
        case "pause":
            return e.PauseRequested(by, reason, inbox)
        case "resume":
            return e.Resumed(by, inbox)
        case "send":
            parts = tuple([decode_part(part) for part in data["parts"]])
            return e.InputReceived(parts, data.get("role", "user"), data.get("observation", False), by, inbox)
        case "settle":
            return _settled(state, item)
        case "undo":
            return _undone(state, item)
        case _:
            return e.CommandRejected(item.kind, "this version does not know the command", inbox)


def _undone(state: TaskState, item: InboxItem) -> e.Event:
    data = item.data
    try:
        asked = plan(
            state,
            data.get("to"),
            step=data.get("step"),
            force=bool(data.get("force")),
            by=data.get("by"),
        ).event
    except (TaskStateError, NotFound) as error:
        return e.CommandRejected("undo", str(error), item.item_id)
    asked.inbox = item.item_id
    return asked


def _settled(state: TaskState, item: InboxItem) -> e.Event:
    data = item.data
    request_id, verdict = str(data["request_id"]), data["verdict"]
    output, by = data.get("output"), data.get("by")
    if is_undo(request_id) and state.undo is not None:
        undone = state.find_call(undone_call(request_id))
        if undone is not None and undone.undo_status == "lost":
            return e.OutcomeSettled(undone.step, request_id, verdict, output, by, item.item_id)
    call = state.open_call(request_id)
    if call is None or call.status not in ("lost", "unresolved") or call.outcome is not None:
        return e.CommandRejected("settle", f"nothing is to be settled under {request_id}", item.item_id)
    return e.OutcomeSettled(call.step, call.id, verdict, output, by, item.item_id)
