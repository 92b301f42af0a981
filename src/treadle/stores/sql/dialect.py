"""The differences between the SQL of SQLite and that of PostgreSQL.

A shared statement has `?` for each value, `FALSE` and `TRUE`, and words in capitals where the databases differ. Each
dialect has a text for every word:

    IN_ARRAY        whether a column has one of the values of an array
    JOIN_IN_ORDER   a join whose left table is read first
    UNINDEXED       before a column: no index of it is used
    UNLIKELY        before a term in brackets: few rows satisfy it
    POSITION        the function that finds a text in another one
    ENDING          the end of `t.key`, by its length
    DAY             the day of `t.created`
    TOKENS, COST, UPDATED, PENDING, MODEL   fields of `t.figures`
    THREAD_ROW      the column of `threads` that `members.thread` refers to
    LEASED          the lease of `d` in the form that `Dialect.is_alive` takes
    LEASE_END       the end of the lease of `d`, in microseconds since 1970
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any, Final, LiteralString, Protocol, cast

_WORD: Final = re.compile(r"\?|\b[A-Z]+(?:_[A-Z]+)*\b")
_CACHED_STATEMENTS: Final = 512


class Rows(Protocol):
    """The rows of a statement."""

    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """The part of a database's connection that shared statements use."""

    def execute(self, query: LiteralString, bindings: Sequence[Any] = (), /) -> Rows: ...


class Dialect:
    """The SQL of one database.

    Args:
        words: the texts of the words, including `?`.
        array: returns the value to bind for the `?` of `IN_ARRAY`.
        is_alive: returns whether a driver is alive: host, boot, process id, start and `LEASED` of its row.
        same_snapshot: lets all statements of a block see the same state.
        referred_blobs: selects the blobs of a task's records after an event; values: task, event.
        drop_blobs: deletes the blobs of an array that no record refers to.
    """

    def __init__(
        self,
        words: Mapping[str, LiteralString],
        *,
        array: Callable[[Sequence[Any]], object],
        is_alive: Callable[[str, str, int, int, Any], bool],
        same_snapshot: Callable[[Any], AbstractContextManager[None]],
        referred_blobs: LiteralString,
        drop_blobs: LiteralString,
    ) -> None:
        self.array = array
        self.is_alive = is_alive
        self.same_snapshot = same_snapshot
        self.referred_blobs: LiteralString = referred_blobs
        self.drop_blobs: LiteralString = drop_blobs
        self._words = words
        self._translated = lru_cache(_CACHED_STATEMENTS)(self._translate)

    def statement(self, text: LiteralString) -> LiteralString:
        """Return a shared statement, or a part of one, in the SQL of the database."""
        return self._translated(text)

    def execute(self, connection: Connection, text: LiteralString, values: Sequence[Any] = ()) -> Rows:
        """Run a shared statement."""
        return connection.execute(self._translated(text), values)

    def _translate(self, text: str) -> LiteralString:
        return cast(LiteralString, _WORD.sub(lambda word: self._words.get(word[0], word[0]), text))
