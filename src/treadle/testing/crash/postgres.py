"""Fault points inside a PostgreSQL transaction: before COMMIT is sent, and before its response."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from treadle.stores.postgres import PostgresStore
from treadle.stores.postgres.schema import Address
from treadle.stores.postgres.writer import PostgresWriter
from treadle.stores.writer_thread import Item

COMMIT: Final = "COMMIT"

Writing: TypeAlias = Mapping[object, Sequence[str]]
"""The names of current writes, by the id of the commit or inbox item, or by the task of a claim."""

Reach: TypeAlias = Callable[..., None]


def watch_transactions(store: PostgresStore, writing: Writing, reach: Reach) -> None:
    """Make a store that is not opened yet pass fault points inside its transactions.

    Args:
        store: the store.
        writing: the names of the current writes.
        reach: called in the writer's thread with `inside NAME`, then `committing NAME`, for all writes of a group.
    """
    store.new_writer = partial(_WatchedWriter, writing, reach)


class _WatchedWriter(PostgresWriter):
    """A writer that reaches places around the COMMIT of each transaction."""

    def __init__(self, writing: Writing, reach: Reach, to: Address, patience: float) -> None:
        self._writing = writing
        self._reach = reach
        self._inside: list[str] = []
        super().__init__(to, patience)

    def _prepare(self, connection: Any, items: list[Item], unconfirmed: list[Any] | None) -> Any:
        results, finish = super()._prepare(connection, items, unconfirmed)
        begun = [
            item for item, result in zip(items, results, strict=True) if not isinstance(result, Exception)
        ]
        self._inside = [name for item in begun for name in self._writing.get(_key(item), ())]
        return results, finish

    def _connect(self, *, first: bool = False) -> None:
        super()._connect(first=first)
        connection: Any = self._connection
        execute = connection.execute

        def watched(query: Any, *args: Any, **options: Any) -> Any:
            if query != COMMIT or not self._inside:
                return execute(query, *args, **options)
            # In a pipeline the server already has all statements, and has COMMIT too once this returns.
            self._reach(*[f"inside {name}" for name in self._inside])
            answer = execute(query, *args, **options)
            self._reach(*[f"committing {name}" for name in self._inside])
            return answer

        connection.execute = watched


def _key(item: Item) -> object:
    match item.operation:
        case "claim":
            return item.argument[0]
        case "post":
            return id(item.argument[1])
        case _:
            return id(item.argument)
