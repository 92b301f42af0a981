"""A server on a port of this machine, in a thread of its own, and a proxy that cuts connections."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import uvicorn

from treadle import Agent, Client, Runner
from treadle.server import ADMIN, Principal, app

TOKEN = "of-ann"


def ann(connection: Any) -> Principal | None:
    """Know one principal by its token."""
    return (
        Principal("ann", scopes=ADMIN)
        if connection.headers.get("authorization") == f"Bearer {TOKEN}"
        else None
    )


@contextmanager
def served(
    *agents: Agent[Any],
    store: Any = "memory:",
    secrets: dict[str, Any] | None = None,
    context_factory: Any = None,
    model: Any = None,
    **settings: Any,
) -> Iterator[str]:
    """Serve a runner and yield its URL."""
    runner = Runner(store, agents=agents, secrets=secrets, context_factory=context_factory, model=model)
    api = app(runner, **{"auth": ann, **settings})
    config = uvicorn.Config(
        api,
        host="127.0.0.1",
        port=0,
        log_level="error",
        lifespan="on",
        timeout_graceful_shutdown=1,
        h11_max_incomplete_event_size=32_768,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        time.sleep(0.005)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(20)
    assert not thread.is_alive()


def client(url: str, **settings: Any) -> Client:
    return Client(url, **{"token": TOKEN, "patience": 10, **settings})


class CuttingProxy:
    """Passes bytes on to a port, and cuts each connection after some number of them.

    Args:
        url: where to.
        seed: of the numbers of bytes.
        least, most: from and to how many bytes of answers a connection lives.
    """

    def __init__(self, url: str, seed: int, least: int = 500, most: int = 9_000) -> None:
        self._port = int(url.rpartition(":")[2])
        self._random = Random(seed)
        self._least, self._most = least, most
        self._server: asyncio.Server | None = None
        self.cuts = 0

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        left = self._random.randint(self._least, self._most)

        async def ask() -> None:
            while data := await reader.read(1 << 16):
                back.write(data)
            back.close()

        asking = asyncio.ensure_future(ask())
        try:
            while left > 0 and (data := await there.read(min(left, 512))):
                left -= len(data)
                writer.write(data)
                await writer.drain()
            self.cuts += left <= 0
        except OSError:
            pass
        finally:
            asking.cancel()
            for each in (writer, back):
                each.transport.abort()


class LosingProxy:
    """Passes requests on to one of several servers, in turn, and loses the first answers to each.

    Args:
        urls: of the servers.
    """

    def __init__(self, *urls: str) -> None:
        self._ports = [int(url.rpartition(":")[2]) for url in urls]
        self._server: asyncio.Server | None = None
        self._turn = 0
        self.losses = 0
        """how many answers are still to be lost"""

        self.lost = 0

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._turn += 1
        port = self._ports[self._turn % len(self._ports)]
        there, back = await asyncio.open_connection("127.0.0.1", port)

        async def ask() -> None:
            while data := await reader.read(1 << 16):
                back.write(data)
            back.close()

        asking = asyncio.ensure_future(ask())
        try:
            while data := await there.read(1 << 16):  # the server has done what it was asked for
                if self.losses:
                    self.losses -= 1
                    self.lost += 1
                    break
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            asking.cancel()
            for each in (writer, back):
                each.transport.abort()
