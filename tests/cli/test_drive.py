"""`drive`: a driver process."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.forked import Forked
from treadle import Agent, Runner, ScriptedModel, tool
from treadle.cli.drive import _drive
from treadle.cli.screen import Screen
from treadle.errors import StoreFormatError
from treadle.models import call, text
from treadle.ports import AT_ONCE
from treadle.stores.memory import MemoryStore


@tool(read_only=True)
async def rest() -> str:
    """Rest."""
    await asyncio.sleep(60)
    return "rested"


@pytest.mark.anyio
async def test_a_driver_ends_with_an_error_when_a_newer_version_migrates_its_store(tmp_path: Path):
    agent = Agent(ScriptedModel([call("rest"), text("done")]), name="rester", tools=[rest])
    path = tmp_path / "journal.db"
    async with Runner(f"sqlite:///{path}?lease=0.5", agents=[agent]) as runner:
        driving = asyncio.create_task(_drive(runner, Screen(json=True), 10, None, 0))
        task = await runner.submit(agent, "hi")
        async for event in runner.handle(task.task_id).events(follow=True):
            if event.kind == "tool_started":
                break
        newer = apsw.Connection(str(path))
        newer.set_busy_timeout(30_000)
        newer.execute("PRAGMA user_version = 99").fetchall()
        newer.execute("UPDATE compatible SET opens = 99").fetchall()
        newer.close()
        with pytest.raises(StoreFormatError, match=r"has format 99.*upgrade treadle"):
            await driving
        row = await runner.store.row(task.task_id)
        assert (row.driver, row.due_at) == (None, AT_ONCE)


@pytest.mark.anyio
async def test_a_driver_with_a_closed_output_pipe_releases_its_tasks(monkeypatch):
    agent = Agent(ScriptedModel([call("rest"), text("done")]), name="rester", tools=[rest])
    store = MemoryStore()
    reading, writing = os.pipe()
    os.close(reading)
    async with Runner(store, agents=[agent]) as first, Runner(store, agents=[agent]) as second:
        handle = await first.start(agent, "hi")
        await first.drain()
        with os.fdopen(writing, "w") as pipe, monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", pipe)
            with pytest.raises(BrokenPipeError):
                await asyncio.wait_for(
                    _drive(second, Screen(json=False), at_most=5, per_tenant=None, grace=0.0), 10
                )
            os.dup2(os.open(os.devnull, os.O_WRONLY), pipe.fileno())
        task = await second.get_task(handle.task_id)
        assert (task.state, task.driven) == ("interrupted", False)


SERVED = '''
import asyncio, sys
from dataclasses import dataclass

from treadle import Agent, RunOptions, Runner, ScriptedModel, ToolContext, tool
from treadle.models import call, text


@dataclass
class Session:
    user: str


@tool(read_only=True)
async def whoami(ctx: ToolContext[Session]) -> str:
    """Tell who asks."""
    if __name__ == "__main__":
        print("asked", flush=True)
        await asyncio.sleep(60)
    return ctx.context.user


agent = Agent(ScriptedModel([call("whoami"), text("done")]), name="desk", tools=[whoami])


def session_of(task):
    return Session(task.labels.get("user", "a guest"))


async def main():
    async with Runner("journal.db") as runner:
        for user in ("ada", "grace"):
            options = RunOptions(labels={"user": user})
            await runner.start(agent, "Who?", task_id=user, options=options, context=Session(user))
        await asyncio.sleep(60)


if __name__ == "__main__":
    asyncio.run(main())
'''


async def read_until(stream: Any, wanted: str, times: int) -> None:
    while times:
        line = await asyncio.to_thread(stream.readline)
        assert line, f"it ended before it printed {wanted}"
        times -= wanted in line


def process(*command: str, folder: Path, **environment: str) -> subprocess.Popen[str]:
    return Forked(
        [sys.executable, *command],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


@pytest.mark.anyio
async def test_treadle_drive_makes_the_context_of_each_task_that_it_adopts(tmp_path: Path):
    (tmp_path / "served.py").write_text(SERVED)
    crashing = process("served.py", folder=tmp_path)
    await read_until(crashing.stdout, "asked", 2)
    crashing.kill()
    crashing.communicate()
    store = ("--store", "journal.db")
    driver = process(
        *("-m", "treadle", "drive", "--agent", "served:agent", *store, "--json"),
        folder=tmp_path,
        TREADLE_CONTEXT_FACTORY="served:session_of",
    )
    await read_until(driver.stdout, '"completed"', 2)
    driver.send_signal(signal.SIGTERM)
    driver.communicate()
    async with Runner(tmp_path / "journal.db") as runner:
        outputs = {user: (await runner.result(user)).tool_executions[0].output for user in ("ada", "grace")}
    assert outputs == {"ada": "ada", "grace": "grace"}


def test_the_factory_of_contexts_is_named_in_pyproject(treadle, project: Path):
    (project / "served.py").write_text(SERVED)
    refused = treadle("run", "served:agent", "Who?")
    assert refused.code == 2
    assert "its tool 'whoami' needs a context of type Session" in refused.err
    assert "TREADLE_CONTEXT_FACTORY" in refused.err
    settings = (project / "pyproject.toml").read_text()
    (project / "pyproject.toml").write_text(f'{settings}\ncontext_factory = "served:session_of"\n')
    document = treadle("run", "served:agent", "Who?", "--json").document
    assert document["tool_executions"][0]["output"] == "a guest"
    (project / "pyproject.toml").write_text(f'{settings}\ncontext_factory = "served:nobody"\n')
    assert "served:nobody cannot be imported" in treadle("run", "served:agent", "Who?").err
