"""Invariants of background calls: each ends once, and its model receives each result once.

Pure functions that return violations, like those of `treadle.testing.audit.folds`, from the state after an event.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from treadle.core import events as e
from treadle.core.ids import base_call_id
from treadle.core.render import input_message
from treadle.core.state import TaskState
from treadle.testing.audit.events import Violation


def delivered_once(task: str, seq: int, state: TaskState) -> Iterator[Violation]:
    """Check that deferred calls are open, and that each later result is read at most once and not lost."""
    if not state.tickets:
        return
    steps = (*state.steps, *state.under_way())
    calls = [call for step in steps for call in step.calls]
    deferred = {call.id for call in calls if call.status == "deferred"}
    if deferred != set(state.deferred):
        text = f"in the background are {sorted(state.deferred)}, not {sorted(deferred)}"
        yield Violation("prefix_folds", task, seq, text)
    unread = [id(received) for received in state.unread]
    # An earlier task of the thread may have received an equal result of a call with the same name.
    own_messages = state.messages[len(state.history) : len(state.messages) - state.closing]
    tickets = [call.ticket for call in calls if call.ticket is not None]
    # Two results may be equal, since guardrails may have rewritten both.
    read = [input_message(ticket.arrival) for ticket in tickets if ticket.arrival is not None and ticket.read]
    for call in calls:
        ticket = call.ticket
        if ticket is None or ticket.arrival is None:
            continue
        message = input_message(ticket.arrival)
        times = own_messages.count(message), unread.count(id(ticket.arrival))
        if call.outcome is None or times != (read.count(message), 0 if ticket.read else 1):
            text = f"the result of {call.id} is {times[0]} times in the conversation, {times[1]} times unread"
            yield Violation("delivered_once", task, seq, text)


def told_by_tickets(task: str, events: Iterable[e.Event]) -> Iterator[Violation]:
    """Check that a ticket is completed at most once, before its call ends, and the call ends accordingly."""
    ticket_ends: dict[str, e.TicketCompleted | e.TicketFailed | e.TicketExpired] = {}
    issued: set[str] = set()
    ended: set[str] = set()
    for event in events:
        problem: str | None = None
        if isinstance(event, e.TicketIssued):
            issued.add(base_call_id(event.call))
        elif isinstance(event, (e.TicketCompleted, e.TicketFailed, e.TicketExpired, e.CallDeferred)):
            if base_call_id(event.call) not in issued:
                problem = f"{event.kind} of {event.call}, which has no ticket"
            elif event.call in ended:
                problem = f"{event.kind} of {event.call}, which has ended"
            if not isinstance(event, e.CallDeferred):
                if event.call in ticket_ends:
                    problem = f"{event.call} is completed a second time, by {event.kind}"
                ticket_ends[event.call] = event
        elif isinstance(event, e.ToolEnded):
            ended.add(event.call)
            completed = ticket_ends.get(event.call)
            if isinstance(completed, e.TicketCompleted) and event.outcome != "ok":
                problem = f"{event.call} was completed, and ends as {event.outcome}"
        if problem is not None:
            yield Violation("delivered_once", task, event.seq, problem)
