"""The queries of a journal file. Nothing here writes."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import apsw

from treadle.errors import JournalCorrupt
from treadle.ports import (
    AdoptionQuery,
    Record,
    TaskRow,
)
from treadle.stores import adoption_order
from treadle.stores.adoption_order import Candidate
from treadle.stores.sql.reading import COLUMNS, JOINED, UNENDED, SharedQueries
from treadle.stores.sqlite.dialect import SQLITE
from treadle.stores.sqlite.schema import Connection

PAGE = 500

_COLUMNS = SQLITE.statement(COLUMNS)
_RECORDS = """SELECT seq, count, epoch, data, digest, pos, blobs FROM records
WHERE task = ? AND seq > ? ORDER BY seq LIMIT ?"""
_BLOBS = "SELECT digest, data FROM blob_refs JOIN blobs ON blobs.id = blob WHERE record = ?"
_PAGE = "SELECT id FROM (IDS) WHERE id > ? ORDER BY id LIMIT ?"
_FREE = f"driver IS NULL AND parent IS NULL AND deleted = 0 AND {UNENDED}"
_FREE_CHILD = f"driver IS NULL AND parent IS NOT NULL AND deleted = 0 AND {UNENDED}"
_ANY_OF = "IN (SELECT value FROM json_each(?))"
_MAIL = """SELECT DISTINCT i.task FROM inbox i INDEXED BY inbox_waiting CROSS JOIN tasks o ON o.id = i.task
WHERE i.taken = 0 AND o.driver IS NULL AND o.deleted = 0 AND i.task > ? AND o.UNENDED""".replace(
    "UNENDED", UNENDED
)
_ORPHANS = (
    """SELECT id FROM tasks WHERE deleted = 0 AND driver ANY_OF
UNION SELECT id FROM tasks WHERE wanted BETWEEN 1 AND ? AND driver IS NULL AND deleted = 0 AND UNENDED
UNION MAIL""".replace("ANY_OF", _ANY_OF)
    .replace("UNENDED", UNENDED)
    .replace("MAIL", _MAIL)
)
_INDIRECT = (
    """SELECT * FROM (
  SELECT id FROM tasks INDEXED BY tasks_by_driver
  WHERE deleted = 0 AND driver IS NOT NULL AND driver ANY_OF AND parent IS NOT NULL AND id > ? ORDER BY id LIMIT ?)
UNION SELECT * FROM (
  SELECT id FROM tasks INDEXED BY tasks_wanted_children WHERE wanted > 0 AND wanted = 1 AND FREE AND id > ?
  ORDER BY id LIMIT ?)
UNION SELECT * FROM (
  SELECT id FROM tasks INDEXED BY tasks_wanted_children WHERE wanted > 0 AND wanted > 1 AND wanted <= ? AND FREE
  AND id > ? ORDER BY id LIMIT ?)
UNION SELECT * FROM (MAIL AND (o.wanted = 0 OR o.wanted > ?) ORDER BY i.task LIMIT ?)""".replace(
        "ANY_OF", _ANY_OF
    )
    .replace("FREE", _FREE_CHILD)
    .replace("MAIL", _MAIL)
)
_DEAD = """SELECT id, key FROM tasks INDEXED BY tasks_by_driver
WHERE deleted = 0 AND driver IS NOT NULL AND driver ANY_OF AND parent IS NULL AND format <= ?
AND agent ANY_OF AND tenant NOT ANY_OF AND key NOT ANY_OF ORDER BY id LIMIT ?""".replace("ANY_OF", _ANY_OF)
_DUE = """SELECT id, key FROM tasks INDEXED BY tasks_due
WHERE agent = ? AND format = ? AND wanted > 1 AND wanted <= ? AND FREE AND tenant NOT ANY_OF AND key NOT ANY_OF
ORDER BY wanted LIMIT ?""".replace("ANY_OF", _ANY_OF).replace("FREE", _FREE)
_NEXT_TENANT = """SELECT tenant FROM tasks INDEXED BY tasks_ready
WHERE agent = ? AND format = ? AND wanted = 1 AND FREE AND tenant >= ? AND key NOT ANY_OF
ORDER BY tenant, id LIMIT 1""".replace("ANY_OF", _ANY_OF).replace("FREE", _FREE)
_READY = """SELECT id, key FROM tasks INDEXED BY tasks_ready
WHERE agent = ? AND format = ? AND tenant = ? AND wanted = 1 AND FREE AND key NOT ANY_OF
ORDER BY id LIMIT ?""".replace("ANY_OF", _ANY_OF).replace("FREE", _FREE)
_DEAD_SORTS = """SELECT agent, format, min(id) FROM tasks INDEXED BY tasks_by_driver
WHERE deleted = 0 AND driver IS NOT NULL AND driver ANY_OF AND parent IS NULL
GROUP BY 1, 2""".replace("ANY_OF", _ANY_OF)
_NEXT_FORMAT = """SELECT agent, format FROM tasks INDEXED BY INDEX_ WHERE TERM AND FREE AND agent = ? AND format > ?
ORDER BY format LIMIT 1""".replace("FREE", _FREE)
_NEXT_AGENT = """SELECT agent, format FROM tasks INDEXED BY INDEX_ WHERE TERM AND FREE AND agent > ?
ORDER BY agent, format LIMIT 1""".replace("FREE", _FREE)
_OF_SORT = """SELECT id FROM tasks INDEXED BY INDEX_ WHERE agent = ? AND format = ? AND TERM AND wanted <= ? AND FREE
LIMIT 1""".replace("FREE", _FREE)
_WAITING = (("tasks_ready", "wanted = 1"), ("tasks_due", "wanted > 1"))
"""The indexes of tasks that wait, each with the condition that its tasks share."""

_SHARED = SharedQueries(SQLITE)
row, rows, sums, usage = _SHARED.row, _SHARED.rows, _SHARED.sums, _SHARED.usage
inbox, thread, threads, grants = _SHARED.inbox, _SHARED.thread, _SHARED.threads, _SHARED.grants
digest_at, tasks_with_mail = _SHARED.digest_at, _SHARED.tasks_with_mail


def pages(connection: Connection, key: str, after: int, upto: int | None) -> Iterator[list[Record]]:
    """Yield the records with events `after` + 1 to `upto`, a page at a time, the oldest ancestor's first."""
    return _SHARED.pages(connection, key, after, upto, _part)


def records(connection: Connection, key: str, after: int, upto: int | None) -> list[Record]:
    """Return the records with events `after` + 1 to `upto`, the oldest ancestor's first."""
    return [record for page in pages(connection, key, after, upto) for record in page]


def _part(
    connection: Connection, key: str, task: int, after: int, last: int | None
) -> Iterator[list[Record]]:
    """Yield the records of one task with events `after` + 1 to `last`, a page at a time."""
    while last is None or after < last:
        if page := _page(connection, key, task, after, last):
            after = page[-1].seq
            yield page
        if len(page) < PAGE:
            break


def _page(connection: Connection, key: str, task: int, after: int, last: int | None) -> list[Record]:
    """Read up to `PAGE` records, at most up to the one with event `last`."""
    page: list[Record] = []
    limit = PAGE if last is None else min(PAGE, last - after)
    try:
        for seq, count, epoch, data, digest, pos, blobs in connection.execute(_RECORDS, (task, after, limit)):
            # A damaged page may have values of any type in a column.
            if not (type(data) is type(digest) is bytes and type(seq) is type(count) is type(epoch) is int):
                raise apsw.CorruptError("a value is of another kind")
            if last is not None and seq - count >= last:
                break
            record = Record(seq, count, epoch, data, digest)
            if blobs:
                record.blobs = _blobs(connection, pos, blobs)
            page.append(record)
    except apsw.CorruptError as error:
        seq = page[-1].seq + 1 if page else after + 1
        raise JournalCorrupt(
            f"task {key}: event {seq} cannot be read: {error}", task_id=key, seq=seq
        ) from error
    return page


def _blobs(connection: Connection, record: int, count: int) -> dict[str, bytes]:
    blobs: dict[Any, Any] = dict(connection.execute(_BLOBS, (record,)))
    if len(blobs) != count or not all(type(k) is str and type(v) is bytes for k, v in blobs.items()):
        raise apsw.CorruptError("a large value is missing")
    return blobs


def orphans(
    connection: Connection, limit: int, after: str | None, until: int, indirect: bool
) -> list[TaskRow]:
    """Return the tasks for a driver to adopt, the oldest first."""
    dead, limit = json.dumps(_SHARED.dead_drivers(connection)), max(limit, 0)
    (last,) = connection.execute("SELECT coalesce(max(id), 0) FROM tasks WHERE key = ?", (after,)).fetchone()
    if indirect:
        ids = _INDIRECT
        bindings = (dead, last, limit, last, limit, until, last, limit, last, until, limit)
    else:
        ids, bindings = _ORPHANS, (dead, until, last)
    sql = f"{_COLUMNS} FROM ({_PAGE.replace('IDS', ids)}) n CROSS JOIN tasks t ON t.id = n.id {JOINED} ORDER BY t.id"
    return [_SHARED.row_of(row) for row in connection.execute(sql, (*bindings, last, limit))]


def adoptable(connection: Connection, query: AdoptionQuery) -> list[TaskRow]:
    """Return orphans without a parent that a process may drive now, in the order of adoption."""
    full, excluded = json.dumps(list(query.full_tenants)), json.dumps(adoption_order.excluded(query))
    dead: list[Candidate] = []
    if drivers := _SHARED.dead_drivers(connection):
        agents = json.dumps(query.agents)
        bindings = (json.dumps(drivers), query.format, agents, full, excluded, query.limit)
        dead = [Candidate(*row) for row in connection.execute(_DEAD, bindings)]
    others: list[Candidate] = []
    tenants: dict[tuple[str, int, str], None] = {}
    for agent, format_ in itertools.product(query.agents, range(1, query.format + 1)):
        due = connection.execute(_DUE, (agent, format_, query.until, full, excluded, query.limit))
        others += [Candidate(*row) for row in due]
        tenants |= dict.fromkeys(
            (agent, format_, tenant) for tenant in _tenants(connection, query, agent, format_, excluded)
        )
    limit = adoption_order.share(query, len({tenant for *_, tenant in tenants}))
    for sort in tenants:
        others += [Candidate(*row) for row in connection.execute(_READY, (*sort, excluded, limit))]
    return _SHARED.in_order(connection, dead, others, query)


def _tenants(
    connection: Connection, query: AdoptionQuery, agent: str, format_: int, excluded: str
) -> set[str]:
    """Return the tenants with ready tasks of an agent, in the order of their turns."""
    tenants: set[str] = set()
    for start in adoption_order.starts(query):
        count = 0
        while count < query.limit:
            row = connection.execute(_NEXT_TENANT, (agent, format_, start, excluded)).fetchone()
            if row is None:
                break
            (tenant,) = row
            start = tenant + adoption_order.JUST_AFTER
            if tenant not in query.full_tenants:
                tenants.add(tenant)
                count += 1
    return tenants


def unadoptable(connection: Connection, query: AdoptionQuery) -> list[TaskRow]:
    """Return the oldest orphan of each agent and format that a process does not know."""
    dead = connection.execute(_DEAD_SORTS, (json.dumps(_SHARED.dead_drivers(connection)),)).fetchall()
    return _SHARED.oldest_unknown(connection, [*dead, *_waiting_sorts(connection, query.until)], query)


def _waiting_sorts(connection: Connection, until: int) -> Iterator[tuple[str, int, int | None]]:
    """Yield each agent and format with waiting tasks, and one due task, or None."""
    for index, term in _WAITING:
        next_format, next_agent, of_sort = [
            sql.replace("INDEX_", index).replace("TERM", term)
            for sql in (_NEXT_FORMAT, _NEXT_AGENT, _OF_SORT)
        ]
        sort = connection.execute(next_agent, ("",)).fetchone()
        while sort is not None:
            agent, format_ = sort
            task = connection.execute(of_sort, (agent, format_, until)).fetchone()
            yield agent, format_, task and task[0]
            sort = connection.execute(next_format, (agent, format_)).fetchone()
            sort = sort or connection.execute(next_agent, (agent,)).fetchone()
