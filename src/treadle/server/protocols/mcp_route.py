"""The route of MCP over streamable HTTP: one POST is one request, in both eras of the protocol.

There are no sessions: a client of 2025 shakes hands in one request and calls in the next, and any server answers each.
"""

from __future__ import annotations

import json
from typing import Any

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from treadle.server.calls import Answer, Call
from treadle.server.protocols.mcp_server import McpServer


async def call_mcp(call: Call) -> Answer:
    """Answer a request of MCP."""
    assert call.principal is not None, "the operation needs a principal"
    server = McpServer(call.service, call.principal)
    return Answer(response=_Exchange(server, json.dumps(call.arguments).encode()))


class _Exchange(Response):
    """The SDK's answer to one request.

    The guard of the application has checked host, origin, size and media type, with the lists of all routes.

    Args:
        server: answers the request.
        body: the request.
    """

    def __init__(self, server: McpServer, body: bytes) -> None:
        self.status_code = 200
        self.background = None
        self.raw_headers = []
        self._server = server
        self._request_body = body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        manager = StreamableHTTPSessionManager(
            self._server.server(), stateless=True, max_request_body_size=len(self._request_body) + 1
        )
        headers = [pair for pair in scope["headers"] if pair[0] != b"content-length"]
        length = (b"content-length", str(len(self._request_body)).encode())
        async with manager.run():
            await manager.handle_request(
                {**scope, "headers": [*headers, length]}, self._replayed(receive), send
            )

    def _replayed(self, receive: Receive) -> Receive:
        """Return a function that receives the body again, and then waits for the end of the connection."""
        body: list[Any] = [{"type": "http.request", "body": self._request_body, "more_body": False}]

        async def replay() -> Message:
            return body.pop() if body else await receive()

        return replay
