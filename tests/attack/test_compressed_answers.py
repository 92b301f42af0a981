"""What is short to send and long to read: a compressed answer takes no more memory than an answer may have.

Each answer holds 100 MiB in half a MiB at most. Peaks are of what Python allocates while it is read.
"""

import json
import tracemalloc
import zlib
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from treadle import Agent, Client, MCPServer, Runner, ScriptedModel
from treadle.errors import ModelError, RequestRefused, ServerUnavailable, ToolError
from treadle.llm import connections
from treadle.llm.other_providers import ProviderModel
from treadle.models import Anthropic, Google, OpenAI, OpenAIChat, call, text
from treadle.testing.conformance.model import ask, request
from treadle.tools import http_client

pytestmark = [
    pytest.mark.anyio,
    # pydantic-ai says of some providers that they are deprecated.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*deprecated"),
]

MIB = 1 << 20
HELD = 100 * MIB


EVENT = b'data: {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "'
BODIES = {
    "gzip": ("gzip", "application/json", "gzip", b'{"x": "', b"x"),
    "deflate": ("deflate", "application/json", "deflate", b'{"x": "', b"x"),
    "gzip events of one line": ("gzip", "text/event-stream", "gzip", EVENT, b"x"),
    "gzip events of many lines": ("gzip", "text/event-stream", "gzip", EVENT, b'"}}\n\ndata: {}'),
    "brotli": ("br", "application/json", "gzip", b"", b"x"),
    "nested": ("gzip, gzip", "application/json", "gzip", b"", b"x"),
}
"""Of each body: the encoding that its head names, its media type, its encoding, how it starts, and what fills it."""


@cache
def squeezed(encoding: str, start: bytes, fill: bytes) -> bytes:
    """Return `HELD` bytes in an encoding."""
    wbits = {"gzip": 31, "deflate": 15}[encoding]
    squeezing = zlib.compressobj(1, zlib.DEFLATED, wbits)
    pieces = [squeezing.compress(start)]
    pieces += [squeezing.compress(fill * (MIB // len(fill))) for _ in range(HELD // MIB)]
    return b"".join([*pieces, squeezing.flush()])


class Squeezing(BaseHTTPRequestHandler):
    """Answers each request with the body of its server, but what begins a session of the protocol for tools."""

    protocol_version = "HTTP/1.1"
    squeezed: Any = None
    status = 200

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        try:
            message = json.loads(body)
        except ValueError:
            message = {}
        result = self.of_a_session(message.get("method"), message)
        if result is None:
            encoding, kind, data = self.squeezed
            self.answer(self.status, kind, data, encoding)
        elif result == {}:
            self.answer(202, "application/json", b"")
        else:
            answer = {"jsonrpc": "2.0", "id": message.get("id"), "result": result}
            self.answer(200, "application/json", json.dumps(answer).encode())

    def of_a_session(self, method, message):
        if method == "initialize":
            version = message["params"]["protocolVersion"]
            told = {"protocolVersion": version, "serverInfo": {"name": "e", "version": "1"}}
            return {**told, "capabilities": {"tools": {}}}
        if method == "tools/list":
            return {"tools": [{"name": "add", "description": "Add", "inputSchema": {"type": "object"}}]}
        return {} if str(method).startswith("notifications/") else None

    def do_GET(self):
        encoding, kind, data = self.squeezed
        if self.path.startswith("/mcp"):
            self.answer(405, "text/plain", b"")
        else:
            self.answer(self.status, kind, data, encoding)

    def do_DELETE(self):
        self.do_GET()

    def answer(self, status, kind, data, encoding=""):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        if encoding:
            self.send_header("content-encoding", encoding)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@contextmanager
def serving(body: str, status: int = 200):
    names, kind, *held = BODIES[body]
    handler = type("Handler", (Squeezing,), {"squeezed": (names, kind, squeezed(*held)), "status": status})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads, server.block_on_close = True, False
    server.handle_error = lambda *_: None
    Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def peak_below(most: int):
    """Fail if Python allocates more than this in the block."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        yield
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert peak < most, f"{peak / MIB:.0f} MiB"


@pytest.mark.parametrize("status", [200, 400, 500])
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.sampled(4)
async def test_a_compressed_answer_of_an_mcp_server_was_bounded_by_what_was_sent(body, status):
    with serving(body, status) as url:
        reads = {"add": ["read_only"]}
        server = MCPServer("evil", url=f"{url}/mcp", pins=None, protocol="legacy", effects=reads)
        agent = Agent(ScriptedModel([call("evil__add"), text("done")]), tools=[server])
        async with Runner("memory:", agents=[agent]) as runner:
            await runner.run(agent.replace(model=ScriptedModel(["warm"])), "go")
            with peak_below(70 * MIB):
                result = await runner.run(agent, "go")
    [execution] = result.tool_executions
    assert (result.state, execution.outcome) == ("completed", "error")
    assert "the MCP server evil" in execution.error.message


WIRES = {
    "chat": lambda url: OpenAIChat("gpt-x", base_url=f"{url}/v1", api_key="sk-very-secret"),
    "responses": lambda url: OpenAI("gpt-x", base_url=f"{url}/v1", api_key="sk-very-secret"),
    "anthropic": lambda url: Anthropic("claude-x", base_url=url, api_key="sk-very-secret"),
    "google": lambda url: Google("gemini-3-x", base_url=url, api_key="sk-very-secret"),
    "groq": lambda url: ProviderModel("groq", "m", base_url=f"{url}/v1", api_key="sk-very-secret"),
}


@pytest.mark.parametrize("status", [200, 400])
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.sampled(4)
async def test_a_compressed_answer_of_a_provider_was_read_to_its_end(monkeypatch, wire, body, status):
    monkeypatch.setattr(connections, "MAX_RESPONSE", 4_000_000, raising=False)
    with serving(body, status) as url:
        model = WIRES[wire](url)
        with pytest.raises(ModelError):
            await ask(model, request())  # imports what the wire format needs
        with peak_below(70 * MIB), pytest.raises(ModelError) as caught:
            await ask(model, request())
    assert "sk-very-secret" not in str(caught.value)


@pytest.mark.parametrize("status", [200, 404])
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.sampled(4)
async def test_a_compressed_answer_of_a_server_of_tasks_was_read_to_its_end(monkeypatch, body, status):
    monkeypatch.setattr("treadle.client.connection.MAX_DOCUMENT", 4_000_000, raising=False)
    with serving(body, status) as url:
        async with Client(url, token="t" * 20) as client:
            with peak_below(70 * MIB), pytest.raises(RequestRefused, match="no valid answer"):
                await client.list_tasks()


async def test_a_compressed_refusal_of_a_stream_was_read_to_its_end(monkeypatch):
    monkeypatch.setattr("treadle.client.connection.MAX_DOCUMENT", 4_000_000, raising=False)
    with serving("gzip events of many lines", status=404) as url:
        async with Client(url, token="t" * 20, patience=0.2) as client:
            with peak_below(70 * MIB), pytest.raises(RequestRefused, match="no valid answer"):
                await anext(client.handle("t").events())


async def test_compressed_events_of_a_server_of_tasks_were_read_to_their_end(monkeypatch):
    monkeypatch.setattr("treadle.client.connection.MAX_DOCUMENT", 4_000_000, raising=False)
    with serving("gzip events of one line") as url:
        async with Client(url, token="t" * 20, patience=0.2) as client:
            # After the cut it lists tasks, unless its patience is over: the server answers that with events, too.
            with peak_below(70 * MIB), pytest.raises((ServerUnavailable, RequestRefused)):
                await anext(client.changes())


async def test_a_client_for_tools_refuses_what_is_compressed():
    with serving("gzip") as url:
        async with http_client("127.0.0.1", networks=["127.0.0.0/8"]) as client:
            with peak_below(20 * MIB), pytest.raises(ToolError, match="not asked for"):
                await client.get(f"{url}/x")
