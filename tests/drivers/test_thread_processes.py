"""Processes that share a thread: one turn after the other, none lost, and no turn waits for a crashed driver."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cast import sayer
from tests.forked import Forked
from tests.runner.acts import assert_well_formed, roles_and_texts
from treadle import Runner, RunOptions
from treadle.errors import ThreadBusy
from treadle.testing.audit import audit_store

pytestmark = pytest.mark.anyio

TALKER = """
import sys
from treadle import Agent, Runner, ScriptedModel, tool
from treadle.llm.scripted import call, text

store, name, turns = sys.argv[1], sys.argv[2], int(sys.argv[3])

@tool(read_only=True)
async def note(message: str) -> str:
    return message

def reply(request):
    if request.turn == 0:
        return call("note", message=request.messages[-1].text)
    return text(f"{request.messages[-3].text}: {len(request.messages)}")

agent = Agent(ScriptedModel(reply), name=name, tools=[note])
with Runner(store).sync as runner:
    for number in range(turns):
        result = runner.run(agent, f"{name} {number}", thread_id="talk")
        assert result.state == "completed", result
"""

HOLDER = """
import sys, time
from treadle import Agent, Runner, ScriptedModel, tool
from treadle.llm.scripted import call

@tool(read_only=True)
def hang() -> str:
    print("hanging", flush=True)
    time.sleep(60)
    return "never"

agent = Agent(ScriptedModel([call("hang"), "done"]), name="holder", tools=[hang])
Runner(sys.argv[1]).run_sync(agent, "hold", thread_id="talk", task_id="holder")
"""


def process(script: str, *arguments: Any) -> "subprocess.Popen[str]":
    return Forked(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("turns", [6, pytest.param(50, marks=pytest.mark.full)])
async def test_two_processes_take_turns_in_one_thread(tmp_path: Path, turns: int) -> None:
    store = tmp_path / "journal.db"
    talkers = [process(TALKER, store, name, turns) for name in ("ann", "bob")]
    for talker in talkers:
        _, errors = await asyncio.to_thread(talker.communicate, timeout=120)
        assert talker.returncode == 0, errors
    async with Runner(store) as runner:
        thread = await runner.get_thread("talk")
        assert_well_formed(thread)
        assert len(thread) == 2 * turns * 4
        said_by: dict[str, list[str]] = {"ann": [], "bob": []}
        for at in range(0, len(thread), 4):
            texts = [texts for _, texts in roles_and_texts(thread[at : at + 4])]
            assert texts == [texts[0], "note", texts[0], f"{texts[0]}: {at + 3}"], (
                "whole turns that saw all before"
            )
            name, _, number = texts[0].partition(" ")
            said_by[name].append(number)
        assert said_by == {name: [str(n) for n in range(turns)] for name in said_by}
        version, members = await runner.store.thread("talk")
        assert version == len(members) == 2 * turns
        assert not [str(violation) for violation in await audit_store(runner.store)]


async def test_the_next_turn_begins_when_the_process_that_has_the_thread_was_killed(tmp_path: Path) -> None:
    store = tmp_path / "journal.db"
    holder = process(HOLDER, store)
    assert holder.stdout is not None
    try:
        assert await asyncio.to_thread(holder.stdout.readline) == "hanging\n"
        async with Runner(store) as runner:
            with pytest.raises(ThreadBusy) as refused:
                await runner.run(sayer(), "?", thread_id="talk", options=RunOptions(on_busy_thread="reject"))
            assert refused.value.task_id == "holder"
            agent = sayer("Next.")
            waiting = await runner.start(agent, "next", thread_id="talk")
            await asyncio.sleep(0.7)
            assert agent.model.requests == []
            holder.kill()
            async with asyncio.timeout(5):
                assert (await waiting.result()).state == "completed"
            task = await runner.get_task("holder")
            assert (task.state, task.driven) == ("interrupted", False)
            resumed = await runner.resume("holder", agent=sayer("", "Resumed.", name="holder"))
            assert resumed.state == "completed"
            assert [m.text for m in (await runner.get_thread("talk")) if m.role == "user"] == ["next", "hold"]
            assert_well_formed(await runner.get_thread("talk"))
    finally:
        holder.kill()
        holder.communicate()
