"""A task that kills whoever drives it is left alone after some drivers; those that died with it are not."""

import asyncio
import json
import runpy
import signal
import subprocess
import sys

import pytest

from treadle import Runner
from treadle.testing.audit import audit_store

pytestmark = pytest.mark.anyio

AGENTS = """
import asyncio, os, signal
from pathlib import Path
from treadle import Agent, ScriptedModel, tool
from treadle.models import call, text

@tool(read_only=True)
async def explode() -> str:
    "Kill the process that runs this, once others run beside it."
    await asyncio.sleep(0.2)
    if Path(__file__).with_name("defused").exists():
        return "nothing happened"
    os.kill(os.getpid(), signal.SIGKILL)

@tool(read_only=True)
async def work() -> str:
    "Work for a while."
    await asyncio.sleep(0.6)
    return "done"

bomb = Agent(ScriptedModel([call("explode"), text("Peace.")]), name="bomb", tools=[explode])
worker = Agent(ScriptedModel([call("work"), text("All done.")]), name="worker", tools=[work])
"""

BEGIN = """
import asyncio, sys
from agents import bomb, worker
from treadle import Runner

async def main():
    async with Runner("journal.db") as runner:
        for name in ("w1", "w2"):
            await runner.start(worker, "Work", task_id=name)
        await runner.run(bomb, "Explode", task_id="bomb")

asyncio.run(main())
"""

DRIVE = ["drive", "--agent", "agents:bomb", "--agent", "agents:worker", "--store", "journal.db", "--json"]


def treadle(folder, *arguments):
    command = [sys.executable, "-m", "treadle", *arguments]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def supervise(folder):
    """Start drivers again and again, as a supervisor does, until one gives a task up; return how many died of it."""
    for died in range(20):
        driver = treadle(folder, *DRIVE)
        for line in driver.stdout:
            if json.loads(line)["kind"] == "given_up":
                return died, json.loads(line), driver
        driver.communicate()
        assert driver.returncode == -signal.SIGKILL
    raise AssertionError("it is driven again and again")


async def test_a_task_that_kills_its_drivers_is_paused_after_five_and_no_other_is(tmp_path):
    (tmp_path / "agents.py").write_text(AGENTS)
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", BEGIN], cwd=tmp_path, check=False)

    died, given_up, driver = await asyncio.to_thread(supervise, tmp_path)
    assert died == 5, "the one that began it got as far as the model's answer"
    why = "its last 5 drivers died, or lost it, before it got any further"
    assert given_up["task_id"] == "bomb"
    assert why in given_up["text"]

    async with Runner(tmp_path / "journal.db") as runner:
        async with asyncio.timeout(20):
            for name in ("w1", "w2"):
                while (await runner.get_task(name)).state != "completed":  # noqa: ASYNC110  another process does it
                    await asyncio.sleep(0.05)
        assert (await runner.get_task("bomb")).state == "paused"
        assert await runner.store.orphans(10) == []
        driver.send_signal(signal.SIGTERM)
        rest, _ = await asyncio.to_thread(driver.communicate)
        assert driver.returncode == 0
        assert "bomb" not in rest, "it says so once"

        shown, _ = await asyncio.to_thread(
            treadle(tmp_path, "show", "bomb", "--store", "journal.db").communicate
        )
        assert why in shown
        (tmp_path / "defused").touch()
        bomb = runpy.run_path(str(tmp_path / "agents.py"))["bomb"]
        assert (await runner.resume("bomb", agent=bomb)).state == "completed"
        assert await audit_store(runner.store) == []
