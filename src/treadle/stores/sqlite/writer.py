"""The writer thread of a journal file: one transaction for all waiting items.

Theory of operation
-------------------

The thread owns the only writing connection, and the `Journal` that checks and writes an item. The steps of a group:

    BEGIN IMMEDIATE            wait for other processes, up to the busy timeout
    check `data_version`       another connection wrote: forget cached heads, notify watchers
    check the files            removed or replaced while open: fail, since commits to a removed file are lost
    check the format           unless the lease was renewed lately: a newer version may have migrated the file
    renew the lease            if a heartbeat is due
    apply each item            check, then write; a refused item has written nothing
    COMMIT                     `synchronous=FULL`: durable once it returns
    deliver the results

A refused item needs no savepoint, since each is checked before its first write. Only `Journal.restore` sets one. If an
item fails with an error of SQLite, such as for an unsupported value, the whole transaction is rolled back. Then each
item is written again in a separate transaction, and only the culprit fails. After a rollback the caches are invalid:
heads and the row of this process are read again.

Without items the thread sleeps. While this process owns a task, it wakes for heartbeats. While a caller watches, it
reads `PRAGMA data_version` every `POLL_SECONDS`. That number changes when another connection commits, but not by
commits of this one. Commits of this one are news too if several callers watch, such as runners that share a store.
`FileChanges` finds the changed tasks, at most every `NEWS_SECONDS`.

Invariant: `Journal.held` has the tasks that this process owns in committed state. So a lease is renewed exactly while
one of them needs it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import apsw

from treadle.errors import StoreFormatError, StoreUnavailable, TreadleError
from treadle.ports import Refused, StoreChanges
from treadle.stores.processes import HEARTBEATS_PER_LEASE, LEASE_SECONDS, this_process
from treadle.stores.sqlite import reading
from treadle.stores.sqlite.journal import Journal
from treadle.stores.sqlite.schema import (
    BUSY_MS,
    check_not_newer,
    connect_writer,
    forget_small_tables,
    is_read_only,
    pragma,
    read_only,
    unavailable,
)
from treadle.stores.writer_thread import BARRIER, Item, RunningWriters, WriterThread

POLL_SECONDS = 0.075
NEWS_SECONDS = 0.025
"""Minimum number of seconds between two calls of the watchers."""

CHECKPOINT_MS = 200


class Writer(WriterThread):
    """The writer of a file: owns the connection that writes.

    Args:
        path: the file.
        lease_seconds: seconds for which this process counts as alive after a heartbeat.
    """

    def __init__(self, path: Path, lease_seconds: float = LEASE_SECONDS) -> None:
        self.path = path
        self._lease_seconds = lease_seconds
        self._heartbeat = lease_seconds / HEARTBEATS_PER_LEASE
        self._version: Any = None
        self._refusal: StoreUnavailable | None = None
        """the error of each write if the file is read-only"""

        self._has_news = False
        """whether to notify the watchers of writes"""

        self._notified_at = 0.0
        self._paths = (str(path), f"{path}-wal")
        self._files: list[tuple[int, int] | None] = []
        super().__init__(str(path))

    # -------------------------------------------------------------------------------------- in the thread

    def _open(self) -> None:
        self._connection = connect_writer(self.path)
        if is_read_only(self._connection):
            self._refusal = read_only(self.path)
        self._journal = Journal(self._connection, this_process(), self._lease_seconds)

    def _wait_seconds(self) -> float | None:
        if self._watchers:
            return NEWS_SECONDS if self._has_news else POLL_SECONDS
        return self._heartbeat if self._journal.lease.held else None

    def _write(self, group: list[Item]) -> list[Any]:
        """Write a group in one transaction; if that fails, each item in its own, so that only the culprit fails."""
        if all(item.operation == BARRIER for item in group):
            return [None] * len(group)
        if self._refusal is not None:
            return [None if item.operation == BARRIER else self._refusal for item in group]
        try:
            self._begin()
        except (apsw.Error, OSError) as error:
            self._roll_back()
            return [unavailable(self.path, error)] * len(group)
        try:
            results = [self._apply(item) for item in group]
            self._commit()
        except Exception as error:  # noqa: BLE001 (values SQLite cannot take are one item's fault, too)
            self._roll_back()
            if len(group) == 1:
                return [self._typed(error)]
            return [self._write([item])[0] for item in group]
        if any(item.operation in ("delete", "delete_thread") for item in group):
            self._truncate_log()
        return results

    def _apply(self, item: Item) -> Any:
        if item.operation == BARRIER:
            return None
        if (refusal := self._refusal_of(item)) is not None:
            return refusal
        try:
            return getattr(self._journal, item.operation)(item.argument)
        except (Refused, TreadleError) as refusal:
            return refusal

    def _begin(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        self._check_for_other_writes()
        files = [_identity(path) for path in self._paths]
        if self._files and files != self._files:
            raise OSError("the file or its write-ahead log was removed or replaced while it was open")
        self._files = files
        self._journal.lease.begun()
        if not self._journal.lease.is_fresh:
            self._check_format()
        if self._journal.lease.is_due:
            self._journal.lease.heartbeat()

    def _check_format(self) -> None:
        """Check whether a newer version migrated the file beyond this version."""
        try:
            check_not_newer(self._connection, self.path)
        except StoreFormatError as error:
            self._leave(error)

    def _commit(self) -> None:
        self._connection.execute("COMMIT")
        self._journal.lease.committed()
        self._has_news = self._has_news or len(self._watchers) > 1

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        self._journal.rolled_back()

    def _check_for_other_writes(self) -> None:
        """Drop cached heads if another connection wrote since the last check, and notify watchers."""
        version = pragma(self._connection, "data_version")
        if version != self._version:
            self._version = version
            self._journal.forget()
            self._has_news = True
        if not self._watchers:
            self._journal.changes.forget()
        elif self._has_news and time.monotonic() >= self._notified_at + NEWS_SECONDS:
            self._has_news, self._notified_at = False, time.monotonic()
            mail = reading.tasks_with_mail(self._connection)
            self._watchers.wake(StoreChanges(self._journal.changes.look(), mail))

    def _run_due_work(self) -> None:
        """Renew the lease if that is due; else check whether other connections wrote."""
        try:
            if self._journal.lease.is_due:
                self._begin()
                self._commit()
            elif self._watchers:
                self._check_for_other_writes()
        except Exception:  # noqa: BLE001 (the next write reports it; this is tried again)
            self._roll_back()

    def _truncate_log(self) -> None:
        """Remove deleted data from the write-ahead log, unless a reader needs it or the disk fails."""
        self._connection.set_busy_timeout(CHECKPOINT_MS)
        try:
            pragma(self._connection, "wal_checkpoint(TRUNCATE)")
        except (
            apsw.Error
        ):  # the group is committed, so no item failed; the next checkpoint overwrites the log
            return
        finally:
            self._connection.set_busy_timeout(BUSY_MS)

    def _typed(self, error: Exception) -> Exception:
        typed = unavailable(self.path, error)
        typed.__cause__ = error
        return typed

    def _close_writer(self) -> None:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            self._journal.lease.begun()
            self._journal.lease.end()
            self._connection.execute("COMMIT")
            pragma(self._connection, "optimize")
            forget_small_tables(self._connection)
        except apsw.Error:  # a lease that could not be ended passes by itself
            self._roll_back()
        finally:
            self._connection.close(True)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116 (on the path of every group; a Path costs more than the call)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def refuse_inherited(path: Path) -> None:
    """Raise `StoreUnavailable` for a file that was open when this process was forked.

    A child inherits SQLite's record of its locks but not the locks, so it must not use these files.
    """
    if str(path) in RunningWriters.inherited:
        raise StoreUnavailable(
            f"{path}: it was open when this process was made by os.fork(), which SQLite does not support: "
            "close the store before the fork, or start the process with spawn"
        )
