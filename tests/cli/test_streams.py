"""Standard streams that are closed, full or left by their reader, and input that is no text."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from treadle import Agent, Runner, ScriptedModel, tool
from treadle.cli.drive import _drive
from treadle.cli.main import main
from treadle.cli.screen import Screen
from treadle.models import call, text
from treadle.stores.memory import MemoryStore


@pytest.mark.parametrize(("closed", "code"), [("stdout", 0), ("stderr", 0), ("stdin", 2)])
def test_a_command_with_a_closed_standard_stream_ends_as_usual(closed, code, treadle, monkeypatch, capfd):
    treadle("run", "math", "hi")
    monkeypatch.setattr(sys, closed, None)
    assert main(["run", "math", "-"] if closed == "stdin" else ["tasks"]) == code
    getattr(sys, closed).close()


@pytest.mark.parametrize("command", [["tasks"], ["tasks", "--json"], ["show", "last"]])
def test_output_to_a_full_disk_is_reported_as_a_system_error(command, treadle, monkeypatch, capfd):
    treadle("run", "math", "hi")
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main(command) == 1
        monkeypatch.undo()
    assert capfd.readouterr().err.splitlines() == ["error: No space left on device"]


def test_input_that_is_not_text_is_a_usage_error(treadle, project, monkeypatch):
    (project / "words").write_bytes(b"caf\xe9")
    assert treadle("threads", "import", "t", "words").code == 2
    assert treadle("threads", "import", "t", "nowhere").code == 1
    with (project / "words").open(encoding="utf-8") as words:
        monkeypatch.setattr(sys, "stdin", words)
        assert treadle("run", "math", "-").code == 2


@tool(read_only=True)
async def rest() -> str:
    """Rest."""
    await asyncio.sleep(60)
    return "rested"


@pytest.mark.anyio
async def test_a_driver_whose_reader_has_gone_releases_its_tasks(monkeypatch):
    agent = Agent(ScriptedModel([call("rest"), text("done")]), name="rester", tools=[rest])
    store = MemoryStore()
    reading, writing = os.pipe()
    os.close(reading)
    async with Runner(store, agents=[agent]) as first, Runner(store, agents=[agent]) as second:
        handle = await first.start(agent, "hi")
        await first.drain()
        with os.fdopen(writing, "w") as gone, monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", gone)
            with pytest.raises(BrokenPipeError):
                await asyncio.wait_for(_drive(second, Screen(json=False), at_most=5, grace=0.0), 10)
            os.dup2(os.open(os.devnull, os.O_WRONLY), gone.fileno())
        task = await second.get_task(handle.task_id)
        assert (task.state, task.driven) == ("interrupted", False)
