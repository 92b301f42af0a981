"""The limits of one server process: per principal, per tenant, per connection, and in total."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import fields
from itertools import takewhile
from typing import Final, get_args
from weakref import WeakValueDictionary

from treadle.core.data import frozen, mutable
from treadle.core.events import END_STATES
from treadle.core.unknown_names import explains_arguments
from treadle.errors import ConfigurationError
from treadle.results.states import StateWord
from treadle.runner.runner import TaskRunner
from treadle.server.problems import Problem

COUNT_SECONDS: Final = 2.0
"""Seconds for which a count is updated before tasks are counted again, which reads all rows of the tenant."""

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
        """Count a new task; raise a `Problem` at the limit.

        Args:
            runner: counts the tasks of the tenant.
            tenant: the tenant of the task.
        """
        async with self._counting.setdefault(tenant, asyncio.Lock()):
            count = self._counts.get(tenant)
            if count is None or count.until < time.monotonic():
                count = self._new_count(tenant, (await runner.count_tasks(state=UNFINISHED)).tasks)
            if count.tasks >= self._most:
                del self._counts[tenant]  # some may have ended, so the next request counts again
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
    """Limits the requests of a principal that wait for a result at the same time.

    Args:
        most: the limit.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: Counter[tuple[str, str]] = Counter()

    @contextmanager
    def place(self, tenant: str, name: str) -> Generator[bool]:
        """Yield whether one more request of a principal may wait; if so, it counts until the end of the block."""
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


@frozen
@explains_arguments
class ServerLimits:
    """Limits at which a server process refuses requests, and the times that it waits.

    Args:
        streams_per_principal: open event streams of one principal; the next one is refused with 429.
        requests_per_second: requests of one principal per second; the next one is refused with 429. In a body, each
            250 values and each 128 KiB count as one more request.
        waits_per_principal: requests of one principal that wait for a result. The next one does not wait: a read is
            refused with 429, and a command is carried out without its result.
        refusals_per_second: unauthenticated requests of one address per second, each with a line in the log
            `treadle.audit`. The next one is refused with 429 and without a line.
        streams: open event streams in total; the next one is refused with 503.
        connections: open connections; the next one is refused with 503.
        unfinished_tasks: unfinished tasks of one tenant; the next one is refused with 503.
        driven: tasks that this process adopts and drives at the same time; the others wait.
        driven_per_tenant: driven tasks of one tenant, so that it does not block the others. A further step is refused
            with 503.
        body_bytes: the largest body, in bytes.
        file_bytes: the largest body with images or files, in bytes.
        body_seconds: seconds in which a body must arrive.
        head_seconds: seconds in which the head of a request must arrive.
        send_seconds: seconds after which a connection is closed if its reader takes nothing.
        stream_seconds: seconds after which a stream ends and its reader must reopen it.
        heartbeat_seconds: seconds without an event after which a stream sends a comment.
        hold_seconds: seconds after the end of the last stream that holds a task, before the task is stopped.

    Raises:
        ConfigurationError: a number is not above 0; the error names it.
    """

    streams_per_principal: int = 50
    requests_per_second: int = 50
    waits_per_principal: int = 100
    refusals_per_second: int = 20
    streams: int = 2_000
    connections: int = 4_000
    unfinished_tasks: int = 1_000
    driven: int = 400
    driven_per_tenant: int = 100
    body_bytes: int = 1 << 20
    file_bytes: int = 16 << 20
    body_seconds: float = 10.0
    head_seconds: float = 10.0
    send_seconds: float = 30.0
    stream_seconds: float = 3_600.0
    heartbeat_seconds: float = 15.0
    hold_seconds: float = 15.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            kinds = (int,) if field.type == "int" else (int, float)
            if type(value) not in kinds or not value > 0:
                raise ConfigurationError(
                    f"ServerLimits: {field.name} must be a number greater than 0, got {value!r}"
                )
