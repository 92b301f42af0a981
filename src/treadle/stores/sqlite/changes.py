"""Find writes of other connections to a journal file, without a table for them.

A commit with events appends to `records`, whose row ids grow. A claim or a release changes the rows with a driver,
which are as many as the driven tasks. An update of the figures of a driven task moves the mark in its row. A deletion
increments a number. A change without an event that begins and ends between two looks is not found, such as a released
claim. It does not change the task for a watcher.
"""

from __future__ import annotations

from typing import Final

from treadle.core.changed_tasks import MOST
from treadle.stores.sqlite.schema import Connection

_NEWEST: Final = "SELECT pos, digest FROM records ORDER BY pos DESC LIMIT 1"
_AT: Final = "SELECT digest FROM records WHERE pos = ?"
_WRITTEN: Final = """SELECT DISTINCT tasks.key FROM records JOIN tasks ON tasks.id = records.task
WHERE records.pos > ? LIMIT ?"""
_DRIVEN: Final = "SELECT key, epoch, mark_seq FROM tasks WHERE driver IS NOT NULL"
_DELETIONS: Final = "SELECT times FROM deletions"


class FileChanges:
    """Finds the tasks of a file that changed since the last look, by any connection.

    Args:
        connection: reads the file.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._newest: tuple[int, bytes] | None = None
        self._driven = set[tuple[str, int, int | None]]()
        self._deletions: int | None = None
        self._has_looked = False

    def forget(self) -> None:
        """Make the next look report that any task may have changed."""
        self._has_looked = False

    def look(self) -> frozenset[str] | None:
        """Return the ids of the tasks that changed; None at the first look and after a deletion."""
        (deletions,) = self._connection.execute(_DELETIONS).fetchone()
        is_known = self._has_looked and deletions == self._deletions
        self._deletions = deletions
        changed = self._written() if is_known else None
        driven = {(str(key), int(epoch), mark) for key, epoch, mark in self._connection.execute(_DRIVEN)}
        before, self._driven = self._driven, driven
        row = self._connection.execute(_NEWEST).fetchone()
        self._newest = None if row is None else (int(row[0]), bytes(row[1]))
        self._has_looked = True
        if changed is None or len(changed) > MOST:
            return None
        return frozenset(changed).union(key for key, _, _ in before ^ driven)

    def _written(self) -> set[str] | None:
        """Return the tasks with new records; None if row ids were reused after the newest records were deleted."""
        after = 0
        if self._newest is not None:
            after, digest = self._newest
            row = self._connection.execute(_AT, (after,)).fetchone()
            if row is None or bytes(row[0]) != digest:
                return None
        return {str(key) for (key,) in self._connection.execute(_WRITTEN, (after, MOST + 1))}
