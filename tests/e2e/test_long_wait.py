"""A provider that asks for two hours of patience gets them, without a process that waits."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from treadle.testing.provider import fail, text

FIRST = """
import sys
from treadle import Agent, Runner
runner = Runner(sys.argv[1])
result = runner.run_sync(Agent("openai:scripted", name="patient"), "How are you?", task_id="t")
runner.sync.close()
print(result.state, result.pending[0].due)
"""
LATER = """
import asyncio, json, sys
from treadle import Agent, Runner
from treadle.drivers.driver import system_time

async def main(hours):
    agent = Agent("openai:scripted", name="patient")
    clock = lambda: system_time() + int(hours * 3_600_000_000)
    async with Runner(sys.argv[1], agents=[agent], adopt=True, clock=clock) as runner:
        for _ in range(400 if hours > 1 else 15):
            await asyncio.sleep(0.1)
            task = await runner.get_task("t")
            if task.state == "completed":
                break
        print(json.dumps([task.state, (await runner.result("t")).final_text]))

asyncio.run(main(float(sys.argv[2])))
"""


def python(code: str, *arguments: str) -> str:
    completed = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=dict(os.environ),
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


def test_two_hours_that_a_provider_asks_for_are_waited_by_no_process(serve: Any, tmp_path: Path) -> None:
    server = serve(fail(429, retry_after=7_200), text("Fine, again."))
    journal = str(tmp_path / "j.db")
    state, due = python(FIRST, journal).split()
    assert state == "waiting"
    assert json.loads(python(LATER, journal, "0"))[0] == "waiting", "nobody asks before its time"
    assert len(server.requests) == 1
    assert json.loads(python(LATER, journal, "2.1")) == ["completed", "Fine, again."]
    assert len(server.requests) == 2
    assert int(due) / 1e6 >= server.requests[0].time + 7_200
