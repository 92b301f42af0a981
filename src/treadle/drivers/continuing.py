"""Record changes in an owned task before it continues: a new attempt, a lifted stop, options, its inbox.

Commits outside of a drive, without a journal writer, are here too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from treadle.core import events as e
from treadle.core.messages import Json
from treadle.drivers.owned_tasks import OwnedTask
from treadle.engine.inbox import as_event, carry_out
from treadle.engine.options import RunOptions, from_json, to_json, was_raised
from treadle.errors import ChildTask
from treadle.ports import Commit, Committed, InboxItem, JournalStore, ThreadChange


async def commit(store: JournalStore, request: Commit) -> Committed:
    """Commit and return the store's answer once it is durable; raises the store's error."""
    answer: asyncio.Future[Committed] = asyncio.get_running_loop().create_future()

    def done(verdict: Committed | Exception) -> None:
        if answer.done():
            return  # the caller was cancelled
        if isinstance(verdict, Exception):
            answer.set_exception(verdict)
        else:
            answer.set_result(verdict)

    store.commit(request, done)
    return await answer


def check_not_a_child(task_id: str, parent: str | None) -> None:
    """Raise `ChildTask` for a task that goes on only with its parent."""
    if parent is not None:
        raise ChildTask(
            f"task {task_id} is a child of task {parent} and goes on only with it: resume task {parent}, or fork "
            "this one",
            task_id=task_id,
            parent=parent,
        )


async def reopen(
    store: JournalStore, owned: OwnedTask, reason: str, by: str | None = None, *, alone: bool = True
) -> None:
    """Reopen an ended task in a new attempt; its messages leave its thread in the same transaction.

    Raises `AlreadyFinalized` if newer messages follow its own, and `ChildTask` for a child without its parent.
    """
    state = owned.state
    if alone:
        check_not_a_child(state.task_id, state.parent)
    for item in await store.inbox(state.task_id):
        if item.kind not in ("complete", "fail"):
            owned.writer.dismiss(item.item_id)  # it was meant for the attempt that has ended
    change = ThreadChange("remove", state.thread) if state.thread_version else None
    event = e.TaskReopened(state.attempt + 1, reason, by)
    await owned.writer.commit_alone(event, "running", thread=change, release=False)


async def take_from_inbox(store: JournalStore, owned: OwnedTask, items: Sequence[InboxItem]) -> None:
    """Record items of a task's inbox before it is driven; skip items that were read meanwhile."""
    unread = {item.item_id for item in await store.inbox(owned.state.task_id)}
    for item in items:
        if item.item_id in unread:
            event = as_event(owned.state, item)
            owned.writer.record(event, item.item_id)
            carry_out(owned.writer, owned.state, event)


def lift_stop(owned: OwnedTask, by: str | None = None) -> None:
    """Lift a pause or an interrupt."""
    if owned.state.pausing or owned.state.interrupting:
        owned.writer.record(e.Resumed(by))


def change_options(owned: OwnedTask, options: RunOptions | None) -> None:
    """Record the options of a resume, which override the stored ones, even if they loosen them."""
    if options is None:
        return
    stored = owned.state.options
    document = dict(to_json(options.over(from_json(stored))) or {})
    if options.limits is not None:
        document["limits"] = (to_json(options) or {})["limits"]
    if options.limits is not None or was_raised(stored):
        document["raised"] = True
    if document != (stored or {}):
        owned.writer.record(e.OptionsChanged(document or None))


def options_of_fork(stored: Json, options: RunOptions | None) -> Json:
    """Return the stored options of a fork: those of its parent, overridden by the caller's."""
    if options is None:
        return stored
    document: dict[str, Any] = dict(to_json(options.over(from_json(stored))) or {})
    if was_raised(stored):
        document["raised"] = True
    return document or None
