"""An application under test behind a real server: streams need a connection."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from treadle.server.limits import ServerLimits
from treadle.server.serving import Server, config, tcp_socket


@asynccontextmanager
async def hosted(
    app: Any,
    leave: Callable[[float], Awaitable[object]],
    limits: ServerLimits | None = None,
    **settings: Any,
) -> AsyncIterator[httpx2.AsyncClient]:
    """Yield a client of an app that is served on a free port of loopback."""
    bound = tcp_socket("127.0.0.1", 0)
    server = Server(config(app, limits=limits), leave, 0.0)
    serving = asyncio.ensure_future(server.serve([bound]))
    url = f"http://127.0.0.1:{bound.getsockname()[1]}"
    many = httpx2.Limits(max_connections=None)
    plain = httpx2.AsyncClient(base_url=url, timeout=20, limits=many, verify=False, **settings)
    async with plain as client:
        try:
            yield client
        finally:
            server.leave()
            await asyncio.wait_for(serving, 10)
