"""The queries of a PostgreSQL schema. Nothing here writes.

A query of several statements runs in a transaction, so that they all see one state.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, LiteralString

from psycopg.pq import TransactionStatus

from treadle.core.permits import StandingGrant
from treadle.errors import JournalCorrupt
from treadle.ports import (
    AdoptionQuery,
    Driver,
    InboxItem,
    Record,
    TaskFilter,
    TaskRow,
    TaskSums,
    ThreadMember,
    ThreadRow,
    state_word,
)
from treadle.stores import adoption_order, listing, rules
from treadle.stores.adoption_order import Candidate
from treadle.stores.postgres.schema import BoundedConnection
from treadle.stores.processes import alive
from treadle.stores.query_reader import task_row

_FAR: Final = 2**62

_COLUMNS: Final = """SELECT t.key, t.agent, t.thread, t.state, t.created, t.parent, b.key, t.base_seq, t.epoch,
t.labels, coalesce((SELECT max(seq) FROM records WHERE task = t.id), t.base_seq), t.mark_seq, t.mark_digest,
t.deleted, t.wanted, t.format, t.figures, d.key, d.host, d.boot, d.pid, d.started, d.lease > clock_timestamp(),
(extract(epoch FROM d.lease) * 1000000)::bigint"""
_JOINED: Final = " LEFT JOIN tasks b ON b.id = t.base LEFT JOIN drivers d ON d.id = t.driver"
_ROWS: Final[LiteralString] = _COLUMNS + " FROM tasks t" + _JOINED
_SPENT: Final = """count(*), coalesce(sum((t.figures::json ->> 't')::bigint), 0),
coalesce(sum((t.figures::json ->> 'c')::bigint), 0), count(*) - count(t.figures::json ->> 'c')"""
_SUMS: Final[LiteralString] = (
    "SELECT t.state, d.key IS NOT NULL, d.host, d.boot, d.pid, d.started, d.lease > clock_timestamp(), "
    + _SPENT
)
_USAGE_KEYS: Final[dict[str, LiteralString]] = {
    "agent": "t.agent",
    "day": "to_char(to_timestamp(t.created / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD')",
}
_LABEL_OF: Final = "(SELECT value FROM task_labels WHERE key = t.key AND name = %s)"
_UNENDED: Final = "state NOT IN ('completed', 'degraded', 'failed', 'cancelled')"
_FREE: Final[LiteralString] = "driver IS NULL AND parent IS NULL AND NOT deleted AND " + _UNENDED
_FREE_CHILD: Final[LiteralString] = "driver IS NULL AND parent IS NOT NULL AND NOT deleted AND " + _UNENDED
_MAIL: Final[LiteralString] = """SELECT DISTINCT i.task FROM inbox i JOIN tasks o ON o.id = i.task
WHERE NOT i.taken AND o.driver IS NULL AND NOT o.deleted AND i.task > %(last)s AND o.UNENDED""".replace(
    "UNENDED", _UNENDED
)
_ORPHANS: Final[LiteralString] = """ WHERE t.id > %(last)s AND t.id IN (
  SELECT id FROM tasks WHERE driver = ANY(%(dead)s) AND NOT deleted
  UNION SELECT id FROM tasks
  WHERE wanted BETWEEN 1 AND %(until)s AND driver IS NULL AND NOT deleted AND UNENDED
  UNION MAIL) ORDER BY t.id LIMIT %(limit)s""".replace("UNENDED", _UNENDED).replace("MAIL", _MAIL)
_INDIRECT: Final[LiteralString] = """ WHERE t.id IN (
  (SELECT id FROM tasks WHERE driver = ANY(%(dead)s) AND NOT deleted AND parent IS NOT NULL AND id > %(last)s
  ORDER BY id LIMIT %(limit)s)
  UNION (SELECT id FROM tasks WHERE wanted > 0 AND wanted = 1 AND id > %(last)s AND FREE
  ORDER BY id LIMIT %(limit)s)
  UNION (SELECT id FROM tasks WHERE wanted > 1 AND wanted <= %(until)s AND id > %(last)s AND FREE
  ORDER BY id LIMIT %(limit)s)
  UNION (MAIL AND (o.wanted = 0 OR o.wanted > %(until)s) ORDER BY i.task LIMIT %(limit)s)
) ORDER BY t.id LIMIT %(limit)s""".replace("FREE", _FREE_CHILD).replace("MAIL", _MAIL)
# A tenant is given as a range: for tasks of one tenant the planner takes the order of the primary key for that of the
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
_DRIVERS: Final = "SELECT id, host, boot, pid, started, lease > clock_timestamp() FROM drivers"
_FILTERS: Final[dict[str, LiteralString]] = {
    "agent": "t.agent = %s",
    "thread_id": "t.thread = %s",
    "parent": "t.parent = %s",
    "base": "t.base = (SELECT id FROM tasks WHERE key = %s)",
    "search": "(t.search IS NULL OR strpos(t.search, %s) > 0)",
}
_BY_TIME: Final[dict[str, dict[str, LiteralString]]] = {
    "t": {
        "since": "t.created >= %s",
        "until": "t.created < %s",
        "cursor": "(t.created, t.key) < (%s, %s)",
        "order": "t.created DESC, t.key DESC",
    },
    "l": {
        "since": "l.created >= %s",
        "until": "l.created < %s",
        "cursor": "(l.created, l.key) < (%s, %s)",
        "order": "l.created DESC, l.key DESC",
    },
}
"""Terms that read times, by the table that orders a list."""

_UPDATED: Final = "(coalesce((t.figures::json ->> 'u')::bigint, t.created) >= %s OR t.driver IS NOT NULL)"
_PENDING: Final = "(coalesce((t.figures::json ->> 'p')::bigint, -1) <> 0 OR t.driver IS NOT NULL)"
_LABELLED: Final = "EXISTS (SELECT 1 FROM task_labels WHERE name = %s AND value = %s AND key = t.key)"
_OWNED: Final = "t.driver IS NOT NULL"
_RESTING: Final = "t.driver IS NULL AND t.state = %s"
_LINK: Final = "SELECT id, base, base_seq, mark_seq FROM tasks"
_RECORDS: Final = """SELECT seq, count, epoch, data, digest, blobs FROM records
WHERE task = %s AND seq > %s AND (%s::bigint IS NULL OR seq - count < %s) ORDER BY seq"""
_JOURNAL: Final = """SELECT t.base, t.mark_seq, r.seq, r.count, r.epoch, r.data, r.digest, r.blobs
FROM tasks t LEFT JOIN records r ON r.task = t.id AND r.seq > %b AND (%b::bigint IS NULL OR r.seq - r.count < %b)
WHERE t.key = %b ORDER BY r.seq"""
_BLOBS: Final = """SELECT r.seq, r.digest, b.data FROM blob_refs r JOIN blobs b ON b.digest = r.digest
WHERE r.task = %s AND r.seq = ANY(%s)"""
_INBOX: Final = """SELECT i.key, i.kind, i.data, i.created
FROM tasks t LEFT JOIN inbox i ON i.task = t.id AND NOT i.taken WHERE t.key = %s AND NOT t.deleted ORDER BY i.pos"""
_MEMBERS: Final = """SELECT m.version, t.key, m.seq, NULL, m.covers FROM members m JOIN tasks t ON t.id = m.task
WHERE m.thread = %s AND m.version > %s AND m.version <= %s AND (m.gone IS NULL OR m.gone > %s) ORDER BY m.version"""
_LISTED: Final = """SELECT key, version, (SELECT count(*) FROM members m
WHERE m.thread = h.key AND gone IS NULL AND covers = 0)
FROM threads h WHERE version > 0 AND tenant = %s AND key > %s ORDER BY key LIMIT %s"""
_GRANT_COLUMNS: Final = """SELECT id, tool, definition, rule, thread, given_by, task, request, created, revoked,
revoked_by FROM grants WHERE """
_GRANTS: Final[LiteralString] = (
    _GRANT_COLUMNS + "tenant = %s AND (%s OR revoked IS NULL) ORDER BY created, id"
)
_GRANTS_OF_TOOL: Final[LiteralString] = (
    _GRANT_COLUMNS + "tool = %s AND (%s OR revoked IS NULL) ORDER BY created, id"
)
_DIGEST: Final = """SELECT digest FROM records WHERE task = %s AND seq >= %s ORDER BY seq LIMIT 1"""


@contextmanager
def same_snapshot(connection: BoundedConnection) -> Generator[None]:
    """Let all statements of a block see the same state, like those of a snapshot; the caller rolls back on error."""
    if connection.info.transaction_status != TransactionStatus.IDLE:
        yield
        return
    connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    yield
    connection.execute("COMMIT")


def records(connection: BoundedConnection, key: str, after: int, upto: int | None) -> list[Record]:
    """Return the records with events `after` + 1 to `upto`, the oldest ancestor's first."""
    journal = _journal(connection, key, after, upto)
    if journal is None:
        with same_snapshot(connection):
            journal = _joined(connection, key, after, upto)
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


def _joined(connection: BoundedConnection, key: str, after: int, upto: int | None) -> list[Record]:
    """Read a task and the records that it shares with those it was forked from."""
    parts = _chain(connection, key)
    journal: list[Record] = []
    reached = after
    for task, own_after, shared, _ in reversed(parts):
        reached = max(after, own_after)
        last = shared if upto is None or (shared is not None and shared < upto) else upto
        if last is not None and reached >= last:
            continue
        part = _part(connection, key, task, reached, last)
        if part:
            reached = part[-1].seq
            if shared is not None and reached > shared:
                part[-1].upto = shared
        journal += part
    rules.check_read(key, reached, parts[0][3], upto)
    return journal


def _chain(connection: BoundedConnection, key: str) -> list[tuple[int, int, int | None, int | None]]:
    """Return task row, last event before its own, last event shared (None: all), mark: of the task, then its bases."""
    link = connection.execute(_LINK + " WHERE key = %s", (key,)).fetchone()
    if link is None:
        raise rules.task_not_found(key)
    parts: list[tuple[int, int, int | None, int | None]] = []
    shared: int | None = None
    while link is not None:
        task, base, base_seq, mark = link
        if shared is None or base_seq < shared:
            parts.append((task, base_seq, shared, mark))
            shared = base_seq
        link = None if base is None else connection.execute(_LINK + " WHERE id = %s", (base,)).fetchone()
    return parts


def _part(connection: BoundedConnection, key: str, task: int, after: int, last: int | None) -> list[Record]:
    """Read the records of one task with events `after` + 1 to `until`."""
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
    return part


def digest_at(connection: BoundedConnection, task: int, seq: int) -> bytes:
    """Return the digest of the record with event `seq` of a task or its bases."""
    while seq:
        link = connection.execute("SELECT base, base_seq FROM tasks WHERE id = %s", (task,)).fetchone()
        if link is None:
            return b""
        base, base_seq = link
        if seq > base_seq or base is None:
            digest = connection.execute(_DIGEST, (task, seq)).fetchone()
            return digest[0] if digest else b""
        task = base
    return b""


def row(connection: BoundedConnection, key: str, deleted: bool = False) -> TaskRow:
    """Return a task's row; raises `TaskNotFound`."""
    columns = connection.execute(_ROWS + " WHERE t.key = %s AND t.deleted <= %s", (key, deleted)).fetchone()
    if columns is None:
        raise rules.task_not_found(key)
    return _row(columns)


def rows(connection: BoundedConnection, task_filter: TaskFilter) -> list[TaskRow]:
    """Return the listed tasks that match, newest first."""
    limit = max(task_filter.limit, 0)
    if task_filter.states is None:
        return _newest_rows(connection, task_filter, limit)
    with same_snapshot(connection):
        resting = [
            _newest_rows(connection, task_filter, limit, _RESTING, state)
            for state in listing.resting_states(task_filter.states)
        ]
        # The state of an owned task is known only once its row is read: those are few, and read apart.
        owned = [
            row
            for row in _newest_rows(connection, task_filter, None, _OWNED)
            if row.word in task_filter.states
        ]
    return listing.newest([*resting, owned], limit)


def _newest_rows(
    connection: BoundedConnection,
    task_filter: TaskFilter,
    limit: int | None,
    term: LiteralString = "NOT t.deleted",
    *values: str,
) -> list[TaskRow]:
    """Return the newest matching rows that satisfy a term; all of them without a limit."""
    source, by, terms, bindings = _source(task_filter)
    terms.append(term)
    bindings += values
    if task_filter.cursor is not None:
        terms.append(by["cursor"])
        bindings += listing.position(task_filter.cursor)
    query: LiteralString = (
        _COLUMNS + source + _JOINED + " WHERE " + " AND ".join(terms) + " ORDER BY " + by["order"]
    )
    return [_row(columns) for columns in connection.execute(query + " LIMIT %s", (*bindings, limit))]


def _source(
    task_filter: TaskFilter,
) -> tuple[LiteralString, dict[str, LiteralString], list[LiteralString], list[Any]]:
    """Return the parts of a list's query: its tables, its terms for times, and the filter's terms with their values.

    The terms exclude states and the cursor. A list by label reads the index of labels first.
    """
    source: LiteralString = " FROM tasks t"
    by = "t"
    terms: list[LiteralString] = ["NOT t.deleted", "t.tenant = %s"]
    bindings: list[Any] = [task_filter.tenant]
    for name, value in (task_filter.labels or {}).items():
        terms.append(_LABELLED if by == "l" else "l.name = %s AND l.value = %s")
        bindings += [listing.label_key(name), listing.label_key(value)]
        source, by = " FROM task_labels l JOIN tasks t ON t.key = l.key", "l"
    for name, term in _FILTERS.items():
        if (value := getattr(task_filter, name)) is not None:
            terms.append(term)
            bindings.append(value)
    for name in ("since", "until"):
        if (value := getattr(task_filter, name)) is not None:
            terms.append(_BY_TIME[by][name])
            bindings.append(value)
    if task_filter.updated_since is not None:
        terms.append(_UPDATED)
        bindings.append(task_filter.updated_since)
    if task_filter.roots:
        terms.append("t.parent IS NULL")
    if task_filter.pending:
        terms.append(_PENDING)
    if task_filter.beginning is not None:
        terms.append("t.key >= %s AND t.key < %s")
        bindings += [task_filter.beginning, task_filter.beginning + "\U0010ffff"]
    if task_filter.end is not None:
        terms.append("right(t.key, %s) = %s")
        bindings += [len(task_filter.end), task_filter.end]
    return source, _BY_TIME[by], terms, bindings


def sums(connection: BoundedConnection, task_filter: TaskFilter) -> dict[str, TaskSums]:
    """Return the number and the spending of the matching tasks, by state."""
    source, _, terms, bindings = _source(task_filter)
    if task_filter.search is not None:
        terms.append("t.search IS NOT NULL")
    query: LiteralString = (
        _SUMS + source + _JOINED + " WHERE " + " AND ".join(terms) + " GROUP BY t.state, d.id"
    )
    result: dict[str, TaskSums] = {}
    for state, owned, *facts in connection.execute(query, bindings):
        process, counts = facts[:5], facts[5:]
        is_driven = is_alive(*process) if owned else None
        display_state = state_word(state, is_driven)
        if listing.has_state(display_state, task_filter.states, driven=bool(is_driven)):
            result.setdefault(display_state, TaskSums()).add(
                TaskSums(*map(int, counts), driven=counts[0] if is_driven else 0)
            )
    return result


def usage(connection: BoundedConnection, task_filter: TaskFilter, by: str) -> dict[str | None, TaskSums]:
    """Return the number and the spending of the matching tasks, by agent, day or label."""
    source, _, terms, bindings = _source(replace(task_filter, search=None))
    key = _USAGE_KEYS.get(by, _LABEL_OF)
    if by not in _USAGE_KEYS:
        bindings = [listing.label_of(by), *bindings]
    query: LiteralString = (
        "SELECT " + key + ", " + _SPENT + source + " WHERE " + " AND ".join(terms) + " GROUP BY 1"
    )
    return {name: TaskSums(*map(int, counts)) for name, *counts in connection.execute(query, bindings)}


def orphans(
    connection: BoundedConnection, limit: int, after: str | None, until: int, indirect: bool
) -> list[TaskRow]:
    """Return the tasks for a driver to adopt, the oldest first."""
    with same_snapshot(connection):
        last = None
        if after is not None:
            last = connection.execute("SELECT id FROM tasks WHERE key = %s", (after,)).fetchone()
        bindings = {
            "dead": _dead_drivers(connection),
            "until": until,
            "last": 0 if last is None else last[0],
            "limit": max(limit, 0),
        }
        cursor = connection.execute(_ROWS + (_INDIRECT if indirect else _ORPHANS), bindings)
    return [_row(columns) for columns in cursor]


def adoptable(connection: BoundedConnection, query: AdoptionQuery) -> list[TaskRow]:
    """Return orphans without a parent that a process may drive now, in the order in which it should."""
    bindings = {
        "agents": list(query.agents),
        "format": query.format,
        "until": query.until,
        "full": list(query.full_tenants),
        "excluded": adoption_order.excluded(query),
        "starts": adoption_order.starts(query),
        "dead": _dead_drivers(connection),
        "limit": max(query.limit, 0),
    }
    dead: list[Candidate] = []
    others: list[Candidate] = []
    for is_dead, *candidate in connection.execute(_ADOPTABLE, bindings):
        (dead if is_dead else others).append(Candidate(*candidate))
    keys = adoption_order.in_order(dead, others, query)
    rows = _rows_of(connection, "t.key", keys)
    return [rows[key] for key in keys if key in rows]


def unadoptable(connection: BoundedConnection, query: AdoptionQuery) -> list[TaskRow]:
    """Return the oldest orphan of each agent and format that a process does not know."""
    bindings = {"until": query.until, "dead": _dead_drivers(connection)}
    oldest: dict[tuple[str, int], int] = {}
    for agent, format_, task in connection.execute(_UNADOPTABLE, bindings):
        if task is not None and (agent not in query.agents or format_ > query.format):
            oldest[agent, format_] = min(task, oldest.get((agent, format_), task))
    return list(_rows_of(connection, "t.id", sorted(oldest.values())).values())


def _rows_of(
    connection: BoundedConnection, column: LiteralString, values: Sequence[str | int]
) -> dict[str, TaskRow]:
    """Return the rows with one of these values in a column, by the names that the store keeps."""
    if not values:
        return {}
    cursor = connection.execute(_ROWS + " WHERE " + column + " = ANY(%s) ORDER BY t.id", (values,))
    return {columns[0]: _row(columns) for columns in cursor}


def _dead_drivers(connection: BoundedConnection) -> list[int]:
    """Return the drivers that are not alive."""
    return [driver for driver, *facts in connection.execute(_DRIVERS) if not is_alive(*facts)]


def _row(columns: Any) -> TaskRow:
    driver, *facts, lease = columns[17:]
    if driver is None:
        return task_row(columns, None)
    return task_row(columns, Driver(driver, facts[0], facts[2], is_alive(*facts), lease))


def is_alive(host: str, boot: str, pid: int, started: int, leased: bool) -> bool:
    """Return whether a driver is alive; `lasts`: its lease has not passed by the clock of the database."""
    return alive(host, boot, pid, started, _FAR if leased else 0)


def inbox(connection: BoundedConnection, key: str) -> list[InboxItem]:
    """Return a task's items that are not taken yet, in order of arrival; raises `TaskNotFound`."""
    items = connection.execute(_INBOX, (key,)).fetchall()
    if not items:
        raise rules.task_not_found(key)
    return [InboxItem(item, kind, json.loads(data), at) for item, kind, data, at in items if item is not None]


def tasks_with_mail(connection: BoundedConnection) -> tuple[str, ...]:
    """Return the ids of the tasks with untaken items in their inboxes."""
    keys = connection.execute(
        "SELECT key FROM tasks WHERE id IN (SELECT task FROM inbox WHERE NOT taken) AND NOT deleted"
    )
    return tuple([str(key) for (key,) in keys])


def thread(
    connection: BoundedConnection, key: str, version: int | None, since: int = 0
) -> tuple[int, list[ThreadMember]]:
    """Return a thread's version and the members added since version `since`, now or at an earlier version."""
    with same_snapshot(connection):
        thread_row = connection.execute("SELECT version FROM threads WHERE key = %s", (key,)).fetchone()
        at = 0 if thread_row is None else thread_row[0] if version is None else min(version, thread_row[0])
        members = connection.execute(_MEMBERS, (key, since, at, at))
    return at, [ThreadMember(*member) for member in members]


def threads(connection: BoundedConnection, limit: int, after: str | None, tenant: str) -> list[ThreadRow]:
    """Return the threads of a tenant that have a version, by ascending id."""
    bindings = (tenant, after or "", max(limit, 0))
    return [ThreadRow(*columns) for columns in connection.execute(_LISTED, bindings)]


def grants(
    connection: BoundedConnection, tool: str | None, revoked: bool, tenant: str
) -> list[StandingGrant]:
    """Return a tenant's approvals for later calls, oldest first."""
    # The name of a tool is that of its tenant alone.
    query, name = (_GRANTS, tenant) if tool is None else (_GRANTS_OF_TOOL, tool)
    return [StandingGrant(*columns) for columns in connection.execute(query, (name, revoked))]
