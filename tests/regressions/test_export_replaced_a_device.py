"""An export to a device or a pipe replaced it by a file: `treadle export --out /dev/null` removed the device."""

import asyncio
import os
import stat

import pytest

from treadle import Agent, Runner, ScriptedModel
from treadle.models import text

pytestmark = pytest.mark.anyio


def is_pipe(path):
    return stat.S_ISFIFO(path.lstat().st_mode)


async def test_an_export_to_a_pipe_is_written_into_it_and_leaves_it_there(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # Opened for both, so that neither side waits for the other.
    reader = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    try:
        async with Runner("memory:") as runner:
            await runner.run(Agent(ScriptedModel([text("Done.")]), name="worker"), "Go.", task_id="t")
            report = await asyncio.wait_for(runner.export_tasks(pipe, "t"), 10)
        assert is_pipe(pipe)
        assert len(os.read(reader, 65_536)) == report.bytes
    finally:
        os.close(reader)
