"""Servers that speak streamable HTTP: bounded answers, failures that end one request and not the session, tokens.

The transport of the `mcp` package ends the whole session when one request fails, and does not tell a request that
never left from one whose answer was lost. `_Guarded` answers in the server's place instead, with a code that says which
it was.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from inspect import isawaitable
from typing import Any, Final

import anyio
import httpx2
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from treadle.core.data import frozen
from treadle.tools.mcp.traffic import MAX_MESSAGE, MAX_UNANSWERED, Flooded, Traffic

NOT_SENT: Final = -32_950
"""The code of an error that says: the request did not reach the server, or was refused at its door."""

ANSWER_LOST: Final = -32_951
"""The code of an error that says: the request may have been carried out, and its answer was lost."""

CONNECT_SECONDS: Final = 10.0

Token = Callable[[], str | Awaitable[str]]
"""Returns the bearer token of requests; it is called again when the server refuses one."""


@frozen
class ServerAddress:
    """How a server is reached.

    Args:
        url: its address.
        headers: of each request.
        auth: returns the bearer token, or is an `httpx2.Auth`, such as the OAuth provider of the `mcp` package.
        read_seconds: the longest silence of an answer.
    """

    url: str
    headers: Mapping[str, str]
    auth: Any
    read_seconds: float


class _Bounded(httpx2.AsyncByteStream):
    """The body of an answer, up to a bound."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._inner:
            size += len(chunk)
            if size > MAX_UNANSWERED:
                raise httpx2.StreamError(f"the answer has more than {MAX_UNANSWERED:,} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Bounding(httpx2.AsyncHTTPTransport):
    """Sends requests, those of an authorization too; the body of each answer is bounded."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        return httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=_Bounded(response.stream),
            extensions=response.extensions,
        )


class _Guarded(httpx2.AsyncClient):
    """Sends requests; a request of the protocol that failed is answered here, so that no other one suffers.

    It stands outside of the authorization, which has to see that a server refuses a request.
    """

    def __init__(self, on_refusal: Callable[[], None], **options: Any) -> None:
        super().__init__(**options)
        self._on_refusal = on_refusal

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        if request.method != "POST":
            return await super().send(request, **options)
        asks = _is_request(request)
        try:
            response = await super().send(request, **options)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            return self._refusal(request, NOT_SENT, f"cannot be reached: {_words(error)}")
        except httpx2.TransportError as error:
            return self._refusal(request, ANSWER_LOST, f"did not answer: {_words(error)}")
        except _TokenFailed as error:
            return self._refusal(request, NOT_SENT, str(error))
        except Exception as error:  # noqa: BLE001  an authorization of others may raise anything, and says it in secrets
            return self._refusal(request, NOT_SENT, f"was not asked: auth= raised {type(error).__name__}")
        kind = response.headers.get("content-type", "").lower()
        status, is_json = response.status_code, kind.startswith("application/json")
        refusal = None
        if status >= 500 and not is_json:
            refusal = ANSWER_LOST, f"answered with HTTP {status}"
        elif status in (401, 403):
            refusal = NOT_SENT, f"refused the request with HTTP {status}: look at auth= and headers="
        elif status == 404 and "mcp-session-id" in request.headers:
            refusal = NOT_SENT, "knows the session no more (HTTP 404)"
        elif asks and status == 202:
            refusal = ANSWER_LOST, "answered a request with HTTP 202, without a result"
        elif asks and status == 200 and not is_json and not kind.startswith("text/event-stream"):
            refusal = ANSWER_LOST, f"answered with the content type {kind[:80]!r}"
        if refusal is None:
            return response
        await response.aclose()
        return self._refusal(request, *refusal)

    def _refusal(self, request: httpx2.Request, code: int, why: str) -> httpx2.Response:
        self._on_refusal()
        error = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": why}}
        return httpx2.Response(400, json=error, request=request)


class _Bearer(httpx2.Auth):
    """Sends the token that a function of the user returns, and asks for another one when a server refuses it."""

    def __init__(self, token: Token) -> None:
        self._token = token
        self._held: str | None = None

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        held = self._held = self._held or await _told(self._token)
        request.headers["authorization"] = f"Bearer {held}"
        if (yield request).status_code != 401:
            return
        if self._held == held:  # else another request has asked for a token meanwhile
            self._held = None
        self._held = self._held or await _told(self._token)
        request.headers["authorization"] = f"Bearer {self._held}"
        yield request


class _TokenFailed(Exception):
    """The function that returns the token raised, or returned none."""


async def _told(token: Token) -> str:
    """Return the token that a function of the user returns, called in a thread if it is a plain one."""
    try:
        value: Any = await asyncio.to_thread(token)
        if isawaitable(value):
            value = await value
    except Exception as error:
        raise _TokenFailed(f"was not asked: auth= raised {type(error).__name__}") from error
    if not isinstance(value, str) or not value or not value.isprintable():
        raise _TokenFailed("was not asked: auth= returned no token")
    return value


def _is_request(request: httpx2.Request) -> bool:
    """Whether a message to the server wants an answer."""
    try:
        message: Any = json.loads(request.content)
    except ValueError:
        return False
    return isinstance(message, dict) and "id" in message and "method" in message


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__


@asynccontextmanager
async def http_transport(
    address: ServerAddress, on_lost: Callable[[str], None], on_refusal: Callable[[], None]
) -> AsyncGenerator[TransportStreams]:
    """Speak with a server over HTTP.

    Args:
        address: where it is.
        on_lost: is called with the reason when it sends what it may not.
        on_refusal: is called when a request did not reach it, was refused, or had no answer.
    """
    timeout = httpx2.Timeout(CONNECT_SECONDS, read=address.read_seconds, write=address.read_seconds)
    auth = address.auth
    client = _Guarded(
        on_refusal,
        headers=dict(address.headers),
        timeout=timeout,
        auth=auth if auth is None or isinstance(auth, httpx2.Auth) else _Bearer(auth),
        transport=_Bounding(limits=httpx2.Limits(max_connections=100), trust_env=True),
        follow_redirects=False,
    )
    traffic = Traffic()
    to_us, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, from_us = anyio.create_memory_object_stream[SessionMessage](0)

    async def receive(inner: Any) -> None:
        async with to_us:
            try:
                async for message in inner:
                    if isinstance(message, SessionMessage):
                        traffic.received(message.message, 0)
                    await to_us.send(message)
            except Flooded as flood:
                on_lost(str(flood))
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return  # the session has ended

    async def send(inner: Any) -> None:
        async with from_us, inner:
            async for message in from_us:
                traffic.sent(message.message)
                await inner.send(message)

    async with (
        client,
        streamable_http_client(address.url, http_client=client, max_sse_event_size=MAX_MESSAGE) as streams,
    ):
        tasks = [asyncio.create_task(receive(streams[0])), asyncio.create_task(send(streams[1]))]
        try:
            yield read, write
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for stream in (to_us, read, write, from_us):
                stream.close()
