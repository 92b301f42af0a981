"""Servers over HTTP: tokens, refusals that tell what was sent, and both eras against a server of the `mcp` package."""

import asyncio
import logging
import socket
from contextlib import contextmanager

import httpx2
import pytest
from mcp.server import MCPServer as Library

from tests.tools.mcp.hostile_server import served
from tests.tools.mcp.serving import listening, served_at
from treadle import MCPServer, Runner
from treadle.errors import ToolsetUnavailable
from treadle.models import call, text

pytestmark = [pytest.mark.anyio, pytest.mark.sampled(5)]

TOKEN = "tok-4f9a8b7c6d5e4f3a2b1c"


@contextmanager
def library():
    """Serve two tools by the `mcp` package, for a token; yield the address and the tokens that it saw."""
    shelf = Library("shelf")
    seen: list[str | None] = []

    @shelf.tool()
    def add(title: str) -> str:
        """Add a book."""
        return f"{title} is on the shelf"

    @shelf.tool()
    def broken() -> str:
        """Fail."""
        raise ValueError("no shelf")

    @shelf.tool()
    def whoami() -> str:
        """Say what the server was sent."""
        return f"You sent {seen[-1]}; again: {seen[-1]}"

    inner = shelf.streamable_http_app()

    async def app(scope, receive, send):
        if scope["type"] == "http":
            token = dict(scope["headers"]).get(b"authorization", b"").decode()
            seen.append(token)
            if token == "Bearer expired":
                await send({"type": "http.response.start", "status": 401, "headers": []})
                await send({"type": "http.response.body", "body": b""})
                return
        await inner(scope, receive, send)

    with listening() as (bound, address), served_at(bound, app):
        yield f"{address}/mcp", seen


@pytest.mark.parametrize(
    ("protocol", "spoken"), [("auto", "2026-07-28"), ("2026-07-28", "2026-07-28"), ("legacy", "2025-11-25")]
)
async def test_a_server_of_the_package_is_spoken_with_in_both_eras(clerk, protocol, spoken):
    with library() as (url, _):
        shelf = MCPServer("shelf", url=url, protocol=protocol, pins=None)
        script = [call("shelf__add", title="Emma"), call("shelf__broken"), text("done")]
        async with Runner("memory:") as runner:
            result = await runner.run(clerk(script, shelf), "go")
            (connection,) = runner._driver.toolsets._connections.values()
            assert connection._live.client.protocol_version == spoken
    added, broken = result.tool_executions
    assert added.output == {"result": "Emma is on the shelf"}
    assert broken.error.message == "Error executing tool broken"


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_refused_token_is_asked_for_once_more(clerk, is_async):
    tokens = iter(["expired", TOKEN])

    def token():
        return next(tokens)

    async def async_token():
        return next(tokens)

    with library() as (url, seen):
        shelf = MCPServer("shelf", url=url, auth=async_token if is_async else token, pins=None)
        async with Runner("memory:") as runner:
            result = await runner.run(clerk([call("shelf__add", title="Emma"), text("done")], shelf), "go")
    assert result.tool_executions[0].outcome == "ok"
    assert seen[:2] == ["Bearer expired", f"Bearer {TOKEN}"]
    assert set(seen[1:]) == {f"Bearer {TOKEN}"}


async def test_an_oauth_flow_of_the_package_may_authorise(clerk):
    with library() as (url, seen):
        shelf = MCPServer("shelf", url=url, auth=Flow(), pins=None)
        async with Runner("memory:") as runner:
            await runner.run(clerk([text("done")], shelf), "go")
    assert set(seen) == {f"Bearer {TOKEN}"}


class Flow(httpx2.Auth):
    def auth_flow(self, request):
        request.headers["authorization"] = f"Bearer {TOKEN}"
        yield request


@pytest.mark.parametrize(
    "options",
    [
        {"headers": {"Authorization": f"Bearer {TOKEN}"}},
        {"auth": lambda: TOKEN},
        {"auth": Flow()},
    ],
    ids=["headers", "auth", "flow"],
)
async def test_a_credential_that_a_server_sent_back_reached_the_journal_and_the_model(
    clerk, tmp_path, options
):
    with library() as (url, _):
        shelf = MCPServer("shelf", url=url, pins=None, **options)
        agent = clerk([call("shelf__whoami"), text("done")], shelf)
        async with Runner(tmp_path / "journal.db") as runner:
            result = await runner.run(agent, "go")
            told = await runner.get_events(result.task_id)
    assert "You sent " in str(result.tool_executions[0].output)
    assert TOKEN not in f"{result} {told} {agent.model.requests[1].messages}"
    assert TOKEN.encode() not in b"".join(file.read_bytes() for file in tmp_path.glob("journal*"))


def raising():
    raise RuntimeError(f"vault of {TOKEN} is sealed")


@pytest.mark.parametrize(
    ("auth", "says"),
    [
        (raising, "was not asked: auth= raised RuntimeError"),
        (lambda: "", "was not asked: auth= returned no token"),
        (lambda: "a\nb", "was not asked: auth= returned no token"),
        (lambda: None, "was not asked: auth= returned no token"),
    ],
)
async def test_a_token_that_cannot_be_had_is_told_without_it(clerk, auth, says):
    with library() as (url, seen):
        shelf = MCPServer("shelf", url=url, auth=auth, pins=None)
        async with Runner("memory:") as runner:
            with pytest.raises(ToolsetUnavailable, match=says) as caught:
                await runner.run(clerk([text("done")], shelf), "go")
    assert TOKEN not in str(caught.value)
    assert seen == []


async def test_an_address_where_nothing_is_served_is_named(clerk):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}/mcp"
    async with Runner("memory:") as runner:
        with pytest.raises(ToolsetUnavailable, match=r"the MCP server shelf .*cannot be reached"):
            await runner.run(clerk([text("done")], MCPServer("shelf", url=url, pins=None)), "go")


@pytest.mark.parametrize(
    ("behaviour", "state"),
    [("other_audience", "completed"), ("server_error", "waiting"), ("dies", "waiting")],
)
async def test_a_writing_call_that_was_refused_failed_and_one_without_an_answer_is_unknown(
    clerk, tmp_path, behaviour, state
):
    with served(behaviour) as (url, _):
        bad = MCPServer("bad", url=url, pins=None, call_timeout=2)
        async with Runner("memory:") as runner:
            result = await runner.run(clerk([call("bad__add"), text("done")], bad), "go")
    assert result.state == state


async def test_secrets_stand_in_no_log_and_no_error(clerk, caplog):
    caplog.set_level(logging.DEBUG)
    logging.getLogger("mcp").setLevel(logging.DEBUG)
    with served("server_error") as (url, _):
        bad = MCPServer(
            "bad",
            url=f"{url}?key={TOKEN}",
            headers={"X-Key": f"second-{TOKEN}"},
            auth=lambda: f"third-{TOKEN}",
            pins=None,
            call_timeout=2,
        )
        async with Runner("memory:") as runner:
            result = await runner.run(clerk([call("bad__add"), text("done")], bad), "go")
            exported = str([event async for event in runner.handle(result.task_id).events()])
    await asyncio.sleep(0)
    assert TOKEN not in caplog.text
    assert TOKEN not in exported
    assert TOKEN not in str(result.pending)
