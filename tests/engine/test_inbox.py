"""Inbox items as the events that the owner of the task records: item by item, without a runner."""

from typing import Any

import pytest

from tests.agents.stories import answered, began, ended, lost, state_after, step
from treadle.core import events as e
from treadle.core.codec import encode_part
from treadle.core.messages import Text
from treadle.core.state import TaskState
from treadle.engine.inbox import as_event
from treadle.ports import InboxItem

BOOKED: list[Any] = [step(), answered("book", "book"), began(0, name="book"), ended(0), began(1, name="book")]
DONE: list[Any] = [*BOOKED, ended(1)]
UNDOING: list[Any] = [*DONE, e.UndoRequested(0, ("s1",), ("s1-1", "s1-0"))]
LOST_UNDO: list[Any] = [
    *UNDOING,
    e.ToolStarted("s1", "s1-1-undo", "write", 1, undoes="s1-1"),
    e.ToolStopped("s1", "s1-1-undo", "crash"),
]


def inbox_item(kind: str, **data: Any) -> InboxItem:
    return InboxItem("i", kind, data, 1)


def settled(request: str, verdict: str = "happened", **data: Any) -> InboxItem:
    return inbox_item("settle", request_id=request, verdict=verdict, **data)


@pytest.mark.parametrize(
    ("item", "event"),
    [
        (inbox_item("cancel", by="ann", reason="why"), e.CancelRequested("ann", "why", "i")),
        (inbox_item("interrupt", by="ann", reason="why"), e.InterruptRequested("ann", "why", "i")),
        (inbox_item("pause", by="ann", reason="why"), e.PauseRequested("ann", "why", "i")),
        (inbox_item("resume", by="ann"), e.Resumed("ann", "i")),
        (inbox_item("survived", epoch=7), e.DriverSurvived(7, "i")),
        (
            inbox_item("send", parts=[encode_part(Text("hi"))], role="system", observation=False, by="ann"),
            e.InputReceived((Text("hi"),), "system", False, "ann", "i"),
        ),
        (
            inbox_item("send", parts=[encode_part(Text("hi"))], role="user", observation=True),
            e.InputReceived((Text("hi"),), "user", True, None, "i"),
        ),
    ],
    ids=lambda value: getattr(value, "kind", None),
)
def test_a_command_becomes_an_event_with_its_sender_reason_and_inbox_item(
    item: InboxItem, event: e.Event
) -> None:
    assert as_event(state_after(), item) == event


def test_an_undo_event_names_the_kept_step_its_force_and_its_sender() -> None:
    event = as_event(state_after(*DONE), inbox_item("undo", to=0, force=True, by="ann"))
    assert event == e.UndoRequested(0, ("s1",), ("s1-1", "s1-0"), True, "ann", "i")


@pytest.mark.parametrize(
    ("state", "item", "event"),
    [
        (
            state_after(step(), answered("save"), lost()),
            settled("s1-0", output={"id": 7}, by="ann"),
            e.OutcomeSettled("s1", "s1-0", "happened", {"id": 7}, "ann", "i"),
        ),
        (
            state_after(step(), answered("pay"), lost(name="pay"), e.OutcomeUnresolved("s1", "s1-0")),
            settled("s1-0", "not_happened"),
            e.OutcomeSettled("s1", "s1-0", "not_happened", None, None, "i"),
        ),
        (
            state_after(*LOST_UNDO),
            settled("s1-1-undo", by="ann"),
            e.OutcomeSettled("s1", "s1-1-undo", "happened", None, "ann", "i"),
        ),
    ],
    ids=["a lost call", "a call its tool knew nothing of", "a lost compensation"],
)
def test_a_settlement_settles_the_call_it_names(state: TaskState, item: InboxItem, event: e.Event) -> None:
    assert as_event(state, item) == event


SETTLED = e.OutcomeSettled("s1", "s1-0", "happened", "saved")


@pytest.mark.parametrize(
    ("state", "item"),
    [
        (state_after(), settled("s1-0")),
        (state_after(*BOOKED), settled("s1-1")),
        (state_after(*DONE), settled("s1-1")),
        (state_after(step(), answered("save"), lost(), SETTLED), settled("s1-0", "not_happened")),
        (state_after(*UNDOING), settled("s1-1-undo")),
        (state_after(*LOST_UNDO), settled("s1-0-undo")),
        (state_after(*LOST_UNDO, e.OutcomeSettled("s1", "s1-1-undo", "happened")), settled("s1-1-undo")),
    ],
    ids=["no call", "running", "ended", "settled", "not begun to undo", "another's undo", "settled undo"],
)
def test_a_settlement_of_a_call_whose_outcome_is_known_is_rejected_on_record(
    state: TaskState, item: InboxItem
) -> None:
    event = as_event(state, item)
    assert isinstance(event, e.CommandRejected)
    assert (event.command, event.inbox) == ("settle", "i")


@pytest.mark.parametrize("kind", ["interrupt", "pause", "resume", "settle", "undo"])
def test_a_task_being_cancelled_rejects_commands_and_keeps_messages(kind: str) -> None:
    state = state_after(step(), e.CancelRequested())
    assert isinstance(as_event(state, inbox_item(kind, parts=[])), e.CommandRejected)
    assert as_event(state, inbox_item("cancel")) == e.CancelRequested(inbox="i")
    assert as_event(state, inbox_item("send", parts=[])) == e.InputReceived((), inbox="i")
    assert as_event(state, inbox_item("survived", epoch=1)) == e.DriverSurvived(1, "i")


@pytest.mark.parametrize(
    "item",
    [
        inbox_item("dance"),
        inbox_item("send"),
        inbox_item("send", parts=5),
        inbox_item("send", parts=[7]),
        inbox_item("send", parts=[{"p": "image", "data": "x"}]),
        inbox_item("settle", verdict="happened"),
        inbox_item("survived", epoch="often"),
        inbox_item("survived", epoch=None),
        inbox_item("undo", to=9),
        inbox_item("undo", to="s9"),
        InboxItem("i", "pause", None, 1),  # type: ignore[arg-type]
    ],
    ids=lambda item: f"{item.kind} {item.data}",
)
def test_an_inbox_item_that_cannot_be_read_is_rejected_on_record(item: InboxItem) -> None:
    event = as_event(state_after(*DONE), item)
    assert isinstance(event, e.CommandRejected), event
    assert (event.command, event.inbox) == (item.kind, "i")
