"""Servers over HTTP with server-sent events, as before 2025: all responses arrive on one stream.

A message is sent by POST, and the POST's own response carries no result. So a failed message is answered here, in the
stream's place, with the codes of `http.py`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx2
from mcp.client._transport import TransportStreams
from mcp.client.sse import sse_client
from mcp_types import ErrorData, JSONRPCError, JSONRPCMessage

from treadle.tools.mcp.http import CONNECT_SECONDS, GuardedClient, ServerAddress, counted, id_of
from treadle.tools.mcp.traffic import Traffic

SILENCE_SECONDS: Final = 86_400.0
"""Longest silence of the event stream, in seconds: an idle server sends nothing. Calls have their own deadlines."""


@asynccontextmanager
async def sse_transport(
    address: ServerAddress, on_lost: Callable[[str], None], on_refusal: Callable[[], None]
) -> AsyncGenerator[TransportStreams]:
    """Connect to a server over HTTP and a stream of server-sent events; takes the arguments of `http_transport`."""
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
