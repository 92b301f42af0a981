"""Commands to a task that another process drives: they arrive soon, in any order, and their report comes back."""

import asyncio
import os
import statistics
import subprocess
import sys
import time

import pytest

from tests.forked import Forked
from treadle import Agent, Runner, ScriptedModel
from treadle.errors import IrreversibleStep, StepNotFound
from treadle.events import PauseRequested, Resumed
from treadle.ports import InboxItem
from treadle.testing.audit import audit_store

pytestmark = pytest.mark.anyio

DRIVER = """
import asyncio, os, sys, time
from pathlib import Path
from treadle import Agent, Runner, ScriptedModel, tool
from treadle.models import call, text

def note(what):
    with open("log", "a") as log:
        log.write(f"{what} {time.time()}\\n")

@tool(undo=lambda call, ctx: note(f"undone {call.arguments['n']}"))
async def book(n: int) -> str:
    note(f"booked {n}")
    return f"booked {n}"

@tool(read_only=True)
async def wait(seconds: float) -> str:
    note("waiting")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        note("cut")
        raise
    note("waited")
    return "waited"

@tool(read_only=True)
async def gate() -> str:
    note("waiting")
    while not Path("open").exists():
        await asyncio.sleep(0.01)
    note("waited")
    return "waited"

@tool
async def launch() -> str:
    note("launching")
    await asyncio.sleep(0.3)
    note("launched")
    return "launched"

script = {
    "book": [call("book", n=1), call("book", n=2), call("wait", seconds=60), text("Done.")],
    "launch": [call("launch"), text("Launched.")],
    "wait": [call("wait", seconds=60), text("Done.")],
    "gate": [call("gate"), text("Done.")],
}
tools = [book, wait, gate, launch]
agents = {name: Agent(ScriptedModel(turns), name=name, tools=tools) for name, turns in script.items()}

async def main():
    async with Runner("journal.db", agents=list(agents.values())) as runner:
        for number in range(int(sys.argv[2])):
            name = sys.argv[1]
            handle = await runner.start(agents[name], "Go", task_id=f"{name}{number}")
        print("up", flush=True)
        await asyncio.to_thread(sys.stdin.read)

if __name__ == "__main__":
    asyncio.run(main())
"""


class Driven:
    """A process that drives tasks of a script, and the lines that its tools wrote."""

    def __init__(self, folder, script, count=1):
        self.folder = folder
        (folder / "driver.py").write_text(DRIVER)
        self.process = Forked(
            [sys.executable, "driver.py", script, str(count)],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ},
        )

    def __enter__(self):
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "up\n"
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()

    def log(self):
        path = self.folder / "log"
        return [line.rsplit(" ", 1) for line in path.read_text().splitlines()] if path.exists() else []

    def happened(self):
        return [what for what, _ in self.log()]

    async def until(self, what, times=1):
        async with asyncio.timeout(20):
            while self.happened().count(what) < times:  # noqa: ASYNC110  the log is another process's
                await asyncio.sleep(0.01)


async def journalled(runner, task_id, kind):
    """Wait until the task's journal holds an event of a class."""
    async with asyncio.timeout(20):
        async for event in runner.handle(task_id).events():
            if isinstance(event, kind):
                return


async def test_an_undo_is_carried_out_by_the_driver_and_its_report_comes_back(tmp_path):
    with Driven(tmp_path, "book") as driven:
        await driven.until("waiting")
        async with Runner(tmp_path / "journal.db") as runner:
            asking = asyncio.ensure_future(runner.handle("book0").undo_step(to=1, by="ada"))
            await asyncio.sleep(0.3)
            assert not asking.done(), "calls in flight end first"
            await runner.handle("book0").interrupt()
            report = await asking
            assert (report.complete, report.to) == (True, 1)
            assert [(call.tool, call.verdict) for call in report.calls] == [
                ("wait", "nothing_to_compensate"),
                ("book", "compensated"),
            ]
            assert driven.happened() == ["booked 1", "booked 2", "waiting", "cut", "undone 2"]
            row = await runner.store.row("book0")
            assert (row.driver, row.state) == (None, "running")
            assert await audit_store(runner.store) == []


async def test_an_impossible_undo_is_refused_with_the_same_error_as_at_rest_and_disturbs_no_call(tmp_path):
    with Driven(tmp_path, "launch") as driven:
        await driven.until("launching")
        async with Runner(tmp_path / "journal.db") as runner:
            handle = runner.handle("launch0")
            with pytest.raises(IrreversibleStep):
                await handle.undo_step()
            assert driven.happened() == ["launching", "launched"], "the writing call was let end"
            assert (await handle.result()).state == "completed"
            with pytest.raises(StepNotFound):
                await handle.undo_step(to=7)
            report = await handle.undo_step(force=True)
            assert report.complete
            assert await audit_store(runner.store) == []


async def test_a_task_whose_pause_is_withdrawn_in_time_continues(tmp_path):
    with Driven(tmp_path, "gate") as driven:
        await driven.until("waiting")
        async with Runner(tmp_path / "journal.db") as runner:
            pausing = asyncio.ensure_future(runner.pause("gate0"))
            await journalled(runner, "gate0", PauseRequested)
            resuming = asyncio.ensure_future(runner.resume("gate0"))
            await journalled(runner, "gate0", Resumed)
            (tmp_path / "open").touch()
            assert (await resuming).state == "completed"
            assert (await pausing).state == "completed"
            assert driven.happened() == ["waiting", "waited"]


async def test_commands_in_any_order_and_any_number_of_times_end_in_the_strongest(tmp_path):
    with Driven(tmp_path, "wait") as driven:
        await driven.until("waiting")
        async with Runner(tmp_path / "journal.db") as runner:
            handle = runner.handle("wait0")
            verbs = [handle.pause, handle.interrupt, handle.cancel, handle.cancel, handle.pause]
            results = await asyncio.gather(*[verb() for verb in verbs])
            assert {result.state for result in results} <= {"paused", "interrupted", "cancelled"}
            assert results[2].state == "cancelled"
            for verb in verbs:
                assert (await verb()).state == "cancelled"
            assert (await runner.store.row("wait0")).driver is None
            assert driven.happened() == ["waiting", "cut"]
            assert await audit_store(runner.store) == []


async def test_a_fork_of_a_task_driven_elsewhere_begins_at_its_last_completed_step(tmp_path):
    with Driven(tmp_path, "book") as driven:
        await driven.until("waiting")
        async with Runner(tmp_path / "journal.db") as runner:
            # A read-only call begins before anything is written: the step before it may be durable a little later.
            while len(await runner.get_completed_steps("book0")) < 2:  # noqa: ASYNC110  another process writes
                await asyncio.sleep(0.01)
            fork = await runner.handle("book0").fork()
            steps = await runner.get_completed_steps(fork)
            assert [step.step.index for step in steps] == [1, 2]
            assert (await runner.get_task("book0")).driven


async def test_a_cancel_reaches_a_tool_in_another_process_soon(tmp_path):
    with Driven(tmp_path, "wait", count=20) as driven:
        await driven.until("waiting", 20)
        sent = []
        async with Runner(tmp_path / "journal.db") as runner:
            for number in range(20):
                sent.append(time.time())
                assert (await runner.cancel(f"wait{number}")).state == "cancelled"
        cut = [float(at) for what, at in driven.log() if what == "cut"]
        delays = [there - here for here, there in zip(sent, cut, strict=True)]
        # On a quiet machine 0.1 s; this one may be busy with other tests.
        assert statistics.median(delays) < 0.5, delays
        assert max(delays) < 2.0, delays


async def test_an_undo_that_arrived_after_the_end_does_not_stay_in_the_inbox():
    async with Runner("memory:") as runner:
        result = await runner.run(Agent(ScriptedModel(["done"])), "go")
        item = InboxItem("late", "undo", {"to": 0, "step": None, "force": False, "by": None}, 1)
        await runner.store.post(result.task_id, item)
        await asyncio.wait_for(runner._driver.commands.carried_out(result.task_id, "late"), 5)
        assert await runner.store.inbox(result.task_id) == []
        assert (await runner.result(result.task_id)).state == "completed"
