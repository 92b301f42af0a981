"""The queries of a journal file. Nothing here writes."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import apsw

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
from treadle.stores.processes import alive
from treadle.stores.query_reader import task_row
from treadle.stores.sqlite.schema import Connection

PAGE = 500

_COLUMNS = """SELECT t.key, t.agent, t.thread, t.state, t.created, t.parent, b.key, t.base_seq, t.epoch, t.labels,
coalesce((SELECT max(seq) FROM records WHERE task = t.id), t.base_seq),
t.mark_seq, t.mark_digest, t.deleted, t.wanted, t.format, t.figures, d.key, d.host, d.boot, d.pid, d.started, d.lease"""
_SPENT = """count(*), coalesce(sum(t.figures ->> '$.t'), 0), coalesce(sum(t.figures ->> '$.c'), 0),
count(*) - count(t.figures ->> '$.c')"""
_USAGE_KEYS = {"agent": "t.agent", "day": "date(t.created / 1000000, 'unixepoch')"}
_LABEL_OF = "(SELECT value FROM task_labels WHERE key = t.key AND name = ?)"
_SUMS = f"SELECT t.state, d.key IS NOT NULL, d.host, d.boot, d.pid, d.started, d.lease, {_SPENT}"
_JOINED = "LEFT JOIN tasks b ON b.id = t.base LEFT JOIN drivers d ON d.id = t.driver"
_ROWS = f"{_COLUMNS} FROM tasks t {_JOINED}"
_LINK = "SELECT id, base, base_seq, mark_seq FROM tasks"
_RECORDS = """SELECT seq, count, epoch, data, digest, pos, blobs FROM records
WHERE task = ? AND seq > ? ORDER BY seq LIMIT ?"""
_BLOBS = "SELECT digest, data FROM blob_refs JOIN blobs ON blobs.id = blob WHERE record = ?"
_PAGE = "SELECT id FROM (IDS) WHERE id > ? ORDER BY id LIMIT ?"
_UNENDED = "state NOT IN ('completed', 'degraded', 'failed', 'cancelled')"
_FREE = f"driver IS NULL AND parent IS NULL AND deleted = 0 AND {_UNENDED}"
_FREE_CHILD = f"driver IS NULL AND parent IS NOT NULL AND deleted = 0 AND {_UNENDED}"
_ANY_OF = "IN (SELECT value FROM json_each(?))"
_MAIL = """SELECT DISTINCT i.task FROM inbox i INDEXED BY inbox_waiting CROSS JOIN tasks o ON o.id = i.task
WHERE i.taken = 0 AND o.driver IS NULL AND o.deleted = 0 AND i.task > ? AND o.UNENDED""".replace(
    "UNENDED", _UNENDED
)
_ORPHANS = (
    """SELECT id FROM tasks WHERE deleted = 0 AND driver ANY_OF
UNION SELECT id FROM tasks WHERE wanted BETWEEN 1 AND ? AND driver IS NULL AND deleted = 0 AND UNENDED
UNION MAIL""".replace("ANY_OF", _ANY_OF)
    .replace("UNENDED", _UNENDED)
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

_FILTERS = {
    "agent": "t.agent = ?",
    "thread_id": "t.thread = ?",
    "parent": "t.parent = ?",
    "base": "t.base = (SELECT id FROM tasks WHERE key = ?)",
    "since": "{by}.created >= ?",
    "until": "{by}.created < ?",
    "search": "(t.search IS NULL OR instr(t.search, ?) > 0)",
}
_UPDATED = "(coalesce(t.figures ->> '$.u', t.created) >= ? OR t.driver IS NOT NULL)"
_PENDING = "(coalesce(t.figures ->> '$.p', -1) <> 0 OR t.driver IS NOT NULL)"
_NARROWER = ("thread_id", "parent", "base", "beginning")
"""Filters with an index that finds less than that of tenants."""

_LABELLED = "EXISTS (SELECT 1 FROM task_labels WHERE name = ? AND value = ? AND key = t.key)"
_OWNED = "t.driver IS NOT NULL"
_RESTING = (
    "t.driver IS NULL AND unlikely(t.state = ?)"  # a hint: else a cursor with `since` is taken for narrower
)


def pages(connection: Connection, key: str, after: int, upto: int | None) -> Iterator[list[Record]]:
    """Yield the records with events `after` + 1 to `upto`, a page at a time, the oldest ancestor's first."""
    parts = list(_chain(connection, key))
    reached = after
    for task, own_after, shared, _ in reversed(parts):
        reached = max(after, own_after)
        last = shared if upto is None or (shared is not None and shared < upto) else upto
        while last is None or reached < last:
            page = _page(connection, key, task, reached, last)
            if page and shared is not None and page[-1].seq > shared:
                page[-1].upto = shared
            if page:
                reached = page[-1].seq
                yield page
            if len(page) < PAGE:
                break
    rules.check_read(key, reached, parts[0][3], upto)


def records(connection: Connection, key: str, after: int, upto: int | None) -> list[Record]:
    """Return the records with events `after` + 1 to `upto`, the oldest ancestor's first."""
    return [record for page in pages(connection, key, after, upto) for record in page]


def _chain(connection: Connection, key: str) -> Iterator[tuple[int, int, int | None, int | None]]:
    """Yield task row, last event before its own, last event shared (None: all), mark: of the task, then its bases."""
    link = connection.execute(f"{_LINK} WHERE key = ?", (key,)).fetchone()
    if link is None:
        raise rules.task_not_found(key)
    shared: int | None = None
    while link is not None:
        task, base, base_seq, mark = link
        if shared is None or base_seq < shared:
            yield task, base_seq, shared, mark
            shared = base_seq
        link = connection.execute(f"{_LINK} WHERE id = ?", (base,)).fetchone()


def _page(connection: Connection, key: str, task: int, after: int, last: int | None) -> list[Record]:
    """Read up to `PAGE` records, at most up to the one with event `until`."""
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


def digest_at(connection: Connection, task: int, seq: int) -> bytes:
    """Return the digest of the record with event `seq` of a task or its bases."""
    while seq:
        base, base_seq = connection.execute(
            "SELECT base, base_seq FROM tasks WHERE id = ?", (task,)
        ).fetchone()
        if seq > base_seq or base is None:
            sql = "SELECT digest FROM records WHERE task = ? AND seq >= ? ORDER BY seq LIMIT 1"
            record = connection.execute(sql, (task, seq)).fetchone()
            return record[0] if record else b""
        task = base
    return b""


def row(connection: Connection, key: str, deleted: bool = False) -> TaskRow:
    """Return one task's row; raises `TaskNotFound`."""
    columns = connection.execute(f"{_ROWS} WHERE t.key = ? AND t.deleted <= ?", (key, deleted)).fetchone()
    if columns is None:
        raise rules.task_not_found(key)
    return _row(columns)


def rows(connection: Connection, task_filter: TaskFilter) -> list[TaskRow]:
    """Return the listed tasks that match, newest first."""
    limit = max(task_filter.limit, 0)
    if task_filter.states is None:
        return _newest_rows(connection, task_filter, limit)
    resting = [
        _newest_rows(connection, task_filter, limit, _RESTING, state)
        for state in listing.resting_states(task_filter.states)
    ]
    # The state of an owned task is known only once its row is read: those are few, and read apart.
    owned = [
        row for row in _newest_rows(connection, task_filter, -1, _OWNED) if row.word in task_filter.states
    ]
    return listing.newest([*resting, owned], limit)


def _newest_rows(
    connection: Connection, task_filter: TaskFilter, limit: int, term: str = "t.deleted = 0", *values: str
) -> list[TaskRow]:
    """Return the newest matching rows that satisfy a term; all of them for a negative limit."""
    # With the plus the owned tasks are found by the index of owned tasks, and not by that of times.
    source, by, terms, bindings = _source(task_filter, "+" if term == _OWNED else "")
    terms, bindings = [*terms, term], [*bindings, *values]
    if task_filter.cursor is not None:
        created, key = listing.position(task_filter.cursor)
        terms.append(f"({by}.created, {by}.key) < (?, ?)")
        bindings += [created, key]
    where, order = " AND ".join(terms), f"{by}.created DESC, {by}.key DESC"
    sql = f"{_COLUMNS} {source} {_JOINED} WHERE {where} ORDER BY {order} LIMIT ?"
    return [_row(columns) for columns in connection.execute(sql, (*bindings, limit))]


def _source(task_filter: TaskFilter, plus: str = "") -> tuple[str, str, list[str], list[Any]]:
    """Return the parts of a list's query: its tables, the one that orders it, and the filter's terms with their values.

    The terms exclude states and the cursor. A list by label reads the index of labels first. A `plus` before a column
    keeps indexes of times from being used.
    """
    source, by = "FROM tasks t", f"{plus}t"
    # With a plus no index of tenants is used if there is a better one.
    is_narrower = (
        plus or task_filter.labels or any(getattr(task_filter, name) is not None for name in _NARROWER)
    )
    terms = ["t.deleted = 0", "+t.tenant = ?" if is_narrower else "t.tenant = ?"]
    bindings: list[Any] = [task_filter.tenant]
    labels = [(listing.label_key(k), listing.label_key(v)) for k, v in (task_filter.labels or {}).items()]
    for number, label in enumerate(labels):
        terms.append(_LABELLED if number else "l.name = ? AND l.value = ?")
        bindings += label
        source, by = "FROM task_labels l CROSS JOIN tasks t ON t.key = l.key", f"{plus}l"
    for name, sql in _FILTERS.items():
        if (value := getattr(task_filter, name)) is not None:
            terms.append(sql.format(by=by))
            bindings.append(value)
    if task_filter.updated_since is not None:
        terms.append(_UPDATED)
        bindings.append(task_filter.updated_since)
    terms += ["t.parent IS NULL"] * task_filter.roots + [_PENDING] * task_filter.pending
    if task_filter.beginning is not None:
        terms.append("t.key >= ? AND t.key < ?")
        bindings += [task_filter.beginning, task_filter.beginning + "\U0010ffff"]
    if task_filter.end is not None:
        terms.append("substr(t.key, ?) = ?")
        bindings += [-len(task_filter.end), task_filter.end]
    return source, by, terms, bindings


def sums(connection: Connection, task_filter: TaskFilter) -> dict[str, TaskSums]:
    """Return the number and the spending of the matching tasks, by state."""
    source, _, terms, bindings = _source(task_filter)
    if task_filter.search is not None:
        terms.append("t.search IS NOT NULL")
    sql = f"{_SUMS} {source} {_JOINED} WHERE {' AND '.join(terms)} GROUP BY t.state, t.driver"
    result: dict[str, TaskSums] = {}
    for state, owned, *facts in connection.execute(sql, tuple(bindings)):
        process, counts = facts[:5], facts[5:]
        is_driven = alive(*process) if owned else None
        display_state = state_word(state, is_driven)
        if listing.has_state(display_state, task_filter.states, driven=bool(is_driven)):
            result.setdefault(display_state, TaskSums()).add(
                TaskSums(*counts, driven=counts[0] if is_driven else 0)
            )
    return result


def usage(connection: Connection, task_filter: TaskFilter, by: str) -> dict[str | None, TaskSums]:
    """Return the number and the spending of the matching tasks, by agent, day or label."""
    source, _, terms, bindings = _source(replace(task_filter, search=None))
    key = _USAGE_KEYS.get(by, _LABEL_OF)
    if by not in _USAGE_KEYS:
        bindings = [listing.label_of(by), *bindings]
    sql = f"SELECT {key}, {_SPENT} {source} WHERE {' AND '.join(terms)} GROUP BY 1"
    return {name: TaskSums(*counts) for name, *counts in connection.execute(sql, tuple(bindings))}


def orphans(
    connection: Connection, limit: int, after: str | None, until: int, indirect: bool
) -> list[TaskRow]:
    """Return the tasks for a driver to adopt, the oldest first."""
    dead, limit = json.dumps(_dead_drivers(connection)), max(limit, 0)
    (last,) = connection.execute("SELECT coalesce(max(id), 0) FROM tasks WHERE key = ?", (after,)).fetchone()
    if indirect:
        ids = _INDIRECT
        bindings = (dead, last, limit, last, limit, until, last, limit, last, until, limit)
    else:
        ids, bindings = _ORPHANS, (dead, until, last)
    sql = f"{_COLUMNS} FROM ({_PAGE.replace('IDS', ids)}) n CROSS JOIN tasks t ON t.id = n.id {_JOINED} ORDER BY t.id"
    return [_row(row) for row in connection.execute(sql, (*bindings, last, limit))]


def adoptable(connection: Connection, query: AdoptionQuery) -> list[TaskRow]:
    """Return orphans without a parent that a process may drive now, in the order in which it should."""
    full, excluded = json.dumps(list(query.full_tenants)), json.dumps(adoption_order.excluded(query))
    dead: list[Candidate] = []
    if drivers := _dead_drivers(connection):
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
    keys = adoption_order.in_order(dead, others, query)
    sql = f"{_COLUMNS} FROM json_each(?) n CROSS JOIN tasks t ON t.key = n.value {_JOINED}"
    rows = {columns[0]: _row(columns) for columns in connection.execute(sql, (json.dumps(keys),))}
    return [rows[key] for key in keys]


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
    sorts: dict[tuple[str, int], list[int]] = {}
    for agent, format_, task in connection.execute(_DEAD_SORTS, (json.dumps(_dead_drivers(connection)),)):
        sorts[agent, format_] = [task]
    for index, term in _WAITING:
        next_format, next_agent, of_sort = [
            sql.replace("INDEX_", index).replace("TERM", term)
            for sql in (_NEXT_FORMAT, _NEXT_AGENT, _OF_SORT)
        ]
        sort = connection.execute(next_agent, ("",)).fetchone()
        while sort is not None:
            if row := connection.execute(of_sort, (*sort, query.until)).fetchone():
                sorts.setdefault(sort, []).append(row[0])
            agent, format_ = sort
            sort = connection.execute(next_format, (agent, format_)).fetchone()
            sort = sort or connection.execute(next_agent, (agent,)).fetchone()
    unknown = [
        min(tasks)
        for (agent, format_), tasks in sorts.items()
        if agent not in query.agents or format_ > query.format
    ]
    sql = f"{_COLUMNS} FROM json_each(?) n CROSS JOIN tasks t ON t.id = n.value {_JOINED} ORDER BY t.id"
    return [_row(columns) for columns in connection.execute(sql, (json.dumps(unknown),))]


def _dead_drivers(connection: Connection) -> list[int]:
    """Return the drivers that are not alive."""
    drivers = connection.execute("SELECT id, host, boot, pid, started, lease FROM drivers")
    return [driver for driver, *process in drivers if not alive(*process)]


def _row(columns: Any) -> TaskRow:
    driver, host, boot, pid, started, lease = columns[17:]
    if driver is None:
        return task_row(columns, None)
    is_alive = alive(host, boot, pid, started, lease)
    return task_row(columns, Driver(driver, host, pid, is_alive, lease))


def inbox(connection: Connection, key: str) -> list[InboxItem]:
    """Return a task's items that are not taken yet, in order of arrival; raises `TaskNotFound`."""
    task = connection.execute("SELECT id FROM tasks WHERE key = ? AND deleted = 0", (key,)).fetchone()
    if task is None:
        raise rules.task_not_found(key)
    sql = "SELECT key, kind, data, created FROM inbox WHERE task = ? AND taken = 0 ORDER BY pos"
    return [
        InboxItem(item, kind, json.loads(data), at) for item, kind, data, at in connection.execute(sql, task)
    ]


def thread(
    connection: Connection, key: str, version: int | None, since: int = 0
) -> tuple[int, list[ThreadMember]]:
    """Return a thread's version and the members added since version `since`, now or at an earlier version."""
    thread_row = connection.execute("SELECT id, version FROM threads WHERE key = ?", (key,)).fetchone()
    if thread_row is None:
        return 0, []
    at = thread_row[1] if version is None else min(version, thread_row[1])
    sql = """SELECT m.version, t.key, m.seq, NULL, m.covers FROM members m JOIN tasks t ON t.id = m.task
    WHERE m.thread = ? AND m.version > ? AND m.version <= ? AND (m.gone IS NULL OR m.gone > ?) ORDER BY m.version"""
    return at, [ThreadMember(*member) for member in connection.execute(sql, (thread_row[0], since, at, at))]


def threads(connection: Connection, limit: int, after: str | None, tenant: str) -> list[ThreadRow]:
    """Return the threads of a tenant that have a version, by ascending id."""
    sql = """SELECT key, version, (SELECT count(*) FROM members m WHERE m.thread = h.id AND gone IS NULL AND covers = 0)
    FROM threads h WHERE tenant = ? AND key > ? ORDER BY key LIMIT ?"""
    bindings = (tenant, after or "", max(limit, 0))
    return [ThreadRow(*columns) for columns in connection.execute(sql, bindings)]


def grants(connection: Connection, tool: str | None, revoked: bool, tenant: str) -> list[StandingGrant]:
    """Return a tenant's approvals for later calls, oldest first."""
    sql = """SELECT id, tool, definition, rule, thread, given_by, task, request, created, revoked, revoked_by
    FROM grants WHERE {} = ? AND (? OR revoked IS NULL) ORDER BY created, id"""
    # The name of a tool is that of its tenant alone.
    sql, name = (sql.format("tenant"), tenant) if tool is None else (sql.format("tool"), tool)
    return [StandingGrant(*columns) for columns in connection.execute(sql, (name, revoked))]
