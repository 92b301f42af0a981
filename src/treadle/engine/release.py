"""How a drive leaves its task: ended for good, or released at rest for a later drive."""

from __future__ import annotations

from treadle.core import events as e
from treadle.core.state import TaskState
from treadle.engine.drive_spec import DriveSpec
from treadle.engine.journal_writer import JournalWriter
from treadle.ports import AT_ONCE, InboxWaiting, JournalStore, ThreadChange, ThreadMoved


async def end_task(
    store: JournalStore, writer: JournalWriter, state: TaskState, event: e.TaskEnded, *, keep_in_thread: bool
) -> bool:
    """End the task and change its thread in one transaction, or neither; False when the inbox is to be read first.

    `event` is the end as decided; the version of the thread is set here. With `keep_in_thread` the thread keeps the
    messages of a task that failed or was cancelled, too.
    """
    keeps = event.state in ("completed", "degraded") or keep_in_thread
    if state.covers:
        keeps = event.state == "completed"
    event.kept = keeps and event.state in ("failed", "cancelled")
    if keeps and event.thread_version == 0:
        event.thread_version = state.base + 1
    while True:
        version = event.thread_version - 1
        change = ThreadChange("add", state.thread, version, state.covers) if keeps else None
        try:
            await writer.commit_alone(event, event.state, thread=change, seal=True)
        except ThreadMoved as moved:
            # Another task ended in the thread first: the messages of this one follow.
            event.thread_version = moved.version + 1
            if state.covers and await _is_stale(store, state, moved.version):
                text = "words that it summarises were taken out of the thread meanwhile"
                failed = e.TaskEnded("failed", None, e.Failure("agent", "stale", text))
                return await end_task(store, writer, state, failed, keep_in_thread=keep_in_thread)
            continue
        except InboxWaiting:
            return False
        return True


async def _is_stale(store: JournalStore, state: TaskState, version: int) -> bool:
    """Return whether messages that this task summarises were taken out of its thread since the task was made."""
    _, at_start = await store.thread(state.thread, version=state.base)
    _, now = await store.thread(state.thread, version=version)
    covered = [[m for m in members if m.version <= state.covers] for members in (at_start, now)]
    return covered[0] != covered[1]


def wanted_from(
    state: TaskState,
    writer: JournalWriter,
    spec: DriveSpec,
    *,
    was_wanted: bool,
    goes_on: bool,
    hands_on: bool = False,
) -> int:
    """Return from when on adoption is to drive the task again, by the system's clock; 0 for not at all.

    `was_wanted` says that it was to be driven again before this drive, `goes_on` that something arrived for which it is
    to be driven on, and `hands_on` that a caller asked for another driver to go on.
    """
    if state.ended is not None or state.pausing:
        return 0
    if state.interrupting:
        return AT_ONCE if state.shutdown else 0
    if hands_on and spec.goal != "end":
        return AT_ONCE
    if spec.goal == "attend" and goes_on:
        return AT_ONCE
    if spec.goal in ("step", "attend") and not was_wanted:
        return 0  # the caller who steps the task drives it on
    due = state.next_due()
    return writer.to_system_time(due) if due is not None else 0
