"""Stores that earlier versions wrote, one of each format: read, listed, driven on, and migrated by several at once."""

import asyncio
import gzip
import sqlite3
import sys
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import psycopg
import pytest

from tests.stores.older.make import AGENTS, LOOKER, SCHEMA
from treadle import Happened, Runner
from treadle.errors import TaskNotFound
from treadle.stores.postgres import schema as postgres_schema
from treadle.stores.sqlite import schema as sqlite_schema
from treadle.testing.audit import audit_store
from treadle.testing.postgres import PostgresServer

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
OLDER = sorted(
    (Path(__file__).parent / "older").glob("*.sql.gz"),
    key=lambda dump: (dump.name.partition("-")[0], int(dump.name.partition("-")[2].partition(".")[0])),
)
ENDED = ["ended", "ended too", "long"]


def name_of(dump: Path) -> str:
    return dump.name.removesuffix(".sql.gz")


@pytest.fixture
def older(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of a store that holds what a dump holds."""
    dump: Path = request.param
    sql = gzip.decompress(dump.read_bytes()).decode()
    if dump.name.startswith("sqlite"):
        with closing(sqlite3.connect(tmp_path / "journal.db")) as connection:
            connection.executescript(sql)
        return f"sqlite:///{tmp_path}/journal.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    schema = f"o{sha256(str(tmp_path).encode()).hexdigest()[:20]}"
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(
            sql.replace(f"{SCHEMA}.", f"{schema}.").replace(f" {SCHEMA};", f" {schema};").encode()
        )
    return server.in_schema(schema)


def some(*names: str) -> pytest.MarkDecorator:
    """Run a test on some stores by default, and on the others in the full run."""
    marked = [
        pytest.param(dump, marks=() if name_of(dump) in names else pytest.mark.full, id=name_of(dump))
        for dump in OLDER
    ]
    return pytest.mark.parametrize("older", marked, indirect=True)


def test_there_is_a_store_of_each_format_before_the_present_one() -> None:
    formats = [f"postgresql-{number}" for number in sorted(postgres_schema._steps())[:-1]]
    formats += [f"sqlite-{number}" for number in sorted(sqlite_schema._steps())[:-1]]
    assert [name_of(dump) for dump in OLDER] == formats


@some("sqlite-1", "sqlite-7", "postgresql-1", "postgresql-4")
async def test_a_store_of_an_earlier_format_is_read_and_listed(older: str) -> None:
    async with Runner(older, agents=AGENTS) as runner:
        assert (await runner.verify()).findings == ()
        assert await audit_store(runner.store) == []
        page = await runner.list_tasks()
        assert [(item.task_id, item.state) for item in page.items][1:] == [
            ("long", "completed"),
            ("waiting", "waiting"),
            ("paused", "paused"),
            ("begun", "interrupted"),
            ("ended too", "completed"),
            ("ended", "completed"),
        ]
        assert [item.task_id for item in (await runner.list_tasks(labels={"team": "wood"})).items] == [
            "begun"
        ]
        assert [item.task_id for item in (await runner.list_tasks(state="completed")).items] == ENDED[::-1]
        assert [item.task_id for item in (await runner.list_tasks(thread_id="talk")).items] == ENDED[1::-1]
        assert (await runner.count_tasks()).tasks == len(page.items) == 7
        texts = [message.text for message in await runner.get_thread("talk") if message.role == "user"]
        assert texts == ["Look.", "Look again."]
        long = await runner.result("long")
        assert [call.output for call in long.tool_executions] == ["word " * 1_700]
        assert long.output == "A long text."
        assert [row.task_id for row in await runner.store.orphans(10)] == ["begun"]
        with pytest.raises(TaskNotFound):
            await runner.get_task("gone")


@some("sqlite-1", "sqlite-7", "postgresql-1", "postgresql-4")
async def test_tasks_in_a_store_of_an_earlier_format_are_driven_to_their_end(older: str) -> None:
    async with Runner(older, agents=AGENTS) as runner:
        [fork] = [item for item in (await runner.list_tasks()).items if len(item.task_id) == 36]
        waiting = await runner.result("waiting")
        await runner.settle("waiting", waiting.pending[0].request_id, Happened("rome booked"))
        outputs = {
            task: (await runner.resume(task)).output for task in ("begun", "paused", "waiting", fork.task_id)
        }
        assert outputs == {
            "begun": "Both are free.",
            "paused": "Both are free.",
            "waiting": "Rome is booked.",
            fork.task_id: "Both are free.",
        }
        thread = await runner.get_thread((await runner.get_task("begun")).thread_id)
        assert [message.text for message in thread if message.role == "user"] == ["Look.", "Be quick."]
        await runner.undo_step("ended too", to=1)
        assert (await runner.resume("ended too")).state == "completed"
        assert (await runner.run(LOOKER, "And now?", task_id="new", thread_id="talk")).state == "completed"
        assert [item.task_id for item in (await runner.list_tasks(search="quick")).items] == []
        assert [item.task_id for item in (await runner.list_tasks(search="now?")).items] == ["new"]
        await runner.delete_thread("talk")
        assert tuple(await runner.get_thread("talk")) == ()
        assert (await runner.count_tasks()).tasks == 5
        assert (await runner.verify()).findings == ()
        assert await audit_store(runner.store) == []


# ------------------------------------------------------------------------------- several at once


@some("sqlite-1", "postgresql-1")
async def test_stores_that_open_an_earlier_format_at_once_migrate_it_once(older: str) -> None:
    runners = [Runner(older, agents=AGENTS) for _ in range(4)]
    await asyncio.gather(*(runner.store.open() for runner in runners))
    lists = await asyncio.gather(*(runner.list_tasks(labels={"team": "wood"}) for runner in runners))
    assert [[item.task_id for item in page.items] for page in lists] == [["begun"]] * 4
    await asyncio.gather(*(runner.aclose() for runner in runners))


PROCESS = """
import asyncio, sys
from tests.stores.older.make import AGENTS
from treadle import Runner

async def main(store, task):
    async with Runner(store, agents=AGENTS) as runner:
        print((await runner.resume(task)).output)

print("ready", flush=True)
input()
asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.full
@pytest.mark.parametrize("older", OLDER, ids=name_of, indirect=True)
async def test_processes_that_open_an_earlier_format_at_once_drive_its_tasks(older: str) -> None:
    command, pipe = [sys.executable, "-c", PROCESS, older], asyncio.subprocess.PIPE
    processes = [
        await asyncio.create_subprocess_exec(*command, task, cwd=ROOT, stdin=pipe, stdout=pipe)
        for task in ("begun", "paused", "begun")
    ]
    for process in processes:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
    ends = await asyncio.gather(*(process.communicate(b"go\n") for process in processes))
    assert [output for output, _ in ends] == [b"Both are free.\n"] * 3
    async with Runner(older, agents=AGENTS) as runner:
        assert (await runner.verify()).findings == ()
        assert await audit_store(runner.store) == []
