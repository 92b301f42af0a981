"""A driver that stalled beyond its lease could still write after another driver had taken over."""

import asyncio
import signal

import pytest

from tests.regressions.takeover import (
    agent,
    driver,
    effects,
    outcome_of,
    stop_past_the_lease,
    store_url,
    tool_entered,
)
from treadle import Runner
from treadle.testing.audit import audit_store

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("verb", ["run", pytest.param("resume", marks=pytest.mark.full)])
async def test_commits_after_a_takeover_are_refused_and_the_caller_attaches(tmp_path, verb):
    first_agent = agent(tmp_path, 0.5)
    async with Runner(store_url(tmp_path), agents=[first_agent]) as runner:
        if verb == "resume":
            await runner.create_task(first_agent, "Work", task_id="t")
        with driver(tmp_path, verb, seconds=0.3) as stalled:
            await tool_entered(tmp_path, "slow")
            await stop_past_the_lease(runner, stalled)
            succeeding = asyncio.ensure_future(runner.resume("t"))
            await tool_entered(tmp_path, "slow", 2)
            stalled.send_signal(signal.SIGCONT)
            result = await asyncio.wait_for(succeeding, 20)
            answer = await outcome_of(stalled)
        assert (result.state, result.final_text) == ("completed", "All done.")
        assert answer["outcome"] == "completed", "its caller gets the outcome of the new driver"
        assert answer["fenced"] >= 1
        row = await runner.store.row("t")
        assert row.epoch == (2 if verb == "run" else 3)
        records = await runner.store.read("t")
        epochs = [record.epoch for record in records]
        assert epochs == sorted(epochs)
        if verb == "run":
            assert answer["seen"] == list(range(1, row.head + 1)), (
                "its watcher saw the journal, once, in order"
            )
        assert effects(tmp_path).count(("start", "pay")) == 1
        assert await audit_store(runner.store) == []
        assert runner.store.fenced == 0


@pytest.mark.full
async def test_a_late_heartbeat_does_not_bring_a_task_back(tmp_path):
    first_agent = agent(tmp_path, 1.5)
    async with Runner(store_url(tmp_path), agents=[first_agent]) as runner:
        with driver(tmp_path, "run", seconds=1.0) as stalled:
            await tool_entered(tmp_path, "slow")
            await stop_past_the_lease(runner, stalled)
            succeeding = await runner.start(first_agent, "Work", task_id="t")
            await tool_entered(tmp_path, "slow", 2)
            stalled.send_signal(signal.SIGCONT)
            await asyncio.sleep(0.6)  # several heartbeats of the one that was woken
            row = await runner.store.row("t")
            assert row.driver is not None
            assert row.driver.alive
            assert row.driver.pid != stalled.pid
            assert (await succeeding.result()).state == "completed"


async def test_a_stepper_that_wakes_after_a_takeover_gets_an_error_that_names_it(tmp_path):
    first_agent = agent(tmp_path, 0.0)
    async with Runner(store_url(tmp_path), agents=[first_agent]) as runner:
        await runner.create_task(first_agent, "Work", task_id="t")
        with driver(tmp_path, "step", seconds=0.5) as stalled:
            await tool_entered(tmp_path, "slow")
            await stop_past_the_lease(runner, stalled)
            out = await runner.run_step("t")
            stalled.send_signal(signal.SIGCONT)
            answer = await outcome_of(stalled)
        assert out.step.index == 1
        assert answer["outcome"].startswith("Fenced: task t was taken over by another driver"), answer
        assert len(await runner.get_completed_steps("t")) == 1
