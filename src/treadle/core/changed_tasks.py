"""Collect the ids of changed tasks until they are taken."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

MOST: Final = 2_000
"""The most ids that are collected. Beyond that, any task may have changed."""


class ChangedTasks:
    """The ids of tasks that changed since they were last taken. Beyond `MOST` ids, any task may have changed."""

    __slots__ = ("_any", "_ids")

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._any = False

    def add(self, ids: Iterable[str] | None) -> None:
        """Add changed tasks. None: any may have changed."""
        if ids is None:
            self._any = True
        elif not self._any:
            self._ids.update(ids)
        if self._any or len(self._ids) > MOST:
            self._any = True
            self._ids.clear()

    def take(self) -> frozenset[str] | None:
        """Return the collected ids and clear them. None: any may have changed."""
        ids = None if self._any else frozenset(self._ids)
        self._any = False
        self._ids.clear()
        return ids
