"""Programs that tools start end with the call that started them, and with the process that drives it."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from treadle import Agent, Runner, ScriptedModel, tool
from treadle.errors import ToolError
from treadle.models import call, text
from treadle.tools import ProcessResult, run_process, run_process_sync

pytestmark = pytest.mark.anyio

DEAF = "trap '' TERM; echo $$; while :; do sleep 1; done"
"""Ignores SIGTERM, as does what it starts; tells its process id."""

FAMILY = f'sh -c "{DEAF.replace("$$", chr(92) + "$" + chr(92) + "$")}" & echo $$; wait'
"""Starts a second program that ignores SIGTERM; both print their process ids."""


def is_running(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def assert_gone(pids, within=10.0):
    deadline = time.monotonic() + within
    while running := [pid for pid in pids if is_running(pid)]:
        assert time.monotonic() < deadline, f"still running: {running}"
        time.sleep(0.01)


def lines(file, count, within=10.0):
    """Wait until a file has so many lines, and return them as numbers."""
    deadline = time.monotonic() + within
    while not file.exists() or len(pids_found := file.read_text().split()) < count:
        assert time.monotonic() < deadline, f"{file} was not written in time"
        time.sleep(0.01)
    return [int(line) for line in pids_found]


async def test_a_program_is_run_without_a_shell_in_a_folder_with_an_environment_and_an_input(tmp_path):
    (tmp_path / "a b").touch()
    result = await run_process("ls", "a b", cwd=tmp_path)
    assert result == ProcessResult(0, "a b\n", "")
    assert (await run_process("echo", "$HOME; `ls` *")).stdout == "$HOME; `ls` *\n"
    assert (await run_process("sh", "-c", "echo $A$HOME", env={"A": "ä"})).stdout == "ä\n"
    assert (await run_process("cat", input="öl\n")).stdout == "öl\n"
    assert (await run_process("cat")).stdout == ""
    assert (await run_process("true", input=b"x" * 1_000_000)).exit_code == 0
    assert run_process_sync("cat", input=b"raw").stdout == "raw"


async def test_an_exit_code_is_an_error_with_the_output_or_a_result_if_it_is_not_checked():
    with pytest.raises(ToolError, match=r"^sh ended with exit code 3: no such thing$"):
        await run_process("sh", "-c", "echo out; echo no such thing >&2; exit 3")
    with pytest.raises(ToolError, match=r"^sh ended with signal 9, and said nothing$"):
        await run_process("sh", "-c", "kill -9 $$")
    result = await run_process("sh", "-c", "echo out; exit 3", check=False)
    assert result == ProcessResult(3, "out\n", "")
    with pytest.raises(ToolError, match=r"^no-such-program ended with exit code 127: .* not found$"):
        await run_process("no-such-program")
    with pytest.raises(FileNotFoundError):
        await run_process("true", cwd="/no/such/folder")


async def test_a_huge_output_is_cut_with_a_mark():
    script = "print('begin' + 50_000_000 * '.' + 'end')"
    result = await run_process(sys.executable, "-c", script, max_bytes=1_000)
    assert result.stdout.startswith("begin....")
    assert result.stdout.endswith("...end\n")
    assert "\n[... 49,999,009 bytes were cut here ...]\n" in result.stdout
    assert len(result.stdout) < 1_100
    output = await run_process("printf", "%s", "x" * 1_000, max_bytes=1_000)
    assert output.stdout == "x" * 1_000


async def test_bytes_that_are_no_text_are_replaced():
    result = await run_process("printf", r"a\377\376\000b")
    assert result.stdout == "a\ufffd\ufffd\x00b"


async def test_a_program_that_ignores_sigterm_is_killed_half_a_second_after_its_time_is_over():
    began = time.monotonic()
    with pytest.raises(ToolError, match=r"^sh took longer than 0\.2 s and was stopped: \d+$") as raised:
        await run_process("sh", "-c", DEAF, timeout=0.2)
    assert 0.6 < time.monotonic() - began < 20
    assert_gone([int(str(raised.value).split()[-1])])


async def test_a_program_that_obeys_sigterm_has_time_to_clean_up(tmp_path):
    script = (
        "trap 'sleep 0.1; echo clean > done; exit' TERM; echo ready > ready; while :; do sleep 0.01; done"
    )
    running = asyncio.ensure_future(run_process("sh", "-c", script, cwd=tmp_path))
    while not (tmp_path / "ready").exists():  # noqa: ASYNC110  another process makes it
        await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (tmp_path / "done").read_text() == "clean\n"


async def test_cancelling_ends_a_program_and_all_that_it_started(tmp_path):
    running = asyncio.ensure_future(run_process("sh", "-c", f"({FAMILY}) > pids", cwd=tmp_path))
    pids = await asyncio.to_thread(lines, tmp_path / "pids", 2)
    began = time.monotonic()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert time.monotonic() - began < 20
    assert_gone(pids)


async def test_background_processes_of_a_program_end_with_it(tmp_path):
    began = time.monotonic()
    result = await run_process("sh", "-c", f"sh -c '{DEAF}' & sleep 0.2")
    assert time.monotonic() - began < 20
    assert_gone([int(result.stdout)])
    result = await run_process("sh", "-c", "sleep 60 > /dev/null 2>&1 & echo $!")
    assert_gone([int(result.stdout)])


async def test_a_cancelled_caller_gets_no_result_that_arrived_at_the_same_time():
    chance = random.Random(1)
    for _ in range(40):
        running = asyncio.ensure_future(run_process("true"))
        await asyncio.sleep(chance.uniform(0, 0.01))
        if running.cancel():
            await asyncio.wait([running])
            assert running.cancelled()


async def test_many_programs_at_once_mix_nothing_up():
    results = await asyncio.gather(*[run_process("echo", str(number)) for number in range(60)])
    assert [result.stdout for result in results] == [f"{number}\n" for number in range(60)]


@tool(read_only=True)
async def compile_it() -> ProcessResult:
    """Compile."""
    return await run_process("sh", "-c", "echo warning >&2; echo done")


@tool(read_only=True)
def look() -> str:
    """Look at something that is not there."""
    return run_process_sync("ls", "/no/such/folder").stdout


async def test_a_result_and_an_error_reach_the_model():
    agent = Agent(
        ScriptedModel([[call("compile_it"), call("look")], text("Done.")]), tools=[compile_it, look]
    )
    async with Runner("memory:") as runner:
        first, two = (await runner.run(agent, "Go")).tool_executions
    assert first.output == {"exit_code": 0, "stdout": "done\n", "stderr": "warning\n"}
    assert two.outcome == "error"
    assert two.error.message.startswith("ls ended with exit code 2: ls: cannot access")


# ------------------------------------------------------------------------------------ other processes

HOST = f"""
import asyncio, os, signal, sys, threading, time
from pathlib import Path
from treadle import Agent, Runner, ScriptedModel, tool
from treadle.models import call, text
from treadle.tools import run_process, run_process_sync

SCRIPT = {f"({FAMILY}) > pids"!r}

@tool(read_only=True)
async def in_loop() -> str:
    "Run for ever."
    try:
        return (await run_process("sh", "-c", SCRIPT)).stdout
    finally:
        Path("left").touch()

@tool
def in_thread() -> str:
    "Run for ever."
    try:
        return run_process_sync("sh", "-c", SCRIPT).stdout
    finally:
        Path("left").touch()

async def main():
    agent = Agent(ScriptedModel([call(sys.argv[1]), text("Never.")]), name="host", tools=[in_loop, in_thread])
    async with Runner("journal.db") as runner:
        return await runner.run(agent, "Go", task_id="t")

if len(sys.argv) > 2:  # the watcher is gone when the program starts
    run_process_sync("true")
    children = Path(f"/proc/self/task/{{os.getpid()}}/children").read_text().split()
    older = "echo $$ > older; exec sleep 60"
    threading.Thread(target=run_process_sync, args=("sh", "-c", older), daemon=True).start()
    while not Path("older").exists():
        time.sleep(0.005)
    os.kill(int(children[0]), signal.SIGKILL)
print(asyncio.run(main()).state)
"""


def start_host(folder, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", HOST, *arguments], cwd=folder, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["in_loop", "in_thread"])
async def test_a_cancel_from_another_process_ends_the_programs_of_a_tool(tmp_path, name):
    with start_host(tmp_path, name) as host:
        pids = await asyncio.to_thread(lines, tmp_path / "pids", 2)
        async with Runner(tmp_path / "journal.db") as runner:
            began = time.monotonic()
            result = await runner.cancel("t")
            seconds = time.monotonic() - began
            assert result.state == "cancelled"
        assert seconds < 20
        assert_gone(pids)
        assert (tmp_path / "left").exists()
        assert host.communicate(timeout=10)[0] == "cancelled\n"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("arguments", [("in_thread",), ("in_loop", "unwatched")])
def test_programs_do_not_outlive_a_driver_that_is_killed(tmp_path, arguments):
    with start_host(tmp_path, *arguments) as host:
        pids = lines(tmp_path / "pids", 2) + (
            lines(tmp_path / "older", 1) if "unwatched" in arguments else []
        )
        host.send_signal(signal.SIGKILL)
        host.wait()
        assert_gone(pids)
    assert not (tmp_path / "left").exists()


FORKING = """
import os, signal, threading, time
from treadle.tools import run_process_sync

run_process_sync("true")
child = os.fork()
if not child:
    run_process_sync("sh", "-c", "echo $$ > pids; exec sleep 60")
time.sleep(60)
"""


def test_programs_of_a_forked_process_end_with_it_and_not_only_with_its_parent(tmp_path):
    with subprocess.Popen([sys.executable, "-c", FORKING], cwd=tmp_path) as host:
        [pid] = lines(tmp_path / "pids", 1)
        [forked] = [child for child in children(host.pid) if "sh" not in command(child)]
        os.kill(forked, signal.SIGKILL)
        assert_gone([pid])
        host.kill()


def children(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def command(pid):
    return Path(f"/proc/{pid}/comm").read_text()
