"""Ending a task for good, or releasing it at rest for a later drive."""

from __future__ import annotations

from treadle.core import events as e
from treadle.core.state import TaskState
from treadle.engine.drive_spec import DriveSpec
from treadle.engine.journal_writer import JournalWriter
from treadle.ports import AT_ONCE, InboxWaiting, JournalStore, ThreadChange, ThreadMoved


async def end_task(
    store: JournalStore, writer: JournalWriter, state: TaskState, event: e.TaskEnded, *, keep_in_thread: bool
) -> bool:
    """End the task and change its thread in one transaction, or do neither; False if the inbox must be read first.

    Args:
        store: the store of the task.
        writer: the writer of its journal.
        state: its state.
        event: its end; the version of the thread is set here.
        keep_in_thread: whether the thread also keeps the messages of a failed or cancelled task.
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
    """Return whether messages that this task summarises were removed from its thread since the task was created."""
    _, at_start = await store.thread(state.thread, version=state.base)
    _, now = await store.thread(state.thread, version=version)
    covered = [[m for m in members if m.version <= state.covers] for members in (at_start, now)]
    return covered[0] != covered[1]


def adoption_due_at(
    state: TaskState,
    writer: JournalWriter,
    spec: DriveSpec,
    *,
    was_wanted: bool,
    goes_on: bool,
    hands_on: bool = False,
) -> int:
    """Return when a driver is to adopt the task, by the system's clock; 0 for never.

    Args:
        state: the state of the task.
        writer: the writer of its journal.
        spec: the specification of this drive.
        was_wanted: whether a driver was to adopt it before this drive.
        goes_on: whether an item arrived that requires another drive.
        hands_on: whether a caller wants another driver to go on.
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
        return 0  # the caller that steps the task continues it
    due = state.next_due()
    return writer.to_system_time(due) if due is not None else 0
