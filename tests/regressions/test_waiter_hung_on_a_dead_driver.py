"""A caller that waited for another process's task waited for ever when that process ended.

`resume` and `run` of a known task are to bring it to its next stop: `interrupted`, as a crash leaves it, is none of
theirs. A handle only watches, and tells how the task stands.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.drivers.test_commands import Driven
from treadle import Agent, Runner, ScriptedModel, tool
from treadle.models import call, text
from treadle.testing.audit import audit_store

pytestmark = pytest.mark.anyio


@tool(read_only=True)
async def wait(seconds: float) -> str:
    """Wait, though not here."""
    return "waited"


AGENT = Agent(ScriptedModel([call("wait", seconds=60), text("Done.")]), name="wait", tools=[wait])


async def resume(runner: Runner) -> Any:
    return await runner.resume("wait0")


async def run(runner: Runner) -> Any:
    return await runner.run(AGENT, "Go", task_id="wait0")


async def result(runner: Runner) -> Any:
    return await runner.handle("wait0").result()


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("ends", "verb", "state"),
    [
        ("killed", resume, "completed"),
        ("closed", run, "completed"),
        ("killed", result, "interrupted"),
        pytest.param("killed", run, "completed", marks=pytest.mark.full),
        pytest.param("closed", resume, "completed", marks=pytest.mark.full),
        pytest.param("closed", result, "interrupted", marks=pytest.mark.full),
    ],
)
async def test_a_waiting_caller_resumes_a_task_when_its_driver_crashes(
    tmp_path: Path, ends: str, verb: Any, state: str
) -> None:
    with Driven(tmp_path, "wait") as driven:
        await driven.until("waiting")
        async with Runner(tmp_path / "journal.db", agents=[AGENT]) as runner, asyncio.timeout(30):
            waiting = asyncio.ensure_future(verb(runner))
            await asyncio.sleep(0.3)
            assert not waiting.done()
            if ends == "killed":
                driven.process.kill()
            else:
                assert driven.process.stdin is not None
                driven.process.stdin.close()
            assert (await waiting).state == state
            if ends == "killed" or state == "completed":
                assert await audit_store(runner.store) == []


async def test_a_task_that_a_person_interrupts_elsewhere_is_not_driven_on(tmp_path: Path) -> None:
    with Driven(tmp_path, "wait") as driven:
        await driven.until("waiting")
        async with Runner(tmp_path / "journal.db", agents=[AGENT]) as runner, asyncio.timeout(30):
            waiting = asyncio.ensure_future(runner.resume("wait0"))
            await asyncio.sleep(0.3)
            await runner.interrupt("wait0", by="ada")
            assert (await waiting).state == "interrupted"
