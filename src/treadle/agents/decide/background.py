"""Calls in the background: their ends, and the treatment of open tickets when a task has answered.

option `at_end`     an answered task with open tickets
wait, suspend       waits until all are completed or expired, then continues with their results
detach              ends; a later result is stored with it
cancel              cancels them, and ends
"""

from __future__ import annotations

from treadle.agents.decide.rules import Rules
from treadle.core import events as e
from treadle.core.cut_outputs import SPEC
from treadle.core.effects import Wait
from treadle.core.ends import expired_end, observe, withdrawn_end
from treadle.core.labels import Label
from treadle.core.observation import READ_OUTPUT, as_text
from treadle.core.state import TaskState
from treadle.core.steps import CallState
from treadle.core.tickets import Completion


def completed_end(state: TaskState, rules: Rules) -> e.ToolEnded | None:
    """Return the end of the first call whose ticket was completed and whose tool no longer runs."""
    for call in state.completed.values():
        if call.status != "begun" and call.ticket is not None and call.ticket.completion is not None:
            return _end(call, call.ticket.completion, rules)
    return None


def _end(call: CallState, completion: Completion, rules: Rules) -> e.ToolEnded:
    if isinstance(completion, e.TicketExpired):
        return expired_end(call)
    label = delivered_label(call)
    if isinstance(completion, e.TicketFailed):
        failure = e.Failure("tool", "error", completion.error, call.id)
        return e.ToolEnded(call.step, call.id, "error", call.output, error=failure, label=label)
    end = e.ToolEnded(call.step, call.id, "ok", completion.output, label=label)
    reads_on = rules.tools.get(READ_OUTPUT) is SPEC
    return observe(end, as_text(completion.output), rules.max_chars, is_output=True, reads_on=reads_on)


def delivered_label(call: CallState) -> Label | None:
    """Return the label of a ticket holder's result: untrusted, even if the tool itself is trusted."""
    if call.label is None or call.label.integrity == "untrusted":
        return None  # the call has that label already
    return Label(call.label.origin, "untrusted")


def at_end(state: TaskState, rules: Rules) -> Wait | e.ToolEnded | None:
    """Return the action of an answered task with open tickets before it ends; None if it ends.

    A task that reached a limit does not wait, since it could not continue with the results.
    """
    if state.limit is not None or rules.at_end == "detach":
        return None
    if rules.at_end == "cancel":
        return withdrawn_end(next(iter(state.deferred.values())), "the task ended")
    return Wait("background", tuple(state.deferred.values()))
