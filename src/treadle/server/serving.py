"""Serve the app with uvicorn: sockets, signals, slow senders and slow readers.

This module adds to uvicorn:

- Timeouts for the head of a request, and for the rest of a body that was answered unread. With uvicorn alone, a silent
  connection stays open for ever.
- A cut for a reader that takes nothing. With uvicorn alone, it holds its connection and its task for ever.
- An ordered end. uvicorn waits for connections before the app learns of a signal, and streams do not end by themselves.
  Here the app leaves first: streams end, tasks are released, and then connections are closed.
- An exit code of its own. uvicorn ends by the signal that it received.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
import stat
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any, Final, cast

import h11
import uvicorn
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from treadle.errors import ConfigurationError
from treadle.server.guard import HEAD_BYTES
from treadle.server.limits import ServerLimits
from treadle.server.principals import PEER

BACKLOG: Final = 2_048
KEEP_ALIVE_SECONDS: Final = 30
REST_SECONDS: Final = 2.0
"""Seconds for the rest of a body that was answered before it arrived.

If the connection were closed at once, the rest would be answered with a reset. A client that still sends could lose the
response.
"""

LAST_SECONDS: Final = 0.5
"""Seconds that connections get to end after all tasks are released; then they are cut."""

CUT_SECONDS: Final = 1.0
"""Seconds that requests get to end after their connections were cut."""


class GuardedProtocol(H11Protocol):
    """HTTP/1.1 on one connection, which is closed when its peer is too slow."""

    limits = ServerLimits()
    """set by `protocol_with`"""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_timer: asyncio.TimerHandle | None = None
        self._rest_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._unsent_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast("asyncio.Transport", transport))
        if len(self.connections) > self.limits.connections:
            self.transport.abort()
            return
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_timer = _cancelled(self._head_timer)
        self._rest_timer = _cancelled(self._rest_timer)
        self._write_timer = _cancelled(self._write_timer)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch_head()

    def _watch_head(self) -> None:
        """Close the connection after a while unless the head of a request arrives."""
        if self.conn.their_state is not h11.IDLE or self.transport.is_closing():
            self._head_timer = _cancelled(self._head_timer)
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(self.limits.head_seconds, self.transport.abort)

    def on_response_complete(self) -> None:
        is_body_missing = self.conn.their_state is h11.SEND_BODY
        super().on_response_complete()
        if is_body_missing and not self.transport.is_closing():  # uvicorn discards the rest of the body
            _cancelled(self._rest_timer)
            self._rest_timer = self.loop.call_later(REST_SECONDS, self._check_rest, self.cycle)

    def _check_rest(self, answered: RequestResponseCycle | None) -> None:
        """Cut the connection if the rest of a body is still missing long after the answer."""
        if self.cycle is answered and self.conn.their_state is h11.SEND_BODY:
            self.transport.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unsent_bytes = self.transport.get_write_buffer_size()
        self._write_timer = self.loop.call_later(self.limits.send_seconds, self._check_progress)

    def resume_writing(self) -> None:
        self._write_timer = _cancelled(self._write_timer)
        super().resume_writing()

    def _check_progress(self) -> None:
        """Cut the connection if its reader has taken nothing since the last check."""
        unsent_bytes = self.transport.get_write_buffer_size()
        if unsent_bytes >= self._unsent_bytes:
            self.transport.abort()
            return
        self._unsent_bytes = unsent_bytes
        self._write_timer = self.loop.call_later(self.limits.send_seconds, self._check_progress)


def _cancelled(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


def protocol_with(limits: ServerLimits) -> type[GuardedProtocol]:
    """Return the protocol class for these limits."""
    return cast("type[GuardedProtocol]", type("GuardedProtocol", (GuardedProtocol,), {"limits": limits}))


class Server(uvicorn.Server):
    """A uvicorn server with an ordered end: the app leaves, then connections are closed.

    Args:
        config: uvicorn's configuration.
        leave: ends the streams and releases the tasks within its argument, in seconds; called once.
        grace: seconds that running calls get to end; a second signal skips them.
    """

    def __init__(
        self, config: uvicorn.Config, leave: Callable[[float], Awaitable[object]], grace: float
    ) -> None:
        super().__init__(config)
        self._leave = leave
        self._grace = grace
        self._leaving: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave at SIGTERM and Ctrl-C; a second signal skips the grace."""
        if current_thread() is not main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        # A background job of a script ignores SIGINT from the start, since Ctrl-C in its terminal is not meant for it.
        numbers = [
            number
            for number in (signal.SIGTERM, signal.SIGINT)
            if number == signal.SIGTERM or signal.getsignal(number) != signal.SIG_IGN
        ]
        for number in numbers:
            loop.add_signal_handler(number, self.leave)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    def leave(self) -> None:
        """Begin to end the server; a second call skips the grace of running calls."""
        if self._leaving is None:
            self._leaving = asyncio.get_running_loop().create_task(self._end())
        else:
            self._hurry.set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen on the sockets; unlike in uvicorn, a TLS handshake that takes too long is cut."""
        config, loop = self.config, asyncio.get_running_loop()
        protocol = cast("type[GuardedProtocol]", config.http_protocol_class)

        def connected() -> asyncio.Protocol:
            return protocol(config=config, server_state=self.server_state, app_state=self.lifespan.state)

        seconds = protocol.limits.head_seconds if config.ssl is not None else None
        self.servers = [
            await loop.create_server(
                connected, sock=each, ssl=config.ssl, backlog=BACKLOG, ssl_handshake_timeout=seconds
            )
            for each in sockets or ()
        ]
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close all connections; cut unfinished responses before uvicorn cancels their handlers."""
        cut = asyncio.get_running_loop().call_later(LAST_SECONDS, self._cut, _any)
        try:
            await super().shutdown(sockets)
        finally:
            cut.cancel()

    def _cut(self, which: Callable[[Any], bool]) -> None:
        for connection in list(self.server_state.connections):
            if which(connection):
                cast("Any", connection).transport.abort()

    async def _end(self) -> None:
        try:
            leaving = asyncio.ensure_future(self._leave(self._grace))
            hurrying = asyncio.ensure_future(self._hurry.wait())
            await asyncio.wait([leaving, hurrying], return_when=asyncio.FIRST_COMPLETED)
            if not leaving.done():
                await self._leave(0.0)
                with suppress(TimeoutError):
                    await asyncio.wait_for(leaving, LAST_SECONDS)
            hurrying.cancel()
            if not leaving.cancelled():
                leaving.result()
        finally:
            self._cut(_is_stuck)
            self.should_exit = True


def _any(connection: Any) -> bool:
    return True


def _is_stuck(connection: Any) -> bool:
    """Return whether the reader of a connection takes nothing, so that its response cannot end."""
    flow = getattr(connection, "flow", None)
    return flow is not None and flow.write_paused


async def serve(
    app: Any,
    leave: Callable[[float], Awaitable[object]],
    sockets: Sequence[socket.socket],
    *,
    grace: float = 10.0,
    limits: ServerLimits | None = None,
    tls: tuple[Path, Path] | None = None,
    behind_proxy: Sequence[str] = (),
) -> None:
    """Serve an ASGI app until SIGTERM or Ctrl-C, and return after everything has ended.

    Args:
        app: the app; the caller runs its lifespan.
        leave: ends its streams and releases its tasks within its argument, in seconds.
        sockets: listening sockets, which are closed at the end.
        grace: seconds that running calls get to end.
        limits: timeouts for peers, and the number of connections.
        tls: the files of a certificate and of its key.
        behind_proxy: networks of proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` are trusted.
    """
    await Server(config(app, limits=limits, tls=tls, behind_proxy=behind_proxy), leave, grace).serve(
        list(sockets)
    )


class _BehindProxy:
    """Applies proxies' `X-Forwarded-For` and `X-Forwarded-Proto`, and keeps the address of the peer itself.

    Args:
        app: the app.
        proxies: networks of the proxies.
    """

    def __init__(self, app: Any, proxies: Sequence[str]) -> None:
        self._app = ProxyHeadersMiddleware(app, list(proxies))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""
        scope[PEER] = scope.get("client")
        await self._app(scope, receive, send)


def config(
    app: Any,
    *,
    limits: ServerLimits | None = None,
    tls: tuple[Path, Path] | None = None,
    behind_proxy: Sequence[str] = (),
) -> uvicorn.Config:
    """Return uvicorn's configuration, see `serve`; raise `ConfigurationError` for an invalid certificate."""
    limits = limits or ServerLimits()
    certificate, key = tls if tls is not None else (None, None)
    if certificate is not None:
        _check_certificate(certificate, key)
    return uvicorn.Config(
        _BehindProxy(app, behind_proxy) if behind_proxy else app,
        http=protocol_with(limits),
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=cast("int", LAST_SECONDS + CUT_SECONDS),
        h11_max_incomplete_event_size=HEAD_BYTES,
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )


def _check_certificate(certificate: Path, key: Path | None) -> None:
    try:  # without it a key with a password would prompt on the terminal
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=lambda: "")
    except (OSError, ValueError) as error:  # TLS errors are OSErrors
        raise ConfigurationError(
            f"cannot serve HTTPS with the certificate {certificate} and the key {key}: {error}; both must be PEM "
            "files, and the key must match the certificate and have no password"
        ) from None


# --------------------------------------------------------------------------------------------------- sockets


def tcp_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address; raise `ConfigurationError` on failure."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
            bound.listen(BACKLOG)
        except BaseException:
            bound.close()
            raise
    except OSError as error:
        raise ConfigurationError(
            f"cannot serve on {host} port {port}: {error.strerror or error}; choose another with --host and --port"
        ) from error
    bound.set_inheritable(False)
    return bound


def unix_socket(path: Path) -> socket.socket:
    """Return a socket that listens on a path and accepts only its owner.

    It replaces a socket that an ended server left there.

    Raises:
        ConfigurationError: the path is in use or cannot be created.
    """
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.exists():
            _remove_if_left(path)
        mask = os.umask(0o177)
        try:
            bound.bind(os.fspath(path))
        finally:
            os.umask(mask)
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        raise ConfigurationError(f"cannot serve on {path}: {error.strerror or error}") from error
    except BaseException:
        bound.close()
        raise
    return bound


@contextmanager
def at_unix_path(path: Path) -> Generator[socket.socket]:
    """Listen on a path within a block; at its end remove the path, unless another socket has replaced it."""
    bound = unix_socket(path)
    identity = _identity(path)
    try:
        with bound:
            yield bound
    finally:
        if _identity(path) == identity:
            path.unlink(missing_ok=True)


def _identity(path: Path) -> tuple[int, int, int] | None:
    """Return the identity of the file at a path; None if there is none."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_ctime_ns


def _remove_if_left(path: Path) -> None:
    """Remove a socket without a listening server; raise `ConfigurationError` for anything else."""
    if not stat.S_ISSOCK(path.lstat().st_mode):
        raise ConfigurationError(f"cannot serve on {path}: it is there, and no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        with suppress(ConnectionRefusedError):
            probe.connect(os.fspath(path))
            raise ConfigurationError(f"cannot serve on {path}: another server listens there")
    path.unlink()
