"""The fault points inside a transaction of PostgreSQL are where they say they are."""

import asyncio
import signal
import sys
import time

import pytest

from tests.forked import completed
from treadle.errors import TaskNotFound
from treadle.stores.postgres import PostgresStore
from treadle.testing.postgres import PostgresServer

pytestmark = pytest.mark.anyio

PROGRAM = """
import sys
from treadle import Agent, Runner, ScriptedModel
from treadle.stores.postgres import PostgresStore
from treadle.testing.crash import Crash, CrashingStore

url, place = sys.argv[1:]
store = CrashingStore(PostgresStore(url), Crash(place))
Runner(store).run_sync(Agent(ScriptedModel(["done"])), "go", task_id="t")
"""


async def head_after_a_kill_at(place: str, url: str, *, seconds: float = 0.0) -> int:
    """Return where the journal ends after a kill; a commit that is under way is waited for."""
    ended = await asyncio.to_thread(completed, [sys.executable, "-c", PROGRAM, url, place])
    assert ended.returncode == -signal.SIGKILL
    store = PostgresStore(url)
    await store.open()
    deadline = time.monotonic() + seconds
    try:
        while True:
            try:
                return (await store.row("t")).head
            except TaskNotFound:
                if time.monotonic() > deadline:
                    return 0
            await asyncio.sleep(0.01)
    finally:
        await store.close()


async def test_a_transaction_without_commit_is_lost(postgres: PostgresServer) -> None:
    assert await head_after_a_kill_at("inside task_created", postgres.in_schema("inside")) == 0


async def test_a_transaction_whose_commit_was_not_answered_is_stored(postgres: PostgresServer) -> None:
    url = postgres.in_schema("committing")
    assert await head_after_a_kill_at("committing task_created", url, seconds=10) > 0
