"""The queries of a journal file: which index answers a list, and in which thread it is read."""

import asyncio
from pathlib import Path
from threading import current_thread
from typing import Any

import pytest

from treadle.ports import TaskFilter
from treadle.stores.sqlite import SQLiteStore, reading
from treadle.stores.sqlite.schema import connect_writer
from treadle.testing.conformance.owner import Owner, send


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
        ({"roots": True}, "tasks_by_created"),
        ({"updated_since": 5}, "tasks_by_created"),
        ({"states": ("waiting",), "pending": True}, "tasks_by_state"),
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


@pytest.fixture
async def long(tmp_path: Path) -> Any:
    """A store with one task of three pages of records."""
    store = SQLiteStore(tmp_path / "journal.db")
    owner = await Owner.create(store, "t")
    written = list[asyncio.Future[Any]]()
    for _ in range(2 * reading.PAGE + 10):
        record = owner.record()
        written.append(send(store, owner.commit(record)))
        owner.seq, owner.digest = record.seq, record.digest
    await asyncio.gather(*written)
    await owner.release()
    yield store
    await store.close()


@pytest.mark.anyio
async def test_lists_are_read_in_other_threads_and_points_in_that_of_the_loop(
    long: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = dict[str, Any]()

    def noted(name: str, query: Any) -> Any:
        def noting(*arguments: Any) -> Any:
            threads[name] = current_thread()
            return query(*arguments)

        return noting

    for name in ("rows", "sums", "usage", "threads", "grants"):
        monkeypatch.setattr(reading, name, noted(name, getattr(reading, name)))
    wanted = TaskFilter()
    assert len(await long.rows(wanted)) == 1
    await asyncio.gather(long.sums(wanted), long.usage(wanted, "agent"), long.threads(5), long.grants())
    assert current_thread() not in threads.values()
    assert len(threads) == 5


@pytest.mark.anyio
async def test_a_long_journal_is_read_whole_while_the_loop_works_on(long: SQLiteStore) -> None:
    turns = list[int]()

    async def other_work() -> None:
        while True:
            turns.append(1)
            await asyncio.sleep(0)

    other = asyncio.ensure_future(other_work())
    records = await long.read("t")
    other.cancel()
    assert [record.seq for record in records] == list(range(1, 2 * reading.PAGE + 12))
    assert turns
    assert [record.seq for record in await long.read("t", after=600, upto=1_005)] == list(range(601, 1_006))


@pytest.mark.anyio
async def test_a_reader_that_is_cancelled_leaves_its_connection_as_it_was(long: SQLiteStore) -> None:
    for ticks in range(12):
        task = asyncio.ensure_future(long.read("t"))
        for _ in range(ticks):
            await asyncio.sleep(0)
        task.cancel()
        task.cancel()
        await asyncio.wait([task])
        listing = asyncio.ensure_future(long.rows(TaskFilter()))
        await asyncio.sleep(0)
        listing.cancel()
        await asyncio.wait([listing])
    assert len(await long.read("t")) == 2 * reading.PAGE + 11
    assert len(await long.rows(TaskFilter())) == 1
    assert not any(connection.in_transaction for connection in long._readers)


def test_a_list_is_read_also_when_the_loop_begins_nothing_in_threads_any_more(tmp_path: Path) -> None:
    async def read() -> int:
        store = SQLiteStore(tmp_path / "journal.db")
        await (await Owner.create(store, "t")).release()
        await asyncio.get_running_loop().shutdown_default_executor()
        found = len(await store.rows(TaskFilter()))
        await store.close()
        return found

    assert asyncio.run(read()) == 1
