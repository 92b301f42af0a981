"""The lease of this process on a journal file: its row, its renewals, and the tasks that it holds."""

from __future__ import annotations

import time

from treadle.stores import rules
from treadle.stores.processes import HEARTBEATS_PER_LEASE, Process, alive, lease_from_now
from treadle.stores.sqlite.dialect import Statements
from treadle.stores.sqlite.schema import Connection

_OWNED = "SELECT key FROM tasks WHERE driver = ?"
# The newest row stays so that no id is used twice: a process may not have noticed yet that its row is gone.
_DELETE_DEAD_DRIVERS = """DELETE FROM drivers WHERE lease < ? AND id < (SELECT max(id) FROM drivers)
AND NOT EXISTS (SELECT 1 FROM tasks WHERE tasks.driver = drivers.id)"""


class Lease:
    """The lease of one process; used by the writer thread alone.

    Args:
        connection: a connection to the file.
        process: the process that has the lease.
        seconds: seconds for which it lasts without a renewal.
    """

    def __init__(self, connection: Connection, process: Process, seconds: float) -> None:
        self._connection = connection
        self._sql = Statements(connection)
        self._process = process
        self._seconds = seconds
        self.driver: int | None = None
        """the row of this process"""

        self._is_stale = False
        """whether the next begin must read its row again; a rollback must not fail, so it cannot"""

        self._renewed_at = 0.0
        self.ownership_changes: list[tuple[str, bool]] = []
        """the tasks that the present transaction takes or gives back"""

        self.held: set[str] = set()

    def rolled_back(self) -> None:
        """Drop the changes of a rolled-back transaction."""
        self.ownership_changes.clear()
        self._is_stale, self._renewed_at = True, 0.0

    def begun(self) -> None:
        """Read this process's row again if a rollback may have removed it; called after the begin of a transaction."""
        if self._is_stale:
            self.driver, self._is_stale = self._find_row(), False

    def committed(self) -> None:
        """Apply the changes of ownership of a committed transaction to `held`."""
        for key, owned in self.ownership_changes:
            (self.held.add if owned else self.held.discard)(key)
        self.ownership_changes.clear()

    @property
    def is_due(self) -> bool:
        """Whether it is time to renew the lease of this process."""
        return bool(self.held) and not self.is_fresh

    @property
    def is_fresh(self) -> bool:
        """Whether the lease of this process was renewed lately."""
        # By the clock of leases, so that it is right even after the clock was set back or the machine slept.
        return 0 <= time.time() - self._renewed_at < self._seconds / HEARTBEATS_PER_LEASE

    def heartbeat(self) -> None:
        """Renew the lease of this process, and delete the rows of dead drivers that own nothing."""
        now = time.time()
        self._sql.run(
            "UPDATE drivers SET lease = ? WHERE key = ?",
            lease_from_now(self._seconds),
            self._process.key,
        )
        if self._connection.changes() == 0:
            self.driver = (
                None  # its lease had passed, other drivers took over its tasks, and its row was deleted
            )
        # Tasks that other drivers took over are no longer held, even if no caller here has noticed.
        owned = {key for (key,) in self._connection.execute(_OWNED, (self.driver,))}
        self.ownership_changes.extend((key, False) for key in self.held - owned)
        self._sql.run(_DELETE_DEAD_DRIVERS, int(now * 1_000_000))
        self._renewed_at = now

    def end(self) -> None:
        """End the lease of this process; its row stays while a task names it."""
        if self.driver is not None:
            self._sql.run("UPDATE drivers SET lease = 0 WHERE key = ?", self._process.key)
            sql = "DELETE FROM drivers WHERE key = ? AND NOT EXISTS (SELECT 1 FROM tasks WHERE driver = drivers.id)"
            self._sql.run(sql, self._process.key)

    def _find_row(self) -> int | None:
        row = self._sql.one("SELECT id FROM drivers WHERE key = ?", self._process.key)
        return row[0] if row else None

    def row(self) -> int:
        """Return the row of this process, with a recent lease; it is inserted when the process first owns a task."""
        if self.driver is not None and not self.is_fresh:
            self.heartbeat()
        if self.driver is None:
            p = self._process
            self._renewed_at = time.time()
            self._sql.run(_DELETE_DEAD_DRIVERS, int(self._renewed_at * 1_000_000))
            self.driver = self._sql.insert(
                "INSERT INTO drivers(key, host, boot, pid, started, lease) VALUES (?, ?, ?, ?, ?, ?)",
                *(p.key, p.host, p.boot, p.pid, p.started, lease_from_now(self._seconds)),
            )
        return self.driver

    def is_living(self, driver: int) -> bool:
        """Whether the process of a driver's row is alive."""
        row = self._sql.one("SELECT host, boot, pid, started, lease FROM drivers WHERE id = ?", driver)
        return row is not None and (driver == self.driver or alive(*row))

    def refuse_if_alive(self, key: str, driver: int) -> None:
        """Raise `TaskBusy` if the process of a task's driver is alive."""
        row = self._sql.one("SELECT host, boot, pid, started, lease FROM drivers WHERE id = ?", driver)
        if row is not None and (driver == self.driver or alive(*row)):
            raise rules.task_busy(key, row[2], row[0], is_own=driver == self.driver)
