"""A driver killed in the middle of a call: no server stays, and the call is made at most once."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interruptible import interruptible
from tests.tools.mcp.conftest import PLAIN
from tests.tools.mcp.killed_driver import agent
from tests.tools.mcp.test_hostile_server import HOSTILE, processes_of
from tests.tools.test_processes import assert_gone, is_running
from treadle import Happened, NotHappened, Runner

pytestmark = [pytest.mark.anyio, pytest.mark.sampled(1)]

DRIVER = Path(__file__).with_name("killed_driver.py")
IDLE = Path(__file__).with_name("idle_driver.py")
ROOT = Path(__file__).parents[3]


async def kill_in_call(number: int, journal: Path, *rest: str) -> None:
    """Run a driver until its call has begun, end it by a signal, and see that its server ends, too."""
    with interruptible():
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(DRIVER),
            str(journal),
            *rest,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
    assert process.stdout is not None
    pid = int(await asyncio.wait_for(process.stdout.readline(), 150))
    assert is_running(pid)
    process.send_signal(number)
    await process.wait()
    assert_gone([pid])


@pytest.mark.parametrize("behaviour", ["grandchild", "leaves_group", "daemon"])
def test_what_a_server_let_go_ends_with_a_driver_that_is_killed(behaviour):
    driver = subprocess.Popen(
        [sys.executable, str(IDLE), sys.executable, str(HOSTILE), behaviour],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    with driver:
        try:
            assert driver.stdout is not None
            assert driver.stdout.readline() == b"started\n"
            running = processes_of(behaviour)
            assert len(running) >= 3, "the driver, the server, and what it let go"
        finally:
            driver.kill()
    assert_gone(running)


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda each: each.name
)
async def test_a_writing_call_is_made_at_most_once(number, tmp_path, notes):
    rest = ("add_note", json.dumps({"text": "milk"}), "desk", sys.executable, str(PLAIN), str(notes))
    journal = tmp_path / "journal.db"
    await kill_in_call(number, journal, *rest, "--slow", "20")
    assert not notes.exists(), "the server was killed before it wrote"
    clerk = agent(journal, *rest)
    async with Runner(journal, agents=[clerk]) as runner:
        result = await runner.resume("t1")
        assert result.state == "waiting", "its outcome is unknown, so a person settles it"
        assert not notes.exists()
        await runner.settle("t1", result.pending[0].request_id, NotHappened())
        assert (await runner.resume("t1")).state == "completed"
    assert notes.read_text() == "milk\n"


async def test_a_reading_call_is_made_again(tmp_path, notes):
    rest = ("add_note", json.dumps({"text": "milk"}), "desk", sys.executable, str(PLAIN), str(notes))
    journal = tmp_path / "journal.db"
    await kill_in_call(signal.SIGKILL, journal, *rest, "--slow", "20")
    clerk = agent(journal, *rest)
    (desk,) = clerk.toolsets
    desk.effects = {"add_note": ("idempotent",)}
    async with Runner(journal, agents=[clerk]) as runner:
        result = await runner.resume("t1")
        # It began as a call that may write: what is declared of it afterwards does not change what it was.
        assert result.state == "waiting"
        await runner.settle("t1", result.pending[0].request_id, Happened("noted"))
        assert (await runner.resume("t1")).state == "completed"
    assert not notes.exists()
