"""Server processes under test: `treadle serve` on a store, killed and stopped like those of users."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import httpx2

from tests.forked import Forked
from tests.server.sse import Frame, frames

WORKERS = '''
import asyncio
from treadle import Agent, Message, ModelAnswer, Text, TextDelta, ToolCall, tool
from treadle.server import ADMIN, Principal


class Turns:
    """Answers by the turn alone, so that any process goes on with it."""

    name = "test:turns"

    def __init__(self, turns, pause):
        self.turns, self.pause = turns, pause

    async def stream(self, request):
        for word in ("one ", "two ", "three "):
            await asyncio.sleep(self.pause)
            yield TextDelta(word)
        if request.turn + 1 < self.turns:
            look = ToolCall(f"c{request.turn}", "look", {"turn": request.turn})
            yield ModelAnswer(Message("assistant", (look,)), "tool_calls")
        else:
            yield ModelAnswer(Message("assistant", (Text("one two three "),)))


@tool(read_only=True)
async def look(turn: int) -> str:
    return f"seen in turn {turn}"


agents = [
    Agent(Turns(5, 0.02), name="short", tools=[look]),
    Agent(Turns(190, 0.1), name="long", tools=[look]),
]


def principal_of(connection):
    name = connection.headers.get("authorization", "").removeprefix("Bearer ")
    return Principal(name, scopes=ADMIN) if name else None
'''
"""The module `workers` of a test's folder: its agents, and the principals of requests."""


class ServerProcess:
    """A `treadle serve` in a folder; `url` is where it listens.

    Args:
        folder: has the module `workers`, and what the server writes.
        store: the store.
        options: more options of the command.
    """

    def __init__(self, folder: Path, store: str, *options: str) -> None:
        if not (folder / "workers.py").exists():
            (folder / "workers.py").write_text(WORKERS)
        command = [
            sys.executable,
            "-m",
            "treadle",
            "serve",
            "workers:agents",
            "--auth",
            "workers:principal_of",
        ]
        self.log = folder / f"server-{id(self)}.log"
        with self.log.open("wb") as log:
            self.process: subprocess.Popen[bytes] = Forked(
                [*command, "--store", store, "--port", "0", "--json", *options],
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ},
            )
        self.lines: list[Any] = []

    def begun(self) -> ServerProcess:
        """Return this once it listens."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert b'"url"' in line, f"{line!r} {self.log.read_text()}"
        self.url: str = json.loads(line)["url"]
        Thread(target=self._read, daemon=True).start()
        return self

    def _read(self) -> None:
        assert self.process.stdout is not None
        with suppress(ValueError):  # the pipe was closed
            for line in self.process.stdout:
                with suppress(ValueError):  # half a line of a process that was killed
                    self.lines.append(json.loads(line))

    def client(self, name: str = "ann") -> httpx2.AsyncClient:
        """Return a client of this server, as a principal of any name."""
        many = httpx2.Limits(max_connections=None)
        headers = {"Authorization": f"Bearer {name}"}
        return httpx2.AsyncClient(base_url=self.url, headers=headers, timeout=30, limits=many, verify=False)

    def kill(self) -> None:
        """Kill it as the machine would."""
        self.process.kill()
        self.process.wait()

    def terminate(self) -> None:
        """Ask it to end."""
        self.process.send_signal(signal.SIGTERM)

    def close(self) -> None:
        """Kill it, if it still runs, and close its pipe."""
        self.kill()
        if self.process.stdout is not None:
            self.process.stdout.close()


async def servers(folder: Path, store: str, *options: tuple[str, ...]) -> list[ServerProcess]:
    """Return servers of one store, started beside each other."""
    made = [ServerProcess(folder, store, *each) for each in options]
    return [await asyncio.to_thread(server.begun) for server in made]


async def stream(client: httpx2.AsyncClient, task: str, last: int = 0, **query: Any) -> AsyncIterator[Frame]:
    """Yield the frames of a stream of a task from an event on."""
    headers = {"Accept": "text/event-stream", "Last-Event-ID": str(last)}
    async with client.stream("GET", f"/v1/tasks/{task}/events", params=query, headers=headers) as response:
        if response.status_code != 200:
            raise httpx2.HTTPStatusError(
                f"{response.status_code}: {(await response.aread())[:300]!r}",
                request=response.request,
                response=response,
            )
        async for frame in frames(response.aiter_bytes()):
            yield frame
