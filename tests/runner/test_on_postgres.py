"""Runners on PostgreSQL: the promises of SQLite hold there, also when drivers and the server crash.

Every other test of the runner runs on PostgreSQL too (`store` in conftest.py); a sample of them here, always.
"""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from hashlib import sha256
from pathlib import Path

import pytest

from tests.drivers import test_children, test_compaction
from tests.engine import test_tree_limits, test_undo
from tests.forked import Forked
from tests.runner import test_busy_threads, test_undo_fork
from tests.runner.acts import happened
from treadle import Agent, Runner, ScriptedModel, tool
from treadle.models import call, text
from treadle.testing.postgres import PostgresServer

pytestmark = pytest.mark.anyio


@pytest.fixture
def url(postgres: PostgresServer, tmp_path: Path) -> str:
    return postgres.in_schema(f"r{sha256(str(tmp_path).encode()).hexdigest()[:20]}")


@tool(read_only=True)
async def nap(seconds: float) -> str:
    """Sleep a little."""
    await asyncio.sleep(seconds)
    return "rested"


def agent(naps: int = 4, seconds: float = 0.01) -> Agent:
    turns = [call("nap", seconds=seconds + n / 1e6) for n in range(naps)]
    return Agent(ScriptedModel([*turns, text("done")]), name="sleepy", tools=[nap])


async def test_a_second_turn_sees_the_first_and_a_fork_shares_its_steps(url: str) -> None:
    async with Runner(url, agents=[agent()]) as runner:
        first = await runner.run(agent(), "one", thread_id="talk", task_id="first")
        second = await runner.run(agent(), "two", thread_id="talk")
        assert (first.state, second.state) == ("completed", "completed")
        assert second.thread_id == "talk"
        fork = await runner.fork("first")
        assert (await runner.resume(fork.task_id)).state == "completed"


async def test_a_command_of_one_process_reaches_a_task_of_another_at_once(url: str) -> None:
    async with Runner(url) as driver, Runner(url) as other:
        handle = await driver.start(agent(200, 0.05), "go", task_id="long")
        await happened(handle, "tool_started")
        await other.handle("long").pause()
        assert (await handle.result()).state == "paused"


STALLS = False
"""Whether the tool `stall` waits for ever in this process."""


@tool(idempotent=True)
async def stall() -> str:
    """Wait for ever in a process that is to be killed."""
    if STALLS:
        print("stalled", flush=True)
        await asyncio.Event().wait()
    return "went on"


def stalling() -> Agent:
    turns = [call("nap", seconds=0.0), call("stall"), text("done")]
    return Agent(ScriptedModel(turns), name="staller", tools=[nap, stall])


DRIVER = """
import sys
from tests.runner import test_on_postgres
from treadle import Runner
test_on_postgres.STALLS = True
Runner(sys.argv[1]).run_sync(test_on_postgres.stalling(), "go", task_id="doomed")
"""


async def test_a_task_whose_driver_was_killed_is_driven_on_by_another_process(url: str) -> None:
    child = Forked([sys.executable, "-c", DRIVER, url], stdout=subprocess.PIPE, text=True)
    with child:
        assert child.stdout is not None
        assert await asyncio.to_thread(child.stdout.readline) == "stalled\n"
        child.send_signal(signal.SIGKILL)
    async with Runner(url, agents=[stalling()]) as runner:
        assert (await runner.get_task("doomed")).state == "interrupted"
        result = await runner.resume("doomed")
        assert (result.state, result.final_text) == ("completed", "done")


@pytest.mark.parametrize("tasks", [10, pytest.param(250, marks=pytest.mark.full)])
async def test_a_restart_of_the_server_during_a_recovery_strands_no_task(
    stoppable_postgres: PostgresServer, tmp_path: Path, tasks: int
) -> None:
    """R9: the database restarts 0.2 s into the recovery of many tasks; all of them end."""
    url = stoppable_postgres.in_schema(f"r{sha256(str(tmp_path).encode()).hexdigest()[:20]}")
    async with Runner(url) as runner:
        for n in range(tasks):
            await runner.create_task(agent(), "go", task_id=f"t{n}")
    async with Runner(url, agents=[agent()]) as runner, asyncio.timeout(60):
        recovering = [asyncio.create_task(runner.resume(f"t{n}")) for n in range(tasks)]
        await asyncio.sleep(0.2)
        await asyncio.to_thread(stoppable_postgres.stop)
        await asyncio.to_thread(stoppable_postgres.start)
        results = await asyncio.gather(*recovering)
        assert [result.state for result in results] == ["completed"] * tasks


SAMPLE: list[Callable[[Runner], Awaitable[None]]] = [
    test_busy_threads.test_the_second_task_of_a_thread_begins_after_the_first_and_sees_its_messages,
    test_compaction.test_later_tasks_see_the_summary_and_the_newest_turns,
    test_children.test_cancel_ends_the_children_first,
    test_tree_limits.test_all_limits_together,
    test_undo_fork.test_a_fork_of_a_fork_shares_what_both_share,
    test_undo.test_undo_of_a_completed_task_removes_its_messages_from_its_thread,
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("story", SAMPLE, ids=[story.__name__ for story in SAMPLE])
async def test_a_sample_of_the_promises_of_every_store(
    story: Callable[[Runner], Awaitable[None]], url: str
) -> None:
    async with Runner(url) as runner:
        await story(runner)
