"""Serves applications on loopback, in a thread of the test."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn


@contextmanager
def listening() -> Iterator[tuple[socket.socket, str]]:
    """Yield a socket that is bound to a free port, and its address."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound, f"http://127.0.0.1:{bound.getsockname()[1]}"


@contextmanager
def served_at(bound: socket.socket, app: Any) -> Iterator[None]:
    """Serve an application at a bound socket until the block ends."""
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="auto"))
    thread = threading.Thread(target=server.run, args=([bound],), daemon=True)
    thread.start()
    deadline = time.monotonic() + 20
    while not server.started:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    try:
        yield
    finally:
        server.should_exit = server.force_exit = True
        thread.join(10)
