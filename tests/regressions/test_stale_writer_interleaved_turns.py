"""A stale writer reloaded silently and wrote between the messages of another driver's turn."""

import asyncio
import signal

import pytest

from tests.regressions.takeover import agent, driver, outcome_of, stop_past_the_lease, store_url, tool_entered
from treadle import Runner
from treadle.testing.audit import audit_store

pytestmark = pytest.mark.anyio


async def test_messages_sent_during_a_takeover_are_read_once_and_between_turns(tmp_path):
    first_agent = agent(tmp_path, 0.4)
    async with Runner(store_url(tmp_path), agents=[first_agent]) as runner:
        with driver(tmp_path, "run", seconds=0.2) as stalled:
            await tool_entered(tmp_path, "slow")
            await runner.send("t", "before it stalled")
            await stop_past_the_lease(runner, stalled)
            succeeding = asyncio.ensure_future(runner.resume("t"))
            await tool_entered(tmp_path, "slow", 2)
            await runner.send("t", "while its successor drives")
            stalled.send_signal(signal.SIGCONT)
            await runner.send("t", "when it woke")
            result = await asyncio.wait_for(succeeding, 20)
            await outcome_of(stalled)
        assert result.state == "completed"
        messages = [m.text for m in result.messages if m.role == "user"]
        assert messages == ["Work", "before it stalled", "while its successor drives", "when it woke"]
        roles = [m.role for m in result.messages]
        for index, role in enumerate(roles):
            if role == "tool":
                assert roles[index - 1] == "assistant", roles
        assert await audit_store(runner.store) == []
