"""`mcp serve`: the official client over stdio, in both eras, with programs that end in between; and over HTTP."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.server.protocols.test_mcp_server import HANDLES, answering, ask, begun, settled, told
from treadle.cli.mcp_serving import served_agents
from treadle.errors import ConfigurationError

pytestmark = [pytest.mark.anyio, pytest.mark.sampled(4)]

SHOP = '''
import asyncio, subprocess, sys
from treadle import Agent, Message, ModelAnswer, Text, TextDelta, ToolCall, tool


class Payer:
    """Pays once, and answers by the turn alone, so that any process goes on with it."""

    name = "test:payer"

    async def stream(self, request):
        if request.turn == 0:
            yield ModelAnswer(Message("assistant", (ToolCall("c", "pay", {"amount": 3}),)), "tool_calls")
            return
        for word in ("It ", "is ", "paid."):
            yield TextDelta(word)
            await asyncio.sleep(0.3)
        yield ModelAnswer(Message("assistant", (Text("It is paid."),)))


@tool(needs_approval=True)
async def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


@tool(read_only=True)
def shout(text: str) -> str:
    """Print to standard output, as a program of its own too, and read standard input."""
    print(text)
    subprocess.run([sys.executable, "-c", f"print({text!r})"], check=True)
    return repr(sys.stdin.readline())


@tool(read_only=True)
async def nap(seconds: float) -> str:
    """Take some seconds."""
    await asyncio.sleep(seconds)
    return "rested"


agent = Agent(Payer(), name="shop", description="Sells.", tools=[pay, shout])
both = [agent, nap]
other = Agent(Payer(), name="nap")
neither = 3
'''


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SHOP)
    return tmp_path


@asynccontextmanager
async def client_of(folder: Path, *options: str, **settings: Any) -> AsyncIterator[Client]:
    command = ["-m", "treadle", "mcp", "serve", *options, "--directory", str(folder)]
    command += ["--store", f"sqlite:///{folder}/store.db?lease=0.5"]
    server = StdioServerParameters(command=sys.executable, args=command, cwd="/", env={**os.environ})
    with (folder / "stderr.txt").open("a") as log:
        async with Client(stdio_client(server, errlog=log), **settings) as client:
            yield client


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_over_stdio_calls_an_agent_and_decides_in_a_form(shop: Path, mode: str):
    shown, callback = answering(approved=True)
    progress: list[str | None] = []

    async def tell(count: float, total: float | None, message: str | None) -> None:
        progress.append(message)

    async with client_of(shop, "shop:agent", mode=mode, elicitation_callback=callback) as client:
        (tool,) = (await client.list_tools()).tools
        assert (tool.name, tool.description) == ("shop", "Sells.")
        result = await client.call_tool("shop", {"input": "Pay"}, progress_callback=tell)
        assert told(result).startswith("It is paid.")
        assert len(shown) == 1
        assert "pay began (s1-0), attempt 1" in progress
        assert any(message and message.startswith("It") for message in progress), "words of the model"


async def test_output_of_tools_does_not_disturb_the_protocol(shop: Path):
    async with client_of(shop, "shop:shout") as client:
        assert told(await client.call_tool("shout", {"text": '{"jsonrpc"'})) == "''"
    assert (shop / "stderr.txt").read_text().count('{"jsonrpc"\n') == 2


async def test_agents_and_their_tools_are_served(shop: Path):
    async with client_of(shop, "shop:both", "--tools") as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert sorted(tools) == ["nap", "pay", "shop", "shout"]
        assert tools["nap"].annotations.read_only_hint is True
        assert tools["pay"].annotations.read_only_hint is False
        waits = await client.call_tool("pay", {"amount": 3})
        assert "waits for an approval" in told(waits), "a client without forms decides nothing"


async def test_a_handle_survives_the_end_of_its_program(shop: Path):
    settings = {"extensions": HANDLES, "elicitation_callback": answering()[1]}
    async with client_of(shop, "shop:agent", **settings) as client:
        handle = await begun(client, "shop", {"input": "Pay", "task_id": "mine"})
        assert handle["status"] == "working"
    async with client_of(shop, "shop:agent", **settings) as client:
        ((key, _),) = (await settled(client, "mine", "input_required"))["inputRequests"].items()
        accepted = {key: {"action": "accept", "content": {"approved": True}}}
        await ask(client, "tasks/update", taskId="mine", inputResponses=accepted)
        handle = await settled(client, "mine", "completed")
        assert handle["result"]["structuredContent"]["answer"] == "It is paid."


async def test_without_decisions_nothing_is_shown_and_nothing_decided(shop: Path):
    shown, callback = answering(approved=True)
    async with client_of(shop, "shop:agent", "--no-decisions", elicitation_callback=callback) as client:
        assert "waits for an approval" in told(await client.call_tool("shop", {"input": "Pay"}))
        assert shown == []


def talk(process: subprocess.Popen[bytes], **message: Any) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    process.stdin.flush()


def test_a_cancelled_call_interrupts_its_task_and_a_signal_ends_the_program(shop: Path):
    command = [sys.executable, "-m", "treadle", "mcp", "serve", "shop:nap", "--store", "store.db"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=shop, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdout is not None
        start = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        }
        talk(process, id=1, method="initialize", params=start)
        assert b'"protocolVersion":"2025-11-25"' in process.stdout.readline()
        talk(process, method="notifications/initialized")
        call = {"name": "nap", "arguments": {"seconds": 60}, "_meta": {"progressToken": "p"}}
        talk(process, id=2, method="tools/call", params=call)
        while b"nap began" not in process.stdout.readline():
            pass
        talk(process, method="notifications/cancelled", params={"requestId": 2})
        list_tasks = [sys.executable, "-m", "treadle", "tasks", "--json", "--store", "store.db"]
        for _ in range(100):
            shown = subprocess.run(list_tasks, cwd=shop, capture_output=True, check=True).stdout
            (task,) = json.loads(shown)["items"]
            if task["state"] == "interrupted":
                break
        assert task["state"] == "interrupted"
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=20)
        assert process.returncode == 0, log
        assert b"Traceback" not in log


def test_over_http_it_needs_its_token(shop: Path):
    command = [
        sys.executable,
        "-m",
        "treadle",
        "mcp",
        "serve",
        "shop:both",
        "--http",
        "--port",
        "0",
        "--json",
    ]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=shop, stdout=pipe, stderr=pipe) as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        assert first["agents"] == ["shop", "nap"]
        token = Path(shop, first["token_file"]).read_text().strip()
        headers = {"Accept": "application/json, text/event-stream", "Authorization": f"Bearer {token}"}
        listed = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        url = f"{first['url']}/mcp"
        with httpx2.Client(timeout=20, verify=False) as client:
            answer = client.post(url, json=listed, headers=headers).text
            assert '"name":"nap"' in answer
            assert client.post(url, json=listed, headers={**headers, "Authorization": ""}).status_code == 401
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=20)
        assert process.returncode == 0, log


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["shop:neither"], "neither an agent nor a tool"),
        (["shop:both", "shop:other"], "have the name 'nap'"),
        (["shop:agent", "--port", "1234"], "add --http"),
        (["shop:agent", "--http", "--no-decisions"], "for standard input"),
        (["shop:agent", "--http", "--host", "0.0.0.0"], "--auth or --token-file"),
        (["shop:agent", "--directory", "/nowhere"], "--directory /nowhere"),
        (["shop:nobody"], "cannot be imported"),
    ],
)
def test_what_cannot_be_served_is_refused(
    shop: Path, monkeypatch: pytest.MonkeyPatch, treadle: Any, options: list[str], message: str
):
    monkeypatch.chdir(shop)
    monkeypatch.syspath_prepend(str(shop))
    ended = treadle("mcp", "serve", *options)
    assert ended.code == 2
    assert message in " ".join(ended.err.split())


def test_a_tool_of_two_agents_is_served_once(shop: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(shop)
    monkeypatch.syspath_prepend(str(shop))
    sys.modules.pop("shop", None)
    assert [agent.name for agent in served_agents(["shop:agent", "shop:pay"], tools=True)] == [
        "shop",
        "pay",
        "shout",
    ]
    monkeypatch.chdir("/")
    with pytest.raises(ConfigurationError, match="treadle mcp serve"):
        served_agents([], tools=False)
