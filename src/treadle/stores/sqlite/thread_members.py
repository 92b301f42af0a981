"""The members of threads in a journal file: the check of a change, and the change."""

from __future__ import annotations

from treadle.ports import (
    Commit,
    ThreadChange,
)
from treadle.stores import rules
from treadle.stores.sqlite.statements import Statements

_SINCE_NEWEST = """SELECT version, covers FROM members WHERE thread = ?1 AND gone IS NULL
AND version >= (SELECT max(version) FROM members WHERE thread = ?1 AND task = ?2 AND gone IS NULL) ORDER BY version"""


def check(sql: Statements, task: int, commit: Commit) -> tuple[int | None, int]:
    """Return the row of a commit's thread, None if it has none yet, and the version of the member to take out."""
    change = commit.thread
    assert change is not None
    row, version = sql.one("SELECT id, version FROM threads WHERE key = ?", change.thread_id) or (
        None,
        0,
    )
    members = sql.all(_SINCE_NEWEST, row, task) if change.action == "remove" else ()
    return row, rules.check_thread(commit, version, members)


def apply(
    sql: Statements, task: int, seq: int, change: ThreadChange, row: int | None, taken_out: int
) -> None:
    """Add a task to a thread with its events up to `seq`, or take its member out."""
    if row is None:
        row = sql.insert("INSERT INTO threads(key, version) VALUES (?, 0)", change.thread_id)
    sql.run("UPDATE threads SET version = version + 1 WHERE id = ?", row)
    version = sql.one("SELECT version FROM threads WHERE id = ?", row)[0]
    if change.action == "add":
        values = (row, version, task, seq, change.covers)
        sql.run("INSERT INTO members VALUES (?, ?, ?, ?, NULL, ?)", *values)
    else:
        sql.run("UPDATE members SET gone = ? WHERE thread = ? AND version = ?", version, row, taken_out)
