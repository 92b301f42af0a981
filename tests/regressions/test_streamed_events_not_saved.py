"""Events that a stream had shown were lost, because saving them was cancelled when the stream ended."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from tests.forked import completed
from treadle import Runner

pytestmark = pytest.mark.anyio

WATCHER = """
import asyncio, json, os, sys
from treadle import Agent, Runner, ScriptedModel, tool
from treadle.core.events import Event
from treadle.models import call, text

@tool
async def note(n: int) -> str:
    return f"noted {n}"

async def main(store, leaves):
    agent = Agent(ScriptedModel([call("note", n=1) + call("note", n=2), text("so")]), tools=[note])
    async with Runner(store).run_stream(agent, "go", task_id="t", thread_id="talk") as stream:
        async for event in stream:
            if isinstance(event, Event):
                print(json.dumps([event.seq, event.kind]), flush=True)
                if event.kind == leaves:
                    os._exit(0)
    os._exit(0)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.sampled(1)
@pytest.mark.parametrize("leaves", ["tool_ended", "step_completed", "task_ended", "never"])
async def test_a_process_that_ends_with_its_stream_leaves_all_that_the_stream_had_shown(
    tmp_path: Path, leaves: str
) -> None:
    store = tmp_path / "journal.db"
    done = await asyncio.to_thread(completed, [sys.executable, "-c", WATCHER, store, leaves])
    shown = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(shown) >= 5
    async with Runner(store) as runner:
        kept = [[e.seq, e.kind] async for e in runner.handle("t").events(deltas=False)]
        assert kept[: len(shown)] == shown
        if shown[-1][1] == "task_ended":
            assert [message.text for message in await runner.get_thread("talk")][-1] == "so"
        assert not (await runner.verify()).findings
