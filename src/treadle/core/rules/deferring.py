"""How events change a call with a ticket. Rules of `fold`.

A deferred call of a plain step does not block the task. Its entry among the results says that it continues in the
background. Its own result follows as input for the next step, unless it came before those results were written. So the
model gets each result once: in the results of its step, or as input. In a task of step functions the call stays open,
and its function waits for it.

    results of the step not written yet       the result is one of them
    written                                   input (`Ticket.arrival`), read by the next step that starts
    and the task has answered                 the same, once no other ticket is open: the task then goes on
    and the task has ended                    the same, stored: read if the task is reopened
"""

from __future__ import annotations

from treadle.core import events as e
from treadle.core.events import IllegalEvent
from treadle.core.render import late_result
from treadle.core.state import TaskState, not_allowed, open_call_of
from treadle.core.steps import CallState, StepState
from treadle.core.tickets import Completion, Ticket


def issue(state: TaskState, event: e.TicketIssued) -> None:
    """Record the digest of the ticket of a starting call."""
    call = open_call_of(state, event)
    if call.status != "proposed":
        raise not_allowed(state, event, call.status)
    if call.ticket is None:
        call.ticket = Ticket()
    state.tickets[event.ticket] = call


def defer(state: TaskState, step: StepState, call: CallState, event: e.CallDeferred) -> None:
    """Record that a call continues in the background. Its start returned, so its effect is not in doubt."""
    if call.status != "begun" or call.ticket is None:
        raise not_allowed(state, event, call.status)
    ticket = call.ticket
    ticket.seq, ticket.expires, ticket.details = event.seq, event.expires, event.details
    call.status, call.output, call.cut_off = "deferred", event.details, 0
    call.label = event.label or call.label
    state.deferred[call.id] = call
    if state.graph is None:
        del step.open[call.id]


def report(state: TaskState, event: e.TicketProgressed) -> None:
    """Record the progress of the work."""
    _of_ticket(state, event)[1].progress = event.value


def complete(state: TaskState, event: e.TicketCompleted | e.TicketFailed) -> None:
    """Record the end of the work. The end of its call follows as an event of its own."""
    call, ticket = _of_ticket(state, event)
    ticket.completion = event
    state.completed[call.id] = call


def expire(state: TaskState, event: e.TicketExpired) -> None:
    """Record the expiry of a ticket. Its time must have come."""
    call, ticket = _of_ticket(state, event)
    if call.status != "deferred" or event.time < ticket.expires:
        raise IllegalEvent(f"task {state.task_id}: the ticket of {call.id} has not expired")
    ticket.completion = event
    state.completed[call.id] = call


def end(state: TaskState, step: StepState, call: CallState, ticket: Ticket, event: e.ToolEnded) -> bool:
    """Record the end of a call with a ticket. Return True if the results of its step do not wait for it."""
    state.completed.pop(call.id, None)
    if state.deferred.pop(call.id, None) is None or state.graph is not None:
        return False
    if ticket.completion is not None and not (step is state.step and step.open):
        ticket.arrival = e.InputReceived(late_result(call), observation=True, seq=event.seq, time=event.time)
        state.arrived.append(call)
        state.unread.append(ticket.arrival)
    return True


def note_read(state: TaskState, seq: int) -> None:
    """Record that a step reads all results that have arrived."""
    for call in state.arrived:
        if call.ticket is not None and not call.ticket.read:
            call.ticket.read = seq


def withdraw(state: TaskState, step: StepState) -> None:
    """Withdraw the unread results of a step, which will be among the results of its next attempt."""
    for call in step.calls:
        ticket = call.ticket
        if ticket is not None and ticket.arrival is not None and not ticket.read:
            state.unread.remove(ticket.arrival)
            state.arrived.remove(call)
            ticket.arrival = None


def carry_over(state: TaskState, call: CallState, again: CallState) -> None:
    """Let the tickets of a failed call end the call that repeats it, since the work may have continued."""
    ticket = call.ticket
    if ticket is None or isinstance(ticket.completion, (e.TicketCompleted, e.TicketFailed)):
        return
    again.ticket = Ticket()
    for digest, holder in state.tickets.items():
        if holder is call:
            state.tickets[digest] = again


def returned_results(state: TaskState, after: int, kept_steps: set[str]) -> list[e.InputReceived]:
    """Return the results of kept steps that no step up to an event has read.

    Args:
        state: the state without the undone steps.
        after: the last event that stays.
        kept_steps: the ids of the steps that stay.
    """
    state.arrived = [call for call in state.arrived if call.step in kept_steps]
    again: list[e.InputReceived] = []
    for call in state.arrived:
        ticket = call.ticket
        if ticket is not None and ticket.arrival is not None and (not ticket.read or ticket.read > after):
            ticket.read = 0
            again.append(ticket.arrival)
    return again


def is_arrival(state: TaskState, received: e.InputReceived) -> bool:
    """Return whether input is the result of a background call."""
    # Not by identity: guardrails may have replaced the input in a checkpoint.
    arrivals = (call.ticket.arrival for call in state.arrived if call.ticket is not None)
    return any(arrival is not None and arrival.seq == received.seq for arrival in arrivals)


def _of_ticket(state: TaskState, event: Completion | e.TicketProgressed) -> tuple[CallState, Ticket]:
    """Return an open call with a ticket that is not completed."""
    call = open_call_of(state, event)
    ticket = call.ticket
    if ticket is None or ticket.completion is not None or call.outcome is not None:
        raise not_allowed(state, event, call.status)
    return call, ticket
