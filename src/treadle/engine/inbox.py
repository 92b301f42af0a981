"""A task's inbox, whose commands and messages become events. Only the task's owner records them.

An event names its inbox item, and the commit that stores the event removes the item. So each item has its effect once,
however often drivers crash.

A command that fits every open task is described by the class of its event: see `CommandEvent`. A decision refers to the
state of the task, and a function here makes its event.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sized
from dataclasses import fields
from typing import Final, Protocol, TypeAlias

from treadle.core import events as e
from treadle.core.codec import END_OF_TIME, check_fit, event_of
from treadle.core.ids import approved_call, is_undo, undone_call
from treadle.core.json_schema import misfit
from treadle.core.permits import STANDING, standing_grant
from treadle.core.state import TaskState
from treadle.engine.approval_binding import may_decide
from treadle.engine.effect_context import Subagents
from treadle.engine.journal_writer import JournalWriter, Recorder
from treadle.engine.undo_plan import harmless_children, plan
from treadle.errors import NotFound, TaskStateError
from treadle.ports import AT_ONCE, InboxItem, JournalStore

SURVIVED: Final = e.DriverSurvived.command
"""The kind of item by which a driver that lost a task reports that it is alive."""

NOTED: Final = "noted"
"""The kind of item by which the owner of a task notes the id of its own command."""

CHILD_ITEM: Final = "child"
"""The kind of item by which a task learns that a child can continue."""


_LIFTS_A_WAIT: Final = (e.OutcomeSettled, e.ApprovalGiven, e.ApprovalDenied, e.QuestionAnswered)
"""Decisions of people that continue a task at rest."""


class InboxReader:
    """Reads the inbox of a task that is driven here.

    Args:
        running: the effects that run.
        subagents: the children of the task, if its agent may call others.
        was_wanted: when a driver was to adopt the task, by the system's clock. 0: never.
    """

    def __init__(
        self,
        store: JournalStore,
        writer: JournalWriter,
        state: TaskState,
        running: Sized,
        subagents: Subagents | None,
        *,
        was_wanted: int,
    ) -> None:
        self._store = store
        self._writer = writer
        self._state = state
        self._running = running
        self.subagents = subagents
        self.is_unread = not writer.is_new
        """whether items may have arrived; set from any thread"""

        self.undo_waits = False
        """whether an undo waits for the effects that run"""

        first_due = state.next_due() if was_wanted > AT_ONCE else None
        self._clock_skew = was_wanted - first_due if first_due is not None else None
        """system time minus task time, in microseconds, at the due time of the task; None if it waited for no timer"""

        self._seq_at_start = state.seq
        self.goes_on = was_wanted == AT_ONCE
        """whether an item arrived that requires another drive after this one"""

        self.hands_on = False
        """whether a caller wants another driver to go on after this drive, also after a single step"""

    async def read(self, record: Recorder) -> bool:
        """Record an event for each item of the inbox. Return True if an undo is to begin."""
        self.is_unread = self.undo_waits = begins_undo = is_noted = False
        writer, state = self._writer, self._state
        for item in await self._store.inbox(state.task_id):
            if item.item_id in writer.taken:
                continue
            if state.ended is not None and not self._is_of_open_ticket(item):
                # Events must not follow the end, and a late command must not wait for the next attempt.
                writer.dismiss(item.item_id)
            elif self._running and (item.kind == "undo" or (self.undo_waits and item.kind == "send")):
                self.undo_waits = True  # so does a message that was sent after it
            elif item.kind == NOTED:
                writer.dismiss(item.item_id)  # it was refused, or its caller crashed, so it may be sent again
                is_noted = True
            elif item.kind == CHILD_ITEM:
                writer.dismiss(item.item_id)
                self.goes_on = True
                if self.subagents is not None:
                    self.subagents.resting.discard(str(item.data.get("call")))
            else:
                harmless = await harmless_children(self._store, state) if item.kind == "undo" else ()
                event = as_event(state, item, self._expiry, harmless)
                if type(event) is e.UndoRequested:
                    if state.pausing or state.interrupting:
                        writer.record(e.Resumed(event.by))
                    begins_undo = True
                record(event, item.item_id)
                carry_out(writer, state, event)
                self.goes_on = self.goes_on or type(event) in _LIFTS_A_WAIT or self._lifts(event)
                if item.kind == "resume" and item.data.get("wanted"):
                    self.hands_on = type(event) is e.Resumed
        if is_noted:
            writer.flush_dismissed()  # a caller may wait for it
        return begins_undo

    def _expiry(self, expiring: Expiring) -> int:
        """Return when a request or ticket expires by the system's clock, which may have changed meanwhile."""
        if expiring.expires is None:
            return END_OF_TIME
        if self._clock_skew is not None and expiring.seq <= self._seq_at_start:
            return expiring.expires + self._clock_skew
        return self._writer.to_system_time(expiring.expires)

    def _is_of_open_ticket(self, item: InboxItem) -> bool:
        """Whether an item reports on background work that outlived its task."""
        if item.kind not in ("complete", "fail", "progress"):
            return False
        return not isinstance(as_event(self._state, item, self._expiry), e.CommandRejected)

    def _lifts(self, event: e.Event) -> bool:
        """Whether this event continues the task, because it completes the ticket that the task waited for."""
        state = self._state
        if not isinstance(event, (e.TicketCompleted, e.TicketFailed)) or state.ended is not None:
            return False
        return state.graph is not None or (state.answered and state.deferred.keys() <= state.completed.keys())

    @property
    def is_due(self) -> bool:
        """Whether to read the inbox now, since items may have arrived or an undo can begin."""
        return self.is_unread or (self.undo_waits and not self._running)


class Expiring(Protocol):
    """A request to a person or a ticket, which may expire."""

    @property
    def seq(self) -> int:
        """Number of the event that set its expiry."""
        ...

    @property
    def expires(self) -> int | None:
        """Microseconds since 1970, UTC. Return None for never."""
        ...


ExpiryOf: TypeAlias = Callable[[Expiring], int]
"""Returns when a request or ticket expires, by the clock of inbox items."""


def _as_written(expiring: Expiring) -> int:
    return END_OF_TIME if expiring.expires is None else expiring.expires


def as_event(
    state: TaskState, item: InboxItem, expiry_of: ExpiryOf = _as_written, harmless: Container[str] = ()
) -> e.Event:
    """Return the event for an inbox item in this state, `CommandRejected` if the item does not apply.

    Args:
        state: the task.
        item: the item.
        expiry_of: returns when a request or ticket expires.
        harmless: for an undo, the calls that changed nothing, as in `undo_plan.plan`.
    """
    try:
        event = _event(state, item, expiry_of, harmless)
        check_fit(event)
        return event
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        # Another program or version wrote it, and it must not fail the task at each read of the inbox.
        return e.CommandRejected(item.kind, f"it cannot be read: {error!r}", item.item_id)


def _event(state: TaskState, item: InboxItem, expiry_of: ExpiryOf, harmless: Container[str]) -> e.Event:
    data, cls = item.data, e.COMMANDS.get(item.kind)
    if (expect := data.get("expect")) is not None and expect != state.seq:
        return e.CommandRejected(
            item.kind,
            f"event {state.seq} is the last of the journal, and event {expect} was expected",
            item.item_id,
        )
    if state.cancelling and not (cls is not None and cls.while_cancelling):
        return e.CommandRejected(item.kind, "the task is being cancelled", item.item_id)
    if cls is not None:
        names = {field.name for field in fields(cls)} & data.keys()
        return event_of(cls, {**{name: data[name] for name in names}, "inbox": item.item_id})
    match item.kind:
        case "settle":
            return _settled(state, item)
        case "approve" | "deny":
            return _decided(state, item, expiry_of)
        case "answer":
            return _answered(state, item, expiry_of)
        case "complete" | "fail" | "progress":
            return _ticket_report(state, item, expiry_of)
        case "undo":
            return _undone(state, item, harmless)
        case _:
            return e.CommandRejected(item.kind, "this version does not know the command", item.item_id)


def _undone(state: TaskState, item: InboxItem, harmless: Container[str]) -> e.Event:
    data = item.data
    try:
        request = plan(
            state,
            data.get("to"),
            step=data.get("step"),
            force=bool(data.get("force")),
            by=data.get("by"),
            harmless=harmless,
        ).event
    except (TaskStateError, NotFound) as error:
        return e.CommandRejected("undo", str(error), item.item_id)
    request.inbox = item.item_id
    return request


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


def _decided(state: TaskState, item: InboxItem, expiry_of: ExpiryOf) -> e.Event:
    """Return the decision on a call, `CommandRejected` if the request is decided, expired or foreign."""
    data, request_id, by = item.data, str(item.data["request_id"]), item.data.get("by")
    target = approved_call(request_id)
    call = state.open_approvals.get(target[0]) if target is not None else None
    request = call.permit.request if call is not None and call.permit is not None else None
    if call is None or request is None or target is None or request.number != target[1]:
        reason = f"no approval is pending under {request_id}"
    elif item.created >= expiry_of(request):
        reason = f"the request {request_id} has expired"
    elif not may_decide(request, by):
        reason = f"{by or 'a caller without a name'} may not decide on {request_id}"
    elif item.kind == "deny":
        reason, stop = data.get("reason"), bool(data.get("stop"))
        return e.ApprovalDenied(call.step, call.id, request.number, reason, by, item.item_id, stop)
    else:
        arguments = data.get("arguments")
        previous = call.arguments if arguments is not None else None
        scope, same = data.get("scope", "once"), tuple(data.get("same") or ())
        return e.ApprovalGiven(
            call.step, call.id, request.number, scope, arguments, previous, by, item.item_id, same
        )
    return e.CommandRejected(item.kind, reason, item.item_id)


def _answered(state: TaskState, item: InboxItem, expiry_of: ExpiryOf) -> e.Event:
    """Return the answer to a question, `CommandRejected` if the question is answered, expired or foreign."""
    data, request_id = item.data, str(item.data["request_id"])
    question = state.questions.get(request_id)
    if question is None:
        reason = f"no question is pending under {request_id}"
    elif item.created >= expiry_of(question.event):
        reason = f"the question {request_id} has expired"
    elif (wrong := misfit(data["value"], question.event.schema)) is not None:
        reason = f"the answer to {request_id} does not fit: {wrong}"
    else:
        event = question.event
        value, by = data["value"], data.get("by")
        return e.QuestionAnswered(event.step, event.call, event.number, value, by, item.item_id)
    return e.CommandRejected(item.kind, reason, item.item_id)


def carry_out(writer: JournalWriter, state: TaskState, event: e.Event) -> None:
    """Carry out the side effects of a recorded decision: store a grant, or cancel the task.

    The store writes both in the transaction of the decision.
    """
    if isinstance(event, e.ApprovalDenied) and event.stop:
        writer.record(e.CancelRequested(event.by, f"{event.tool} was denied{_because(event.reason)}"))
    if not isinstance(event, e.ApprovalGiven) or event.scope not in STANDING:
        return
    call = state.open_call(event.call) or state.checks.get(event.call)
    request = call.permit.request if call is not None and call.permit is not None else None
    grant = standing_grant(state, request, event) if request is not None else None
    if grant is not None:
        writer.grant(grant)


def _ticket_report(state: TaskState, item: InboxItem, expiry_of: ExpiryOf) -> e.Event:
    """Return the report of a ticket's holder, `CommandRejected` if the call has ended or expired."""
    data, by, inbox = item.data, item.data.get("by"), item.item_id
    call = state.tickets.get(str(data["ticket"]))
    ticket = call.ticket if call is not None else None
    if call is None or ticket is None:
        reason = "the ticket is none of this task's"
    elif ticket.completion is not None or call.outcome is not None:
        reason = f"the call {call.id} has ended"
    elif ticket.seq and item.created >= expiry_of(ticket):
        reason = f"the ticket of call {call.id} has expired"
    elif item.kind == "progress":
        return e.TicketProgressed(call.step, call.id, data.get("value"), by, inbox)
    elif item.kind == "fail":
        return e.TicketFailed(call.step, call.id, str(data["error"]), by, inbox)
    else:
        return e.TicketCompleted(call.step, call.id, data.get("value"), by, inbox)
    return e.CommandRejected(item.kind, reason, inbox)


def _because(reason: str | None) -> str:
    return f": {reason}" if reason else ""
