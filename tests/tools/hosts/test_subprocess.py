"""Functions in processes of their own: what they find there, what becomes of their results, what is left of them."""

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from tests.tools.hosts import hosted
from tests.tools.test_processes import assert_gone, lines
from treadle import Agent, Runner, ScriptedModel, tool
from treadle.errors import ToolDefinitionError
from treadle.models import call, text
from treadle.tools import Subprocess

pytestmark = pytest.mark.anyio


def agent_with(*script: Any) -> Agent[Any]:
    tools = [each for each in vars(hosted).values() if hasattr(each, "spec")]
    return Agent(ScriptedModel([*script, text("Done.")]), name="desk", tools=tools)


def folders() -> list[Path]:
    """Return the folders of processes that are there."""
    return list(Path(tempfile.gettempdir()).glob("treadle-tool-*"))


async def only_call(*script: Any, **options: Any) -> Any:
    """Run the calls of one answer, and return what became of the first."""
    async with Runner("memory:", secrets={"crm": lambda: "a-secret-of-the-crm"}) as runner:
        result = await runner.run(agent_with(*script), "Go.", **options)
        return result.tool_executions[0]


async def test_a_function_runs_with_little_around_it_and_nothing_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PROVIDER_KEY", "k" * 30)
    done = await only_call(call("surroundings", secret="crm"), context={"user": "u1"})
    assert done.outcome == "ok", done.error
    assert done.host == "subprocess"
    found = done.output
    assert found["pid"] != os.getpid()
    assert set(found["environment"]) <= {
        *("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "TMPDIR", "TZ", "USER")
    }
    assert "a-secret" not in str(found["arguments"])
    assert found["secret"] == len("a-secret-of-the-crm")
    assert found["context"] == {"user": "u1"}
    assert found["ids"] == [done.task_id, "s1-0", f"{done.task_id}/s1-0", 1]
    assert found["folder"] not in map(str, folders())
    assert_gone([found["pid"]], within=1)


async def test_what_a_function_of_any_kind_returns_is_its_result() -> None:
    async with Runner("memory:") as runner:
        script = [call("add", a=1), call("count", n=3), call("count_slowly", n=3), call("fail")]
        handle = await runner.start(agent_with(script), "Go.")
        result = await handle.result()
        done = {each.name: each for each in result.tool_executions}
    assert done["add"].output == 3
    assert done["count"].output == 2
    assert done["count_slowly"].output == 2
    assert done["fail"].error.message == "LookupError: no such customer"


async def test_a_process_that_ends_without_an_answer_leaves_the_outcome_of_a_read_failed(
    tmp_path: Path,
) -> None:
    done = await only_call(call("crash", how="segv"))
    assert done.outcome == "error"
    assert done.error.message == (
        "crash: its process ended before it answered: killed by SIGSEGV; it printed: last words"
    )


async def test_what_a_function_started_is_gone_once_its_time_is_over(tmp_path: Path) -> None:
    notes = tmp_path / "pids"
    began = time.monotonic()
    done = await only_call(call("linger", notes=str(notes)))
    assert done.outcome == "timeout"
    assert time.monotonic() - began < 10
    assert_gone(lines(notes, 4), within=1)


def test_a_function_that_a_new_process_cannot_find_is_refused() -> None:
    def inner() -> None:
        """Do nothing."""

    with pytest.raises(
        ToolDefinitionError, match=r"'inner': fn: host= runs it in a new process, where inner, defined in"
    ):
        tool(inner, host=Subprocess())
    with pytest.raises(ToolDefinitionError, match="a lambda cannot be found by its name"):
        tool(hosted.add, undo=lambda call, ctx: None, read_only=False)
    with pytest.raises(ToolDefinitionError, match=r"host: give an instance: host=Subprocess\(\)"):
        tool(hosted.add, host=Subprocess)  # pyright: ignore[reportArgumentType, reportCallIssue]
    with pytest.raises(
        ToolDefinitionError, match="inline: a function that is not async would stop the event loop"
    ):
        tool(hosted.add, host="inline")
    with pytest.raises(ToolDefinitionError, match="thread: an async function runs in the event loop"):
        tool(hosted.surroundings, host="thread")
    with pytest.raises(ToolDefinitionError, match="contradicts background=True"):
        tool(hosted.add, background=True)
