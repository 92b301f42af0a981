"""Two processes both drove one task, and the commits of one of them were lost."""

import asyncio

import pytest

from tests.regressions.takeover import agent, driver, effects, outcome_of, store_url
from treadle import Runner
from treadle.testing.audit import audit_store

pytestmark = pytest.mark.anyio


async def test_processes_that_resume_a_task_at_once_share_one_driver_and_its_result(
    tmp_path,
):
    first_agent = agent(tmp_path, 0.1)
    async with Runner(store_url(tmp_path), agents=[first_agent]) as runner:
        await runner.create_task(first_agent, "Work", task_id="t")
        with driver(tmp_path, "resume", 0.1) as one, driver(tmp_path, "resume", 0.1) as two:
            answers = await asyncio.gather(outcome_of(one), outcome_of(two))
        assert [answer["outcome"] for answer in answers] == ["completed", "completed"]
        assert [answer["fenced"] for answer in answers] == [0, 0]
        assert effects(tmp_path) == [("start", "slow"), ("done", "slow"), ("start", "pay"), ("done", "pay")]
        row = await runner.store.row("t")
        records = await runner.store.read("t")
        assert [record.seq - record.count for record in records] == [0, *(r.seq for r in records[:-1])]
        assert records[-1].seq == row.head, "every record that was acknowledged can be reached"
        assert await audit_store(runner.store) == []
