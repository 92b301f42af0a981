"""Servers from the registries of npm and Python, used as a client would: in both eras, over stdio and HTTP, killed."""

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import cache

import pytest

from tests.tools.mcp.killed_driver import agent as killed_agent
from tests.tools.mcp.test_killed_driver import kill_in_call
from tests.tools.test_processes import assert_gone
from treadle import Agent, MCPServer, NotHappened, Runner, ScriptedModel, tool
from treadle.errors import ToolsetUnavailable
from treadle.models import call, text

pytestmark = [pytest.mark.anyio, pytest.mark.full]

NPM = ["npx", "-y"]
EVERYTHING = [*NPM, "@modelcontextprotocol/server-everything@2026.8.31"]
FILES = [*NPM, "@modelcontextprotocol/server-filesystem@2026.8.31"]
MEMORY = [*NPM, "@modelcontextprotocol/server-memory@2026.8.31"]
UV = [sys.executable, "-m", "uv", "tool", "run", "-q"]
TIME, GIT = [*UV, "mcp-server-time"], [*UV, "mcp-server-git"]
CERTIFICATES = {"UV_SYSTEM_CERTS": "1"}


@cache
def why_not(program: str, package: str) -> str | None:
    """Return why a server cannot be fetched here; None if it can."""
    if program == "npx":
        if shutil.which("npx") is None:
            return "there is no Node here"
        fetched = subprocess.run(
            ["npm", "view", package, "version"], capture_output=True, check=False, timeout=60
        )
        return None if fetched.returncode == 0 else f"npm does not reach {package}"
    asked = [*UV, "--from", package, "python", "-c", ""]
    environment = {**os.environ, **CERTIFICATES}
    fetched = subprocess.run(asked, capture_output=True, check=False, timeout=300, env=environment)
    return None if fetched.returncode == 0 else f"the package index does not give {package}"


def fetched(command: list[str]) -> list[str]:
    """Return the command of a server that is to be had here; else skip the test and say why."""
    program = "npx" if command[0] == "npx" else "uv"
    if (why := why_not(program, command[-1])) is not None:
        pytest.skip(why)
    return command


@pytest.fixture
def declared(tmp_path):
    """Declare a server of a registry."""

    def declare(name: str, command: list[str], *args: str, **options):
        program, *rest = fetched(command)
        options = {"pins": tmp_path / "pins", "start_timeout": 120, "env": CERTIFICATES, **options}
        return MCPServer(name, command=program, args=[*rest, *args], **options)

    return declare


async def run(server, script, **options):
    """Run a task that makes these calls, and return its calls and the version of the protocol."""
    async with Runner("memory:") as runner:
        agent = Agent(ScriptedModel([*script, text("done")]), tools=[server])
        result = await runner.run(agent, "go", **options)
        assert result.state == "completed", result
        (connection,) = runner._driver.toolsets._connections.values()
        live = connection._live
        version = live.client.protocol_version
        pids = [live.process.pid] if live.process is not None else []
    assert_gone(pids)
    return result.tool_executions, version


@pytest.mark.parametrize(
    ("protocol", "spoken"), [("auto", "2026-07-28"), ("2026-07-28", "2026-07-28"), ("legacy", "2025-11-25")]
)
async def test_the_time_server_of_the_python_index_in_both_eras(declared, protocol, spoken):
    script = [
        call("time__get_current_time", timezone="Europe/Berlin"),
        call("time__convert_time", source_timezone="UTC", time="25:00", target_timezone="UTC"),
    ]
    (now, wrong), version = await run(declared("time", TIME, protocol=protocol), script)
    assert version == spoken
    assert now.outcome == "ok"
    assert "Europe/Berlin" in json.dumps(now.output)
    assert wrong.outcome == "error"


@pytest.fixture
def repository(tmp_path):
    """Make a repository with one file that is not added."""
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / "a.txt").write_text("a")
    return tmp_path


@pytest.mark.parametrize(("protocol", "spoken"), [("auto", "2026-07-28"), ("legacy", "2025-11-25")])
async def test_the_git_server_of_the_python_index_in_both_eras(declared, repository, protocol, spoken):
    script = [
        call("git__git_status", repo_path=str(repository)),
        call("git__git_add", repo_path=str(repository), files=["a.txt"]),
        call("git__git_diff_staged", repo_path=str(repository)),
    ]
    executions, version = await run(declared("git", GIT, protocol=protocol), script)
    assert version == spoken
    assert [each.outcome for each in executions] == ["ok"] * 3
    assert "a.txt" in json.dumps(executions[2].output)


@pytest.mark.parametrize("protocol", ["auto", "legacy"])
async def test_the_file_server_of_npm(declared, tmp_path, protocol):
    server = declared("files", FILES, str(tmp_path), protocol=protocol, trusted=True)
    script = [
        call("files__write_file", path=str(tmp_path / "a.txt"), content="Emma"),
        call("files__read_text_file", path=str(tmp_path / "a.txt")),
        call("files__read_text_file", path="/etc/passwd"),
    ]
    (written, read, refused), version = await run(server, script)
    assert version == "2025-11-25"
    assert (written.outcome, read.outcome, refused.outcome) == ("ok", "ok", "error")
    assert "Emma" in json.dumps(read.output)


async def test_the_memory_server_of_npm_keeps_what_it_is_told_while_its_runner_is_open(declared, tmp_path):
    server = declared("memory", MEMORY, env={"MEMORY_FILE_PATH": str(tmp_path / "memory.json")})
    entity = {"name": "Emma", "entityType": "book", "observations": ["by Jane Austen"]}
    script = [
        call("memory__create_entities", entities=[entity]),
        call("memory__search_nodes", query="Austen"),
    ]
    (_, found), _ = await run(server, script)
    assert "Emma" in json.dumps(found.output)


async def test_the_test_server_of_npm_with_all_that_the_protocol_has(declared):
    script = [
        call("all__echo", message="hello"),
        call("all__get-sum", a=2, b=3),
        call("all__get-tiny-image"),
        call("all__get-structured-content", location="New York"),
        call("all__list_resources"),
        call("all__list_prompts"),
        call("all__trigger-long-running-operation", duration=1, steps=3),
    ]
    executions, _ = await run(declared("all", EVERYTHING), script)
    assert [each.outcome for each in executions] == ["ok"] * len(script)
    assert "hello" in json.dumps(executions[0].output)
    assert "5" in json.dumps(executions[1].output)
    assert isinstance(executions[3].output, dict)


async def test_a_question_of_a_real_server_waits_for_a_person(declared):
    server = declared("all", EVERYTHING, effects={"trigger-elicitation-request": ["idempotent"]})
    agent = Agent(ScriptedModel([call("all__trigger-elicitation-request"), text("done")]), tools=[server])
    async with Runner("memory:", agents=[agent]) as runner:
        result = await runner.run(agent, "go")
        assert result.state == "waiting"
        assert result.pending[0].text.startswith("The MCP server all asks: ")
        await runner.answer(result.task_id, value=None)
        result = await runner.resume(result.task_id)
    assert result.state == "completed"
    assert "decline" in json.dumps(result.tool_executions[0].output).lower()


async def test_a_server_without_the_new_protocol_is_refused_where_it_is_demanded(declared):
    server = declared("all", EVERYTHING, protocol="2026-07-28")
    async with Runner("memory:") as runner:
        with pytest.raises(
            ToolsetUnavailable, match="the MCP server all answered with an error: Method not found"
        ):
            await runner.run(Agent(ScriptedModel([text("ok")]), tools=[server]), "go")


KILLED = {  # the call that is in flight, and what the server did once it was made again
    "time-2026": (
        TIME,
        "auto",
        "convert_time",
        {"source_timezone": "UTC", "time": "12:00", "target_timezone": "UTC"},
    ),
    "time-legacy": (
        *(TIME, "legacy", "convert_time"),
        {"source_timezone": "UTC", "time": "12:00", "target_timezone": "UTC"},
    ),
    "git-2026": (GIT, "auto", "git_add", {"repo_path": "{folder}", "files": ["a.txt"]}),
    "git-legacy": (GIT, "legacy", "git_add", {"repo_path": "{folder}", "files": ["a.txt"]}),
    "files": (FILES, "auto", "write_file", {"path": "{folder}/b.txt", "content": "Emma"}),
    "memory": (
        *(MEMORY, "auto", "create_entities"),
        {"entities": [{"name": "Emma", "entityType": "book", "observations": ["by Jane Austen"]}]},
    ),
}


@pytest.mark.parametrize("case", KILLED)
async def test_a_real_server_is_killed_in_a_writing_call_and_the_task_resumed(
    declared, repository, tmp_path, case
):
    command, protocol, name, arguments = KILLED[case]
    arguments = json.loads(json.dumps(arguments).replace("{folder}", str(repository)))
    args = [str(tmp_path)] if command is FILES else []
    server = declared("real", command, *args, protocol=protocol, effects={})

    @tool(read_only=True)
    async def freeze() -> str:
        """Stop the server, so that its next call is in flight until it is killed."""
        os.killpg(group(), signal.SIGSTOP)
        return "frozen"

    def group() -> int:
        (connection,) = runner._driver.toolsets._connections.values()
        return connection._live.process.pid

    script = [call("freeze"), call(f"real__{name}", **arguments), text("done")]
    agent = Agent(ScriptedModel(script), name="clerk", tools=[server, freeze])
    async with Runner(tmp_path / "journal.db", agents=[agent]) as runner:
        handle = await runner.start(agent, "go", task_id="t1")
        started = 0
        async for event in handle.events():
            started += event.kind == "tool_started"
            if started == 2:
                break
        await asyncio.sleep(0.5)
        pid = group()
        os.killpg(pid, signal.SIGKILL)
        result = await asyncio.wait_for(handle.result(), 60)
    assert_gone([pid])
    assert result.state == "waiting"
    assert f"the MCP server real did not answer {name}" in result.pending[0].text
    async with Runner(tmp_path / "journal.db", agents=[agent]) as runner:
        await runner.settle("t1", result.pending[0].request_id, NotHappened())
        result = await runner.resume("t1")
    assert result.state == "completed"
    assert [each.outcome for each in result.tool_executions] == ["ok", "ok"]


@contextmanager
def http_server(command: list[str]):
    """Serve the test server of npm over HTTP; yield its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {**os.environ, "PORT": str(port)}
    process = subprocess.Popen(
        [*command, "streamableHttp"],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 120
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/mcp", process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize("protocol", ["auto", "legacy"])
async def test_the_test_server_of_npm_over_http(tmp_path, protocol):
    with http_server(fetched(EVERYTHING)) as (url, _):
        server = MCPServer("all", url=url, protocol=protocol, pins=tmp_path)
        script = [call("all__echo", message="hello"), call("all__list_prompts")]
        executions, _ = await run(server, script)
    assert [each.outcome for each in executions] == ["ok", "ok"]


async def test_an_http_server_that_is_killed_in_a_call_leaves_an_unknown_outcome(tmp_path):
    with http_server(fetched(EVERYTHING)) as (url, process):
        server = MCPServer("all", url=url, pins=tmp_path)
        script = [call("all__trigger-long-running-operation", duration=60, steps=2), text("done")]
        async with Runner("memory:") as runner:
            running = asyncio.create_task(runner.run(Agent(ScriptedModel(script), tools=[server]), "go"))
            await asyncio.sleep(3)
            os.killpg(process.pid, signal.SIGKILL)
            result = await asyncio.wait_for(running, 60)
    assert result.state == "waiting"
    assert "the MCP server all did not answer trigger-long-running-operation" in result.pending[0].text


async def test_a_driver_of_a_real_server_is_killed_in_a_call_and_the_task_resumed(tmp_path):
    journal = tmp_path / "journal.db"
    arguments = json.dumps({"duration": 60, "steps": 2})
    rest = ("trigger-long-running-operation", arguments, "all", *fetched(EVERYTHING))
    await kill_in_call(signal.SIGKILL, journal, *rest)
    clerk = killed_agent(journal, *rest)
    async with Runner(journal, agents=[clerk]) as runner:
        result = await runner.resume("t1")
        assert result.state == "waiting"
        assert "trigger-long-running-operation" in result.pending[0].text
