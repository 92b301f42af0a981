"""A server behind a tool that crashed or never answered hung its caller, broke the event loop, or outlived the call."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.tools.test_processes import assert_gone, lines
from treadle import Agent, Limits, Runner, ScriptedModel, tool
from treadle.models import call, text
from treadle.tools import run_process

pytestmark = pytest.mark.anyio

SERVER = """
import os, signal, subprocess, sys, time
place, does = sys.argv[1:]
child = subprocess.Popen(["sleep", "600"], start_new_session=does == "leaves its group")
with open(place, "a") as told:
    told.write(f"{os.getpid()} {child.pid} ")
if does == "never initialises":
    time.sleep(600)
sys.stdin.readline()
print("ready", flush=True)
if does == "dies in the call":
    os.kill(os.getpid(), signal.SIGKILL)
if does == "floods":
    while True:
        sys.stdout.write("x" * 65536)
if does == "closes its output and lives":
    sys.stdout.flush(); os.close(1); os.close(2)
time.sleep(600)
"""
WITHIN = 1.0


def agents(place: Path, does: str) -> tuple[Agent[Any], Agent[Any]]:
    @tool
    async def ask_server() -> str:
        answer = await run_process(sys.executable, "-c", SERVER, place, does, input="hello\n", timeout=WITHIN)
        return answer.stdout

    @tool(read_only=True)
    async def look() -> str:
        await asyncio.sleep(0.02)
        return "seen"

    other = [call("look") for _ in range(20)]
    return (
        Agent(ScriptedModel([call("ask_server"), text("so")]), name="asker", tools=[ask_server]),
        Agent(ScriptedModel([*other, text("so")]), name="other", tools=[look], limits=Limits(repeats=0)),
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "does", ["never initialises", "dies in the call", "floods", "closes its output and lives"]
)
async def test_a_server_that_fails_costs_its_own_call_an_error_in_time_and_leaves_nothing_running(
    does: str, tmp_path: Path
) -> None:
    asker, other = agents(tmp_path / "pids", does)
    async with Runner(tmp_path / "journal.db") as runner:
        began = time.monotonic()
        asked, beside = await asyncio.gather(runner.run(asker, "go"), runner.run(other, "go"))
        assert time.monotonic() - began < WITHIN + 10  # much less on a quiet machine
    assert asked.state == "completed"
    assert [execution.outcome for execution in asked.tool_executions] in (["error"], ["timeout"], ["unknown"])
    assert beside.state == "completed"
    assert [execution.outcome for execution in beside.tool_executions] == ["ok"] * 20
    assert_gone(lines(tmp_path / "pids", 2))


async def test_a_server_that_left_its_group_does_not_keep_its_caller_waiting(tmp_path: Path) -> None:
    asker, _ = agents(tmp_path / "pids", "leaves its group")
    async with Runner(tmp_path / "journal.db") as runner, asyncio.timeout(WITHIN + 10):
        result = await runner.run(asker, "go")
    assert [execution.outcome for execution in result.tool_executions] != ["ok"]
    server, away = lines(tmp_path / "pids", 2)
    assert_gone([server])
    os.kill(away, signal.SIGKILL)  # a process that leaves its group cannot be ended with it
