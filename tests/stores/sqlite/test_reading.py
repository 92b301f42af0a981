"""The queries of a journal file: which index answers a list."""

from pathlib import Path
from typing import Any

import pytest

from treadle.ports import TaskFilter
from treadle.stores.sqlite import reading
from treadle.stores.sqlite.schema import connect_writer


class Plans:
    """A connection that notes how the file would answer each list, as SQLite says it."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.plans: list[str] = []

    def execute(self, sql: str, bindings: Any = ()) -> Any:
        explained = self.connection.execute(f"EXPLAIN QUERY PLAN {sql}", bindings).fetchall()
        self.plans.append(" | ".join(row[3] for row in explained if "records" not in row[3]))
        return self.connection.execute(sql, bindings)


@pytest.mark.parametrize(
    ("fields", "index"),
    [
        ({}, "tasks_by_created"),
        ({"cursor": "5.t"}, "tasks_by_created"),
        ({"since": 5, "until": 9}, "tasks_by_created"),
        ({"agent": "x"}, "tasks_by_agent"),
        ({"agent": "x", "since": 5}, "tasks_by_agent"),
        ({"thread_id": "x"}, "tasks_by_thread"),
        ({"states": ("failed",)}, "tasks_by_state"),
        ({"states": ("failed", "paused"), "since": 3, "cursor": "9.t"}, "tasks_by_state"),
        ({"labels": {"team": "blue"}}, "SEARCH l USING PRIMARY KEY"),
        ({"labels": {"team": "blue", "kind": "a"}, "since": 3}, "SEARCH l USING PRIMARY KEY"),
        ({"search": "refund"}, "tasks_by_created"),
        ({"parent": "x"}, "tasks_by_parent"),
    ],
)
def test_a_page_is_read_along_an_index_in_the_order_of_lists(
    tmp_path: Path, fields: dict[str, Any], index: str
) -> None:
    plans = Plans(connect_writer(tmp_path / "journal.db"))
    reading.rows(plans, TaskFilter(**fields))  # type: ignore[arg-type]
    *resting, last = plans.plans
    for plan in resting or [last]:
        assert index in plan, plan
        assert "SCAN t " not in plan.replace("SCAN t USING INDEX", ""), plan
        assert "TEMP B-TREE" not in plan or fields.keys() == {"parent"}, plan
    if resting:
        assert "tasks_by_driver" in last
