"""The storm of `storm.py`, with streams and runs of `treadle.Client` in place of plain readers.

Each client is given one address, behind which a balancer passes each connection on to any server that runs. What a
client has to bear is what that address does: connections that are cut at random instants, refused, or answered by
another server of the same store.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from random import Random
from types import TracebackType
from typing import Any, Final, Self

import pytest

from tests.server.processes import ServerProcess
from tests.server.storm import Storm
from treadle import Client
from treadle import events as e
from treadle.results.run_result import RunResult

PATIENCE: Final = 90.0
"""Seconds after which a client may say that no server is there: always one comes back long before."""

TURNS: Final = 5
WORDS: Final = "one two three "
"""What the agent `short` writes in each of its turns."""


class Balancer:
    """Passes each connection on to a server chosen at random, until one of both sides ends it.

    Args:
        running: the servers to choose from; may change.
        chance: chooses.
    """

    def __init__(self, running: Callable[[], list[ServerProcess]], chance: Random) -> None:
        self._running = running
        self._chance = chance
        self._passing: set[asyncio.Task[None]] = set()
        self.connections = 0
        """how many were accepted"""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for passing in self._passing:
            passing.cancel()
        if self._passing:
            await asyncio.wait(self._passing)

    @property
    def open(self) -> int:
        """How many connections have not ended."""
        return len(self._passing)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        passing = asyncio.ensure_future(self._pass_on(reader, writer))
        self._passing.add(passing)
        passing.add_done_callback(self._passing.discard)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = [writer]
        try:
            running = self._running()
            if not running:
                return
            port = int(self._chance.choice(running).url.rpartition(":")[2])
            there, back = await asyncio.open_connection("127.0.0.1", port)
            ends.append(back)
            ways = [asyncio.ensure_future(way) for way in (_copy(reader, back), _copy(there, writer))]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.wait(ways)
        except OSError:
            pass  # the server was killed before it took the connection
        finally:
            for end in ends:
                end.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy what one side sends until it ends or is cut."""
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except OSError:
        return


@dataclass
class Words:
    """What a stream told of answers that are being written: each piece in its place, and no place twice."""

    written: dict[str, int] = field(default_factory=dict[str, int])

    def told(self, event: e.Event | e.Ephemeral) -> None:
        """Check the next event."""
        if isinstance(event, (e.ModelStarted, e.ModelRestarted)):
            self.written.pop(event.step, None)
        if isinstance(event, e.Delta):
            end = event.at + len(event.text)
            assert event.text == WORDS[event.at : end], f"{event.text!r} at {event.at}"
            assert event.at >= self.written.get(event.step, 0), f"{event.text!r} was told twice"
            self.written[event.step] = end


@dataclass
class ClientStorm(Storm):
    """How much of a storm, and what its clients made of it."""

    words: int = 0
    """how many pieces of answers were told while they were written"""

    async def run(self) -> None:
        """Let it rage until clients have ended enough streams and runs, and enough servers were killed."""
        before = asyncio.all_tasks()
        async with Balancer(lambda: self.running, self.chance) as self.balancer:
            await super().run()
            async with asyncio.timeout(5):
                while self.balancer.open:  # noqa: ASYNC110  all that is left are connections of closed clients
                    await asyncio.sleep(0.01)
        left = asyncio.all_tasks() - before
        assert not left, f"the clients left tasks behind: {left}"

    async def _read(self) -> None:
        token = f"reader-{self.chance.random()}"
        async with Client(self.balancer.url, token=token, patience=PATIENCE) as client:
            await client.count_tasks()  # a client that never reached a server is not patient
            while self.begun < self.streams or self.killed < self.kills:
                self.begun += 1
                way = self.chance.choice([self._follow_task, self._watch, self._stream, self._run])
                task = f"task-{self.begun}"
                self.told[task] = []
                self.opened = self.balancer.connections
                try:
                    async with asyncio.timeout(2 * PATIENCE):
                        await way(client, task)
                except TimeoutError:
                    pytest.fail(f"{way.__name__} of {task} does not end; it was told {self.told[task]}")

    async def _follow_task(self, client: Client, task: str) -> None:
        """Follow a task past its end, until it is told that it stands so."""
        agent: Any = "short"
        await client.submit(agent, task, task_id=task)
        ended = False
        async with aclosing(self._each(client.handle(task).events(follow=True), task)) as events:
            async for event in events:
                ended = ended or isinstance(event, e.TaskEnded)
                if ended and isinstance(event, e.TaskStood) and not event.driven:
                    assert (event.state, event.head) == ("completed", self.told[task][-1])
                    break
        self._is_right(await client.handle(task).result())

    async def _watch(self, client: Client, task: str) -> None:
        """Watch a task until it is at rest."""
        agent: Any = "short"
        await client.submit(agent, task, task_id=task)
        async with aclosing(self._each(client.handle(task).events(), task)) as events:
            async for _ in events:
                pass
        self._is_right(await client.handle(task).result())

    async def _stream(self, client: Client, task: str) -> None:
        agent: Any = "short"
        async with (
            client.run_stream(agent, task, task_id=task) as stream,
            aclosing(self._each(aiter(stream), task)) as events,
        ):
            async for event in events:
                assert not isinstance(event, e.TaskStood)
        self._is_right(stream.result)

    async def _run(self, client: Client, task: str) -> None:
        agent: Any = "short"
        self._is_right(await client.run(agent, task, task_id=task))
        self.told[task] += [event.seq async for event in await client.get_events(task)]

    async def _each(self, events: Any, task: str) -> AsyncGenerator[e.Event | e.Ephemeral]:
        """Yield events, and note how late they are."""
        words, told = Words(), self.told[task]
        opened, heard = time.time(), time.monotonic()
        async for event in events:
            words.told(event)
            self.words += isinstance(event, e.Delta)
            if isinstance(event, e.Event):
                self.latest = max(self.latest, time.time() - max(event.time / 1e6, opened))
                self.longest = max(self.longest, time.monotonic() - heard)
                heard = time.monotonic()
                told.append(event.seq)
            yield event

    def _is_right(self, result: RunResult[Any]) -> None:
        assert (result.state, result.steps, result.final_text) == ("completed", TURNS, WORDS), result

    async def check(self) -> str:
        """Return what happened, in a line; raises `AssertionError` if a client was not told what the journal holds."""
        return f"{await super().check()}; {self.words} pieces of answers on the way, none doubled"
