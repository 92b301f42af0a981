"""Functions in processes of their own: what they find there, what becomes of their results, what is left of them."""

import errno
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from tests.runner.acts import journal
from tests.tools.hosts import hosted
from tests.tools.test_processes import assert_gone, lines
from treadle import Agent, Policy, Rule, Runner, ScriptedModel, tool
from treadle.errors import ToolDefinitionError
from treadle.models import call, text
from treadle.tools import Subprocess
from treadle.tools.hosts.child import limit_behind

pytestmark = pytest.mark.anyio

WHERE = "a tool that runs in a process of its own"


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


@pytest.mark.full
async def test_what_a_function_of_any_kind_returns_is_its_result() -> None:
    async with Runner("memory:") as runner:
        script = [call("count", n=3), call("fail")]
        handle = await runner.start(agent_with(script), "Go.")
        result = await handle.result()
        done = {each.name: each for each in result.tool_executions}
    assert done["count"].output == 2
    assert done["fail"].error.message == "LookupError: no such customer"


@pytest.mark.full
async def test_an_async_generator_and_a_function_with_defaults_run_there_too() -> None:
    async with Runner("memory:") as runner:
        result = await runner.run(agent_with([call("add", a=1), call("count_slowly", n=3)]), "Go.")
    assert [each.output for each in result.tool_executions] == [3, 2]


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


# ------------------------------------------------------------------------- effects, and what stands beside


async def test_what_stands_beside_a_function_runs_in_its_host_too(tmp_path: Path) -> None:
    note = tmp_path / "note"
    policy = Policy(Rule("look-first", tool="write", verdict="ask"))
    async with Runner("memory:", policy=policy) as runner:
        waiting = await runner.run(agent_with(call("write", note=str(note))), "Go.")
        task = waiting.task_id
        (asked,) = waiting.pending
        assert asked.preview.startswith(f"would write {note}, says ")
        assert asked.preview.split()[-1] != str(os.getpid())
        await runner.approve(task)
        done = await runner.resume(task)
        assert note.read_text() == "written"
        await runner.undo_step(task)
        await runner.undo_step(task)
        output, pid, _ = note.read_text().split()
        assert output == "written"
        assert pid != str(os.getpid())
        assert done.tool_executions[0].host == "subprocess"
        events = await journal(runner, task)
        started = [event for event in events if event.kind == "tool_started"]
        assert [event.host for event in started] == ["subprocess", "subprocess"]


async def test_a_writing_call_whose_process_ends_has_an_unknown_outcome_and_is_reconciled_there(
    tmp_path: Path,
) -> None:
    done = await only_call(call("write", note=str(tmp_path / "note"), driver=str(os.getpid())))
    assert (done.outcome, done.output) == ("ok", "found in True")


@pytest.mark.full
async def test_a_function_gets_no_more_of_its_context_than_json() -> None:
    script = [call("use", what=what) for what in ("context", "state", "ask", "secret")]
    async with Runner("memory:") as runner:
        result = await runner.run(agent_with(script), "Go.", context=object())
    messages = [each.error.message for each in result.tool_executions]
    assert (
        messages[0]
        == f"ctx.context is not available in {WHERE}: it is of type object, and only JSON data is passed on"
    )
    assert messages[1].startswith(f"ctx.state is not available in {WHERE}: pass its values as arguments")
    assert messages[2] == f"ctx.ask(...) is for tools while they run in a task, not for {WHERE}"
    assert messages[3].startswith("the tool use does not declare the secret crm")


# ------------------------------------------------------------------------------------------- the driver

PROGRAM = """
import asyncio, os, sys
from treadle import Agent, Runner, ScriptedModel, tool
from treadle.models import call, text
from treadle.tools import Subprocess
from treadle.tools.hosts.child import limit_behind

@tool(read_only=True, host=Subprocess(spare=False))
def where(notes: str = "") -> list[str]:
    "Tell where it runs."
    import subprocess, time
    if notes:
        started = [subprocess.Popen(["sleep", "1000"], start_new_session=apart) for apart in (True, False)]
        with open(notes, "w") as file:
            file.write(" ".join(str(each.pid) for each in started) + f" {os.getpid()} {os.getppid()}")
        time.sleep(1000)
    return [__name__, str(os.getpid())]

notes = sys.argv[1] if len(sys.argv) > 1 else ""
agent = Agent(ScriptedModel([call("where", notes=notes), text("Done.")]), name="desk", tools=[where])

async def main():
    async with Runner("memory:") as runner:
        result = await runner.run(agent, "Go.")
        print(result.tool_executions[0].output or result.tool_executions[0].error.message)
"""


def program(folder: Path, end: str) -> list[str]:
    """Write a program that defines a tool, and return its command line."""
    path = folder / "program.py"
    path.write_text(PROGRAM + end, "utf-8")
    return [sys.executable, str(path)]


@pytest.mark.full
def test_a_tool_that_a_script_defines_runs_without_the_script_running_again(tmp_path: Path) -> None:
    command = program(tmp_path, "if __name__ == '__main__':\n    asyncio.run(main())\n")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith("['__mp_main__', '"), done


@pytest.mark.full
def test_a_script_that_runs_its_agent_wherever_it_is_loaded_is_refused_there(tmp_path: Path) -> None:
    command = program(tmp_path, "asyncio.run(main())\n")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "where did not run: its module __mp_main__ could not be loaded: " in done.stdout
    assert "move the code that runs it under `if __name__ == '__main__':`" in done.stdout


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGKILL,
        pytest.param(signal.SIGTERM, marks=pytest.mark.full),
        pytest.param(signal.SIGINT, marks=pytest.mark.full),
    ],
)
def test_nothing_is_left_of_a_driver_that_ends(tmp_path: Path, number: int) -> None:
    notes = tmp_path / "pids"
    command = program(tmp_path, "if __name__ == '__main__':\n    asyncio.run(main())\n")
    with subprocess.Popen([*command, str(notes)], stderr=subprocess.DEVNULL) as driver:
        pids = lines(notes, 4, within=30)
        driver.send_signal(number)
        driver.wait(20)
    assert_gone(pids, within=2)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (MemoryError(), "it has 1,000 bytes of memory; raise memory= of its host"),
        (
            RuntimeError("can't start new thread"),
            "1,000 bytes of memory; raise memory= or processes= of its host",
        ),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "raise memory= of its host"),
        (OSError(errno.EMFILE, "Too many open files"), "reached a limit: raise open_files= of its host"),
        (OSError(errno.EFBIG, "File too large"), "reached a limit: raise file_bytes= of its host"),
        (RuntimeError("something else"), ""),
        (BlockingIOError(errno.EAGAIN, "not ready"), ""),
    ],
)
def test_an_error_of_a_limit_did_not_name_the_limit(error: Exception, told: str) -> None:
    found = limit_behind(error, {"RLIMIT_AS": 1_000})
    assert (told in found) if told else found == ""


async def test_a_process_without_memory_for_a_thread_did_not_name_the_limit() -> None:
    made = tool(hosted.start_thread, host=Subprocess(memory=300 << 20, spare=False))
    agent = Agent(ScriptedModel([call("start_thread"), text("Done.")]), tools=[made])
    async with Runner("memory:") as runner:
        done = (await runner.run(agent, "Go.")).tool_executions[0]
    assert done.error is not None
    assert "raise memory= or processes= of its host" in done.error.message
