"""A server of the page in this process: a test drives its runner, and several people sign in."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from threading import Event, Thread
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.routing import Mount

from treadle import Agent, Runner
from treadle.server import ADMIN, Principal, app
from treadle.server.principals import bearer_token
from treadle.server.serving import Server, config, tcp_socket

T = TypeVar("T")

PEOPLE = {
    "ann": Principal("ann", scopes=ADMIN),
    "bob": Principal("bob"),
    "ron": Principal("ron", scopes=("read",)),
}
"""Principals by their tokens: ann may do everything, ron may only read."""


def _by_name(connection: Any) -> Principal | None:
    return PEOPLE.get(bearer_token(connection) or "")


class Site:
    """A server with the page, in a thread. Its runner belongs to the event loop of that thread.

    Args:
        agents: the agents that it drives.
        store: the journal; by default it is in memory.
        runner: the runner, in place of one of these agents on this store.
        prefix: the path below which the application is mounted in another one.
        options: arguments of `app`.
    """

    def __init__(
        self,
        agents: Sequence[Agent[Any]],
        store: Any = "memory:",
        *,
        runner: Runner | None = None,
        prefix: str = "",
        **options: Any,
    ) -> None:
        self.runner = Runner(store, agents=agents) if runner is None else runner
        self._socket = tcp_socket("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}{prefix}"
        self._prefix = prefix
        self._options, self._began, self._loop = options, Event(), asyncio.new_event_loop()
        self._server: Server | None = None
        self._thread = Thread(target=self._loop.run_until_complete, args=(self._serve(),), daemon=True)
        self._thread.start()
        assert self._began.wait(30), "the server did not start"

    async def _serve(self) -> None:
        api = app(self.runner, auth=_by_name, **self._options)
        async with api.lifespan():
            served: Any = Starlette(routes=[Mount(self._prefix, api)]) if self._prefix else api
            self._server = Server(config(served), api.leave, 0.0)
            self._began.set()
            await self._server.serve([self._socket])

    def link(self, who: str = "ann", hash_: str = "") -> str:
        """Return the link that signs a person in."""
        return f"{self.url}/{hash_}#token={who}"

    def run(self, work: Callable[[Runner], Awaitable[T]]) -> T:
        """Run verbs of the runner in its loop, and return their result."""

        async def in_loop() -> T:
            return await work(self.runner)

        return asyncio.run_coroutine_threadsafe(in_loop(), self._loop).result(30)

    def kinds(self, task: str) -> list[str]:
        """Return the kinds of the events of a task."""

        async def read(runner: Runner) -> list[str]:
            return [event.kind async for event in await runner.get_events(task)]

        return self.run(read)

    def close(self) -> None:
        """Stop the server; wait until it has ended."""
        if self._server is not None:
            self._loop.call_soon_threadsafe(self._server.leave)
        self._thread.join(30)
        self._loop.close()
