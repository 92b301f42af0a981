"""Which tasks changed, collected until that is told."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

MOST: Final = 2_000
"""Of more tasks than these no names are kept: any may have changed."""


class ChangedTasks:
    """The ids of tasks that changed since they were last taken; of too many, only that any may have."""

    __slots__ = ("_any", "_ids")

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._any = False

    def add(self, ids: Iterable[str] | None) -> None:
        """Note tasks that changed; None: any may have."""
        if ids is None:
            self._any = True
        elif not self._any:
            self._ids.update(ids)
        if self._any or len(self._ids) > MOST:
            self._any = True
            self._ids.clear()

    def take(self) -> frozenset[str] | None:
        """Return what was noted, and forget it; None: any may have changed."""
        ids = None if self._any else frozenset(self._ids)
        self._any = False
        self._ids.clear()
        return ids
