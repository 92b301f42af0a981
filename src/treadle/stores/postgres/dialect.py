"""The SQL of PostgreSQL, for the statements that the stores in databases share."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from psycopg.pq import TransactionStatus

from treadle.stores.postgres.schema import BoundedConnection
from treadle.stores.processes import alive
from treadle.stores.sql.dialect import Dialect

_FAR: Final = 2**62


def is_alive(host: str, boot: str, pid: int, started: int, leased: bool) -> bool:
    """Return whether a driver is alive; `leased` tells whether its lease lasts by the clock of the database."""
    return alive(host, boot, pid, started, _FAR if leased else 0)


@contextmanager
def same_snapshot(connection: BoundedConnection) -> Generator[None]:
    """Let all statements of a block see the same state, like those of a snapshot; the caller rolls back on error."""
    if connection.info.transaction_status != TransactionStatus.IDLE:
        yield
        return
    connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    yield
    connection.execute("COMMIT")


POSTGRES: Final = Dialect(
    {
        "?": "%s",
        "IN_ARRAY": "= ANY(%s)",
        "JOIN_IN_ORDER": "JOIN",
        "UNINDEXED": "",
        "UNLIKELY": "",
        "POSITION": "strpos",
        "ENDING": "right(t.key, %s)",
        "DAY": "to_char(to_timestamp(t.created / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD')",
        "TOKENS": "(t.figures::json ->> 't')::bigint",
        "COST": "(t.figures::json ->> 'c')::bigint",
        "UPDATED": "(t.figures::json ->> 'u')::bigint",
        "PENDING": "(t.figures::json ->> 'p')::bigint",
        "MODEL": "(t.figures::json ->> 'm')",
        "THREAD_ROW": "key",
        "LEASED": "d.lease > clock_timestamp()",
        "LEASE_END": "(extract(epoch FROM d.lease) * 1000000)::bigint",
    },
    array=list,
    is_alive=is_alive,
    same_snapshot=same_snapshot,
    referred_blobs="""SELECT DISTINCT r.digest FROM blob_refs r
    JOIN records s ON s.task = r.task AND s.seq = r.seq WHERE s.task = ? AND s.seq - s.count >= ?""",
    drop_blobs="""DELETE FROM blobs b WHERE digest IN_ARRAY
    AND NOT EXISTS (SELECT 1 FROM blob_refs r WHERE r.digest = b.digest)""",
)
