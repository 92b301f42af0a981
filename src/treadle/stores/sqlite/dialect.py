"""The SQL of SQLite, for the statements that the stores in databases share."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import Any, Final

from treadle.stores.processes import alive
from treadle.stores.sql.dialect import Dialect
from treadle.stores.sqlite.schema import Connection


class Statements:
    """Runs statements through one connection.

    Args:
        connection: a connection to the file.
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


def _no_transaction(_: Any) -> nullcontext[None]:
    return nullcontext()


SQLITE: Final = Dialect(
    {
        "?": "?",
        "FALSE": "0",
        "TRUE": "1",
        "IN_ARRAY": "IN (SELECT value FROM json_each(?))",
        "JOIN_IN_ORDER": "CROSS JOIN",
        "UNINDEXED": "+",
        "UNLIKELY": "unlikely",
        "POSITION": "instr",
        "ENDING": "substr(t.key, -?)",
        "DAY": "date(t.created / 1000000, 'unixepoch')",
        "TOKENS": "t.figures ->> '$.t'",
        "COST": "t.figures ->> '$.c'",
        "UPDATED": "t.figures ->> '$.u'",
        "PENDING": "t.figures ->> '$.p'",
        "MODEL": "t.figures ->> '$.m'",
        "THREAD_ROW": "id",
        "LEASED": "d.lease",
        "LEASE_END": "d.lease",
    },
    array=json.dumps,
    is_alive=alive,
    same_snapshot=_no_transaction,
    referred_blobs="""SELECT DISTINCT blob FROM records JOIN blob_refs ON record = pos
    WHERE task = ? AND seq - count >= ? AND blobs > 0""",
    drop_blobs="""DELETE FROM blobs WHERE id IN_ARRAY
    AND NOT EXISTS (SELECT 1 FROM blob_refs WHERE blob = blobs.id)""",
)
