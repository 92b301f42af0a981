"""The queries that the stores in databases share: rows, lists, sums, threads, inboxes, grants, chains of forks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, LiteralString

from treadle.core.permits import StandingGrant
from treadle.ports import (
    AdoptionQuery,
    Driver,
    InboxItem,
    JournalEnd,
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
from treadle.stores.sql.dialect import Connection, Dialect
from treadle.stores.tenants import tenant_of

UNENDED: Final = "state NOT IN ('completed', 'degraded', 'failed', 'cancelled')"
COLUMNS: Final = """SELECT t.key, t.agent, t.thread, t.state, t.created, t.parent, b.key, t.base_seq, t.epoch,
t.labels, coalesce((SELECT max(seq) FROM records WHERE task = t.id), t.base_seq), t.mark_seq, t.mark_digest,
t.deleted, t.wanted, t.format, t.figures, d.key, d.host, d.boot, d.pid, d.started, LEASED, LEASE_END"""
JOINED: Final = "LEFT JOIN tasks b ON b.id = t.base LEFT JOIN drivers d ON d.id = t.driver"
ROWS: Final[LiteralString] = f"{COLUMNS} FROM tasks t {JOINED}"
_ROW: Final[LiteralString] = f"{ROWS} WHERE t.key = ? AND t.deleted <= ?"
_SPENT: Final = "count(*), coalesce(sum(TOKENS), 0), coalesce(sum(COST), 0), count(*) - count(COST)"
_SUMS: Final[LiteralString] = (
    f"SELECT t.state, d.key IS NOT NULL, d.host, d.boot, d.pid, d.started, LEASED, {_SPENT}"
)
_USAGE_KEYS: Final[dict[str, LiteralString]] = {
    "agent": "t.agent",
    "day": "DAY",
    "model": "nullif(MODEL, '')",
}
_LABEL_OF: Final = "(SELECT value FROM task_labels WHERE key = t.key AND name = ?)"
_LISTED: Final = "t.deleted = FALSE"
_LABELLED: Final = "EXISTS (SELECT 1 FROM task_labels WHERE name = ? AND value = ? AND key = t.key)"
_OWNED: Final = "t.driver IS NOT NULL"
_RESTING: Final = "t.driver IS NULL AND UNLIKELY(t.state = ?)"  # else SQLite prefers a cursor with `since`
_UPDATED: Final = "(coalesce(UPDATED, t.created) >= ? OR t.driver IS NOT NULL)"
_PENDING: Final = "(coalesce(PENDING, -1) <> 0 OR t.driver IS NOT NULL)"
_FILTERS: Final[dict[str, LiteralString]] = {
    "agent": "t.agent = ?",
    "thread_id": "t.thread = ?",
    "parent": "t.parent = ?",
    "base": "t.base = (SELECT id FROM tasks WHERE key = ?)",
    "search": "(t.search IS NULL OR POSITION(t.search, ?) > 0)",
    "updated_since": _UPDATED,
}
_NARROWER: Final = ("thread_id", "parent", "base", "beginning")
"""Filters whose index is more selective than that of tenants."""

_LINK: Final = "SELECT id, base, base_seq, mark_seq FROM tasks WHERE key = ?"
_LINK_OF_BASE: Final = "SELECT id, base, base_seq, mark_seq FROM tasks WHERE id = ?"
_BASE: Final = "SELECT base, base_seq FROM tasks WHERE id = ?"
_DIGEST: Final = "SELECT digest FROM records WHERE task = ? AND seq >= ? ORDER BY seq LIMIT 1"
_DRIVERS: Final = "SELECT d.id, d.host, d.boot, d.pid, d.started, LEASED FROM drivers d"
_INBOX: Final = """SELECT i.key, i.kind, i.data, i.created FROM tasks t
LEFT JOIN inbox i ON i.task = t.id AND i.taken = FALSE WHERE t.key = ? AND t.deleted = FALSE ORDER BY i.pos"""
_WITH_MAIL: Final = """SELECT key FROM tasks
WHERE id IN (SELECT task FROM inbox WHERE taken = FALSE) AND deleted = FALSE"""
_MEMBERS: Final = """SELECT m.version, t.key, m.seq, NULL, m.covers FROM members m JOIN tasks t ON t.id = m.task
WHERE m.thread = ? AND m.version > ? AND m.version <= ? AND (m.gone IS NULL OR m.gone > ?) ORDER BY m.version"""
_THREADS: Final = """SELECT key, version, (SELECT count(*) FROM members m
WHERE m.thread = h.THREAD_ROW AND gone IS NULL AND covers = 0)
FROM threads h WHERE version > 0 AND tenant = ? AND key > ? ORDER BY key LIMIT ?"""
_GRANTS: Final = """SELECT id, tool, definition, rule, thread, given_by, task, request, created, revoked, revoked_by
FROM grants WHERE {} = ? AND (? OR revoked IS NULL) ORDER BY created, id"""

Part = tuple[int, int, int | None, int | None]
"""A task of a chain of forks: its row, the last event before its own, the last shared event (None for all), and the
last event in its row.
"""


class SharedQueries:
    """Queries of a journal in a database, each a function of a connection; see `query_reader.Queries`.

    Args:
        dialect: the SQL of the database.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._run = dialect.execute

    # ---------------------------------------------------------------------------------------------- tasks

    def row(self, connection: Connection, key: str, deleted: bool = False) -> TaskRow:
        """Return a task's row; raise `TaskNotFound`."""
        columns = self._run(connection, _ROW, (key, deleted)).fetchone()
        if columns is None:
            raise rules.task_not_found(key)
        return self.row_of(columns)

    def row_of(self, columns: Any) -> TaskRow:
        """Return a task's row from its `COLUMNS`."""
        key, agent, thread, state, created, parent, base, base_seq, epoch, labels, head = columns[:11]
        mark, digest, deleted, wanted, min_format, figures, driver, *facts, lease_end = columns[11:]
        return TaskRow(
            task_id=key,
            agent=agent,
            thread_id=thread,
            state=state,
            created=created,
            parent=parent,
            base=base,
            base_seq=base_seq,
            epoch=epoch,
            labels=json.loads(labels),
            driver=driver and Driver(driver, facts[0], facts[2], self._dialect.is_alive(*facts), lease_end),
            head=head,
            mark=None if mark is None else JournalEnd(mark, digest),
            deleted=bool(deleted),
            due_at=wanted,
            format=min_format,
            figures=listing.figures_of_column(figures),
            tenant=tenant_of(key),
        )

    def dead_drivers(self, connection: Connection) -> list[int]:
        """Return the drivers that are not alive."""
        drivers = self._run(connection, _DRIVERS)
        return [driver for driver, *facts in drivers if not self._dialect.is_alive(*facts)]

    def tasks_with_mail(self, connection: Connection) -> tuple[str, ...]:
        """Return the ids of the tasks with untaken items in their inboxes."""
        return tuple([str(key) for (key,) in self._run(connection, _WITH_MAIL)])

    # ------------------------------------------------------------------------------------------- adoption

    def in_order(
        self,
        connection: Connection,
        dead: Iterable[Candidate],
        others: Iterable[Candidate],
        query: AdoptionQuery,
    ) -> list[TaskRow]:
        """Return the rows of the candidates for adoption, in order; see `adoption_order.in_order`."""
        keys = adoption_order.in_order(dead, others, query)
        rows = self._rows_of(connection, "t.key", keys)
        return [rows[key] for key in keys if key in rows]

    def oldest_unknown(
        self, connection: Connection, candidates: Iterable[tuple[str, int, int | None]], query: AdoptionQuery
    ) -> list[TaskRow]:
        """Return the oldest task of each agent and format that a process does not know.

        Args:
            connection: the connection to read with.
            candidates: agents and formats, each with the row of a task that may be the oldest, or None.
            query: has the agents and formats that the process knows.
        """
        oldest: dict[tuple[str, int], int] = {}
        for agent, format_, task in candidates:
            if task is not None and (agent not in query.agents or format_ > query.format):
                oldest[agent, format_] = min(task, oldest.get((agent, format_), task))
        return list(self._rows_of(connection, "t.id", sorted(oldest.values())).values())

    def _rows_of(
        self, connection: Connection, column: LiteralString, values: Sequence[str | int]
    ) -> dict[str, TaskRow]:
        """Return the rows with one of these values in a column, by the names that the store keeps."""
        if not values:
            return {}
        query = f"{ROWS} WHERE {column} IN_ARRAY ORDER BY t.id"
        cursor = self._run(connection, query, (self._dialect.array(values),))
        return {columns[0]: self.row_of(columns) for columns in cursor}

    # ---------------------------------------------------------------------------------------------- lists

    def rows(self, connection: Connection, task_filter: TaskFilter) -> list[TaskRow]:
        """Return the listed tasks that match, newest first."""
        limit = max(task_filter.limit, 0)
        if task_filter.states is None:
            return self._newest_rows(connection, task_filter, limit)
        with self._dialect.same_snapshot(connection):
            resting = [
                self._newest_rows(connection, task_filter, limit, _RESTING, state)
                for state in listing.resting_states(task_filter.states)
            ]
            # The state of an owned task is known only once its row is read. Owned tasks are few, and read separately.
            owned = [
                row
                for row in self._newest_rows(connection, task_filter, None, _OWNED)
                if row.display_state in task_filter.states
            ]
        return listing.newest([*resting, owned], limit)

    def _newest_rows(
        self,
        connection: Connection,
        task_filter: TaskFilter,
        limit: int | None,
        term: LiteralString = _LISTED,
        *values: str,
    ) -> list[TaskRow]:
        """Return the newest matching rows that satisfy a term; all of them without a limit."""
        # Owned tasks are found by the index of owned tasks, and not by that of times.
        source, by, terms, bindings = _source(task_filter, "UNINDEXED " if term == _OWNED else "")
        terms.append(term)
        bindings += values
        if task_filter.cursor is not None:
            terms.append(f"({by}.created, {by}.key) < (?, ?)")
            bindings += listing.position(task_filter.cursor)
        where: LiteralString = " AND ".join(terms)
        query = f"{COLUMNS} {source} {JOINED} WHERE {where} ORDER BY {by}.created DESC, {by}.key DESC"
        if limit is not None:
            query += " LIMIT ?"
            bindings.append(limit)
        return [self.row_of(columns) for columns in self._run(connection, query, bindings)]

    def sums(self, connection: Connection, task_filter: TaskFilter) -> dict[str, TaskSums]:
        """Return the number and the spending of the matching tasks, by state."""
        source, _, terms, bindings = _source(task_filter)
        if task_filter.search is not None:
            terms.append("t.search IS NOT NULL")
        where: LiteralString = " AND ".join(terms)
        query = f"{_SUMS} {source} {JOINED} WHERE {where} GROUP BY t.state, d.id"
        result: dict[str, TaskSums] = {}
        for state, owned, *facts in self._run(connection, query, bindings):
            process, counts = facts[:5], facts[5:]
            is_driven = self._dialect.is_alive(*process) if owned else None
            display_state = state_word(state, is_driven)
            if listing.has_state(display_state, task_filter.states, driven=bool(is_driven)):
                result.setdefault(display_state, TaskSums()).add(
                    TaskSums(*map(int, counts), driven=counts[0] if is_driven else 0)
                )
        return result

    def usage(self, connection: Connection, task_filter: TaskFilter, by: str) -> dict[str | None, TaskSums]:
        """Return the number and the spending of the matching tasks, by agent, day, model or label."""
        source, _, terms, bindings = _source(replace(task_filter, search=None))
        key = _USAGE_KEYS.get(by, _LABEL_OF)
        if by not in _USAGE_KEYS:
            bindings = [listing.label_of(by), *bindings]
        where: LiteralString = " AND ".join(terms)
        query = f"SELECT {key}, {_SPENT} {source} WHERE {where} GROUP BY 1"
        return {name: TaskSums(*map(int, counts)) for name, *counts in self._run(connection, query, bindings)}

    # ------------------------------------------------------------------------- inboxes, threads and grants

    def inbox(self, connection: Connection, key: str) -> list[InboxItem]:
        """Return a task's items that are not taken yet, in order of arrival; raise `TaskNotFound`."""
        items = self._run(connection, _INBOX, (key,)).fetchall()
        if not items:
            raise rules.task_not_found(key)
        return [
            InboxItem(item, kind, json.loads(data), at) for item, kind, data, at in items if item is not None
        ]

    def thread(
        self, connection: Connection, key: str, version: int | None, since: int = 0
    ) -> tuple[int, list[ThreadMember]]:
        """Return a thread's version and the members added since version `since`, now or at an earlier version."""
        with self._dialect.same_snapshot(connection):
            query = "SELECT THREAD_ROW, version FROM threads WHERE key = ?"
            thread = self._run(connection, query, (key,)).fetchone()
            if thread is None:
                return 0, []
            at = thread[1] if version is None else min(version, thread[1])
            members = self._run(connection, _MEMBERS, (thread[0], since, at, at)).fetchall()
        return at, [ThreadMember(*member) for member in members]

    def threads(self, connection: Connection, limit: int, after: str | None, tenant: str) -> list[ThreadRow]:
        """Return the threads of a tenant that have a version, by ascending id."""
        bindings = (tenant, after or "", max(limit, 0))
        return [ThreadRow(*columns) for columns in self._run(connection, _THREADS, bindings)]

    def grants(
        self, connection: Connection, tool: str | None, revoked: bool, tenant: str
    ) -> list[StandingGrant]:
        """Return a tenant's approvals for later calls, oldest first."""
        # Only its tenant may see the name of a tool.
        column, name = ("tenant", tenant) if tool is None else ("tool", tool)
        return [
            StandingGrant(*columns)
            for columns in self._run(connection, _GRANTS.format(column), (name, revoked))
        ]

    # ------------------------------------------------------------------------------------------- journals

    def pages(
        self,
        connection: Connection,
        key: str,
        after: int,
        upto: int | None,
        part: Callable[[Any, str, int, int, int | None], Iterable[list[Record]]],
    ) -> Iterator[list[Record]]:
        """Yield the records with events `after` + 1 to `upto`, a page at a time, the oldest ancestor's first.

        Args:
            connection: the connection to read with.
            key: the task.
            after: the last event before the first page.
            upto: the last event; None for all.
            part: returns the pages of one task of the chain, none of them empty. Its arguments are the connection, the
                key, the task's row and the two events.
        """
        chain = self._chain(connection, key)
        reached = after
        for task, own_after, shared, _ in reversed(chain):
            reached = max(after, own_after)
            last = shared if upto is None or (shared is not None and shared < upto) else upto
            if last is not None and reached >= last:
                continue
            for page in part(connection, key, task, reached, last):
                reached = page[-1].seq
                if shared is not None and reached > shared:
                    page[-1].upto = shared
                yield page
        rules.check_read(key, reached, chain[0][3], upto)

    def _chain(self, connection: Connection, key: str) -> list[Part]:
        """Return the parts of a task's journal: its own, then those of its bases."""
        link = self._run(connection, _LINK, (key,)).fetchone()
        if link is None:
            raise rules.task_not_found(key)
        chain: list[Part] = []
        shared: int | None = None
        while link is not None:
            task, base, base_seq, mark = link
            if shared is None or base_seq < shared:
                chain.append((task, base_seq, shared, mark))
                shared = base_seq
            link = None if base is None else self._run(connection, _LINK_OF_BASE, (base,)).fetchone()
        return chain

    def digest_at(self, connection: Connection, task: int, seq: int) -> bytes:
        """Return the digest of the record with event `seq` of a task or its bases."""
        while seq:
            link = self._run(connection, _BASE, (task,)).fetchone()
            if link is None:
                return b""
            base, base_seq = link
            if seq > base_seq or base is None:
                record = self._run(connection, _DIGEST, (task, seq)).fetchone()
                return record[0] if record else b""
            task = base
        return b""


def _source(
    task_filter: TaskFilter, unindexed: LiteralString = ""
) -> tuple[LiteralString, LiteralString, list[LiteralString], list[Any]]:
    """Return the parts of a list's query: its tables, the table that orders it, and the filter's terms with values.

    The terms do not cover states and the cursor. A list by label reads the index of labels first. `unindexed` before a
    column prevents the use of indexes of times.
    """
    source: LiteralString = "FROM tasks t"
    by: LiteralString = f"{unindexed}t"
    # No index of tenants is used if there is a better one.
    is_narrower = (
        unindexed or task_filter.labels or any(getattr(task_filter, name) is not None for name in _NARROWER)
    )
    terms: list[LiteralString] = [_LISTED, "UNINDEXED t.tenant = ?" if is_narrower else "t.tenant = ?"]
    bindings: list[Any] = [task_filter.tenant]
    for number, (name, value) in enumerate((task_filter.labels or {}).items()):
        terms.append(_LABELLED if number else "l.name = ? AND l.value = ?")
        bindings += [listing.label_key(name), listing.label_key(value)]
        source, by = "FROM task_labels l JOIN_IN_ORDER tasks t ON t.key = l.key", f"{unindexed}l"
    times: dict[str, LiteralString] = {"since": f"{by}.created >= ?", "until": f"{by}.created < ?"}
    for name, term in (_FILTERS | times).items():
        if (value := getattr(task_filter, name)) is not None:
            terms.append(term)
            bindings.append(value)
    if task_filter.roots:
        terms.append("t.parent IS NULL")
    if task_filter.pending:
        terms.append(_PENDING)
    if task_filter.beginning is not None:
        terms.append("t.key >= ? AND t.key < ?")
        bindings += [task_filter.beginning, task_filter.beginning + "\U0010ffff"]
    if task_filter.end is not None:
        terms.append("ENDING = ?")
        bindings += [len(task_filter.end), task_filter.end]
    return source, by, terms, bindings
