"""How much a look for tasks to adopt reads in a database: nothing of what the process may not take."""

import sqlite3
import sys
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from treadle import Agent, Runner, ScriptedModel
from treadle.core.events import JOURNAL_FORMAT
from treadle.ports import AdoptionQuery
from treadle.stores.memory import MemoryStore
from treadle.stores.postgres import reading
from treadle.stores.postgres.schema import BoundedConnection
from treadle.stores.sqlite import reading as sqlite
from treadle.testing.conformance.store_adoption import waiting

pytestmark = pytest.mark.anyio

OURS: Agent[Any] = Agent(ScriptedModel(["Done."]), name="ours")
COPIED = """INSERT INTO tasks ({columns})
SELECT {values} FROM tasks t, {numbers} g WHERE t.key = 'one'"""


async def test_a_look_in_a_file_reads_as_much_beside_ten_thousand_tasks_as_beside_none(
    tmp_path: Path,
) -> None:
    path = tmp_path / "journal.db"
    async with Runner(path) as runner:
        await runner.submit(OURS, "Go", task_id="one")
    query = AdoptionQuery(10, ("ours",), JOURNAL_FORMAT, full_tenants=frozenset({"full"}))

    def steps() -> int:
        """Count how often SQLite's machine takes ten steps for a look."""
        counts = [0]

        def count() -> bool:
            counts[0] += 1
            return False

        with closing(apsw.Connection(str(path))) as connection:
            connection.set_progress_handler(count, 10)
            looked = [row.task_id for row in sqlite.adoptable(connection, query)]  # type: ignore[arg-type]
            sqlite.unadoptable(connection, query)  # type: ignore[arg-type]
            sqlite.orphans(connection, 200, None, 1, True)  # type: ignore[arg-type]
        assert looked == ["one"]
        return counts[0]

    alone = steps()
    with closing(sqlite3.connect(path)) as connection, connection:
        columns = [
            row[1] for row in connection.execute("PRAGMA table_info(tasks)") if row[1] not in ("id", "tenant")
        ]
        for key, agent in (("'a' || g.value", "'theirs'"), ("'full' || char(31) || g.value", "t.agent")):
            values = ", ".join({"key": key, "agent": agent}.get(each, f"t.{each}") for each in columns)
            numbers = (
                "(WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n LIMIT 10000) "
                "SELECT value FROM n)"
            )
            connection.execute(COPIED.format(columns=", ".join(columns), values=values, numbers=numbers))
    assert steps() < alone + 200


async def test_a_look_in_memory_reads_as_much_beside_ten_thousand_tasks_as_beside_none() -> None:
    store = MemoryStore()
    await waiting(store, "one", agent="ours")
    query = AdoptionQuery(10, ("ours",), JOURNAL_FORMAT, full_tenants=frozenset({"full"}))

    async def steps() -> int:
        """Count how many lines run for a look."""
        counts, before = [0], sys.gettrace()

        def count(frame: Any, event: str, argument: Any) -> Any:
            counts[0] += event == "line"
            return count

        sys.settrace(count)
        try:
            looked = [row.task_id for row in await store.adoptable(query)]
            await store.unadoptable(query)
            await store.orphans(200, indirect=True)
        finally:
            sys.settrace(before)
        assert looked == ["one"]
        return counts[0]

    alone = await steps()
    for number in range(2_500):
        await waiting(store, f"a{number}", agent="theirs")
        await waiting(store, f"full\x1f{number}", agent="ours")
        await waiting(store, f"later{number}", agent="ours", due_at=2**50)
        await waiting(store, f"child{number}", agent="ours", parent="p", due_at=2**50)
    assert await steps() < alone + 100


async def test_a_look_in_postgresql_reads_as_many_rows_beside_ten_thousand_tasks_as_beside_none(
    postgres: Any, postgres_url: str
) -> None:
    async with Runner(postgres_url) as runner:
        await runner.submit(OURS, "Go", task_id="one")
    schema = postgres_url.rpartition("schema=")[2]
    query = AdoptionQuery(10, ("ours",), JOURNAL_FORMAT, full_tenants=frozenset({"full"}))
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"SET search_path TO {schema}".encode())
        columns = [
            name
            for (name,) in connection.execute(
                "SELECT column_name::text FROM information_schema.columns WHERE table_schema = %s "
                "AND table_name = 'tasks' AND is_generated = 'NEVER' ORDER BY ordinal_position",
                (schema,),
            )
        ]
        for key, agent in (("'a' || g", "'theirs'"), ("'full' || chr(31) || g", "t.agent")):
            values = ", ".join(
                {"id": "nextval('task_ids')", "key": key, "agent": agent}.get(each, f"t.{each}")
                for each in columns
            )
            copied = COPIED.format(
                columns=", ".join(columns), values=values, numbers="generate_series(1, 10000)"
            )
            connection.execute(copied.encode())
        connection.execute("ANALYZE tasks")
        bindings = {
            "agents": ["ours"],
            "format": JOURNAL_FORMAT,
            "until": 1,
            "full": ["full"],
            "excluded": [],
            "starts": [""],
            "dead": [0],
            "limit": 10,
            "last": 0,
        }
        assert [row.task_id for row in reading.adoptable(_read_only(connection), query)] == ["one"]
        for sql in (
            reading._ADOPTABLE,
            reading._UNADOPTABLE,
            reading._ROWS + reading._INDIRECT,
        ):
            row = connection.execute("EXPLAIN (ANALYZE, FORMAT JSON) " + sql, bindings).fetchone()
            assert row is not None
            assert _rows_read(row[0][0]["Plan"]) < 200, sql


def _read_only(connection: Any) -> BoundedConnection:
    return connection


def _rows_read(plan: dict[str, Any]) -> int:
    """Return how many rows the scans of tables in a plan read."""
    read = 0
    if "Relation Name" in plan:
        read = (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)) * plan["Actual Loops"]
    return read + sum(_rows_read(part) for part in plan.get("Plans", ()))


@pytest.fixture
def postgres_url(postgres: Any, tmp_path: Path) -> str:
    return postgres.in_schema(f"b{sha256(str(tmp_path).encode()).hexdigest()[:20]}")
