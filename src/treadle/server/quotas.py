"""What is counted for limits: the unfinished tasks of a tenant, and the requests of a principal that wait."""

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
from treadle.results.results import StateWord
from treadle.runner.runner import TaskRunner
from treadle.server.problems import Problem

COUNT_SECONDS: Final = 2.0
"""For how long a count is added to before tasks are counted again: a count reads every row of the tenant."""

UNFINISHED: Final = tuple([state for state in get_args(StateWord) if state not in END_STATES])


@mutable
class _Count:
    tasks: int
    until: float


class TaskQuota:
    """Refuses new tasks of a tenant that has as many unfinished ones as it may have.

    Args:
        most: how many.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._counts: dict[str, _Count] = {}
        """counts of tenants, in the order in which they expire"""

        self._counting: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """a lock for each tenant whose tasks are being counted: it is there for as long as a request uses it"""

    async def check(self, runner: TaskRunner, tenant: str) -> None:
        """Count a new task; raises a `Problem` if there is no room for it.

        Args:
            runner: counts the tasks of the tenant.
            tenant: the tenant of the task.
        """
        async with self._counting.setdefault(tenant, asyncio.Lock()):
            count = self._counts.get(tenant)
            if count is None or count.until < time.monotonic():
                count = self._new_count(tenant, (await runner.count_tasks(state=UNFINISHED)).tasks)
            if count.tasks >= self._most:
                del self._counts[tenant]  # some may have ended: the next request counts
                detail = (
                    f"the tenant has {self._most} tasks that have not ended: finish, cancel or delete some"
                )
                raise Problem(503, "TooManyTasks", detail, {"Retry-After": "5"})
            count.tasks += 1

    def _new_count(self, tenant: str, tasks: int) -> _Count:
        """Return a new count of a tenant; drop those that have expired."""
        now = time.monotonic()
        self._counts.pop(tenant, None)  # a new count expires last
        expired = list(takewhile(lambda each: self._counts[each].until < now, self._counts))
        for each in expired:
            del self._counts[each]
        count = self._counts[tenant] = _Count(tasks, now + COUNT_SECONDS)
        return count


class WaitQuota:
    """Bounds how many requests of a principal wait for a result at the same time.

    Args:
        most: how many.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: Counter[tuple[str, str]] = Counter()

    @contextmanager
    def place(self, tenant: str, name: str) -> Generator[bool]:
        """Tell whether one more request of a principal may wait; if so, it counts for as long as the block lasts."""
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
