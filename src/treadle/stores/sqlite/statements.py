"""Statements on a journal file."""

from __future__ import annotations

from typing import Any

from treadle.stores.sqlite.schema import Connection


class Statements:
    """Runs statements through one connection.

    Args:
        connection: of the file.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def one(self, sql: str, *values: Any) -> Any:
        """Return the first row, or None."""
        return self._connection.execute(sql, values).fetchone()

    def all(self, sql: str, *values: Any) -> list[Any]:
        """Return all rows."""
        return self._connection.execute(sql, values).fetchall()

    def insert(self, sql: str, *values: Any) -> int:
        """Insert a row, and return its id."""
        self._connection.execute(sql, values)
        return self._connection.last_insert_rowid()

    def run(self, sql: str, *values: Any) -> None:
        """Run a statement without a result."""
        self._connection.execute(sql, values)
