"""A driver killed in the middle of a call of a LangChain tool: what may write is not called twice on a guess."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.foreign.libraries import needs

needs("langchain_core.tools")

from tests.tools.foreign.killed_driver import agent
from treadle import Happened, NotHappened, Runner

pytestmark = pytest.mark.anyio

DRIVER = Path(__file__).with_name("killed_driver.py")
ROOT = Path(__file__).parents[3]


def kill_in_call(journal: Path, notes: Path, effect: str) -> None:
    command = [sys.executable, str(DRIVER), str(journal), str(notes), effect]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "written\n"
        process.kill()
    assert notes.read_text() == "milk\n"


@pytest.mark.parametrize("verdict", [Happened("noted milk"), NotHappened()], ids=["happened", "not happened"])
async def test_a_call_that_may_write_waits_for_a_person(
    tmp_path: Path, verdict: Happened | NotHappened
) -> None:
    journal, notes = tmp_path / "journal.db", tmp_path / "notes.txt"
    kill_in_call(journal, notes, "")
    clerk = agent(notes, "")
    async with Runner(journal, agents=[clerk]) as runner:
        result = await runner.resume("t1")
        assert (result.state, result.pending[0].tool, notes.read_text()) == ("waiting", "note", "milk\n")
        await runner.settle("t1", result.pending[0].request_id, verdict)
        result = await runner.resume("t1")
    assert (result.state, result.tool_executions[0].output) == ("completed", "noted milk")
    assert notes.read_text() == ("milk\n" if isinstance(verdict, Happened) else "milk\nmilk\n")


async def test_a_call_that_only_reads_is_made_again(tmp_path: Path) -> None:
    journal, notes = tmp_path / "journal.db", tmp_path / "notes.txt"
    kill_in_call(journal, notes, "read_only")
    clerk = agent(notes, "read_only")
    async with Runner(journal, agents=[clerk]) as runner:
        result = await runner.resume("t1")
    assert (result.state, notes.read_text()) == ("completed", "milk\nmilk\n")
    assert result.tool_executions[0].output == "noted milk"
