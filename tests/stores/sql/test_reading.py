"""The statements of lists have the same terms and the same values in both databases."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from psycopg.pq import TransactionStatus

from treadle.ports import TaskFilter
from treadle.stores.postgres.dialect import POSTGRES
from treadle.stores.sql.dialect import Dialect
from treadle.stores.sql.reading import SharedQueries
from treadle.stores.sqlite.dialect import SQLITE


class Statements:
    """A connection to an empty database that notes what is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[Any]]] = []
        self.info = SimpleNamespace(transaction_status=TransactionStatus.INTRANS)

    def execute(self, query: str, bindings: Sequence[Any] = (), /) -> Any:
        self.asked.append((query, list(bindings)))
        return iter(())


def asked_in(dialect: Dialect, task_filter: TaskFilter) -> list[tuple[int, list[Any]]]:
    """Return the number of placeholders and the values of each statement for a list, its sums and its usage."""
    statements, queries = Statements(), SharedQueries(dialect)
    assert queries.rows(statements, task_filter) == []
    assert queries.sums(statements, task_filter) == {}
    assert queries.usage(statements, task_filter, "label:team") == {}
    placeholder = dialect.statement("?")
    return [(query.count(placeholder), bindings) for query, bindings in statements.asked]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"states": ("failed",), "cursor": "9.t", "limit": 3},
        {"labels": {"team": "blue", "kind": "a"}, "since": 3, "until": 9},
        {"agent": "a", "thread_id": "h", "parent": "p", "base": "b", "search": "refund", "tenant": "acme"},
        {"updated_since": 5, "roots": True, "pending": True, "beginning": "x", "end": "yz"},
    ],
)
def test_a_list_binds_each_value_once_and_in_one_order(fields: dict[str, Any]) -> None:
    task_filter = TaskFilter(**fields)
    asked = asked_in(SQLITE, task_filter)
    assert asked == asked_in(POSTGRES, task_filter)
    for placeholders, bindings in asked:
        assert placeholders == len(bindings)
