"""A runner that was closed while it claimed tasks logged tracebacks: its store was closed before it released them."""

import asyncio

import pytest

from treadle import Agent, Runner, ScriptedModel
from treadle.models import text
from treadle.stores.sqlite import SQLiteStore

pytestmark = pytest.mark.anyio


async def test_a_claim_that_is_cancelled_as_its_store_closes_releases_the_task_without_a_log(tmp_path):
    reports = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reports.append(context))
    path = tmp_path / "journal.db"
    async with Runner(path) as runner:
        await runner.create_task(Agent(ScriptedModel([text("Done.")])), "Work", task_id="t")
        closing = SQLiteStore(path)
        await closing.open()
        claiming = asyncio.ensure_future(closing.claim("t"))
        await asyncio.sleep(0)
        claiming.cancel()
        await closing.close()
        await asyncio.sleep(0.05)
        assert (await runner.store.claim("t")).epoch >= 2
    assert reports == []
