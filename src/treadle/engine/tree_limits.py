"""Limits that a task shares with the tasks of its subagents.

The core enforces the limits of one task. Only the drive knows the total spending of a tree of tasks. So it checks the
limits here, just before an effect begins, and journals each refusal.
"""

from __future__ import annotations

from typing import Final

from treadle.core import events as e
from treadle.core.effects import CallModel
from treadle.core.ends import not_begun, withheld_end
from treadle.core.steps import CallState
from treadle.engine.effect_context import Subagents
from treadle.engine.journal_writer import Recorder

_NOUNS: Final = {
    "tool_calls": "tool calls",
    "children": "subagents, with those that they called,",
    "depth": "levels of subagents",
}


def allows_request(subagents: Subagents, effect: CallModel, record: Recorder) -> bool:
    """Return whether the tree may send one more request. If not, record that once other effects have ended."""
    reached = subagents.refused if not effect.final else None
    subagents.refused = None
    reached = reached or subagents.account.refuses_request(final=effect.final)
    if reached is not None:
        _record_reached(subagents, reached, record)
    return reached is None


def allows_call(subagents: Subagents, call: CallState, record: Recorder) -> bool:
    """Return whether the tree may make one more call, else refuse the call. A retry is counted already."""
    reached = subagents.account.refuses_call() if not call.attempt else None
    if reached is None:
        return True
    if subagents.state.graph is None:
        subagents.refused = reached
        refuse_call(call, reached, record)
    else:
        _record_reached(subagents, reached, record)
    return False


def refuse_call(call: CallState, reached: e.LimitReached, record: Recorder) -> None:
    """Record the end of a call that a limit stopped before its begin."""
    text = f"{not_begun(call)}: {refused_text(reached)}"
    record(withheld_end(call, "refused", e.Failure("limit", reached.limit, text, call.id)))


def refused_text(reached: e.LimitReached) -> str:
    """Return the text of a limit that stopped a call before its begin."""
    return f"the limit of {reached.allowed:g} {_NOUNS[reached.limit]} is reached."


def _record_reached(subagents: Subagents, reached: e.LimitReached, record: Recorder) -> None:
    if not (subagents.state.in_flight() and subagents.state.graph is not None):
        record(reached)
