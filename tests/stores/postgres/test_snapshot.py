"""The session of a snapshot, in a thread of its own."""

import asyncio
import threading

import psycopg
import pytest

from treadle.stores.postgres import PostgresStore
from treadle.testing.conformance.owner import until
from treadle.testing.postgres import PostgresServer

pytestmark = pytest.mark.anyio


async def test_a_caller_that_leaves_before_the_snapshot_has_begun_leaves_no_session_behind(
    postgres: PostgresServer,
) -> None:
    store = PostgresStore(postgres.in_schema("left_snapshot"))
    await store.open()
    with psycopg.connect(postgres.url) as other, psycopg.connect(postgres.url, autocommit=True) as view:

        async def sessions(condition: str) -> int:
            named = "SELECT FROM pg_stat_activity WHERE application_name = 'treadle snapshot'"
            return view.execute(f"{named} AND {condition}").rowcount

        async def is_blocked() -> bool:
            return await sessions("wait_event_type = 'Lock'") == 1

        async def is_ended() -> bool:  # the server lists a session a little longer than its client
            ended = all(thread.name != "treadle-snapshot" for thread in threading.enumerate())
            return ended and await sessions("true") == 0

        other.execute("LOCK TABLE left_snapshot.tasks")
        caller = asyncio.create_task(store.snapshot().__aenter__())
        await until(is_blocked)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        other.rollback()
        await until(is_ended)
    await store.close()
