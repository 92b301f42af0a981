"""The end of an undo: the beginning of the new branch, with or without a graph. Rules of `fold`."""

from __future__ import annotations

from treadle.core.events import Rewound
from treadle.core.observation import answer_text
from treadle.core.rules import guardrails
from treadle.core.state import TaskState
from treadle.core.steps import StepState


def end(state: TaskState, event: Rewound, gone: set[str], last: StepState | None) -> None:
    """Begin the branch after an undo.

    Args:
        state: the task, without the undone steps and their messages.
        event: the end of the undo.
        gone: the ids of the undone steps.
        last: the last step that stays.
    """
    if state.extra_state is not None:
        state.extra_state.take_back(gone)
    if state.cut:
        state.cut = {call_id: call for call_id, call in state.cut.items() if call.step not in gone}
    if state.checks:
        guardrails.take_back(state, gone)
    state.branch, state.last_undo, state.undo = event.branch, event.calls, None
    state.error = state.limit = None
    state.answered = last is not None and last.last and not state.unread
    state.output = last.output if last is not None and state.answered else None
    state.output_text = answer_text(state.output)
    if state.grants:
        state.grants = [grant for grant in state.grants if state.find_call(grant.call) is not None]
