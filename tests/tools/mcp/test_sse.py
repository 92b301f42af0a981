"""Servers that speak HTTP with server-sent events, as before 2025: against the `mcp` package, and against failures."""

import asyncio
import json
import time
from contextlib import contextmanager

import pytest
from mcp.server import MCPServer as Library
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, RedirectResponse, StreamingResponse
from starlette.routing import Route

from tests.tools.mcp.serving import listening, served_at
from treadle import MCPServer, Runner
from treadle.errors import ConfigurationError, ToolsetUnavailable
from treadle.models import call, text

pytestmark = [pytest.mark.anyio, pytest.mark.sampled(3)]

TOKEN = "tok-4f9a8b7c6d5e4f3a2b1c"


@contextmanager
def library():
    """Serve two tools by the package; yield the address, and the tokens that it saw."""
    shelf = Library("shelf")
    seen = []

    @shelf.tool()
    def add(title: str) -> str:
        """Add a book."""
        return f"{title} is on the shelf"

    @shelf.tool()
    async def slow(seconds: float) -> str:
        """Take some time."""
        await asyncio.sleep(seconds)
        return "done"

    inner = shelf.sse_app()

    async def app(scope, receive, send):
        if scope["type"] == "http":
            seen.append(dict(scope["headers"]).get(b"authorization", b"").decode())
        await inner(scope, receive, send)

    with listening() as (bound, address), served_at(bound, app):
        yield f"{address}/sse", seen


async def test_a_server_of_the_package_is_spoken_with(clerk):
    with library() as (url, seen):
        shelf = MCPServer("shelf", url=url, transport="sse", auth=lambda: TOKEN, pins=None)
        script = [call("shelf__add", title="Emma"), call("shelf__add", title="Persuasion"), text("done")]
        async with Runner("memory:") as runner:
            result = await runner.run(clerk(script, shelf), "go")
            (connection,) = runner._driver.toolsets._connections.values()
            assert connection._live.client.protocol_version == "2025-11-25"
    outputs = [each.output["result"] for each in result.tool_executions]
    assert outputs == ["Emma is on the shelf", "Persuasion is on the shelf"]
    assert set(seen) == {f"Bearer {TOKEN}"}


async def test_a_call_that_takes_too_long_has_an_unknown_outcome(clerk):
    with library() as (url, _):
        shelf = MCPServer("shelf", url=url, transport="sse", call_timeout=0.3, pins=None)
        async with Runner("memory:") as runner:
            result = await runner.run(clerk([call("shelf__slow", seconds=5), text("done")], shelf), "go")
    assert result.state == "waiting"


async def test_a_server_that_takes_no_post_requests_says_which_transport_it_wants(clerk):
    with library() as (url, _):
        shelf = MCPServer("shelf", url=url, pins=None)
        async with Runner("memory:") as runner:
            with pytest.raises(ToolsetUnavailable, match="one with server-sent events wants transport='sse'"):
                await runner.run(clerk([text("done")], shelf), "go")


TOOLS = [{"name": "add", "inputSchema": {"type": "object"}}]
RESULTS = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "bad", "version": "1"},
    },
    "tools/list": {"tools": TOOLS},
}


@contextmanager
def failing(behaviour: str):
    """Serve one tool, and do something else than answer its call."""
    events: asyncio.Queue[str | None] = asyncio.Queue()

    async def stream(request):
        async def lines():
            yield "event: endpoint\ndata: /messages\n\n"
            while (line := await events.get()) is not None:
                yield line

        return StreamingResponse(lines(), media_type="text/event-stream")

    async def messages(request):
        message = await request.json()
        method = message.get("method")
        if method == "tools/call":
            if behaviour == "refuses":
                return PlainTextResponse("no", 403)
            if behaviour == "forgets":
                return PlainTextResponse("which session?", 404)
            if behaviour == "redirects":
                return RedirectResponse("http://169.254.169.254/latest/meta-data/", 307)
            if behaviour == "breaks":
                return PlainTextResponse("broken", 502)
            if behaviour == "hangs_up":
                events.put_nowait(None)
            if behaviour == "floods":
                note = {
                    "jsonrpc": "2.0",
                    "method": "notifications/message",
                    "params": {"data": "x" * 900_000},
                }
                for _ in range(100):
                    events.put_nowait(f"event: message\ndata: {json.dumps(note)}\n\n")
        elif method in RESULTS:
            answer = {"jsonrpc": "2.0", "id": message["id"], "result": RESULTS[method]}
            events.put_nowait(f"event: message\ndata: {json.dumps(answer)}\n\n")
        elif "id" in message:
            error = {"code": -32601, "message": "no such method"}
            answer = {"jsonrpc": "2.0", "id": message["id"], "error": error}
            events.put_nowait(f"event: message\ndata: {json.dumps(answer)}\n\n")
        return PlainTextResponse("accepted", 202)

    app = Starlette(routes=[Route("/sse", stream), Route("/messages", messages, methods=["POST"])])
    with listening() as (bound, address), served_at(bound, app):
        yield f"{address}/sse"


@pytest.mark.parametrize(
    ("behaviour", "state", "says"),
    [
        ("refuses", "completed", "add was not called: the MCP server bad refused the request with HTTP 403"),
        ("forgets", "completed", "the MCP server bad refused the request with HTTP 404"),
        ("redirects", "completed", "the MCP server bad refused the request with HTTP 307"),
        ("breaks", "waiting", "the MCP server bad did not answer add: it answered with HTTP 502"),
        ("hangs_up", "waiting", "the MCP server bad did not answer add: it closed the connection"),
        ("floods", "waiting", "the MCP server bad did not answer add: it sent more than 33,554,432 bytes"),
    ],
)
async def test_a_call_that_was_refused_failed_and_one_without_an_answer_is_unknown(
    clerk, behaviour, state, says
):
    with failing(behaviour) as url:
        bad = MCPServer("bad", url=url, transport="sse", pins=None, call_timeout=40)
        began = time.monotonic()
        async with Runner("memory:") as runner:
            result = await runner.run(clerk([call("bad__add"), text("done")], bad), "go")
        assert time.monotonic() - began < 30, "not at the deadline of the call"
    assert result.state == state
    said = result.pending[0].text if result.pending else result.tool_executions[0].error.message
    assert says in said


def test_the_transport_is_for_servers_with_a_url():
    with pytest.raises(ConfigurationError, match="transport is for servers with a url"):
        MCPServer("shelf", command="shelf", transport="sse")
    with pytest.raises(ConfigurationError, match="transport must be http or sse, got 'ws'"):
        MCPServer("shelf", url="https://example.com", transport="ws")
