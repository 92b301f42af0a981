"""A deletion finds its rows by indexes, however many tasks a database has."""

from pathlib import Path
from typing import Any

import pytest

from treadle.stores.sql import deletion
from treadle.stores.sql.deletion import Deletion
from treadle.stores.sqlite import SQLiteStore
from treadle.stores.sqlite.dialect import SQLITE
from treadle.stores.sqlite.schema import connect_writer
from treadle.testing.conformance.owner import Owner, add


class Plans:
    """A connection that notes how the file would carry out each statement, as SQLite says it."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.plans: dict[str, list[str]] = {}

    def execute(self, sql: str, bindings: Any = ()) -> Any:
        explained = self.connection.execute(f"EXPLAIN QUERY PLAN {sql}", bindings).fetchall()
        self.plans[sql] = [row[3] for row in explained]
        return self.connection.execute(sql, bindings)


@pytest.mark.anyio
async def test_no_statement_reads_a_whole_table(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "journal.db")
    for number, task in enumerate(("first", "second")):
        owner = await Owner.create(store, task, thread_id="talk")
        await owner.write(thread=add(number))
        await owner.release()
    await store.close()
    plans = Plans(connect_writer(tmp_path / "journal.db"))
    assert Deletion(SQLITE, plans, None).task("first") == ["first"]
    assert Deletion(SQLITE, plans, None).thread("talk") == ["second"]
    texts = [text for name, text in vars(deletion).items() if name.isupper() and name != "_FAMILY"]
    assert {SQLITE.statement(text) for text in texts} <= plans.plans.keys()
    scans = {line for plan in plans.plans.values() for line in plan if line.startswith("SCAN")}
    assert scans <= {
        "SCAN f",
        "SCAN c",
        "SCAN json_each VIRTUAL TABLE INDEX 1:",
    }  # families, chains and arrays
