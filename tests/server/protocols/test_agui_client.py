"""The official client of AG-UI, @ag-ui/client of npm, with servers that are killed and started again.

It needs Node and its package, which `make protocols` installs outside of the repository; TREADLE_PROTOCOLS says where.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.blocks import blocks
from tests.server.processes import ServerProcess

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "chat-front-ends.md"
HERE = Path(__file__).parent / "npm"
HOME = Path(os.environ.get("TREADLE_PROTOCOLS") or Path.home() / ".cache" / "treadle-protocols")
PACKAGE = HOME / "node_modules" / "@ag-ui" / "client" / "package.json"
VERSION = json.loads((HERE / "package.json").read_text())["dependencies"]["@ag-ui/client"]

WORKERS = '''
import asyncio
from treadle import Agent, Message, ModelAnswer, Text, TextDelta, ToolCall, tool
from treadle.server import ADMIN, Principal


class Reader:
    """Does what the user's last message says, so that any process goes on with it."""

    name = "test:reader"

    async def stream(self, request):
        said = [message.text for message in request.messages if message.role == "user"]
        name = said[-1].partition(" ")[0]
        if request.turn == 0 and name in [spec.name for spec in request.tools]:
            arguments = {"amount": 3} if name == "pay" else {}
            yield ModelAnswer(Message("assistant", (ToolCall("c", name, arguments),)), "tool_calls")
            return
        words = [f"{word} " for word in (said[-1] * (20 if name == "long" else 1)).split()]
        for word in words:
            await asyncio.sleep(0.05)
            yield TextDelta(word)
        yield ModelAnswer(Message("assistant", (Text("".join(words)),)))


@tool(read_only=True)
async def look() -> str:
    """Look around."""
    return "seen"


@tool(needs_approval=True)
async def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


agents = [Agent(Reader(), name="shop", tools=[look, pay])]


def principal_of(connection):
    return Principal("ann", scopes=ADMIN)
'''
WHERE = {
    "name": "where",
    "description": "Where the user is.",
    "parameters": {"type": "object", "properties": {}},
}


class Chat:
    """A chat front end: a process of Node with one client, which keeps its messages."""

    def __init__(self, node: str, folder: Path) -> None:
        self.log = folder / "node.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [node, str(HERE / "agui_client.mjs")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "TREADLE_PROTOCOLS": str(HOME)},
            )

    def run(self, server: Any, run_id: str, **more: Any) -> Any:
        """Return what the client has after a run."""
        assert self.process.stdin is not None
        if isinstance(more.get("message"), str):
            more["message"] = {"id": f"m-{run_id}", "role": "user", "content": more["message"]}
        asked = {"url": f"{server.url}/agui/{more.pop('agent', 'shop')}", "runId": run_id, **more}
        self.process.stdin.write(json.dumps(asked).encode() + b"\n")
        self.process.stdin.flush()
        return self.read()

    def read(self) -> Any:
        """Return what the client tells next."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        return json.loads(line)


@pytest.fixture
def chat(tmp_path: Path) -> Iterator[Chat]:
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs Node 20 or newer, and `make protocols`")
    if not PACKAGE.exists() or json.loads(PACKAGE.read_text())["version"] != VERSION:
        pytest.skip(f"@ag-ui/client {VERSION} is not in {HOME}: make protocols")
    chat = Chat(node, tmp_path)
    yield chat
    chat.process.kill()
    chat.process.wait()
    for pipe in (chat.process.stdin, chat.process.stdout):
        assert pipe is not None
        pipe.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    (tmp_path / "workers.py").write_text(WORKERS)
    server = ServerProcess(tmp_path, "store.db").begun()
    yield server
    server.close()


def test_a_run_that_a_killed_server_cut_goes_on_at_another_one(chat: Chat, tmp_path: Path):
    (tmp_path / "workers.py").write_text(WORKERS)
    store = f"sqlite:///{tmp_path}/store.db?lease=0.5"
    first = ServerProcess(tmp_path, store).begun()
    try:
        what = {"at": "TEXT_MESSAGE_CONTENT", "then": "tell"}
        assert chat.run(first, "long", threadId="t", message="long talk", **what)["delta"] == "long "
    finally:
        first.close()
    assert chat.read()["error"] is not None, "its stream was cut"
    later = ServerProcess(tmp_path, store).begun()
    try:
        told = chat.run(later, "long")
        assert (told["error"], roles(told)) == (None, ["user", "assistant"])
        assert told["messages"][-1]["content"] == " ".join(("long talk" * 20).split()) + " "
        assert kinds(told).count("TEXT_MESSAGE_START") <= 2, "only a crash made words void"
    finally:
        later.close()


def read_until(process: subprocess.Popen[bytes], words: bytes) -> bytes:
    """Return the output up to some words."""
    assert process.stdout is not None
    told = b""
    while not told.endswith(words):
        more = process.stdout.read(1)
        assert more, told
        told += more
    return told


def test_the_program_of_the_guide_chats(chat: Chat, server: ServerProcess, tmp_path: Path):
    (program,) = [block for block in blocks(GUIDE) if block.language == "js"]
    (tmp_path / "chat.mjs").write_text(program.code)
    (tmp_path / "node_modules").symlink_to(HOME / "node_modules")
    lines = [line for line in program.code.splitlines() if line]
    assert len(lines) <= 35
    env = {**os.environ, "AGENT_URL": f"{server.url}/agui/shop", "TREADLE_TOKEN": "x"}
    node = str(shutil.which("node"))
    pipe = subprocess.PIPE
    with subprocess.Popen([node, "chat.mjs"], cwd=tmp_path, env=env, stdin=pipe, stdout=pipe) as process:
        assert process.stdin is not None
        try:
            for prompt, words in ((b"> ", b"pay now\n"), (b"approval: ", b"yes\n")):
                read_until(process, prompt)
                process.stdin.write(words)
                process.stdin.flush()
            assert b"pay now" in read_until(process, b"> ")
        finally:
            process.kill()


def roles(told: Any) -> list[str]:
    return [message["role"] for message in told["messages"]]


def kinds(told: Any) -> list[str]:
    return [event["type"] for event in told["events"]]


def test_the_official_client_chats(chat: Chat, server: ServerProcess, tmp_path: Path):
    told = chat.run(server, "hello", threadId="talk", message="hello to all")
    assert (told["error"], told["outcome"]) == (None, {"type": "success"}), told
    assert told["messages"][-1]["content"] == "hello to all "
    assert kinds(told).count("TEXT_MESSAGE_CONTENT") > 1, "it streams"

    told = chat.run(server, "look", message="look around")
    assert told["error"] is None
    assert roles(told) == ["user", "assistant", "user", "assistant", "tool", "assistant"]
    assert told["messages"][4]["content"] == "seen"

    told = chat.run(server, "where", message="where am I?", tools=[WHERE])
    assert told["outcome"] == {"type": "success", "pendingToolCallIds": ["where/s1-0"]}
    result = {"id": "m-result", "role": "tool", "toolCallId": "where/s1-0", "content": "Rome"}
    told = chat.run(server, "where-2", message=result, tools=[WHERE])
    assert (told["error"], told["messages"][-1]["content"]) == (None, "where am I? ")

    told = chat.run(server, "pay", threadId="shop", message="pay now")
    (interrupt,) = told["pending"]
    assert (interrupt["reason"], interrupt["toolCallId"]) == ("tool_call", "pay/s1-0")
    server.kill()
    later = ServerProcess(tmp_path, "store.db").begun()
    try:
        answer = [{"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}]
        told = chat.run(later, "pay-2", resume=answer)
        assert (told["error"], told["pending"], told["outcome"]) == (None, [], {"type": "success"})
        assert roles(told) == ["user", "assistant", "tool", "assistant"]
        assert told["messages"][2]["content"] == "paid 3"
        again = chat.run(later, "pay-2", resume=answer)
        assert (again["error"], again["messages"]) == (None, told["messages"])

        told = chat.run(
            later, "cut", threadId="cut", message="long talk", at="TEXT_MESSAGE_CONTENT", then="abort"
        )
        assert told["messages"][-1]["content"] == "long "
        told = chat.run(later, "cut")
        assert (told["error"], roles(told)) == (None, ["user", "assistant"])
        assert told["messages"][-1]["content"] == " ".join(("long talk" * 20).split()) + " "

        stop = {"at": "TEXT_MESSAGE_CONTENT", "then": "cancel"}
        told = chat.run(later, "stop", threadId="stop", message="long talk", **stop)
        assert (told["error"], told["outcome"]) == (None, {"type": "cancelled"})
    finally:
        later.close()
