"""The queries of a PostgreSQL schema. Nothing here writes.

A query of several statements runs in a transaction, so that they all see one state.
"""

from __future__ import annotations

from typing import Final, LiteralString

from treadle.errors import JournalCorrupt
from treadle.ports import (
    AdoptionQuery,
    Record,
    TaskRow,
)
from treadle.stores import adoption_order, rules
from treadle.stores.adoption_order import Candidate
from treadle.stores.postgres.dialect import POSTGRES, same_snapshot
from treadle.stores.postgres.schema import BoundedConnection
from treadle.stores.sql.reading import ROWS, UNENDED, SharedQueries

_ROWS: Final[LiteralString] = POSTGRES.statement(ROWS)
_FREE: Final[LiteralString] = "driver IS NULL AND parent IS NULL AND NOT deleted AND " + UNENDED
_FREE_CHILD: Final[LiteralString] = "driver IS NULL AND parent IS NOT NULL AND NOT deleted AND " + UNENDED
_MAIL: Final[LiteralString] = """SELECT DISTINCT i.task FROM inbox i JOIN tasks o ON o.id = i.task
WHERE NOT i.taken AND o.driver IS NULL AND NOT o.deleted AND i.task > %(last)s AND o.UNENDED""".replace(
    "UNENDED", UNENDED
)
_ORPHANS: Final[LiteralString] = """ WHERE t.id > %(last)s AND t.id IN (
  SELECT id FROM tasks WHERE driver = ANY(%(dead)s) AND NOT deleted
  UNION SELECT id FROM tasks
  WHERE wanted BETWEEN 1 AND %(until)s AND driver IS NULL AND NOT deleted AND UNENDED
  UNION MAIL) ORDER BY t.id LIMIT %(limit)s""".replace("UNENDED", UNENDED).replace("MAIL", _MAIL)
_INDIRECT: Final[LiteralString] = """ WHERE t.id IN (
  (SELECT id FROM tasks WHERE driver = ANY(%(dead)s) AND NOT deleted AND parent IS NOT NULL AND id > %(last)s
  ORDER BY id LIMIT %(limit)s)
  UNION (SELECT id FROM tasks WHERE wanted > 0 AND wanted = 1 AND id > %(last)s AND FREE
  ORDER BY id LIMIT %(limit)s)
  UNION (SELECT id FROM tasks WHERE wanted > 1 AND wanted <= %(until)s AND id > %(last)s AND FREE
  ORDER BY id LIMIT %(limit)s)
  UNION (MAIL AND (o.wanted = 0 OR o.wanted > %(until)s) ORDER BY i.task LIMIT %(limit)s)
) ORDER BY t.id LIMIT %(limit)s""".replace("FREE", _FREE_CHILD).replace("MAIL", _MAIL)
# A tenant is passed as a range. For an exact tenant, the planner prefers the order of the primary key to that of the
# index, and reads all tasks.
_ADOPTABLE: Final[LiteralString] = """WITH RECURSIVE asked AS (
  SELECT agent, format FROM unnest(%(agents)s::text[]) agent, generate_series(1, %(format)s::bigint) format),
turn(agent, format, tenant, number) AS (
  SELECT a.agent, a.format, x.tenant, (x.tenant <> ALL(%(full)s))::int
  FROM asked a, unnest(%(starts)s::text[]) start, LATERAL (
    SELECT tenant FROM tasks WHERE agent = a.agent AND format = a.format AND tenant >= start COLLATE "C"
    AND wanted = 1 AND FREE AND key <> ALL(%(excluded)s) ORDER BY tenant, id LIMIT 1) x
  UNION ALL SELECT r.agent, r.format, x.tenant, r.number + (x.tenant <> ALL(%(full)s))::int
  FROM turn r, LATERAL (
    SELECT tenant FROM tasks WHERE agent = r.agent AND format = r.format AND tenant > r.tenant
    AND wanted = 1 AND FREE AND key <> ALL(%(excluded)s) ORDER BY tenant, id LIMIT 1) x
  WHERE r.number < %(limit)s),
next AS (SELECT DISTINCT agent, format, tenant FROM turn WHERE tenant <> ALL(%(full)s))
(SELECT true, id, key FROM tasks
WHERE driver = ANY(%(dead)s) AND parent IS NULL AND NOT deleted AND agent = ANY(%(agents)s) AND format <= %(format)s
AND tenant <> ALL(%(full)s) AND key <> ALL(%(excluded)s) ORDER BY id LIMIT %(limit)s)
UNION ALL (SELECT false, x.id, x.key FROM asked a, LATERAL (
  SELECT id, key FROM tasks WHERE agent = a.agent AND format = a.format AND wanted > 1 AND wanted <= %(until)s
  AND FREE AND tenant <> ALL(%(full)s) AND key <> ALL(%(excluded)s) ORDER BY wanted LIMIT %(limit)s) x)
UNION ALL (SELECT false, x.id, x.key FROM next n, LATERAL (
  SELECT id, key FROM tasks WHERE agent = n.agent AND format = n.format AND tenant >= n.tenant AND tenant <= n.tenant
  AND wanted = 1 AND FREE AND key <> ALL(%(excluded)s) ORDER BY tenant, id
  LIMIT (SELECT ceil(%(limit)s::numeric / greatest(count(DISTINCT tenant), 1)) FROM next)) x)""".replace(
    "FREE", _FREE
)
_UNADOPTABLE: Final[LiteralString] = """WITH RECURSIVE ready AS (
  (SELECT agent, format FROM tasks WHERE wanted = 1 AND FREE ORDER BY agent, format LIMIT 1)
  UNION ALL SELECT x.agent, x.format FROM ready r, LATERAL (
    SELECT agent, format FROM tasks WHERE wanted = 1 AND FREE AND (agent, format) > (r.agent, r.format)
    ORDER BY agent, format LIMIT 1) x),
due AS (
  (SELECT agent, format FROM tasks WHERE wanted > 1 AND FREE ORDER BY agent, format LIMIT 1)
  UNION ALL SELECT x.agent, x.format FROM due r, LATERAL (
    SELECT agent, format FROM tasks WHERE wanted > 1 AND FREE AND (agent, format) > (r.agent, r.format)
    ORDER BY agent, format LIMIT 1) x)
SELECT r.agent, r.format, (
  SELECT id FROM tasks WHERE agent = r.agent AND format = r.format AND wanted = 1 AND FREE
  ORDER BY tenant, id LIMIT 1) FROM ready r
UNION ALL SELECT r.agent, r.format, (
  SELECT id FROM tasks WHERE agent = r.agent AND format = r.format AND wanted > 1 AND wanted <= %(until)s AND FREE
  ORDER BY wanted LIMIT 1) FROM due r
UNION ALL SELECT agent, format, min(id) FROM tasks
WHERE driver = ANY(%(dead)s) AND parent IS NULL AND NOT deleted GROUP BY 1, 2""".replace("FREE", _FREE)
_RECORDS: Final = """SELECT seq, count, epoch, data, digest, blobs FROM records
WHERE task = %s AND seq > %s AND (%s::bigint IS NULL OR seq - count < %s) ORDER BY seq"""
_JOURNAL: Final = """SELECT t.base, t.mark_seq, r.seq, r.count, r.epoch, r.data, r.digest, r.blobs
FROM tasks t LEFT JOIN records r ON r.task = t.id AND r.seq > %b AND (%b::bigint IS NULL OR r.seq - r.count < %b)
WHERE t.key = %b ORDER BY r.seq"""
_BLOBS: Final = """SELECT r.seq, r.digest, b.data FROM blob_refs r JOIN blobs b ON b.digest = r.digest
WHERE r.task = %s AND r.seq = ANY(%s)"""

_SHARED: Final = SharedQueries(POSTGRES)
row, rows, sums, usage = _SHARED.row, _SHARED.rows, _SHARED.sums, _SHARED.usage
inbox, thread, threads, grants = _SHARED.inbox, _SHARED.thread, _SHARED.threads, _SHARED.grants
digest_at, tasks_with_mail = _SHARED.digest_at, _SHARED.tasks_with_mail


def records(connection: BoundedConnection, key: str, after: int, upto: int | None) -> list[Record]:
    """Return the records with events `after` + 1 to `upto`, the oldest ancestor's first."""
    journal = _journal(connection, key, after, upto)
    if journal is None:
        with same_snapshot(connection):
            pages = _SHARED.pages(connection, key, after, upto, _part)
            return [record for page in pages for record in page]
    return journal


def _journal(connection: BoundedConnection, key: str, after: int, upto: int | None) -> list[Record] | None:
    """Read a task with one statement; None if it is a fork, or has large values."""
    joined = connection.execute(_JOURNAL, (after, upto, upto, key), binary=True).fetchall()
    if not joined:
        raise rules.task_not_found(key)
    base, mark = joined[0][:2]
    if base is not None or any(blobs for *_, blobs in joined):
        return None
    part = [
        Record(seq, count, epoch, bytes(data), bytes(digest))
        for _, _, seq, count, epoch, data, digest, _ in joined
        if seq is not None
    ]
    rules.check_read(key, part[-1].seq if part else after, mark, upto)
    return part


def _part(
    connection: BoundedConnection, key: str, task: int, after: int, last: int | None
) -> list[list[Record]]:
    """Return the records of one task with events `after` + 1 to `last`, as one page; no page without records."""
    with connection.cursor(binary=True) as cursor:
        cursor.execute(_RECORDS, (task, after, last, last))
        part: list[Record] = []
        with_blobs: dict[int, tuple[Record, int]] = {}
        for seq, count, epoch, data, digest, blobs in cursor:
            record = Record(seq, count, epoch, bytes(data), bytes(digest))
            part.append(record)
            if blobs:
                with_blobs[seq] = record, blobs
        if with_blobs:
            for seq, digest, data in cursor.execute(_BLOBS, (task, list(with_blobs))):
                with_blobs[seq][0].blobs[digest] = bytes(data)
    for seq, (record, blobs) in with_blobs.items():
        if len(record.blobs) != blobs:
            raise JournalCorrupt(f"task {key}: a large value of event {seq} is missing", task_id=key, seq=seq)
    return [part] if part else []


def orphans(
    connection: BoundedConnection, limit: int, after: str | None, until: int, indirect: bool
) -> list[TaskRow]:
    """Return the tasks for a driver to adopt, the oldest first."""
    with same_snapshot(connection):
        last = None
        if after is not None:
            last = connection.execute("SELECT id FROM tasks WHERE key = %s", (after,)).fetchone()
        bindings = {
            "dead": _SHARED.dead_drivers(connection),
            "until": until,
            "last": 0 if last is None else last[0],
            "limit": max(limit, 0),
        }
        cursor = connection.execute(_ROWS + (_INDIRECT if indirect else _ORPHANS), bindings)
    return [_SHARED.row_of(columns) for columns in cursor]


def adoptable(connection: BoundedConnection, query: AdoptionQuery) -> list[TaskRow]:
    """Return orphans without a parent that a process may drive now, in the order of adoption."""
    bindings = {
        "agents": list(query.agents),
        "format": query.format,
        "until": query.until,
        "full": list(query.full_tenants),
        "excluded": adoption_order.excluded(query),
        "starts": adoption_order.starts(query),
        "dead": _SHARED.dead_drivers(connection),
        "limit": max(query.limit, 0),
    }
    dead: list[Candidate] = []
    others: list[Candidate] = []
    for is_dead, *candidate in connection.execute(_ADOPTABLE, bindings):
        (dead if is_dead else others).append(Candidate(*candidate))
    return _SHARED.in_order(connection, dead, others, query)


def unadoptable(connection: BoundedConnection, query: AdoptionQuery) -> list[TaskRow]:
    """Return the oldest orphan of each agent and format that a process does not know."""
    bindings = {"until": query.until, "dead": _SHARED.dead_drivers(connection)}
    return _SHARED.oldest_unknown(connection, connection.execute(_UNADOPTABLE, bindings), query)
