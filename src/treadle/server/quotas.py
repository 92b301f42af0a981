"""Counts for limits: unfinished tasks of a tenant, and waiting requests of a principal."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from itertools import takewhile
from typing import Final, get_args
from weakref import WeakValueDictionary

from treadle.core.data import mutable
from treadle.core.events import END_STATES
from treadle.results.states import StateWord
from treadle.runner.runner import TaskRunner
from treadle.server.problems import Problem

COUNT_SECONDS: Final = 2.0
"""Seconds that a count is updated before tasks are counted again: a count reads all rows of the tenant."""

UNFINISHED: Final = tuple([state for state in get_args(StateWord) if state not in END_STATES])


@mutable
class _Count:
    tasks: int
    until: float


class TaskQuota:
    """Refuses new tasks of a tenant that has reached its limit of unfinished tasks.

    Args:
        most: the limit.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._counts: dict[str, _Count] = {}
        """counts by tenant, in the order of their expiry"""

        self._counting: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """a lock for each tenant whose tasks are being counted; it lives while a request uses it"""

    async def check(self, runner: TaskRunner, tenant: str) -> None:
        """Count a new task; raises a `Problem` at the limit.

        Args:
            runner: counts the tasks of the tenant.
            tenant: the tenant of the task.
        """
        async with self._counting.setdefault(tenant, asyncio.Lock()):
            count = self._counts.get(tenant)
            if count is None or count.until < time.monotonic():
                count = self._new_count(tenant, (await runner.count_tasks(state=UNFINISHED)).tasks)
            if count.tasks >= self._most:
                del self._counts[tenant]  # some may have ended: the next request counts again
                detail = (
                    f"the tenant has {self._most} tasks that have not ended: finish, cancel or delete some"
                )
                raise Problem(503, "TooManyTasks", detail, {"Retry-After": "5"})
            count.tasks += 1

    def _new_count(self, tenant: str, tasks: int) -> _Count:
        """Store a new count for a tenant, and drop expired ones."""
        now = time.monotonic()
        self._counts.pop(tenant, None)  # appended again: a new count expires last
        expired = list(takewhile(lambda each: self._counts[each].until < now, self._counts))
        for each in expired:
            del self._counts[each]
        count = self._counts[tenant] = _Count(tasks, now + COUNT_SECONDS)
        return count


class WaitQuota:
    """Limits how many requests of a principal wait for a result at the same time.

    Args:
        most: the limit.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: Counter[tuple[str, str]] = Counter()

    @contextmanager
    def place(self, tenant: str, name: str) -> Generator[bool]:
        """Yield whether one more request of a principal may wait; if so, it counts for the duration of the block."""
        waiter = (tenant, name)
        if self._waiting[waiter] >= self._most:
            yield False
            return
        self._waiting[waiter] += 1
        try:
            yield True
        finally:
            self._waiting[waiter] -= 1
            if not self._waiting[waiter]:
                del self._waiting[waiter]
