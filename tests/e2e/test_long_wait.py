"""A provider that asks for two hours of patience gets them, without a process that waits."""

import asyncio
import sys
from pathlib import Path
from typing import Any

from tests.forked import completed
from treadle import Agent, Runner
from treadle.drivers.driver import system_time
from treadle.testing.provider import fail, text

FIRST = """
import sys
from treadle import Agent, Runner
runner = Runner(sys.argv[1])
result = runner.run_sync(Agent("openai:scripted", name="patient"), "How are you?", task_id="t")
runner.sync.close()
print(result.state, result.pending[0].due)
"""


async def later(journal: str, hours: float) -> list[str | None]:
    """Drive what is due in so many hours, for a while; return the state and the answer of the task."""
    agent = Agent("openai:scripted", name="patient")
    async with Runner(
        journal, agents=[agent], adopt=True, clock=lambda: system_time() + int(hours * 3_600_000_000)
    ) as runner:
        for _ in range(400 if hours > 1 else 15):
            await asyncio.sleep(0.1)
            if (await runner.get_task("t")).state == "completed":
                break
        result = await runner.result("t")
        return [result.state, result.final_text]


def python(code: str, *arguments: str) -> str:
    return completed([sys.executable, "-c", code, *arguments], check=True).stdout


def test_two_hours_that_a_provider_asks_for_are_waited_by_no_process(serve: Any, tmp_path: Path) -> None:
    server = serve(fail(429, retry_after=7_200), text("Fine, again."))
    journal = str(tmp_path / "j.db")
    state, due = python(FIRST, journal).split()
    assert state == "waiting"
    assert asyncio.run(later(journal, 0))[0] == "waiting", "nobody asks before its time"
    assert len(server.requests) == 1
    assert asyncio.run(later(journal, 2.1)) == ["completed", "Fine, again."]
    assert len(server.requests) == 2
    assert int(due) / 1e6 >= server.requests[0].time + 7_200
