"""The file of the SQLite store: opening, faults of the disk, other programs, forks, the exit."""

import asyncio
import gc
import os
import random
import stat
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.forked import Forked, completed
from treadle import Agent, Runner, RunOptions, ScriptedModel
from treadle.errors import ConfigurationError, StoreError, StoreFormatError, StoreUnavailable, TaskNotFound
from treadle.ports import AT_ONCE, Commit, Committed, JournalEnd, Record, TaskFilter, ThreadChange
from treadle.stores.sqlite import SQLiteStore, schema
from treadle.testing.conformance.owner import Owner, new_task, send, until

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def opened(path: Path) -> AsyncGenerator[SQLiteStore]:
    store = SQLiteStore(path)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def writing_connection(store: SQLiteStore) -> Any:
    assert store._writer is not None
    return store._writer._connection


def sql(path: Path, *statements: str) -> list[Any]:
    connection = apsw.Connection(str(path))
    try:
        return [connection.execute(statement).fetchall() for statement in statements]
    finally:
        connection.close()


def writing_process(path: Path, task_id: str) -> subprocess.Popen[bytes]:
    module = "treadle.testing.conformance.crashing"
    command = [
        sys.executable,
        "-m",
        module,
        "write",
        "treadle.stores.sqlite.store:SQLiteStore",
        str(path),
        task_id,
        "3",
    ]
    return Forked(command, stdout=subprocess.DEVNULL)


def in_a_process(script: str, path: Path) -> str:
    command = [sys.executable, "-c", script, str(path)]
    return completed(command, timeout=60, check=True).stdout


# ------------------------------------------------------------------------------------------------ opening


async def test_a_connection_that_writes_is_safe_against_power_cuts(tmp_path: Path) -> None:
    async with opened(tmp_path / "j.db") as store:
        connection = writing_connection(store)
        wanted = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "secure_delete": 1}
        assert {name: schema.pragma(connection, name) for name in wanted} == wanted
        assert schema.pragma(connection, "busy_timeout") >= 5_000
        with store._reader() as reader, pytest.raises(apsw.ReadOnlyError):
            reader.execute("DELETE FROM tasks")


async def test_the_file_and_its_folder_belong_to_their_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / ".treadle" / "journal.db"
    async with opened(path) as store:
        await Owner.create(store, "t")
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
        assert {modes[f"journal.db{end}"] for end in ("", "-wal", "-shm")} == {0o600}
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert (path.parent / ".gitignore").read_text() == "*\n"


async def test_a_folder_that_was_there_is_left_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / ".treadle"
    folder.mkdir(mode=0o755)
    async with opened(folder / "journal.db"):
        assert not (folder / ".gitignore").exists()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o755


async def test_a_file_that_is_not_ours_is_refused_and_left_alone(tmp_path: Path) -> None:
    text, database = tmp_path / "notes.txt", tmp_path / "other.db"
    text.write_text("not a database\n" * 100)
    sql(database, "CREATE TABLE customers(name)")
    for path in (text, database):
        before = path.read_bytes()
        with pytest.raises(StoreFormatError, match=path.name):
            await SQLiteStore(path).open()
        assert path.read_bytes() == before


async def test_another_format_is_refused_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "j.db"
    async with opened(path):
        pass
    sql(path, "PRAGMA user_version = 999", "UPDATE compatible SET opens = 999")
    with pytest.raises(StoreFormatError, match="upgrade treadle"):
        await SQLiteStore(path).open()
    sql(path, "PRAGMA user_version = 1")
    monkeypatch.setattr(schema, "_steps", lambda: {99: "CREATE TABLE more(x)"})
    with pytest.raises(StoreFormatError, match="export"):
        await SQLiteStore(path).open()


async def test_a_file_to_which_a_newer_version_only_added_is_used_and_left_at_its_format(
    tmp_path: Path,
) -> None:
    path = tmp_path / "j.db"
    async with opened(path) as store:
        await (await Owner.create(store, "t")).release()
    sql(path, "ALTER TABLE tasks ADD COLUMN queue TEXT", "PRAGMA user_version = 999")
    async with opened(path) as store:
        assert (await Owner.claim(store, "t")).epoch == 2
        await Owner.create(store, "u")
    assert sql(path, "PRAGMA user_version") == [[(999,)]]


async def test_an_older_format_is_brought_up_to_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "j.db"
    async with opened(path) as store:
        await Owner.create(store, "t")
    steps = dict(schema._steps())
    newest = max(steps) + 1
    steps[newest] = "CREATE TABLE one(x); CREATE TABLE two(x)"
    monkeypatch.setattr(schema, "_steps", lambda: steps)
    async with opened(path) as store:
        assert (await store.row("t")).head == 1
    assert sql(path, "PRAGMA user_version", "SELECT count(*) FROM two") == [[(newest,)], [(0,)]]


def without_lists(path: Path) -> None:
    """Take back what the migration for lists, and those after it, added to a file."""
    tenants = [
        *[f"DROP INDEX {name}_by_tenant" for name in ("threads", "grants")],
        *[f"DROP INDEX tasks_by_{name}" for name in ("created", "state", "agent")],
        *[f"DROP INDEX tasks_{name}" for name in ("ready", "due", "wanted_children")],
        *[f"ALTER TABLE {name} DROP COLUMN tenant" for name in ("tasks", "threads")],
    ]
    indexes = ["DROP INDEX tasks_by_thread"]
    made = [f"CREATE INDEX tasks_by_{name} ON tasks({name}, key)" for name in ("state", "thread")]
    columns = [f"ALTER TABLE tasks DROP COLUMN {name}" for name in ("figures", "search")]
    tables = [f"DROP TABLE {name}" for name in ("task_labels", "grants", "deletions")]
    sql(path, *tenants, *indexes, *made, *columns, *tables, "UPDATE compatible SET opens = 7")
    sql(path, "PRAGMA user_version = 7")


async def test_a_file_without_lists_is_listed_by_label_and_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "j.db"
    agent = Agent(ScriptedModel(["blue paint"]), name="shop")
    async with Runner(path) as runner:
        for name in ("old", "gone"):
            await runner.run(agent, "A colour?", task_id=name, options=RunOptions(labels={"team": name}))
        await runner.delete_task("gone")
    without_lists(path)
    async with Runner(path) as runner:
        await runner.run(agent, "A colour?", task_id="new")
        assert [item.task_id for item in (await runner.list_tasks(labels={"team": "old"})).items] == ["old"]
        assert (await runner.list_tasks(labels={"team": "gone"})).items == ()
        assert [item.task_id for item in (await runner.list_tasks(search="blue")).items] == ["new", "old"]
        assert (await runner.list_tasks(search="red")).items == ()
        assert [item.steps for item in (await runner.list_tasks()).items] == [1, None]
        totals = await runner.count_tasks()
        assert (totals.tasks, totals.unpriced) == (2, 2)
    older = {number: step for number, step in schema._steps().items() if number < 8}
    monkeypatch.setattr(schema, "_steps", lambda: older)
    with pytest.raises(StoreFormatError, match="upgrade treadle"):
        await SQLiteStore(path).open()


async def test_a_file_of_the_first_format_learns_where_its_journals_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "j.db"
    async with opened(path) as store:
        owner = await Owner.create(store, "t")
        await owner.write(4, release=True)
        await Owner.create(store, "u")
    without_lists(path)
    added = ("mark_seq", "mark_digest", "turn", "wanted", "format")
    sql(path, *(f"DROP INDEX {name}" for name in ("tasks_by_turn", "tasks_wanted", "tasks_by_driver")))
    sql(path, *(f"ALTER TABLE tasks DROP COLUMN {name}" for name in added))
    sql(path, "ALTER TABLE members DROP COLUMN covers", "DROP TABLE compatible", "PRAGMA user_version = 1")
    async with opened(path) as store:
        assert (await store.row("t")).mark == JournalEnd(5, owner.digest)
        assert (await store.claim("t")).head == 5


async def test_a_task_that_was_wanted_before_wishes_were_times_is_wanted_at_once(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    async with opened(path) as store:
        for name, wanted in (("t", 1), ("rest", 0)):
            await (await Owner.create(store, name)).send(release=True, due_at=wanted)
    without_lists(path)
    sql(path, "ALTER TABLE tasks DROP COLUMN format", "DROP TABLE compatible", "PRAGMA user_version = 5")
    async with opened(path) as store:
        assert [(row.task_id, row.due_at) for row in await store.orphans(10)] == [("t", AT_ONCE)]


async def test_a_migration_that_fails_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "j.db"
    async with opened(path):
        pass
    steps = dict(schema._steps())
    steps[max(steps) + 1] = "CREATE TABLE one(x); CREATE TABLE one(x)"
    with monkeypatch.context() as patch:
        patch.setattr(schema, "_steps", lambda: steps)
        with pytest.raises(StoreUnavailable, match=r"j\.db.*one"):
            await SQLiteStore(path).open()
    async with opened(path) as store:
        assert await store.rows(TaskFilter()) == []


async def test_a_path_that_cannot_be_a_file_is_named_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "file" / "j.db", Path("/proc/nowhere/j.db")):
        store = SQLiteStore(path)
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match=str(path)):
                await store.open()
        with pytest.raises(StoreUnavailable, match=str(path)):
            await send(store, Commit("t", 1, create=new_task("t")))
        with pytest.raises(StoreUnavailable, match=str(path)):
            await store.rows(TaskFilter())
        await store.close()


async def test_a_store_opens_once_the_obstacle_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    path.write_text("not a database\n" * 100)
    store = SQLiteStore(path)
    with pytest.raises(StoreFormatError):
        await store.open()
    path.unlink()
    await store.open()
    await Owner.create(store, "t")
    await store.close()


def test_a_store_in_memory_has_its_own_address() -> None:
    with pytest.raises(ConfigurationError, match="MemoryStore"):
        SQLiteStore(":memory:")


@pytest.mark.parametrize("processes", [4, pytest.param(30, marks=pytest.mark.full)])
async def test_many_processes_may_open_a_fresh_file_at_once(tmp_path: Path, processes: int) -> None:
    path = tmp_path / "new" / "j.db"
    children = [writing_process(path, f"t{n}") for n in range(processes)]
    assert [await asyncio.to_thread(child.wait, 60) for child in children] == [0] * processes
    async with opened(path) as store:
        assert [row.head for row in await store.rows(TaskFilter())] == [4] * processes


def test_a_file_that_another_process_creates_meanwhile_is_not_taken_for_another_programs(
    tmp_path: Path,
) -> None:
    path = tmp_path / "j.db"
    path.touch()

    class Overtaken:
        """A connection beside which another process creates the tables after its first statement."""

        def __init__(self) -> None:
            self.connection = apsw.Connection(str(path))

        def execute(self, statement: str) -> Any:
            rows = self.connection.execute(statement).fetchall()
            if schema.pragma(other, "user_version") == 0:
                schema._migrate(other, path)
            return Rows(rows)

    class Rows(list[Any]):
        def fetchall(self) -> list[Any]:
            return self

    other: Any = apsw.Connection(str(path))
    schema._check_format(Overtaken(), path)  # type: ignore[arg-type]
    assert schema.pragma(other, "application_id") == schema.APPLICATION_ID


# ----------------------------------------------------------------------------------------- faults of the disk


async def test_a_full_disk_refuses_large_writes_and_loses_no_record(tmp_path: Path) -> None:
    async with opened(tmp_path / "j.db") as store:
        big, small = await Owner.create(store, "big"), await Owner.create(store, "small")
        connection = writing_connection(store)
        pages = schema.pragma(connection, "page_count")
        schema.pragma(connection, "max_page_count", pages + 3)
        sent = [
            send(store, big.commit(big.record(1, b"x" * 100_000))),
            send(store, small.commit(small.record(1, b"x"))),
        ]
        results = await asyncio.gather(*sent, return_exceptions=True)
        assert isinstance(results[0], StoreUnavailable)
        assert "full" in str(results[0])
        assert results[1] == Committed()
        schema.pragma(connection, "max_page_count", 1_000_000)
        await big.write(1, b"x" * 100_000)
        assert {row.head for row in await store.rows(TaskFilter())} == {2}


async def test_a_value_that_the_file_cannot_take_fails_alone(tmp_path: Path) -> None:
    async with opened(tmp_path / "j.db") as store:
        names = [f"t{n}" for n in range(50)]
        agents = {name: "\ud800" if name == "t7" else "agent" for name in names}
        sent = [send(store, Commit(n, 1, create=new_task(n, agent=agents[n]))) for n in names]
        results = await asyncio.gather(*sent, return_exceptions=True)
        assert [n for n, r in zip(names, results, strict=True) if r != Committed()] == ["t7"]
        assert isinstance(results[7], StoreUnavailable)
        assert len(await store.rows(TaskFilter())) == 49


async def test_a_commit_waits_while_another_program_holds_the_lock(tmp_path: Path) -> None:
    async with opened(tmp_path / "j.db") as store:
        owner = await Owner.create(store, "t")
        await (await Owner.create(store, "u")).release()
        await store.delete("u")  # its data in the log is removed with a shorter timeout
        other = apsw.Connection(str(store.path))
        other.execute("BEGIN IMMEDIATE")
        sent = send(store, owner.commit(owner.record()))
        await asyncio.sleep(0.3)
        assert not sent.done()
        other.execute("COMMIT")
        assert await sent == Committed()
        other.close()


async def test_a_lock_that_is_held_too_long_is_an_error_and_not_a_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "BUSY_MS", 100)
    async with opened(tmp_path / "j.db") as store:
        owner = await Owner.create(store, "t")
        other = apsw.Connection(str(store.path))
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="locked"):
            await send(store, owner.commit(owner.record()))
        other.execute("ROLLBACK")
        other.close()
        await owner.write()
        assert (await store.row("t")).head == 2


@pytest.mark.parametrize("ending", ["", "-wal"])
async def test_nothing_is_acknowledged_once_the_file_was_removed(tmp_path: Path, ending: str) -> None:
    async with opened(tmp_path / "j.db") as store:
        owner = await Owner.create(store, "t")
        (tmp_path / f"j.db{ending}").unlink()
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="removed"):
                await send(store, owner.commit(owner.record()))


@pytest.mark.parametrize("images", [25, pytest.param(500, marks=pytest.mark.full)])
async def test_random_damage_raises_typed_errors_and_never_returns_wrong_records(
    tmp_path: Path, images: int
) -> None:
    path = tmp_path / "j.db"
    async with opened(path) as store:
        for n in range(10):
            owner = await Owner.create(store, f"t{n}", labels={"a": "b"})
            for _ in range(5):
                await owner.write(2, os.urandom(400))
            large = os.urandom(9_000)
            await owner.write(blobs={sha256(large).hexdigest(): large}, thread=ThreadChange("add", "talk", n))
        intact = {f"t{n}": await store.read(f"t{n}") for n in range(10)}
    sound, unharmed = path.read_bytes(), 0
    for seed in range(images):
        chance, damaged = random.Random(seed), bytearray(sound)
        for _ in range(chance.choice([1, 3, 10])):
            damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        unharmed += await unharmed_tasks(path, intact)
    assert unharmed > images * 10 / 2


async def unharmed_tasks(path: Path, intact: dict[str, list[Record]]) -> int:
    """Return how many tasks read as they were written; let errors of other types through."""
    store, unharmed = SQLiteStore(path), 0
    for name, records in intact.items():
        with suppress(StoreError, TaskNotFound):
            await store.row(name)
            await store.inbox(name)
            found = await store.read(name)
            believed = [r.data for r in sound_prefix(found)]
            assert believed == [r.data for r in records[: len(believed)]]
            unharmed += found == records
    with suppress(StoreError):
        await store.rows(TaskFilter())
        await store.thread("talk")
    await store.close()
    return unharmed


def sound_prefix(records: list[Record]) -> list[Record]:
    """Return the records that a reader of the journal accepts: those that follow each other and fit their digests."""
    digest, seq = b"", 0
    for number, record in enumerate(records):
        blobs = all(sha256(data).hexdigest() == name for name, data in record.blobs.items())
        is_sound = sha256(digest + record.data).digest() == record.digest
        if not (blobs and is_sound and record.seq - record.count == seq):
            return records[:number]
        digest, seq = record.digest, record.seq
    return records


# --------------------------------------------------------------------------------- what is written, what stays


@pytest.mark.parametrize("what", ["task", "thread"])
async def test_messages_of_a_deleted_task_or_thread_are_erased_from_the_disk(
    what: str, tmp_path: Path
) -> None:
    async with opened(tmp_path / "j.db") as store:
        secret, kept = b"a message that must be gone", b"a message that stays"
        owner, other = await Owner.create(store, "t"), await Owner.create(store, "u")
        await owner.write(1, secret * 5, {"b": secret * 1_000}, release=True)
        await other.write(1, kept)

        def on_disk(needle: bytes) -> bool:
            return any(needle in file.read_bytes() for file in tmp_path.iterdir())

        assert on_disk(secret)
        await (store.delete("t") if what == "task" else store.delete_thread("thread-of-t"))
        await store.rows(TaskFilter())
        assert not on_disk(secret)
        assert on_disk(kept)


async def test_a_fork_writes_as_much_from_a_long_task_as_from_a_short_one(tmp_path: Path) -> None:
    async with opened(tmp_path / "j.db") as store:
        changed: list[int] = []
        for name, length in (("short", 2), ("long", 200)):
            owner = await Owner.create(store, name)
            for _ in range(length):
                await owner.write()
            before = writing_connection(store).total_changes()
            await Owner.create(store, f"fork of {name}", base=name, base_seq=owner.seq)
            changed.append(writing_connection(store).total_changes() - before)
        assert changed == [1, 1]


async def test_a_record_costs_little_more_than_its_data(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    async with opened(path) as store:
        owner = await Owner.create(store, "t")
        await asyncio.gather(*(Owner.create(store, f"t{n}") for n in range(50)))
        before = schema.pragma(writing_connection(store), "page_count")
        for _ in range(1_000):
            record = owner.record(3, b"x" * 300)
            store.commit(owner.commit(record), lambda _: None)
            owner.seq, owner.digest = record.seq, record.digest
        await store.row("t")
        pages = schema.pragma(writing_connection(store), "page_count") - before
        assert pages * 4096 / 1_000 <= 400


async def test_writes_of_a_store_do_not_wake_its_own_watchers(tmp_path: Path) -> None:
    async with opened(tmp_path / "j.db") as store:
        await Owner.create(store, "t")
        woken: list[None] = []
        end = store.watch(lambda _: woken.append(None))
        await asyncio.sleep(0.2)
        woken.clear()
        await Owner.create(store, "u")
        await asyncio.sleep(0.2)
        assert woken == []
        sql(store.path, "UPDATE tasks SET agent = 'b' WHERE key = 't'")
        await until(lambda: eventually(lambda: bool(woken)))
        end()


async def eventually(holds: Callable[[], bool]) -> bool:
    return holds()


async def test_a_driver_that_holds_a_task_keeps_its_lease_and_an_idle_store_sleeps(
    tmp_path: Path,
) -> None:
    store = SQLiteStore(tmp_path / "j.db", lease_seconds=0.5)
    await store.open()
    try:
        owner = await Owner.create(store, "t")

        async def lease() -> int:
            with store._reader() as connection:
                return connection.execute("SELECT lease FROM drivers").fetchone()[0]

        first = await lease()
        await asyncio.sleep(0.3)
        second = await lease()
        assert second > first
        await owner.release()
        third = await lease()
        await asyncio.sleep(0.3)
        assert await lease() == third
        await asyncio.sleep(0.3)
        claimed = await Owner.claim(store, "t")
        row = await store.row("t")
        assert row.driver is not None
        assert row.driver.alive, "a claim begins with a whole lease, however long its process was idle"
        await claimed.write()
    finally:
        await store.close()


async def test_dead_drivers_without_tasks_are_deleted(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    async with opened(path) as store:
        await (await Owner.create(store, "t")).release()
        past = int(time.time() * 1e6) - 1
        for n in range(3):
            sql(path, f"INSERT INTO drivers VALUES (NULL, 'dead {n}', 'h', 'b', 1, 0, {past})")
        sql(path, "UPDATE tasks SET driver = (SELECT id FROM drivers WHERE key = 'dead 1')")
    async with opened(path) as store:
        await Owner.create(store, "u")
        with store._reader() as connection:
            drivers = [key for (key,) in connection.execute("SELECT key FROM drivers ORDER BY id")]
        assert drivers[0] == "dead 1", "it still owns a task"
        assert [key for key in drivers if key.startswith("dead")] == ["dead 1", "dead 2"], (
            "the newest id stays"
        )
        await (await Owner.claim(store, "t")).release()


async def test_a_process_whose_row_was_deleted_while_it_slept_owns_tasks_again(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    store = SQLiteStore(path, lease_seconds=0.5)
    await store.open()
    try:
        await (await Owner.create(store, "t")).release()
        await asyncio.sleep(0.6)
        async with opened(path) as two:
            await Owner.create(two, "u")
            async with opened(path) as three:
                await Owner.create(three, "v")
                with three._reader() as connection:
                    assert connection.execute("SELECT count(*) FROM drivers").fetchone() == (2,)
                await Owner.claim(store, "t")
                row = await two.row("t")
                assert row.driver is not None
                assert row.driver.alive
    finally:
        await store.close()


# ------------------------------------------------------------------------------------ threads, exit, processes


async def test_no_thread_is_left_behind(tmp_path: Path) -> None:
    def writers() -> list[str]:
        return [t.name for t in threading.enumerate() if t.name == f"treadle-writer {tmp_path / 'j.db'}"]

    async with opened(tmp_path / "j.db"):
        assert len(writers()) == 1
    await until(lambda: eventually(lambda: not writers()))
    dropped = SQLiteStore(tmp_path / "j.db")
    await dropped.open()
    del dropped
    gc.collect()
    await until(lambda: eventually(lambda: not writers()))


EXIT = """
import asyncio, sys
from treadle.stores.sqlite import SQLiteStore
from treadle.testing.conformance.owner import Owner, new_task
async def main():
    store = SQLiteStore(sys.argv[1])
    owner = Owner(store, "t")
    store.commit(owner.commit(owner.record(), create=new_task("t")), lambda _: None)
    for seq in range(1, 500):
        owner.seq = seq
        store.commit(owner.commit(owner.record()), lambda _: None)
asyncio.run(main())
"""


async def test_queued_commits_are_written_when_the_process_ends(tmp_path: Path) -> None:
    in_a_process(EXIT, tmp_path / "j.db")
    async with opened(tmp_path / "j.db") as store:
        row = await store.row("t")
        assert (row.head, row.driver is None or row.driver.alive) == (500, False)


FORK = """
import asyncio, os, sys
from treadle.errors import StoreUnavailable
from treadle.ports import TaskFilter
from treadle.stores.sqlite import SQLiteStore
from treadle.testing.conformance.owner import Owner
store = SQLiteStore(sys.argv[1])
owner = asyncio.run(Owner.create(store, "t"))
child = os.fork()
if child == 0:
    for attempt in (lambda: store.rows(TaskFilter()), owner.write, SQLiteStore(sys.argv[1]).open, store.open):
        try:
            asyncio.run(attempt())
        except StoreUnavailable as error:
            print("os.fork()" in str(error), flush=True)
    asyncio.run(store.close())
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
asyncio.run(owner.write())
asyncio.run(store.close())
"""


async def test_a_forked_process_is_refused_a_file_that_its_parent_had_open(tmp_path: Path) -> None:
    assert in_a_process(FORK, tmp_path / "j.db").split() == ["True"] * 4
    async with opened(tmp_path / "j.db") as store:
        assert (await store.row("t")).head == 2
