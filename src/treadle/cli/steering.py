"""Share a terminal between printed events, questions to a person, and the person's own messages.

a key is pressed    the prompt opens, and printing waits until the line is sent or dropped
a question comes    it receives the keys until it is answered or left open
otherwise           events are printed as they come
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from treadle.cli.prompting import Prompt
from treadle.cli.timeline import Timeline
from treadle.core import events as e

MARK: Final = "» "


class Steering:
    """Decides who uses the terminal.

    Args:
        prompt: asks the person.
        timeline: prints the events.
        send: called with each line that the person writes.
    """

    def __init__(self, prompt: Prompt, timeline: Timeline, send: Callable[[str], Awaitable[None]]) -> None:
        self._prompt = prompt
        self._timeline = timeline
        self._send = send
        self._quiet = prompt.quiet()
        self._turn = asyncio.Lock()
        self._typing: asyncio.Task[None] | None = None
        self._is_free = asyncio.Event()
        self._is_free.set()
        self._loop: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Steering:
        self._quiet.__enter__()
        self._loop = asyncio.ensure_future(self._read_lines())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop reading; drop an unfinished line."""
        for task in (self._loop, self._typing):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        self._quiet.__exit__(None, None, None)

    async def show(self, event: e.Event | e.Ephemeral) -> None:
        """Print an event; wait first for an unfinished line."""
        async with self._turn:
            self._timeline.show(event)

    async def finished(self) -> None:
        """Wait until an unfinished line is sent or dropped."""
        async with self._turn:
            return

    @asynccontextmanager
    async def question(self) -> AsyncGenerator[None]:
        """Reserve the terminal for a question."""
        async with self._turn:
            self._is_free.clear()
            if self._typing is not None:
                self._typing.cancel()
                await asyncio.wait([self._typing])
            self._timeline.pause()
            try:
                yield
            finally:
                self._is_free.set()
                self._timeline.resume()

    async def _read_lines(self) -> None:
        while True:
            while not self._is_free.is_set():  # another question may have begun since the last one ended
                await self._is_free.wait()
            self._typing = asyncio.ensure_future(self._prompt.typed())
            await asyncio.wait([self._typing])
            if self._typing.cancelled():
                continue  # a question receives the keys
            self._typing.result()
            async with self._turn:
                self._timeline.pause()
                try:
                    text = (await self._prompt.ask(MARK)).strip()
                except EOFError:
                    return
                except KeyboardInterrupt:
                    text = ""
                if text:
                    await self._send(text)
                self._timeline.resume()
