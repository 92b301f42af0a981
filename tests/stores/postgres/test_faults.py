"""Faults of a server: a lost answer, an ended session, a restart, a refusal. No acknowledged write is lost."""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from pathlib import Path
from threading import Event
from typing import Any

import psycopg
import pytest

from tests.forked import Forked
from tests.stores.proxy import BEGIN, Moment, Proxy
from treadle.errors import ConfigurationError, StoreFormatError, StoreUnavailable, TaskBusy, TaskNotFound
from treadle.ports import AT_ONCE, Committed, InboxItem, StoreChanges, TaskFilter
from treadle.stores.postgres import PostgresStore, journal, readers
from treadle.stores.postgres import schema as postgres_schema
from treadle.stores.postgres import writer as postgres_writer
from treadle.stores.writer_thread import Item
from treadle.testing.conformance.owner import Owner, add, dump, item, new_task, send, until
from treadle.testing.postgres import PostgresServer

pytestmark = [pytest.mark.anyio, pytest.mark.sampled(22)]


@pytest.fixture
def schema(tmp_path: Path) -> str:
    return f"f{sha256(str(tmp_path).encode()).hexdigest()[:20]}"


@pytest.fixture
def url(postgres: PostgresServer, schema: str) -> str:
    return postgres.in_schema(schema)


@asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url, **options)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def end_sessions(url: str, like: str = "treadle%") -> int:
    with psycopg.connect(url.partition("&schema")[0], autocommit=True) as connection:
        ended = connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE %s", (like,)
        )
        return len(ended.fetchall())


# ------------------------------------------------------------------------------------- a lost acknowledgement


async def make(store: PostgresStore) -> Any:
    """Create a task by a commit that is sent twice, since the answer was lost."""
    return await Owner(store, "new").write(create=new_task("new", thread_id="talk"), enter="enqueue")


async def fork(store: PostgresStore) -> Any:
    return await Owner(store, "fork", seq=1).send(create=new_task("fork", base="t", base_seq=1))


async def append(store: PostgresStore) -> Any:
    return await Owner(store, "t", 1, 1).write(2, blobs={"b": b"x"}, taken=("i",))


async def end(store: PostgresStore) -> Any:
    owner = Owner(store, "t", 1, 1)
    return await owner.write(state="completed", seal=True, release=True, taken=("i",), thread=add(0))


async def join(store: PostgresStore) -> Any:
    return await Owner(store, "t", 1, 1).send(thread=add(0), state="completed")


async def give_back(store: PostgresStore) -> Any:
    return await Owner(store, "t", 1, 1).send(state="paused", release=True, taken=("i",))


async def claim(store: PostgresStore) -> Any:
    return await store.claim("free", enter=True)


async def post(store: PostgresStore) -> Any:
    return await store.post("t", item("j"))


async def delete(store: PostgresStore) -> Any:
    return await store.delete("free")


DEEDS = [make, fork, append, end, join, give_back, claim, post, delete]


async def prepared(store: PostgresStore) -> None:
    await Owner.create(store, "t")
    await (await Owner.create(store, "free")).release()
    await store.post("t", item("i"))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("deed", DEEDS)
async def test_a_write_sent_again_after_a_lost_answer_is_written_once_with_the_same_answer(
    postgres: PostgresServer, tmp_path: Path, deed: Callable[[PostgresStore], Awaitable[Any]], moment: Moment
) -> None:
    name = sha256(str(tmp_path).encode()).hexdigest()[:16]
    async with opened(postgres.in_schema(f"a{name}")) as reference:
        await prepared(reference)
        wanted = await deed(reference)
        shown = await dump(reference, ["talk"], ["t", "free", "new", "fork"])
    proxy = Proxy(Path(postgres.url.partition("host=")[2]))
    try:
        async with opened(f"postgresql://postgres@/postgres?host={proxy.folder}&schema=b{name}") as store:
            await prepared(store)
            twice = moment == "after"  # its second session ends too, before the commit reaches the server
            proxy.cut(moment, twice=twice)
            assert await deed(store) == wanted
            assert proxy.cuts == 1 + twice
            assert await dump(store, ["talk"], ["t", "free", "new", "fork"]) == shown
    finally:
        proxy.close()


async def test_a_lost_session_that_the_server_still_holds_open_does_not_block_the_next_one(
    postgres: PostgresServer, schema: str
) -> None:
    proxy = Proxy(Path(postgres.url.partition("host=")[2]))
    try:
        async with opened(f"postgresql://postgres@/postgres?host={proxy.folder}&schema={schema}") as store:
            owner = await Owner.create(store, "t")
            proxy.cut("before", silent=True)
            async with asyncio.timeout(5):
                await owner.write()
            assert (proxy.cuts, (await store.row("t")).head) == (1, 2)
            proxy.is_silent = False
    finally:
        proxy.close()


async def test_a_group_with_a_lost_answer_is_answered_item_by_item(
    postgres: PostgresServer, schema: str
) -> None:
    proxy = Proxy(Path(postgres.url.partition("host=")[2]))
    try:
        async with opened(f"postgresql://postgres@/postgres?host={proxy.folder}&schema={schema}") as store:
            owners = [await Owner.create(store, f"t{n}") for n in range(3)]
            await store.post("t1", item("i"))
            proxy.cut("after")
            records = [owner.record(2) for owner in owners]
            requests = [
                send(store, owners[0].commit(records[0])),
                send(store, owners[1].commit(records[1], seal=True)),
                send(store, owners[2].commit(records[2], release=True)),
            ]
            results = await asyncio.gather(*requests, return_exceptions=True)
            assert [type(result).__name__ for result in results] == ["Committed", "InboxWaiting", "Committed"]
            assert proxy.cuts == 1
            assert [row.head for row in await store.rows(TaskFilter())] == [3, 1, 3]
    finally:
        proxy.close()


@asynccontextmanager
async def with_a_lost_claim(
    postgres: PostgresServer, schema: str, *, succeeded: bool = False
) -> AsyncIterator[tuple[PostgresStore, PostgresStore]]:
    """Two stores of one schema; the first has lost the answer to its claim of task `t`, for good.

    With `succeeded`, its lease has passed since, and the second owns the task.
    """
    proxy = Proxy(Path(postgres.url.partition("host=")[2]))
    url = f"postgresql://postgres@/postgres?host={proxy.folder}&schema={schema}"
    try:
        async with opened(postgres.in_schema(schema)) as other, opened(url, patience=0.2) as store:
            await (await Owner.create(store, "t")).release()
            owner = await Owner.create(store, "held")  # its process renews its lease for this one
            proxy.cut("after", shut=True)
            with pytest.raises(StoreUnavailable):
                await store.claim("t")
            row = await other.row("t")
            assert row.epoch == 2
            assert row.driver is not None
            assert row.driver.alive
            if succeeded:
                with psycopg.connect(postgres.url) as connection:
                    connection.execute(f"UPDATE {schema}.drivers SET lease = 'epoch'")
                await other.claim("t")
            proxy.reopen()
            yield store, other
            await owner.write()
    finally:
        proxy.close()


async def test_the_next_claim_returns_a_claim_with_a_lost_answer(
    postgres: PostgresServer, schema: str
) -> None:
    async with with_a_lost_claim(postgres, schema) as (store, other):
        claims = await asyncio.gather(store.claim("t"), store.claim("t"), return_exceptions=True)
        assert [type(claim).__name__ for claim in claims] == ["Claim", "TaskBusy"]
        claim = claims[0]
        assert not isinstance(claim, BaseException)
        await Owner(store, "t", claim.epoch, claim.head, claim.digest).write()
        await asyncio.sleep(1.5)
        with pytest.raises(TaskBusy):
            await other.claim("t")


async def test_a_claim_with_a_lost_answer_is_void_once_another_driver_took_over(
    postgres: PostgresServer, schema: str
) -> None:
    async with with_a_lost_claim(postgres, schema, succeeded=True) as (store, other):
        with pytest.raises(TaskBusy):
            await store.claim("t")
        await Owner(other, "t", 3, 1).write()


async def test_a_task_is_released_when_its_claim_got_no_answer(postgres: PostgresServer, schema: str) -> None:
    async with with_a_lost_claim(postgres, schema) as (store, other):
        await store.post("held", item("i"))  # so that there is a session again before due work runs

        async def is_free() -> bool:
            return (await other.row("t")).driver is None

        await until(is_free, 5)
        await Owner.claim(other, "t")


# -------------------------------------------------------------------------------- sessions that end, restarts


async def test_sessions_that_are_ended_are_replaced_unseen(url: str) -> None:
    async with opened(url) as store:
        owner = await Owner.create(store, "t")
        for _ in range(5):
            assert end_sessions(url) >= 1
            await owner.write()
            end_sessions(url)
            assert (await store.row("t")).head == owner.seq


async def _drive(store: PostgresStore, name: str, stop: asyncio.Event) -> int:
    owner = await Owner.create(store, name)
    while not stop.is_set():
        await owner.write()
    return owner.seq


async def _under_load(server: PostgresServer, schema: str, stops: int, *, immediate: bool) -> None:
    """Restart a server while tasks write: all go on, and no acknowledged write is missing."""
    stop = asyncio.Event()
    async with opened(server.in_schema(schema)) as store:
        driving = [asyncio.create_task(_drive(store, f"t{n}", stop)) for n in range(20)]
        for _ in range(stops):
            await asyncio.sleep(0.3)
            await asyncio.to_thread(server.stop, immediate=immediate)
            await asyncio.to_thread(server.start)
        await asyncio.sleep(0.3)
        stop.set()
        acknowledged = await asyncio.wait_for(asyncio.gather(*driving), 60)
        rows = {row.task_id: row.head for row in await store.rows(TaskFilter())}
        assert rows == {f"t{n}": seq for n, seq in enumerate(acknowledged)}
        assert min(acknowledged) > 2 * stops
        for n, seq in enumerate(acknowledged):
            assert sum(record.count for record in await store.read(f"t{n}")) == seq
        print(f"{stops} stops, {sum(acknowledged)} events acknowledged, 0 lost")


@pytest.mark.parametrize("stops", [1, pytest.param(20, marks=pytest.mark.full)])
async def test_a_server_that_stops_at_once_loses_nothing_that_was_acknowledged(
    stoppable_postgres: PostgresServer, schema: str, stops: int
) -> None:
    await _under_load(stoppable_postgres, schema, stops, immediate=True)


async def test_a_server_that_is_restarted_ends_no_task(
    stoppable_postgres: PostgresServer, schema: str
) -> None:
    await _under_load(stoppable_postgres, schema, 1, immediate=False)


async def test_a_server_that_stays_away_is_waited_for_with_patience_and_is_welcome_again(
    stoppable_postgres: PostgresServer, schema: str
) -> None:
    async with opened(stoppable_postgres.in_schema(schema), patience=0.5) as store:
        owner = await Owner.create(store, "t")
        returned_at = time.monotonic()
        stoppable_postgres.stop()
        away = time.monotonic()
        with pytest.raises(StoreUnavailable, match="postgres"):
            await owner.write()
        with pytest.raises(StoreUnavailable):
            await store.row("t")
        # The store may have seen its session end, and begun to wait, while the server was still stopping.
        assert time.monotonic() - returned_at >= 0.5
        assert time.monotonic() - away < 10
        stoppable_postgres.start()
        await owner.write()
        assert (await store.row("t")).head == owner.seq


async def test_readers_kept_away_from_a_server_that_was_back(
    stoppable_postgres: PostgresServer, schema: str
) -> None:
    """A pool of sessions would wait 1, 2 and 4 seconds between its attempts to get new ones."""
    async with opened(stoppable_postgres.in_schema(schema)) as store:
        await Owner.create(store, "t")
        await asyncio.gather(*(store.row("t") for _ in range(8)))
        stoppable_postgres.stop(immediate=True)
        requests = [asyncio.ensure_future(store.row("t")) for _ in range(8)]
        await asyncio.sleep(1.4)
        assert not any(request.done() for request in requests)
        stoppable_postgres.start()
        back = time.monotonic()
        assert [row.head for row in await asyncio.gather(*requests)] == [1] * 8
        assert time.monotonic() - back < 1.0


async def test_readers_close_their_sessions_when_they_idle_and_when_the_store_closes(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "READER_IDLE_SECONDS", 0.2)
    with psycopg.connect(url.partition("&schema")[0], autocommit=True) as other:

        async def sessions() -> int:
            count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'treadle reader'"
            count_row = other.execute(count).fetchone()
            return count_row[0] if count_row else -1

        async def none() -> bool:
            return await sessions() == 0

        await until(none, 5)
        async with opened(url) as store:
            await Owner.create(store, "t")
            for _ in range(3):
                await store.row("t")
                await asyncio.sleep(0.01)  # the idle session is used: no other is opened
            assert await sessions() == 1
            await asyncio.gather(*(store.rows(TaskFilter()) for _ in range(40)))
            await until(none, 5)
            monkeypatch.setattr(readers, "READER_IDLE_SECONDS", 60.0)
            assert (await store.row("t")).head == 1
        await until(none, 5)


async def test_a_group_that_the_database_refused_for_a_conflict_is_tried_again(url: str, schema: str) -> None:
    async with opened(url) as store:
        owners = [await Owner.create(store, f"t{n}") for n in range(5)]
        with psycopg.connect(url.partition("&schema")[0], autocommit=True) as connection:
            connection.execute(
                f"""SET search_path TO {schema}; CREATE SEQUENCE tries; CREATE FUNCTION fail() RETURNS trigger AS $$
                DECLARE n bigint := nextval('{schema}.tries'); BEGIN
                  IF n % 3 = 1 THEN RAISE EXCEPTION USING ERRCODE = '40001'; END IF;
                  IF n % 3 = 2 THEN RAISE EXCEPTION USING ERRCODE = '40P01'; END IF;
                  RETURN NEW;
                END $$ LANGUAGE plpgsql;
                CREATE TRIGGER fails BEFORE INSERT ON records FOR EACH STATEMENT EXECUTE FUNCTION fail()"""
            )
        for _ in range(5):
            assert await asyncio.gather(*(owner.write() for owner in owners)) == [Committed()] * 5
        assert {row.head for row in await store.rows(TaskFilter())} == {6}


async def test_a_value_that_the_database_cannot_take_fails_alone(url: str) -> None:
    async with opened(url) as store:
        owners = [await Owner.create(store, f"t{n}") for n in range(4)]
        commits = [
            owner.commit(owner.record(), state="bad \0" if n == 2 else "fine")
            for n, owner in enumerate(owners)
        ]
        results = await asyncio.gather(*(send(store, commit) for commit in commits), return_exceptions=True)
        assert [type(result).__name__ for result in results] == [
            "Committed", "Committed", "StoreUnavailable", "Committed",
        ]  # fmt: skip
        assert [row.head for row in await store.rows(TaskFilter())] == [2, 1, 2, 2]


async def test_a_task_created_written_and_released_in_one_group_is_written_at_the_first_try(
    url: str,
) -> None:
    async with opened(url) as store:
        owners = [Owner(store, f"t{n}") for n in range(20)]
        sent: list[asyncio.Future[Committed]] = []
        for owner in owners:
            first = owner.record()
            sent.append(send(store, owner.commit(first, create=new_task(owner.task_id), enter="enqueue")))
            owner.seq, owner.digest = first.seq, first.digest
            sent.append(send(store, owner.commit(owner.record(), state="running")))
            sent.append(send(store, owner.commit(release=True)))
        assert len(await asyncio.gather(*sent)) == 60
        assert {(row.head, row.driver) for row in await store.rows(TaskFilter())} == {(2, None)}
        assert store._writer is not None
        assert store._writer.failures == 0


# ------------------------------------------------------------------------------------------------- waking up


async def test_a_post_wakes_a_watcher_at_once(url: str) -> None:
    async with opened(url) as first, opened(url) as two:
        await Owner.create(two, "t")
        woken: asyncio.Queue[tuple[str, ...]] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        first.watch(lambda changes: loop.call_soon_threadsafe(woken.put_nowait, changes.mail) and None)
        await asyncio.sleep(0.3)
        delays: list[float] = []
        for n in range(20):
            while not woken.empty():
                woken.get_nowait()
            began = time.monotonic()
            await two.post("t", InboxItem(f"i{n}", "send", {}, 0))
            while "t" not in await asyncio.wait_for(woken.get(), 5):
                pass
            delays.append(time.monotonic() - began)
            await asyncio.sleep(0.06)
        assert sorted(delays)[10] < 0.25


async def test_notifications_are_sent_after_the_transaction_that_writes_and_not_in_it(
    postgres: PostgresServer, schema: str
) -> None:
    """`NOTIFY` in that transaction would make all commits of the database wait for each other."""
    proxy = Proxy(Path(postgres.url.partition("host=")[2]))
    try:
        async with opened(f"postgresql://postgres@/postgres?host={proxy.folder}&schema={schema}") as store:
            owner = await Owner.create(store, "t")
            await store.post("t", item("i"))
            await owner.write(release=True, taken=("i",))
            await store.delete("t")
            await until(lambda: _is_told(store))
        writes = [part.partition(b"COMMIT\0")[0] for part in proxy.said.split(BEGIN)[1:]]
        assert len(writes) == 4
        assert not any(b"pg_notify" in write for write in writes)
        assert proxy.said.count(b"pg_notify") >= 1
    finally:
        proxy.close()


async def _is_told(store: PostgresStore) -> bool:
    return store._writer is not None and store._writer._notices.due is None


async def test_an_owner_finds_an_inbox_item_without_a_notification_after_its_sender_crashed(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_writer, "MAIL_CHECK_SECONDS", 0.3)
    async with opened(url) as first, opened(url) as two:
        await Owner.create(first, "t")
        messages: list[str] = []
        first.watch(lambda changes: messages.extend(changes.mail))
        await asyncio.sleep(0.2)
        assert two._writer is not None
        monkeypatch.setattr(
            two._writer, "_schedule_notification", lambda *_, **what: None
        )  # as if it had been killed
        await two.post("t", item("i"))

        async def is_heard() -> bool:
            return "t" in messages

        await until(is_heard)


async def test_the_last_of_many_writes_is_notified_too(url: str) -> None:
    async with opened(url) as store:
        owner, began = await Owner.create(store, "t"), 0.0
        for _ in range(5):  # too soon after each other for a notification of each
            began = time.monotonic()
            await owner.write()
        writer = store._active()

        async def told() -> bool:
            return writer._notices.sent_at >= began

        await until(told, 3)


async def test_watchers_are_woken_once_after_a_new_session_listens(url: str) -> None:
    async with opened(url) as first, opened(url) as two:
        await Owner.create(two, "t")
        mail: set[str] = set()
        first.watch(lambda changes: mail.update(changes.mail))
        await asyncio.sleep(0.3)
        writer = first._writer
        assert writer is not None
        assert end_sessions(url, writer._name) == 1
        await two.post("t", item("i"))
        await until(lambda: _has(mail, "t"))


async def test_a_watcher_is_still_woken_after_its_session_was_lost_while_writing(url: str) -> None:
    async with opened(url) as first, opened(url) as two:
        owner = await Owner.create(first, "mine")
        await Owner.create(two, "t")
        mail: set[str] = set()
        first.watch(lambda changes: mail.update(changes.mail))
        await asyncio.sleep(0.2)
        assert first._writer is not None
        for n in range(3):
            end_sessions(url, first._writer._name)
            await (owner.release() if n == 2 else owner.write())
            mail.clear()
            await two.post("t", item(f"i{n}"))
            await until(lambda: _has(mail, "t"))


async def test_a_notified_inbox_item_is_not_lost_by_a_later_notification(url: str) -> None:
    async with opened(url) as first, opened(url) as two:
        owners = [await Owner.create(two, name) for name in ("t", "u", "v")]
        mail, woken = set[str](), asyncio.Event()
        loop = asyncio.get_running_loop()

        def wake(changes: StoreChanges) -> None:
            mail.update(changes.mail)
            loop.call_soon_threadsafe(woken.set)

        first.watch(wake)
        await asyncio.sleep(0.2)
        woken.clear()
        await owners[1].release()
        await asyncio.wait_for(woken.wait(), 5)  # it is not woken again at once
        await two.post("t", item("i"))
        await owners[2].release()
        await until(lambda: _has(mail, "t"), 3)


async def _has(words_found: set[str], wanted: str) -> bool:
    return wanted in words_found


IDLE = """
import asyncio, sys
from treadle.stores.postgres import PostgresStore
from treadle.stores.writer_thread import Item

async def main():
    store = PostgresStore(sys.argv[1])
    await store.open()
    store.watch(lambda mail: None)
    await store.inbox(sys.argv[2])
    await asyncio.sleep(0.5)
    print("ready", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def idle_process(url: str) -> subprocess.Popen[str]:
    return Forked([sys.executable, "-c", IDLE, url, "t"], stdout=subprocess.PIPE, text=True)


async def test_a_store_that_is_open_and_watched_never_wakes_up_while_nothing_happens(url: str) -> None:
    async with opened(url) as store:
        await (await Owner.create(store, "t")).release()
    child = idle_process(url)
    try:
        assert child.stdout is not None
        assert await asyncio.to_thread(child.stdout.readline) == "ready\n"
        before = _switches(child.pid)
        await asyncio.sleep(2)
        assert sum(_switches(child.pid).values()) - sum(before.values()) <= 1
    finally:
        child.kill()
        child.communicate()


def _switches(pid: int) -> dict[str, int]:
    """Return how often each thread of a process has gone to sleep."""
    switches: dict[str, int] = {}
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        fields_of = dict(line.split(":", 1) for line in status.read_text().splitlines())
        switches[status.parent.name] = int(fields_of["voluntary_ctxt_switches"])
    return switches


# --------------------------------------------------------------------------------------- opening, what is refused


async def test_a_schema_of_another_program_is_refused_and_nothing_in_it_is_changed(
    postgres: PostgresServer, url: str, schema: str
) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.tasks (mine int)")
        with pytest.raises(StoreFormatError, match=f"schema {schema} holds tables of another program"):
            await PostgresStore(url).open()
        rows = connection.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = %s", (schema,)
        )
        assert rows.fetchall() == [("tasks",)]


@pytest.mark.parametrize("isolation", ["read committed", "serializable"])
async def test_drivers_that_make_a_schema_at_once_all_get_in(
    postgres: PostgresServer, schema: str, isolation: str
) -> None:
    """Short leases wait little for locks; the database's default isolation may hide later commits of other sessions."""
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {schema} LOGIN SUPERUSER")
        connection.execute(f"ALTER ROLE {schema} SET default_transaction_isolation = '{isolation}'")
    as_role = postgres.in_schema(schema).replace("postgres@", f"{schema}@")
    stores = [PostgresStore(f"{as_role}&lease=0.5") for _ in range(16)]
    try:
        opening = await asyncio.gather(*[store.open() for store in stores], return_exceptions=True)
        assert [error for error in opening if error is not None] == []
    finally:
        await asyncio.gather(*[store.close() for store in stores])


async def test_a_store_waits_for_a_place_among_the_clients_of_a_crowded_server(
    postgres: PostgresServer, schema: str
) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {schema} LOGIN CONNECTION LIMIT 1")
        connection.execute(f"CREATE SCHEMA {schema} AUTHORIZATION {schema}")
        as_role = postgres.in_schema(schema).replace("postgres@", f"{schema}@")
        with psycopg.connect(as_role.partition("&schema")[0]):
            with pytest.raises(StoreUnavailable, match="too many connections"):
                await PostgresStore(as_role, patience=0.2).open()
            store = PostgresStore(as_role)
            opening = asyncio.ensure_future(store.open())
            await asyncio.sleep(0.5)
            assert not opening.done()
        await asyncio.wait_for(opening, 10)
        await store.close()


async def test_a_writer_whose_thread_has_ended_or_does_not_listen_is_stopped_without_an_error(
    url: str,
) -> None:
    async with opened(url) as store:
        writer = store._writer
        assert writer is not None
        with suppress(BlockingIOError):
            while True:
                writer._wake_sender.send(b"!" * 4096)
        writer.stop(StoreUnavailable("closed"))
        await asyncio.wrap_future(writer.stopped)
        writer._is_waiting, writer.closing = True, None  # as a thread leaves it that was ended from outside
        writer.stop(StoreUnavailable("closed again"))


async def test_an_empty_schema_that_an_administrator_made_is_used(
    postgres: PostgresServer, schema: str
) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {schema} LOGIN; CREATE SCHEMA {schema} AUTHORIZATION {schema}")
    as_role = postgres.in_schema(schema).replace("postgres@", f"{schema}@")
    async with opened(as_role) as store:
        await Owner.create(store, "t")
    with pytest.raises(
        StoreUnavailable, match=f"permission denied.*CREATE SCHEMA {schema}_other AUTHORIZATION"
    ):
        await PostgresStore(as_role, schema=f"{schema}_other").open()


async def test_opening_a_store_waits_for_another_process_that_is_making_it(
    postgres: PostgresServer, schema: str
) -> None:
    url = f"{postgres.in_schema(schema)}&lease=0.5"
    with psycopg.connect(postgres.url) as other:
        channel = postgres_schema.address(url).channel
        other.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"migrate {channel}",))
        asyncio.get_running_loop().call_later(0.4, other.rollback)
        async with opened(url) as store:
            assert await store.rows(TaskFilter()) == []


async def test_a_role_without_the_right_to_write_a_schema_gets_a_clear_error(
    postgres: PostgresServer, url: str, schema: str
) -> None:
    async with opened(url):
        pass
    role = f"{schema}_guest"
    as_guest = url.replace("postgres@", f"{role}@")
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN")
        with pytest.raises(StoreUnavailable, match=f"permission denied for schema {schema}"):
            await PostgresStore(as_guest).open()
        connection.execute(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
        connection.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}")
    with pytest.raises(StoreUnavailable, match="may not write here"):
        postgres_schema.look(as_guest)
    with pytest.raises(StoreUnavailable, match="may not write here"):
        postgres_schema.look(postgres.in_schema(f"{schema}_none").replace("postgres@", f"{role}@"))


async def test_a_newer_format_is_refused(postgres: PostgresServer, url: str, schema: str) -> None:
    async with opened(url):
        pass
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"UPDATE {schema}.treadle_format SET version = 99, opens = 99")
    with pytest.raises(StoreFormatError, match=r"format 99.*upgrade treadle"):
        await PostgresStore(url).open()
    with pytest.raises(StoreFormatError, match=r"format 99.*upgrade treadle"):
        postgres_schema.look(url)


async def test_a_schema_to_which_a_newer_version_only_added_is_used_and_left_at_its_format(
    postgres: PostgresServer, url: str, schema: str
) -> None:
    async with opened(url) as store:
        await (await Owner.create(store, "t")).release()
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"ALTER TABLE {schema}.tasks ADD COLUMN queue text")
        connection.execute(f"UPDATE {schema}.treadle_format SET version = 99")
        async with opened(url) as store:
            assert (await Owner.claim(store, "t")).epoch == 2
            await Owner.create(store, "u")
        assert postgres_schema.look(url)["format"] == 99
        assert connection.execute(f"SELECT version FROM {schema}.treadle_format").fetchall() == [(99,)]


async def test_a_task_that_was_wanted_before_wishes_were_times_is_wanted_at_once(
    url: str, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = postgres_schema._steps()
    with monkeypatch.context() as earlier:
        earlier.setattr(postgres_schema, "_steps", lambda: {n: step for n, step in steps.items() if n <= 2})
        async with opened(url):
            pass
    with psycopg.connect(url.partition("&schema")[0]) as connection:
        connection.execute(
            f"""INSERT INTO {schema}.tasks(id, key, agent, thread, state, created, epoch, base_seq, labels, wanted)
            VALUES (1, 't', 'a', 'talk', 'interrupted', 1, 1, 0, '{{}}', true),
            (2, 'rest', 'a', 'talk', 'paused', 1, 1, 0, '{{}}', false)"""
        )
    async with opened(url) as store:
        assert [(row.task_id, row.due_at) for row in await store.orphans(10)] == [("t", AT_ONCE)]


async def test_a_role_that_would_lose_acknowledged_commits_is_refused(
    postgres: PostgresServer, schema: str
) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(
            f"CREATE ROLE {schema} LOGIN SUPERUSER; ALTER ROLE {schema} SET synchronous_commit = off"
        )
    with pytest.raises(StoreUnavailable, match="synchronous_commit is off"):
        await PostgresStore(postgres.in_schema(schema).replace("postgres@", f"{schema}@")).open()


async def test_a_database_that_cannot_hold_all_characters_is_refused(
    postgres: PostgresServer, schema: str
) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {schema} ENCODING LATIN1 LOCALE 'C' TEMPLATE template0")
    with pytest.raises(StoreUnavailable, match="encoded in LATIN1; a store needs UTF8"):
        await PostgresStore(postgres.url.replace("/postgres?", f"/{schema}?")).open()


async def test_many_processes_that_open_a_fresh_schema_at_once_make_it_once(url: str) -> None:
    stores = [PostgresStore(url) for _ in range(6)]
    await asyncio.gather(*(store.open() for store in stores))
    await Owner.create(stores[0], "t")
    assert [(await store.row("t")).head for store in stores] == [1] * 6
    await asyncio.gather(*(store.close() for store in stores))


SECRET = "tr0ub4dor"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me:{SECRET}@127.0.0.1:1/db",
        f"postgresql://me@127.0.0.1:1/db?password={SECRET}&sslmode=disable",
        f"postgresql://me:{SECRET}@no-such-host.invalid/db?connect_timeout=2",
    ],
)
async def test_a_password_is_shown_nowhere(url: str, caplog: pytest.LogCaptureFixture) -> None:
    store = PostgresStore(url)
    with pytest.raises(StoreUnavailable) as refused:
        await store.open()
    shown = [
        store.url,
        repr(store),
        str(refused.value),
        repr(refused.value.__cause__),
        caplog.text,
        repr(store._to),
    ]
    assert [text for text in shown if SECRET in text] == []
    assert store.url.startswith("postgresql://me@")


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me:{SECRET}@x@host/db",
        f"postgresql://host/db?{SECRET}",
        f"postgresql://host/db?no_such_setting={SECRET}",
        f"postgresql://host:{SECRET}/db",
        "postgresql://host/db?schema=a.b",
        "postgresql://host/db?schema=pg_mine",
        "postgresql://host/db?lease=soon",
    ],
)
async def test_an_address_that_cannot_be_read_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ConfigurationError, match="store: ") as refused:
        PostgresStore(url)
    assert SECRET not in str(refused.value)


def test_without_the_extra_the_error_names_the_package_to_install() -> None:
    script = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from treadle import Runner\n"
        "from treadle.errors import MissingExtra\n"
        "try: Runner('postgresql://host/db')\n"
        "except MissingExtra as error: print(error)"
    )
    completed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "pip install '/path/to/treadle[postgres]'" in completed.stdout


async def test_a_child_made_by_fork_leaves_the_parents_sessions_alone(url: str) -> None:
    import os
    import warnings

    async with opened(url) as store:
        owner = await Owner.create(store, "t")
        await store.row("t")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            with suppress(BaseException):
                os._exit(asyncio.run(store.row("t")).head)
            os._exit(99)
        _, status = await asyncio.to_thread(os.waitpid, pid, 0)
        assert os.waitstatus_to_exitcode(status) == 1
        await owner.write()
        assert (await store.row("t")).head == 2


async def test_deletions_and_writes_wait_for_each_other_without_a_deadlock(url: str) -> None:
    async with opened(url) as first, opened(url) as two:

        async def write(store: PostgresStore, name: str) -> None:
            for n in range(10):
                owner = await Owner.create(store, f"{name}-{n}", thread_id="talk")
                await owner.write(release=True)

        async def clear(store: PostgresStore, name: str) -> None:
            for n in range(10):
                while True:
                    try:
                        await store.delete(f"{name}-{n}")
                        break
                    except (TaskNotFound, TaskBusy):
                        await asyncio.sleep(0.005)

        async with asyncio.timeout(30):
            await asyncio.gather(write(first, "a"), write(two, "b"), clear(two, "a"), clear(first, "b"))
        assert await first.rows(TaskFilter()) == []


def _locking(url: str, schema: str, key: str, name: str = "other") -> psycopg.Connection[Any]:
    """Return a session that holds the row of a task and sends nothing."""
    connection = psycopg.connect(url.partition("&schema")[0], application_name=name)
    connection.execute(f'SET search_path = "{schema}"'.encode())
    connection.execute("SELECT 1 FROM tasks WHERE key = %s FOR UPDATE", (key,))
    return connection


async def test_claims_of_other_tasks_do_not_wait_for_a_task_with_a_locked_row(url: str, schema: str) -> None:
    async with opened(url) as store:
        for key in ("a", "b", "c"):
            await Owner(store, key).write(create=new_task(key), release=True)
        with _locking(url, schema, "b") as other:
            order: list[str] = []
            locked, *others = (asyncio.ensure_future(store.claim(key)) for key in ("b", "a", "c"))
            locked.add_done_callback(lambda _: order.append("b"))
            assert [claim.epoch for claim in await asyncio.gather(*others)] == [2, 2]
            assert order == []
            with pytest.raises(TaskBusy, match="written by another process"):
                await locked
            second_claim = asyncio.ensure_future(store.claim("b"))
            await asyncio.sleep(0.1)
            other.rollback()
            assert (await second_claim).epoch == 2
        assert (await store.row("b")).driver is not None


async def test_a_writer_that_waits_for_a_lock_goes_on_renewing_its_lease(url: str, schema: str) -> None:
    """Heartbeats are written by the same thread, and must not wait for as long as another session holds a row."""
    lease = f'SELECT lease FROM "{schema}".drivers'.encode()
    async with opened(url, lease_seconds=3) as store:
        owners = [await Owner.create(store, key) for key in ("a", "b")]
        with _locking(url, schema, "b") as other:
            waiting = [asyncio.ensure_future(owner.write()) for owner in owners]
            leases: set[Any] = set()
            end = time.monotonic() + 60
            while len(leases) < 3:
                assert time.monotonic() < end, leases
                leases.add(other.execute(lease).fetchone())
                await asyncio.sleep(0.05)
            other.rollback()
            assert await asyncio.gather(*waiting) == [Committed()] * 2


@pytest.mark.parametrize("wait_point", ["to claim", "to write"])
async def test_no_writer_waits_long_for_a_writer_stopped_in_an_open_pipeline(
    url: str, schema: str, wait_point: str
) -> None:
    """In an open pipeline, the server does not count a transaction as idle."""
    async with opened(url, lease_seconds=0.5) as store:
        owner = await Owner.create(store, "t")
        if wait_point == "to claim":
            await owner.write(release=True)
        with psycopg.connect(url.partition("&schema")[0]) as stopped, suppress(psycopg.OperationalError):
            stopped.execute(f'SET search_path = "{schema}"'.encode())
            stopped.execute("SET idle_in_transaction_session_timeout = 100")
            stopped.commit()
            with stopped.pipeline():
                stopped.execute(journal.LOCK_SHARED, (f"treadle {schema}",))
                held = stopped.execute("SELECT 1 FROM tasks WHERE key = 't' FOR UPDATE").fetchone()
                assert held == (1,)
                stopped.execute("SELECT 1")
                await asyncio.sleep(0.3)
                assert stopped.execute("SELECT 2").fetchone() == (2,)  # still there
                stopped.execute("SELECT 1")
                async with asyncio.timeout(20):
                    if wait_point == "to write":
                        await owner.write()
                    else:
                        await claimed(store, "t")
                stopped.execute("SELECT 3").fetchone()
                pytest.fail("its session was not ended")


async def claimed(store: PostgresStore, key: str) -> None:
    """Claim a task as an adopter does, which tries again."""
    while True:
        with suppress(TaskBusy):
            await store.claim(key)
            return


async def test_a_driver_whose_row_is_deleted_while_it_claims_leaves_no_lost_task(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    going_on, claiming, begin = Event(), Event(), journal.Group.begin

    def stop_in_claim(self: journal.Group, items: list[Item], before: Any) -> None:
        begin(self, items, before)
        if items[0].operation == "claim":
            claiming.set()
            going_on.wait(10)

    monkeypatch.setattr(journal.Group, "begin", stop_in_claim)
    async with opened(url, lease_seconds=0.5) as stopped, opened(url, lease_seconds=0.5) as other:
        await Owner(stopped, "t").write(create=new_task("t"), release=True, due_at=1)
        await Owner(other, "held").write(create=new_task("held"))  # so that it goes on renewing its lease
        claim = asyncio.ensure_future(stopped.claim("t"))
        await asyncio.to_thread(claiming.wait, 5)
        await asyncio.sleep(0.8)  # its lease passes, and the other store deletes drivers that own nothing
        going_on.set()
        await claim
        assert (await other.row("t")).driver is not None


async def test_a_driver_that_claims_during_the_search_for_dead_drivers_is_not_deleted(
    url: str, schema: str
) -> None:
    async with opened(url) as store, opened(url):
        await Owner(store, "t").write(create=new_task("t"), release=True)

    class Between:
        """A session that pauses after it read the dead drivers, while a driver among them claims a task."""

        def __init__(self, connection: psycopg.Connection[Any]) -> None:
            self.execute, self.transaction = self.and_then, connection.transaction
            self.connection = connection

        def and_then(self, statement: Any, *values: Any) -> Any:
            cursor = self.connection.execute(statement, *values)
            if statement == journal._DEAD_DRIVERS:
                cursor = cursor.fetchall()
                assert len(cursor) == 1
                self.connection.execute("UPDATE tasks SET driver = (SELECT id FROM drivers)")
            return cursor

    with psycopg.connect(url.partition("&schema")[0], autocommit=True) as connection:
        connection.execute(f'SET search_path = "{schema}"'.encode())
        between: Any = Between(connection)
        journal.delete_dead_drivers(between)
        assert connection.execute("SELECT count(*) FROM drivers").fetchone() == (1,)
        connection.execute("UPDATE tasks SET driver = NULL")
        journal.delete_dead_drivers(connection)
        assert connection.execute("SELECT count(*) FROM drivers").fetchone() == (0,)


async def test_a_claim_of_a_process_that_was_idle_prolongs_its_lease_in_the_same_transaction(
    url: str, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(url) as store:
        await Owner(store, "t").write(create=new_task("t"), release=True)
        monkeypatch.setattr(store._active(), "_keep_lease", lambda _: None)
        with psycopg.connect(url.partition("&schema")[0]) as connection:
            connection.execute(f"UPDATE {schema}.drivers SET lease = 'epoch'")
        store._active()._owner.renewed_at -= store._to.lease_seconds  # so long it has been idle
        await store.claim("t")
        driver = (await store.row("t")).driver
        assert driver is not None
        assert driver.alive


@pytest.mark.anyio
async def test_a_process_that_is_stopped_within_a_transaction_does_not_keep_its_locks(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "AT_MOST", "SET LOCAL transaction_timeout = 200")
    going_on, take_heads = Event(), journal.Group._take_heads
    stopped = Event()

    def stop_once(self: Any, *heads: Any) -> None:
        if not stopped.is_set():
            stopped.set()
            going_on.wait(10)
        take_heads(self, *heads)

    monkeypatch.setattr(journal.Group, "_take_heads", stop_once)
    open_ones = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"
    async with opened(url) as store:
        making = asyncio.ensure_future(make(store))
        await asyncio.to_thread(stopped.wait, 5)
        with psycopg.connect(url.partition("&schema")[0], autocommit=True) as other:

            async def none_is_open() -> bool:
                return other.execute(open_ones).fetchone() == (0,)

            await until(none_is_open, 5)
        going_on.set()
        await making
        assert (await store.row("new")).head > 0
