"""Servers over streamable HTTP: bounded responses, failures that end only one request, and bearer tokens.

The transport of the `mcp` package ends the whole session if one request fails. It does not tell a request that was not
sent from one whose response was lost. `GuardedClient` answers a failed request for the server, with a code that tells
the two apart.

Servers over HTTP with server-sent events, as before 2025, send all responses on one stream.

A message is sent to them by POST, whose own response carries no result. So a failed message is answered here instead of
on the stream, with the same codes.
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
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import ErrorData, JSONRPCError, JSONRPCMessage

from treadle.core.data import frozen
from treadle.core.http_bodies import ACCEPTED, BodyRefused, checked_encoding, decoded
from treadle.core.redaction import SHORTEST, credentials
from treadle.tools.flood import MAX_PARTS, parts_of
from treadle.tools.mcp.traffic import (
    MAX_MESSAGE,
    MAX_UNANSWERED,
    Flooded,
    Traffic,
    bounded,
)

NOT_SENT: Final = -32_950
"""Error code: the request did not reach the server, or the server refused it before any work."""

ANSWER_LOST: Final = -32_951
"""Error code: the request may have taken effect, and its response was lost."""

CONNECT_SECONDS: Final = 10.0

Count = Callable[[bytes], None]
"""Counts received bytes; raises above the limit."""

Refuse = Callable[[httpx2.Request, int, str], httpx2.Response]
"""Returns the response to a failed request, from a code and a reason."""

Token = Callable[[], str | Awaitable[str]]
"""Returns the bearer token for requests. It is called again when the server refuses the token."""


@frozen
class ServerAddress:
    """How to reach a server.

    Args:
        url: its URL.
        headers: headers of each request.
        auth: returns the bearer token, or is an `httpx2.Auth`, such as the OAuth provider of the `mcp` package.
        read_seconds: the longest silence within a response, in seconds.
        learn: called with the token of each request before the request is sent.
    """

    url: str
    headers: Mapping[str, str]
    auth: Any
    read_seconds: float
    learn: Callable[[str], None] | None = None


class _Bounded(httpx2.AsyncByteStream):
    """A decoded response body with a size limit."""

    def __init__(self, inner: Any, encoding: str, count: Count) -> None:
        self._inner, self._encoding, self._count = inner, encoding, count

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in decoded(self._inner, self._encoding, None):
                self._count(piece)
                yield piece
        except BodyRefused as error:
            raise httpx2.StreamError(str(error)) from None

    async def aclose(self) -> None:
        await self._inner.aclose()


def _count_body(most: int) -> Count:
    """Return a function that counts the bytes of one decoded body, and raises above the limit."""
    size = parts = 0

    def count(chunk: bytes) -> None:
        nonlocal size, parts
        size, parts = size + len(chunk), parts + parts_of(chunk)
        if size > most:
            raise httpx2.StreamError(f"the answer has more than {most:,} bytes")
        if parts > MAX_PARTS:
            raise httpx2.StreamError(f"the answer has more than {MAX_PARTS:,} objects and lists")

    return count


_OF_THE_WIRE: Final = frozenset({"content-encoding", "content-length"})
"""Headers that do not apply to a decoded body."""


class _Bounding(httpx2.AsyncHTTPTransport):
    """A transport that decodes and bounds each response body, including those of authorization requests."""

    def __init__(self, count_events: Count | None, learn: Callable[[str], None] | None) -> None:
        self._learn, self._learned = learn, ""
        super().__init__(limits=httpx2.Limits(max_connections=100), trust_env=True)
        self._count_events = count_events

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request.headers["accept-encoding"] = ACCEPTED
        sent = request.headers.get("authorization", "")
        if self._learn is not None and sent != self._learned:
            self._learned = sent
            for value in credentials({"authorization": sent}):
                if len(value) >= SHORTEST:
                    self._learn(value)
        response = await super().handle_async_request(request)
        try:
            encoding = checked_encoding(response.headers.get("content-encoding", ""))
        except BodyRefused as error:
            await response.aclose()
            raise httpx2.RemoteProtocolError(str(error), request=request) from None
        is_events = response.headers.get("content-type", "").lower().startswith("text/event-stream")
        count = self._count_events if is_events else None
        count = count or _count_body(MAX_UNANSWERED if is_events else MAX_MESSAGE)
        headers = [each for each in response.headers.multi_items() if each[0].lower() not in _OF_THE_WIRE]
        return httpx2.Response(
            response.status_code,
            headers=headers,
            stream=_Bounded(response.stream, encoding, count),
            extensions=response.extensions,
        )


class GuardedClient(httpx2.AsyncClient):
    """A client that answers a failed request of the protocol by `refuse`, so that other requests go on.

    It wraps the authorization, which must see the server's refusals.

    Args:
        address: the server.
        refuse: returns the response to a failed request, from a code and a reason.
        count_events: counts the bytes of the event stream with all results. None: each request has its own response.
    """

    def __init__(self, address: ServerAddress, refuse: Refuse, count_events: Count | None = None) -> None:
        self._has_results = count_events is None
        auth = address.auth
        super().__init__(
            headers=dict(address.headers),
            timeout=httpx2.Timeout(CONNECT_SECONDS, read=address.read_seconds, write=address.read_seconds),
            auth=auth if auth is None or isinstance(auth, httpx2.Auth) else _Bearer(auth),
            transport=_Bounding(count_events, address.learn),
            follow_redirects=False,
        )
        self._refuse = refuse

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        if request.method != "POST":
            return await super().send(request, **options)
        try:
            response = await super().send(request, **options)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            return self._refuse(request, NOT_SENT, f"cannot be reached: {_words(error)}")
        except httpx2.TransportError as error:
            return self._refuse(request, ANSWER_LOST, f"did not answer: {_words(error)}")
        except _TokenFailed as error:
            return self._refuse(request, NOT_SENT, str(error))
        except Exception as error:  # noqa: BLE001  errors of an authorization may contain secrets
            return self._refuse(request, NOT_SENT, f"was not asked: auth= raised {type(error).__name__}")
        failure = self._refused(request, response)
        if failure is None and not self._has_results and not response.is_success:
            failure = NOT_SENT, f"refused the request with HTTP {response.status_code}"
        if failure is None and self._has_results and id_of(request) is not None:
            failure = _without_result(response)
        if failure is None:
            return response
        await response.aclose()
        return self._refuse(request, *failure)

    def _refused(self, request: httpx2.Request, response: httpx2.Response) -> tuple[int, str] | None:
        """Return the error code and the reason if the status of a response is a failure."""
        status = response.status_code
        is_json = response.headers.get("content-type", "").lower().startswith("application/json")
        if status >= 500 and not (is_json and self._has_results):
            return ANSWER_LOST, f"answered with HTTP {status}"
        if status in (401, 403):
            return NOT_SENT, f"refused the request with HTTP {status}: look at auth= and headers="
        if status == 404 and "mcp-session-id" in request.headers:
            return NOT_SENT, "knows the session no more (HTTP 404)"
        if status == 405:
            return (
                NOT_SENT,
                "takes no POST requests (HTTP 405); one with server-sent events wants transport='sse'",
            )
        return None


def _without_result(response: httpx2.Response) -> tuple[int, str] | None:
    """Return the error code and the reason if a response cannot contain a result."""
    kind = response.headers.get("content-type", "").lower()
    if response.status_code == 202:
        return ANSWER_LOST, "answered a request with HTTP 202, without a result"
    if response.status_code == 200 and not kind.startswith(("application/json", "text/event-stream")):
        return ANSWER_LOST, f"answered with the content type {kind[:80]!r}"
    return None


class _Bearer(httpx2.Auth):
    """Send the token that the user's function returns. Ask for a new one when the server refuses it."""

    def __init__(self, token: Token) -> None:
        self._token = token
        self._bearer_token: str | None = None

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        bearer_token = self._bearer_token = self._bearer_token or await _token_of(self._token)
        request.headers["authorization"] = f"Bearer {bearer_token}"
        if (yield request).status_code != 401:
            return
        if self._bearer_token == bearer_token:  # another request may have replaced the token
            self._bearer_token = None
        self._bearer_token = self._bearer_token or await _token_of(self._token)
        request.headers["authorization"] = f"Bearer {self._bearer_token}"
        yield request


class _TokenFailed(Exception):
    """The token function raised, or did not return a token."""


async def _token_of(token: Token) -> str:
    """Call the user's token function, in a thread if it is sync, and return the token."""
    try:
        value: Any = await asyncio.to_thread(token)
        if isawaitable(value):
            value = await value
    except Exception as error:
        raise _TokenFailed(f"was not asked: auth= raised {type(error).__name__}") from error
    if not isinstance(value, str) or not value or not value.isprintable():
        raise _TokenFailed("was not asked: auth= returned no token")
    return value


def id_of(request: httpx2.Request) -> str | int | None:
    """Return the id of a protocol request, which expects a response; None for other messages."""
    try:
        message: Any = json.loads(request.content)
    except ValueError:
        return None
    return message["id"] if isinstance(message, dict) and "id" in message and "method" in message else None  # pyright: ignore[reportUnknownVariableType]


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__


@asynccontextmanager
async def http_transport(
    address: ServerAddress, on_lost: Callable[[str], None], on_refusal: Callable[[], None]
) -> AsyncGenerator[TransportStreams]:
    """Connect to a server over streamable HTTP.

    Args:
        address: the server.
        on_lost: called with the reason if it breaks a limit.
        on_refusal: called if a request did not reach it, was refused, or got no response.
    """

    def refuse(request: httpx2.Request, code: int, reason: str) -> httpx2.Response:
        on_refusal()
        error = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": reason}}
        return httpx2.Response(400, json=error, request=request)

    client = GuardedClient(address, refuse)
    async with (
        client,
        streamable_http_client(address.url, http_client=client, max_sse_event_size=MAX_MESSAGE) as streams,
        counted(streams, Traffic(), on_lost) as (passed, _),
    ):
        yield passed


@asynccontextmanager
async def counted(
    streams: Any, traffic: Traffic, on_lost: Callable[[str], None]
) -> AsyncGenerator[tuple[TransportStreams, Callable[[JSONRPCMessage], None]]]:
    """Pass messages on within the limits. Yield the streams, and a function that answers for the server."""
    inner_read, inner_write = streams[0], streams[1]
    to_us, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, from_us = anyio.create_memory_object_stream[SessionMessage](0)

    async def receive() -> None:
        async with to_us:
            try:
                async for message in inner_read:
                    if isinstance(message, SessionMessage):
                        traffic.received(message.message, 0)
                        message = SessionMessage(bounded(message.message), message.metadata)
                    elif isinstance(message, Flooded):
                        raise message
                    await to_us.send(message)
                if not sending.done():  # otherwise this side hung up
                    on_lost("closed the connection")
            except Flooded as flood:
                on_lost(str(flood))
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return  # the session has ended

    async def send() -> None:
        async with from_us, inner_write:
            async for message in from_us:
                traffic.sent(message.message)
                await inner_write.send(message)

    def answer(message: JSONRPCMessage) -> None:
        task = asyncio.create_task(to_us.send(SessionMessage(message)))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    sending = asyncio.create_task(send())
    tasks = {asyncio.create_task(receive()), sending}
    try:
        yield (read, write), answer
    finally:
        for task in (ending := list(tasks)):
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        for stream in (to_us, read, write, from_us):
            stream.close()


SILENCE_SECONDS: Final = 86_400.0
"""Longest silence of the event stream, in seconds. An idle server sends nothing; calls have their own deadlines."""


@asynccontextmanager
async def sse_transport(
    address: ServerAddress, on_lost: Callable[[str], None], on_refusal: Callable[[], None]
) -> AsyncGenerator[TransportStreams]:
    """Connect to a server over HTTP and a stream of server-sent events.

    It takes the arguments of `http_transport`.
    """
    traffic, answers = Traffic(), list[Callable[[JSONRPCMessage], None]]()

    def refuse(request: httpx2.Request, code: int, reason: str) -> httpx2.Response:
        on_refusal()
        if (request_id := id_of(request)) is not None and answers:
            error = ErrorData(code=code, message=reason)
            answers[0](JSONRPCError(jsonrpc="2.0", id=request_id, error=error))
        return httpx2.Response(202, request=request)

    def client(headers: Any = None, timeout: Any = None, auth: Any = None) -> httpx2.AsyncClient:
        guarded = GuardedClient(address, refuse, traffic.received_bytes)
        guarded.timeout = httpx2.Timeout(CONNECT_SECONDS, read=SILENCE_SECONDS)
        return guarded

    async with (
        sse_client(address.url, httpx_client_factory=client) as streams,
        counted(streams, traffic, on_lost) as (passed, answer),
    ):
        answers.append(answer)
        yield passed
