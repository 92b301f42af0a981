"""The outside effects of the children of open calls, read from their journals.

Only the drive of its parent drives a child. So while no effect of the parent runs, its children are at rest, and their
journals do not change.
"""

from __future__ import annotations

from treadle.agents.decide.calls import may_have_acted
from treadle.core.journal import events_with_epochs
from treadle.core.state import TaskState, start
from treadle.engine import loading
from treadle.errors import JournalCorrupt, TaskNotFound, TaskTooNew
from treadle.ports import JournalReader
from treadle.results.steps import all_steps


async def harmless_children(store: JournalReader, state: TaskState) -> frozenset[str]:
    """Return the ids of open agent calls whose children, and the calls below those, cannot have changed anything."""
    calls = [call for call in state.open_children() if not call.acted]
    return frozenset([call.id for call in calls if await _is_harmless(store, str(call.child))])


async def _is_harmless(store: JournalReader, task_id: str) -> bool:
    child = start(task_id)
    try:
        for epoch, event in events_with_epochs(task_id, await store.read(task_id)):
            loading.apply_checked(child, event, epoch)
    except TaskNotFound:
        return True  # it was not created yet
    except (JournalCorrupt, TaskTooNew):
        return False
    below = await harmless_children(store, child)
    calls = [call for step in all_steps(child) for call in step.calls]
    return child.unknown is None and not any(may_have_acted(call) and call.id not in below for call in calls)
