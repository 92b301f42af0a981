"""A pause kept a task's lease, so that no process could resume it, or released it before the work had ended."""

import time

import pytest

from tests.regressions.takeover import agent, driver, effects, outcome_of, store_url, tool_entered
from treadle import Runner

pytestmark = pytest.mark.anyio


async def test_paused_means_that_the_call_has_ended_and_that_any_process_may_resume_at_once(tmp_path):
    first_agent = agent(tmp_path, 0.0)
    async with Runner(store_url(tmp_path), agents=[first_agent]) as runner:
        with driver(tmp_path, "run", seconds=0.7) as other:
            await tool_entered(tmp_path, "slow")
            assert (await runner.pause("t")).state == "paused"
            assert effects(tmp_path) == [("start", "slow"), ("done", "slow")]
            row = await runner.store.row("t")
            assert (row.driver, row.state) == (None, "paused")
            began = time.monotonic()
            assert (await runner.resume("t")).state == "completed"
            # 200 ms on a quiet machine; a lease that was kept would cost half a second more than this.
            assert time.monotonic() - began < 2.0
            assert (await outcome_of(other))["outcome"] == "paused"
        assert effects(tmp_path)[2:] == [("start", "pay"), ("done", "pay")]
