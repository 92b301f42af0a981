"""Runs a page's code blocks, or a program, with a client for each runner: a server in a thread has the runner.

    python -m tests.client.pages docs/guide/control.md
    python -m tests.client.pages examples/what_if.py

The line that makes the runner is all that changes: `Runner(...)` makes the runner that the page asks for, serves it,
and returns a `Client`. An agent that a verb is given is given to the server too, since a page and its server are one
process here.
"""

import runpy
import sys
import threading
import time
from pathlib import Path
from typing import Any

import uvicorn

import treadle
from treadle import Client
from treadle.client.arguments import RemoteArguments
from treadle.client.streams import AgentsHere
from treadle.runner.views import driver_of
from treadle.server import OneToken, ServerLimits, app

TOKEN = "a-token-of-at-least-32-characters"
MADE = treadle.Runner


class _SharedAgents(AgentsHere):
    """Gives the server each agent that the client is given."""

    def __init__(self, runner: Any) -> None:
        super().__init__()
        self._runner = runner

    def add(self, agent: Any) -> None:
        super().add(agent)
        driver_of(self._runner).agents.register(agent)


class OverHttp(Client):
    """`Runner(...)`, as the pages call it: a client of a server that has that runner."""

    def __init__(self, store: Any = None, *, adopt: bool = False, agents: Any = (), **settings: Any) -> None:
        del adopt  # the server adopts
        self.runner = MADE(store, agents=agents, **settings)
        limits = ServerLimits(requests_per_second=1_000)
        api = app(self.runner, auth=OneToken(TOKEN), allow_urls=True, limits=limits)
        self.server = uvicorn.Server(
            uvicorn.Config(api, port=0, log_level="critical", timeout_graceful_shutdown=1)
        )
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        while not self.server.started:
            time.sleep(0.005)
        super().__init__(
            f"http://127.0.0.1:{self.server.servers[0].sockets[0].getsockname()[1]}", token=TOKEN, patience=5
        )
        self._here = self._remote.agents = self._remote._arguments._agents = _SharedAgents(self.runner)
        for agent in agents:
            self._here.add(agent)

    async def __aenter__(self) -> Any:
        return self

    async def aclose(self) -> None:
        await super().aclose()
        self.server.should_exit = True


def main(page: str) -> None:
    from tests.docs import blocks

    check = RemoteArguments.check

    async def without_by(self: RemoteArguments, verb: str, given: dict[str, Any]) -> None:
        await check(self, verb, given if verb == "usage" else {**given, "by": None})

    RemoteArguments.check = without_by  # type: ignore[method-assign]  # the one token of a page has one holder

    treadle.Runner = OverHttp  # type: ignore[misc,assignment]
    treadle.wiring.Runner = OverHttp  # type: ignore[attr-defined]
    path = Path(page).resolve()
    if path.suffix == ".py":
        sys.argv = [str(path)]
        runpy.run_path(str(path), run_name="__main__")
    else:
        blocks.run(path)


if __name__ == "__main__":
    main(sys.argv[1])
