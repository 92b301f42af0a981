"""Send responses piece by piece, and listen in a thread."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from treadle.errors import MissingExtra
from treadle.testing.provider.script import PLAIN, Delivery, HangUp

try:
    import uvicorn
    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ImportError as error:
    raise MissingExtra("testing", "The scripted provider") from error

_TRANSPORT = "treadle.transport"
_WHOLE_PIECE = 64
"""Bytes in one piece of a slow or cut answer that is not streamed."""


class Reply(Response):
    """One response: its pieces of body, and how they are delivered.

    Args:
        pieces: the pieces of the body; for a stream one event each.
        status: the HTTP status.
        headers: the headers of the response.
        how: delays, cuts and the size of pieces.
        events: whether the pieces are server-sent events.
        broken: the event that ends a stream cut by `error`.
        hang_up: ends the connection instead of a response.
    """

    def __init__(
        self,
        pieces: Sequence[bytes],
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        delivery: Delivery = PLAIN,
        events: bool = False,
        broken: bytes = b"",
        hang_up: HangUp | None = None,
    ) -> None:
        self.status_code = status
        self.background = None
        self._headers = dict(headers or {})
        self._delivery = delivery
        self._hang_up = hang_up
        self._ending = broken if delivery.cut == "error" else b""
        self._pieces = _cut(_shaped(pieces, delivery, events), delivery)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response; end early when the client goes away or the server stops."""
        delivery, hang_up = self._delivery, self._hang_up
        if await _closed_within(receive, delivery.delay if hang_up is None else hang_up.delay):
            return
        if hang_up is not None:
            await _drop(scope, receive, hang_up.by)
            return
        if delivery.cut is None and len(self._pieces) == 1:
            self._headers["content-length"] = str(len(self._pieces[0]))
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in self._headers.items()]
        await send({"type": "http.response.start", "status": self.status_code, "headers": headers})
        for index, piece in enumerate(self._pieces):
            if index and await _closed_within(receive, delivery.chunk_delay):
                return
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        if delivery.cut in ("reset", "close"):
            await _drop(scope, receive, delivery.cut)
            return
        await send({"type": "http.response.body", "body": self._ending, "more_body": False})


def _shaped(pieces: Sequence[bytes], delivery: Delivery, events: bool) -> list[bytes]:
    """Return the pieces with the line ends, comments and cuts of the delivery."""
    shaped = list(pieces)
    if events and delivery.comments:
        shaped = [b": comment\n\n" + piece for piece in shaped]
    if events and delivery.crlf:
        shaped = [piece.replace(b"\n", b"\r\n") for piece in shaped]
    size = delivery.split
    if size is None and not events and (delivery.chunk_delay or delivery.cut):
        size = _WHOLE_PIECE
    if size is None:
        return shaped
    body = b"".join(shaped)
    cuts = range(size, len(body), size) if isinstance(size, int) else sorted(set(size))
    return [body[start:end] for start, end in pairwise((0, *cuts, len(body))) if body[start:end]]


def _cut(pieces: list[bytes], delivery: Delivery) -> list[bytes]:
    if delivery.cut is None:
        return pieces
    return pieces[: (len(pieces) + 1) // 2 if delivery.cut_after is None else delivery.cut_after]


async def _closed_within(receive: Receive, seconds: float) -> bool:
    """Wait; return True as soon as the client has gone or the server has dropped it."""
    if seconds <= 0:
        return False
    try:
        async with asyncio.timeout(seconds):
            await receive()
    except TimeoutError:
        return False
    return True


async def _drop(scope: Scope, receive: Receive, by: str) -> None:
    transport: asyncio.Transport = scope["extensions"][_TRANSPORT]
    if by == "reset":
        # A linger of 0 seconds makes the kernel send RST, which discards data that the client has not read.
        linger = struct.pack("ii", 1, 0)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        transport.abort()
    else:
        transport.close()
    await receive()


class _Connection(H11Protocol):
    """An HTTP connection that shows the app its transport, so that a response can cut it."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        inner: Any = self.app

        async def app(scope: Any, receive: Any, send: Any) -> None:
            scope["extensions"] = {**scope.get("extensions", {}), _TRANSPORT: self.transport}
            await inner(scope, receive, send)

        self.app = app


class _Server(uvicorn.Server):
    """Uvicorn that ends at once when `stop` is called, without waiting for a clock or for clients."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()
        self.ending = asyncio.Event()

    async def main_loop(self) -> None:
        self.ready.set()
        await self.ending.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # A connection that was accepted is a task until it has a protocol; asyncio leaks it if its server closes first.
        while self.server_state.connections or len(asyncio.all_tasks()) > 1:
            for connection in list(self.server_state.connections):
                if isinstance(connection, _Connection):
                    connection.transport.abort()
            await asyncio.sleep(0)
        for server in self.servers:
            server.close()
        for server in self.servers:
            await server.wait_closed()


class Running:
    """A server in a thread of its own, from construction until `stop`."""

    def __init__(self, app: ASGIApp, listener: socket.socket) -> None:
        config = uvicorn.Config(
            app,
            http=_Connection,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
        )
        self._server = _Server(config)
        self._failed: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(
            target=self._run, args=(listener,), name="scripted-provider", daemon=True
        )
        self._thread.start()
        self._server.ready.wait()
        if self._failed is not None:
            raise self._failed

    def _run(self, listener: socket.socket) -> None:
        try:
            asyncio.run(self._serve(listener))
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that started this one
            self._failed = error
        finally:
            listener.close()
            self._server.ready.set()

    async def _serve(self, listener: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        await self._server.serve(sockets=[listener])

    def stop(self) -> None:
        """Drop all connections and wait for the thread to end."""
        if self._loop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._server.ending.set)
        self._thread.join()
        if self._failed is not None:
            raise self._failed
