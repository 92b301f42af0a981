"""Changes of the tasks of a store, read from their rows; several changes of one task may become one."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from treadle.core.changed_tasks import ChangedTasks
from treadle.core.refused_uses import refuses
from treadle.drivers.owned_tasks import OwnedTasks
from treadle.errors import TaskNotFound
from treadle.ports import TaskFilter, TaskRow
from treadle.results.tasks import TaskSummary, summary
from treadle.runner.watching import Subscription

PAUSE_SECONDS: Final = 0.2
"""Seconds between two reads of changes; a task that changes more often is yielded once in that time."""

ROWS_AT_ONCE: Final = 16
"""Number of rows that are read before other work of the event loop gets its turn."""

REMEMBERED: Final = 2_000
"""The number of tasks whose last yielded state is cached."""

PAGE: Final = 200
"""Number of rows of a page when the changed tasks are unknown."""

SLACK: Final = 60_000_000
"""Microseconds by which the clocks of writing processes may differ."""


@refuses(
    iter="write `async for task in runner.changes()`; without asyncio, `for task in runner.sync.changes()`",
    await_="write `async for task in runner.changes()`",
)
class TaskChanges(Subscription[TaskSummary]):
    """The changing tasks of a store, each in its state after the change."""


class Changes:
    """Collects the tasks that change after its creation, in one event loop.

    Args:
        tasks: reports changes, here and in other processes.
        clock: microseconds since 1970, UTC.
        tenant: the tenant of the tasks.
    """

    def __init__(self, tasks: OwnedTasks, clock: Callable[[], int], tenant: str = "") -> None:
        self._tasks = tasks
        self._tenant = tenant
        self._clock = clock
        self._began = self._since = clock()
        """the time since which changes are unknown"""

        self._has_gap = False
        """whether tasks other than the noted ones may have changed since then"""

        self._loop = asyncio.get_running_loop()
        self._changed = ChangedTasks()
        self._deleted = set[str]()
        """the tasks that the store reports as deleted"""

        self._yielded: OrderedDict[str, TaskSummary] = OrderedDict()
        """the last summary yielded of each task"""

        self._news = asyncio.Event()
        self._stop: Callable[[], None] = tasks.on_changes(self._note_soon)

    def leave(self) -> None:
        """Stop collecting."""
        self._stop()

    def _note_soon(self, task_ids: Collection[str] | None, deleted: Collection[str]) -> None:
        with suppress(RuntimeError):  # the loop is closed, and its caller gone
            self._loop.call_soon_threadsafe(self._note, task_ids, deleted)

    def _note(self, task_ids: Collection[str] | None, deleted: Collection[str]) -> None:
        if task_ids is None:
            self._has_gap = True
        else:
            self._changed.add(task_ids)
        self._deleted.update(deleted)
        self._news.set()

    async def summaries(self) -> AsyncGenerator[TaskSummary, None]:
        """Yield each changed task in its state at the time of the read."""
        try:
            await self._tasks.cache.open()
            self._tasks.watch_store()
            while True:
                await self._news.wait()
                self._news.clear()
                for summary in await self._changes():
                    yield summary
                await asyncio.sleep(PAUSE_SECONDS)
        finally:
            self.leave()

    async def _changes(self) -> list[TaskSummary]:
        """Return new summaries of the tasks that may have changed, and of deleted tasks."""
        changed, now = self._changed.take(), self._clock()
        deleted, self._deleted = self._deleted, set[str]()
        has_gap, self._has_gap = self._has_gap or changed is None, False
        rows = await self._rows(changed or ())
        if has_gap:
            rows += await self._newer(self._since)
            self._since = max(
                self._began, now - SLACK
            )  # `_is_new` drops the changes that were yielded already
        there = {row.task_id for row in rows}
        # A new task may have no row yet. So only a task that was yielded, or named as deleted, can be gone.
        missing = deleted | (self._yielded.keys() if has_gap else self._yielded.keys() & (changed or ()))
        gone = await self._gone(missing - there)
        return [each for each in (*map(summary, rows), *map(self._deletion, gone)) if self._is_new(each)]

    def _is_new(self, summary: TaskSummary) -> bool:
        """Whether a summary differs from the last one that was yielded; it counts as yielded from now on."""
        before = self._yielded.get(summary.task_id)
        if before is not None and _shown(before) == _shown(summary):
            return False
        self._yielded[summary.task_id] = summary
        self._yielded.move_to_end(summary.task_id)
        if len(self._yielded) > REMEMBERED:
            self._yielded.popitem(last=False)
        return True

    def _deletion(self, task_id: str) -> TaskSummary:
        """Return the summary of a deleted task: its last one, if one was yielded."""
        before = self._yielded.get(task_id)
        if before is None:
            return TaskSummary(
                task_id, "", "", "created", False, 0, None, {}, tenant=self._tenant, deleted=True
            )
        return replace(before, driven=False, driver=None, deleted=True)

    async def _gone(self, task_ids: Collection[str]) -> list[str]:
        gone: list[str] = []
        for number, task_id in enumerate(sorted(task_ids), 1):
            try:
                await self._tasks.store.row(task_id)
            except TaskNotFound:
                gone.append(task_id)
            if number % ROWS_AT_ONCE == 0:
                await asyncio.sleep(0)
        return gone

    async def _rows(self, task_ids: Collection[str]) -> list[TaskRow]:
        """Return the rows of those tasks that exist."""
        rows: list[TaskRow] = []
        for number, task_id in enumerate(task_ids, 1):
            with suppress(TaskNotFound):  # it was deleted
                rows.append(await self._tasks.store.row(task_id))
            if number % ROWS_AT_ONCE == 0:
                await asyncio.sleep(0)
        return rows

    async def _newer(self, since: int) -> list[TaskRow]:
        """Return the rows of tasks with an event since a time, or with a driver."""
        task_filter, rows = TaskFilter(updated_since=since, limit=PAGE), list[TaskRow]()
        while page := await self._tasks.store.rows(task_filter):
            rows += page
            task_filter.cursor = page[-1].cursor
        return rows


def _shown(summary: TaskSummary) -> Any:
    """Return the facts whose change is yielded, without the driver's lease, which is renewed all the time."""
    return replace(summary, driver=None), summary.driver and summary.driver.driver_id
