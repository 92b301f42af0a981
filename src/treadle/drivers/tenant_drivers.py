"""The drivers of one runner: one for each tenant with work, created on demand and dropped when idle.

A driver is dropped once only this module refers to it. A scoped runner, a handle, a stream or a drive keeps its driver.
So a process never has two drivers for one tenant. The tenant "" has the first driver, which stays.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from threading import Lock
from typing import Final
from weakref import WeakValueDictionary, finalize

from treadle.drivers.driver import Dependencies, TaskDriver
from treadle.errors import StoreFormatError
from treadle.ports import TenantStores

_LOG = logging.getLogger("treadle.tasks")

KEPT_SECONDS: Final = 60.0
"""Seconds for which an unused driver without tasks is kept; checked when another one is created."""

LEAVE_SECONDS: Final = 10.0
"""Seconds that calls in flight get to end after a newer version migrated the store."""

MOST_KEPT: Final = 100
"""Maximum number of drivers without tasks that are kept, since each caches states of tasks."""


class TenantDrivers:
    """Makes and keeps the drivers of one runner; safe to use from several event loops and threads.

    Args:
        dependencies: the choices of the composition root, for the tenant "".

    Attributes:
        first: the driver of the tenant "", whose agents, observers, toolsets and vault all share.
        on_news: called from any thread when another process wrote or a task was released here. Its argument is the
            tenant and the id of a task that was released to be continued at once, otherwise None.
        on_outdated: called once, from any thread, when a newer version migrated the open store beyond this version.
    """

    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies
        self._lock = Lock()
        self._drivers: WeakValueDictionary[str, TaskDriver] = WeakValueDictionary()
        self._kept: OrderedDict[str, tuple[TaskDriver, float]] = OrderedDict()
        self._is_closed = False
        self.on_news: Callable[[tuple[str, str] | None], None] | None = None
        self.on_outdated: Callable[[StoreFormatError], None] | None = None
        self._is_outdated = False
        self.first = TaskDriver(dependencies)
        self._listen_to(self.first)

    def of(self, tenant: str) -> TaskDriver:
        """Return the driver of a tenant."""
        if not tenant:
            return self.first
        now = time.monotonic()
        with self._lock:
            driver = self._drivers.get(tenant)
            if driver is None:
                driver = self._drivers[tenant] = self._create(tenant)
                self._drop_idle(now)
            self._kept[tenant] = driver, now
            self._kept.move_to_end(tenant)
        return driver

    def existing(self, tenant: str) -> TaskDriver | None:
        """Return the driver of a tenant if there is one."""
        return self._drivers.get(tenant) if tenant else self.first

    def all(self) -> list[TaskDriver]:
        """Return the existing drivers."""
        with self._lock:
            return [self.first, *self._drivers.values()]

    def _create(self, tenant: str) -> TaskDriver:
        stores = self._dependencies.tenants
        parts = replace(self._dependencies, store=stores.of(tenant), tenant=tenant)
        driver = TaskDriver(parts, shared=self.first)
        self._listen_to(driver)
        if self._is_closed:
            driver.cache.close()
        # The store's watch refers to its callback, and would keep the driver alive.
        finalize(driver, driver.owned.close).atexit = False
        return driver

    def _drop_idle(self, now: float) -> None:
        """Drop idle drivers, the least recently used first; other references may keep them alive."""
        idle = [
            (tenant, last_used)
            for tenant, (driver, last_used) in self._kept.items()
            if not driver.owned.tasks and not driver.owned.unreleased
        ]
        for number, (tenant, last_used) in enumerate(idle):
            if now - last_used >= KEPT_SECONDS or len(idle) - number >= MOST_KEPT:
                del self._kept[tenant]

    def _listen_to(self, driver: TaskDriver) -> None:
        driver.owned.on_news = self._pass_on_news
        driver.owned.on_outdated = self._release_tasks

    def _release_tasks(self, error: StoreFormatError) -> None:
        """Release all tasks of a store that a newer version migrated: this version must not write it any more."""
        with self._lock:
            was_outdated, self._is_outdated = self._is_outdated, True
        if was_outdated:
            return
        _LOG.error(
            "%s. It was migrated while this process had it open: its tasks are released for newer drivers",
            error,
        )
        for driver in self.all():
            driver.release_all(LEAVE_SECONDS)
        if self.on_outdated is not None:
            self.on_outdated(error)

    def _pass_on_news(self, released: tuple[str, str] | None) -> None:
        if self.on_news is not None:
            self.on_news(released)

    @property
    def tenants(self) -> TenantStores:
        """The tenants of the store."""
        return self._dependencies.tenants

    async def open(self) -> None:
        """Open the store, also if the runner was closed."""
        self._is_closed = self._is_outdated = False
        for driver in self.all():
            await driver.cache.open(again=True)

    async def close(self) -> None:
        """Release all releasable tasks, close connections of toolsets, and stop watching the store."""
        self._is_closed = True
        for driver in reversed(self.all()):  # the first one closes the shared parts
            await driver.close()
