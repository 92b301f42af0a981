"""Servers that break the protocol: each call ends, within bounds, with an error that says what happened."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from tests.server.hosting import hosted
from tests.tools.a2a.test_remote_agent import Kept, context
from treadle import RemoteAgent
from treadle.errors import ToolError, ToolOutcomeUnknown, ToolsetUnavailable
from treadle.tools.a2a import connection, rpc

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def server(rpc: Callable[[Any], Any], *, streams: bool = False, card: Any = None) -> AsyncIterator[str]:
    """Yield the URL of a server with a function that answers its calls."""

    async def leave(grace: float) -> None: ...

    async def show(request: Request) -> Any:
        if card is not None:
            return card(request)
        interface = {"url": f"{request.base_url}rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        document = {"name": "x", "supportedInterfaces": [interface], "capabilities": {"streaming": streams}}
        return JSONResponse(document)

    async def answer(request: Request) -> Any:
        return rpc(json.loads(await request.body()))

    routes = [Route("/.well-known/agent-card.json", show), Route("/rpc", answer, methods=["POST"])]
    async with hosted(Starlette(routes=routes), leave) as http:
        yield str(http.base_url).rstrip("/")


def result(value: Any) -> JSONResponse:
    return JSONResponse({"jsonrpc": "2.0", "id": 1, "result": value})


def task(state: str = "COMPLETED") -> dict[str, Any]:
    return {"id": "t", "contextId": "c", "status": {"state": f"TASK_STATE_{state}"}}


async def called(url: str, **more: Any) -> Any:
    (tool,) = await RemoteAgent(url, name="odd", **more).connect().tools()
    with anyio.fail_after(20):
        return await tool.call({"message": "Go"}, context(1, Kept()))


CARDS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "another host": (lambda _: RedirectResponse("https://evil.example/card"), "status 307"),
    "no card": (lambda _: Response(status_code=404), "status 404"),
    "no JSON": (lambda _: Response("{"), "no JSON"),
    "no object": (lambda _: JSONResponse([]), "no card of A2A 1.0"),
    "too large": (lambda _: Response(b" " * (rpc.MAX_CARD + 1)), "more than 262,144 bytes"),
    "a bomb": (
        lambda _: Response(gzip.compress(b" " * (1 << 22)), headers={"content-encoding": "gzip"}),
        "more than 262,144 bytes",
    ),
}


@pytest.mark.parametrize("name", CARDS)
async def test_a_card_that_cannot_be_used_makes_the_tool_unavailable(name: str):
    card, reason = CARDS[name]
    async with server(lambda _: result(task()), card=card) as url:
        with pytest.raises(ToolsetUnavailable, match=reason):
            await called(url)


BEGINNINGS: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "a redirect": (lambda _: RedirectResponse("https://evil.example/rpc"), ToolError, "redirect"),
    "a refusal": (lambda _: Response(status_code=403), ToolError, "status 403"),
    "an error": (
        lambda _: JSONResponse({"error": {"code": -32602, "message": "not\x1b so"}}),
        ToolError,
        "refused the message: not so",
    ),
    "a fault": (lambda _: Response(status_code=502), ToolOutcomeUnknown, "status 502"),
    "no JSON": (lambda _: Response("<html>"), ToolOutcomeUnknown, "no JSON"),
    "no result": (lambda _: JSONResponse({}), ToolOutcomeUnknown, "no response of JSON-RPC"),
    "no task": (lambda _: result({"x": 1}), ToolOutcomeUnknown, "without a task"),
    "a task that is none": (lambda _: result({"task": {"id": 3}}), ToolOutcomeUnknown, "no task of A2A"),
}


@pytest.mark.parametrize("name", BEGINNINGS)
async def test_a_beginning_that_fails_is_an_error_or_unknown(name: str):
    answer, error, reason = BEGINNINGS[name]
    async with server(answer) as url:
        with pytest.raises(ToolError, match=reason) as raised:
            await called(url)
        assert type(raised.value) is error


async def test_an_answer_that_is_too_large_is_cut(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rpc, "MAX_RESPONSE", 1_000)
    async with server(lambda _: result({"task": {**task(), "x": "y" * 2_000}})) as url:
        with pytest.raises(ToolOutcomeUnknown, match="more than 1,000 bytes"):
            await called(url)


async def test_a_stream_that_breaks_is_followed_by_reading_the_task(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connection, "PAUSES", (0.01,))
    calls: list[str] = []

    def answer(body: Any) -> Any:
        calls.append(body["method"])
        if body["method"] == "GetTask":
            return result(task("COMPLETED" if len(calls) > 5 else "WORKING"))
        item = json.dumps({"result": {"task": task("WORKING")}})
        broken = (
            f"data: {item}\n\ndata: {{\n\n" if body["method"] == "SendStreamingMessage" else ": nothing\n\n"
        )
        return Response(broken, media_type="text/event-stream")

    async with server(answer, streams=True) as url:
        output = await called(url)
    assert output.output == {"answer": "", "conversation": "c", "task": "t"}
    assert calls.count("SendStreamingMessage") == 1


async def test_a_task_that_is_gone_or_wants_credentials_ends_the_call():
    def gone(body: Any) -> Any:
        if body["method"] == "GetTask":
            return JSONResponse({"error": {"code": -32001, "message": "no"}})
        return result({"task": task("WORKING")})

    async with server(gone) as url:
        with pytest.raises(ToolError, match="no longer has the task"):
            await called(url)
    async with server(
        lambda body: result(
            {"task": task("AUTH_REQUIRED")} if "Send" in body["method"] else task("AUTH_REQUIRED")
        )
    ) as url:
        with pytest.raises(ToolError, match="is auth required"):
            await called(url)


async def test_credentials_are_not_in_errors_and_each_token_is_told():
    def echo(body: Any) -> Any:
        return JSONResponse(
            {"error": {"code": 1, "message": "you sent a-very-secret-token and another-secret-header"}}
        )

    learned: list[str] = []
    async with server(echo) as url:
        remote = RemoteAgent(
            url, auth=lambda: "a-very-secret-token", headers={"X-Api-Key": "another-secret-header"}
        )
        made = remote.connect()
        assert isinstance(made, connection.RemoteConnection)
        made.tell_tokens(learned.append)
        (tool,) = await made.tools()
        with pytest.raises(ToolError) as raised:
            await tool.call({"message": "Go"}, context(1, Kept()))
        assert "you sent [secret] and [secret]" in str(raised.value)
        assert "a-very-secret-token" in learned
        assert made.credentials() == {"another-secret-header"}
