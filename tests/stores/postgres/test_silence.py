"""A server that accepts and never answers, a network that drops everything without an error: every wait ends."""

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.forked import Forked
from tests.stores.proxy import Proxy
from treadle.errors import ConfigurationError, StoreUnavailable
from treadle.stores.postgres import PostgresStore, readers, writer
from treadle.stores.postgres.schema import address
from treadle.testing.conformance.owner import Owner, item
from treadle.testing.postgres import PostgresServer

pytestmark = [pytest.mark.anyio, pytest.mark.sampled(4)]

ANSWER = 0.5
PATIENCE = 1.0
AT_MOST = 12.0
"""Seconds, on a busy machine, for waits that are bounded by about two."""


@pytest.fixture
def proxy(postgres: PostgresServer) -> Iterator[Proxy]:
    proxy = Proxy(Path(postgres.url.partition("host=")[2]))
    yield proxy
    proxy.close()


@pytest.fixture
def url(proxy: Proxy, tmp_path: Path) -> str:
    schema = f"s{sha256(str(tmp_path).encode()).hexdigest()[:20]}"
    settings = f"schema={schema}&answer_timeout={ANSWER}&connect_timeout=2"
    return f"postgresql://postgres@/postgres?host={proxy.folder}&{settings}"


async def store_at(url: str) -> PostgresStore:
    store = PostgresStore(url, patience=PATIENCE)
    await asyncio.wait_for(store.open(), AT_MOST)
    return store


async def refused(work: Any) -> float:
    """Return after how many seconds a call failed."""
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        await asyncio.wait_for(work, AT_MOST)
    return time.monotonic() - began


async def test_a_connection_to_a_server_that_never_answers_times_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        store = PostgresStore(
            f"postgresql://postgres@127.0.0.1:{port}/postgres?connect_timeout=2", patience=PATIENCE
        )
        await refused(store.open())
        await asyncio.wait_for(store.close(), AT_MOST)


async def test_reads_and_writes_on_a_silent_session_fail_and_go_on_once_the_server_answers(
    proxy: Proxy, url: str
) -> None:
    store = await store_at(url)
    owner = await Owner.create(store, "t")
    assert (await store.row("t")).head == 1
    proxy.mute()
    requests = (store.row("t"), store.read("t"), store.post("t", item("i")), store.claim("t"))
    await asyncio.gather(*[refused(work) for work in requests])
    proxy.reopen()
    assert (await asyncio.wait_for(store.row("t"), AT_MOST)).head == 1
    await asyncio.wait_for(owner.write(release=True), AT_MOST)
    assert (await store.row("t")).head == 2
    await store.close()


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_commit_whose_answer_never_comes_is_sent_again_and_written_once(
    proxy: Proxy, url: str, moment: Any
) -> None:
    store = await store_at(url)
    owner = await Owner.create(store, "t")
    proxy.mute(moment)
    await asyncio.wait_for(owner.write(2, release=True), AT_MOST)
    assert proxy.cuts == 1
    assert [(r.seq, r.count) for r in await store.read("t")] == [(1, 1), (3, 2)]
    await store.close()


async def test_a_store_with_a_silent_server_can_be_closed(
    proxy: Proxy, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "CLOSING_SECONDS", 0.3)
    monkeypatch.setattr(readers, "CLOSING_SECONDS", 0.3)
    store = PostgresStore(url.replace(f"answer_timeout={ANSWER}", "answer_timeout=60"), patience=60.0)
    await store.open()
    owner = await Owner.create(store, "t")
    proxy.mute()
    reading = asyncio.ensure_future(store.row("t"))
    writing = asyncio.ensure_future(owner.write(release=True))
    await asyncio.sleep(0.3)
    await asyncio.wait_for(store.close(), AT_MOST)
    for work in (reading, writing):
        await refused(work)


RUN = """
import asyncio, sys
from treadle import Agent, Runner, ScriptedModel, tool
from treadle.errors import StoreError
from treadle.models import call, text
from treadle.stores.postgres import PostgresStore

@tool
async def look() -> str:
    print("looking", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    return "seen"

async def main():
    agent = Agent(ScriptedModel([call("look"), text("Done.")]), name="a", tools=[look])
    async with Runner(PostgresStore(sys.argv[1], patience=1.0)) as runner:
        await runner.run(agent, "Go.", task_id="t")

try:
    asyncio.run(main())
except StoreError as error:
    print(type(error).__name__, flush=True)
"""


def running(url: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", RUN, url]
    return Forked(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


async def test_a_run_ends_and_its_process_exits_when_the_server_falls_silent(proxy: Proxy, url: str) -> None:
    child = running(url)
    try:
        assert child.stdin is not None
        assert child.stdout is not None
        assert await asyncio.to_thread(child.stdout.readline) == "looking\n"
        proxy.mute()
        output, _ = await asyncio.to_thread(child.communicate, "\n", 30.0)
        assert output == "StoreUnavailable\n"
    finally:
        child.kill()
        child.wait()


def test_the_bound_stands_in_the_url_and_the_server_knows_it(postgres: PostgresServer) -> None:
    assert address(postgres.url).answer_seconds == 30.0
    assert address(f"{postgres.url}&answer_timeout=2.5").answer_seconds == 2.5
    assert "answer_timeout" not in address(f"{postgres.url}&answer_timeout=2.5").parameters
    for wrong in ("0", "never", "-1", "4000", "nan"):
        with pytest.raises(ConfigurationError, match=r"answer_timeout must be 0\.1 to 3600 seconds"):
            address(f"{postgres.url}&answer_timeout={wrong}")


async def test_a_statement_that_the_server_is_at_work_on_for_too_long_is_ended_by_the_server(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    store = PostgresStore(
        f"{postgres.in_schema(f'slow{tmp_path.name[-10:]}')}&answer_timeout=0.5", patience=0.0
    )
    await store.open()
    with pytest.raises(StoreUnavailable, match="statement timeout"):
        await store._query(lambda connection: connection.execute("SELECT pg_sleep(20)"))
    with psycopg.connect(postgres.url) as connection:
        query = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(20)' AND state = 'active'"
        assert connection.execute(query).fetchone() == (0,)
    await store.close()
