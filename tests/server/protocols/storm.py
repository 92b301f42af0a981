"""The storm of `tests.server.client_storm`, with the clients of other protocols beside `treadle.Client`.

    python -m tests.server.protocols.storm [--streams 1000] [--kills 200] [--servers 2] [--readers 25]
                                           [--store sqlite|postgresql] [--seed N]

Each client has one address, behind which servers of one store are killed. `openai` goes on with `starting_after`, and
`@ag-ui/client` sends its run again. That one needs Node and `make protocols`; without them the others share its part.

What a client of `openai` has to see: numbers that only rise; each item added and done once; the text of each item exact
at its end, but for pieces that `treadle:output_void` names; at the end the response that a reader of the whole journal
gets.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import tempfile
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx2
import openai
from openai import AsyncOpenAI

from bench.load import lent
from tests.server.client_storm import PATIENCE, TURNS, WORDS, ClientStorm
from tests.server.processes import WORKERS
from tests.server.protocols.test_agui_client import HOME, PACKAGE, VERSION, Chat
from treadle import Client
from treadle.server.protocols.responses import PLACES

LOST: Final = (openai.APIConnectionError, httpx2.TransportError, json.JSONDecodeError)
AGAIN: Final = (429, 503)
AGENTS: Final = WORKERS.replace(
    'Message("assistant", (look,))', 'Message("assistant", (Text("one two three "), look))'
)
"""The agents of `tests.server.processes`, whose stored answers have the text before a call too."""

CHATS: Final = 4
"""Processes of Node, each of which has one chat at a time."""


def node() -> str | None:
    """Return the command of Node, if it and the client of AG-UI are there."""
    found = shutil.which("node")
    if found is None or not PACKAGE.exists() or json.loads(PACKAGE.read_text())["version"] != VERSION:
        return None
    return found


@dataclass
class Answer:
    """What a client of `openai` saw of one response."""

    items: dict[int, Any] = field(default_factory=dict[int, Any])
    texts: dict[int, str] = field(default_factory=dict[int, str])
    done: Counter[int] = field(default_factory=Counter[int])
    last: int = -1
    final: Any = None
    pieces: int = 0
    void: int = 0
    void_chars: int = 0
    trail: deque[str] = field(default_factory=lambda: deque[str](maxlen=20))
    """the last events, for messages"""

    def see(self, event: Any) -> None:
        """Check the next event."""
        kind: str = event.type
        place: int = getattr(event, "output_index", -1)
        assert event.sequence_number > self.last, f"{kind} {event.sequence_number} after {self.last}"
        told = getattr(event, "delta", "")
        self.trail.append(f"{divmod(event.sequence_number, PLACES)} {kind} {place} {told!r}")
        self.last = event.sequence_number
        if kind == "response.output_item.added":
            assert place not in self.items, f"item {place} was added twice"
            assert place == len(self.items), f"item {place} comes after {len(self.items)}"
            self.items[place] = event.item
            self.texts[place] = ""
        elif kind == "treadle:output_void":
            self.void += 1
            self.void_chars += len(self.texts[place])
            self.texts[place] = ""
        elif kind == "response.output_text.delta":
            self.texts[place] += event.delta
            self.pieces += 1
            assert WORDS.startswith(self.texts[place]), f"{self.texts[place]!r} is no beginning of {WORDS!r}"
        elif kind == "response.output_text.done":
            assert (event.text, self.texts[place]) == (WORDS, WORDS), self.trail
        elif kind == "response.output_item.done":
            assert event.item.id == self.items[place].id
            self.done[place] += 1
        elif kind == "response.completed":
            self.final = event.response

    def check(self, whole: Any) -> None:
        """Check what was seen against the response that a reader of the whole journal gets."""
        assert self.final.to_dict() == whole.to_dict()
        assert [item.id for item in self.items.values()] == [item.id for item in whole.output]
        assert set(self.done.values()) == {1}, self.done
        assert len(self.done) == len(self.items) == 2 * TURNS - 1
        assert [text for text in self.texts.values() if text] == [WORDS] * TURNS


@dataclass
class ProtocolStorm(ClientStorm):
    """How much of a storm, and what its clients made of it."""

    ways: Counter[str] = field(default_factory=Counter[str])
    """how many streams and runs each client ended"""

    void: int = 0
    void_chars: int = 0
    again: Counter[str] = field(default_factory=Counter[str])
    """how often each client had to go on"""

    async def run(self) -> None:
        """Let it rage until clients have ended enough streams and runs, and enough servers were killed."""
        (self.folder / "workers.py").write_text(AGENTS)
        command = node()
        self.chats: asyncio.Queue[Chat] = asyncio.Queue()
        made: list[Chat] = []
        if command is not None:
            for number in range(min(CHATS, self.readers)):
                folder = self.folder / f"chat-{number}"
                folder.mkdir()
                made.append(Chat(command, folder))
                self.chats.put_nowait(made[-1])
        try:
            await super().run()
        finally:
            for chat in made:
                chat.process.kill()
                chat.process.wait()
                for pipe in (chat.process.stdin, chat.process.stdout):
                    assert pipe is not None
                    pipe.close()

    async def _read(self) -> None:
        token = f"reader-{self.chance.random()}"
        async with (
            Client(self.balancer.url, token=token, patience=PATIENCE) as client,
            AsyncOpenAI(base_url=f"{self.balancer.url}/v1", api_key=token, max_retries=0) as responses,
        ):
            await client.count_tasks()  # a client that never reached a server is not patient
            while self.begun < self.streams or self.killed < self.kills:
                self.begun += 1
                ways = ["own", "openai"] + (["agui"] if not self.chats.empty() else [])
                way = self.chance.choice(ways)
                async with asyncio.timeout(2 * PATIENCE):
                    if way == "own":
                        task = f"task-{self.begun}"
                        self.told[task] = []
                        await self.chance.choice([self._follow_task, self._watch, self._stream])(client, task)
                    elif way == "openai":
                        await self._respond(client, responses, f"key-{self.begun}")
                    else:
                        await self._chat(client, f"run-{self.begun}")
                self.ways[way] += 1
                self.opened = self.balancer.connections

    async def _all(self, client: Client, task: str) -> None:
        """Note the events of a task that a client of another protocol has seen to its end."""
        self.told[task] = [event.seq async for event in await client.get_events(task)]

    # -------------------------------------------------------------------------------------------- openai

    async def _respond(self, client: Client, responses: AsyncOpenAI, key: str) -> None:
        answer, identifier = Answer(), ""
        while answer.final is None:
            try:
                if identifier:
                    stream: Any = await responses.responses.retrieve(
                        identifier, stream=True, starting_after=answer.last
                    )
                else:
                    headers = {"Idempotency-Key": key}
                    stream = await responses.responses.create(
                        model="short", input=key, stream=True, extra_headers=headers
                    )
                async with stream:
                    async for event in stream:
                        identifier = identifier or event.response.id
                        answer.see(event)
            except openai.APIStatusError as error:
                if error.status_code not in AGAIN:
                    raise
            except LOST:
                pass
            if answer.final is None:
                answer.trail.append("cut")
                self.again["openai"] += 1
                await asyncio.sleep(0.05)
        answer.check(await self._retrieved(responses, identifier))
        self.words += answer.pieces
        self.void += answer.void
        self.void_chars += answer.void_chars
        await self._all(client, identifier.removeprefix("resp_"))

    async def _retrieved(self, responses: AsyncOpenAI, identifier: str) -> Any:
        while True:
            try:
                return await responses.responses.retrieve(identifier)
            except openai.APIStatusError as error:
                if error.status_code not in AGAIN:
                    raise
            except LOST:
                pass
            await asyncio.sleep(0.05)

    # --------------------------------------------------------------------------------------------- AG-UI

    async def _chat(self, client: Client, run: str) -> None:
        chat = await self.chats.get()
        try:
            more: dict[str, Any] = {"threadId": f"thread-{run}", "message": f"say {run}"}
            while True:
                told = await asyncio.to_thread(chat.run, self.balancer, run, agent="short", **more)
                more = {}
                if told["error"] is None and told.get("outcome") is not None:
                    break
                self.again["agui"] += 1
                await asyncio.sleep(0.05)
        finally:
            self.chats.put_nowait(chat)
        assert told["outcome"] == {"type": "success"}, told
        messages = told["messages"]
        assert [message["role"] for message in messages] == [
            "user",
            *["assistant", "tool"] * (TURNS - 1),
            "assistant",
        ]
        assert len({message["id"] for message in messages}) == len(messages)
        assert {message["content"] for message in messages[1::2]} == {WORDS}
        assert [message["content"] for message in messages[2::2]] == [
            f"seen in turn {turn}" for turn in range(TURNS - 1)
        ]
        await self._all(client, run)

    async def check(self) -> str:
        """Return what happened, in a line; raises `AssertionError` if a client was not told what the journal holds."""
        ways = ", ".join(
            [f"{count} by {way} ({self.again[way]} times again)" for way, count in self.ways.most_common()]
        )
        return (
            f"{await super().check()}; {ways}; {self.void_chars} characters in {self.void} pieces of answers were void "
            "after crashes, each named by an event"
        )


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.server.protocols.storm")
    parser.add_argument("--streams", type=int, default=1_000)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--readers", type=int, default=25)
    parser.add_argument("--store", default="sqlite")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    given = parser.parse_args()
    if node() is None:
        print(f"Node or @ag-ui/client {VERSION} in {HOME} is missing: make protocols")
    here = os.getcwd()  # noqa: PTH109
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=here) as folder, lent(given.store) as url:
        storm = ProtocolStorm(
            Path(folder), url, given.streams, given.kills, given.servers, given.readers, given.seed
        )
        began = time.monotonic()
        await storm.run()
        print(f"{given.store}: {await storm.check()}, {time.monotonic() - began:.0f} s")
        for why, times in storm.unable.most_common():
            print(f"{times} times {why}")


if __name__ == "__main__":
    asyncio.run(main())
