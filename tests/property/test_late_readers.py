"""Whatever a model writes, and whenever a reader joins: it has the answer so far as the first reader has it.

A random history of several parallel requests, of which each attempt may fail and begin anew. Readers join, stop reading
for a while, go on, leave, and open their stream again from the last event they have seen. The buffers are so small that
a reader that does not read loses its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from random import Random
from typing import Any

import pytest

from tests.client.served import client, served
from tests.runner.acts import until
from tests.server.sse import Frame
from tests.server.test_streams import site
from treadle import Agent, Message, ModelAnswer, ModelRequest, Runner, StepContext, StepResult, Text
from treadle import events as e
from treadle.client.following import event_in
from treadle.core.model import ReasoningDelta, TextDelta, ToolCallDelta
from treadle.engine import broadcast
from treadle.errors import ModelError
from treadle.models import Retry
from treadle.server import feed

pytestmark = pytest.mark.anyio

Answers = dict[tuple[str, Any], dict[tuple[str, int], tuple[str, str]]]
"""The answers that are being written: of each channel and call the text, and the name of the called tool."""

BEGINS_AND_ENDS = (e.ModelStarted, e.ModelRestarted, e.ModelReturned, e.ModelFailed, e.ModelStopped)


def joined(answers: Answers, answer: tuple[str, Any], part: tuple[str, int], text: str, name: str) -> None:
    """Add a text, and a piece of a name, to an answer."""
    before = answers.setdefault(answer, {}).get(part, ("", ""))
    answers[answer][part] = before[0] + text, before[1] + name


class Dictated:
    """A model that writes what a test hands it, when the test hands it, to any of its open requests."""

    name = "test:dictated"

    def __init__(self) -> None:
        self.open: dict[tuple[str, Any], tuple[asyncio.AbstractEventLoop, asyncio.Queue[Any]]] = {}
        self.written: Answers = {}
        self.attempts = self.handed = self.taken = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        answer = (request.step, request.call)
        self.open[answer] = asyncio.get_running_loop(), asyncio.Queue()
        self.attempts += 1
        while True:
            item = await self.open[answer][1].get()
            if isinstance(item, (ModelAnswer, ModelError)):
                del self.open[answer]
                self.written.pop(answer, None)
            if isinstance(item, TextDelta):
                joined(self.written, answer, ("draft", 0), item.text, "")
            elif isinstance(item, ReasoningDelta):
                joined(self.written, answer, ("reasoning", 0), item.text, "")
            elif isinstance(item, ToolCallDelta):
                joined(self.written, answer, ("arguments", item.index), item.arguments, item.name)
            self.taken += 1
            if isinstance(item, ModelError):
                raise item
            yield item
            if isinstance(item, ModelAnswer):
                return

    def say(self, answer: tuple[str, Any], item: Any) -> None:
        """Have the model write an item; from any thread."""
        self.handed += 1
        loop, queue = self.open[answer]
        loop.call_soon_threadsafe(queue.put_nowait, item)


def agent_of(model: Dictated, requests: int) -> Agent[Any]:
    async def ask(ctx: StepContext) -> StepResult:
        for turn in range(40):
            asked = [Message("user", (Text(f"{turn}.{n}"),)) for n in range(requests)]
            await asyncio.gather(*[ctx.call_model(messages=[message]) for message in asked])
        return StepResult("done", is_last=True)

    return Agent(Retry(model, base=0, attempts=1_000), name="desk", worker=ask)


Opened = Callable[[int], AsyncGenerator[Any, None]]
"""Opens a stream of the task's events behind a sequence number."""


class Reader:
    """Reads a stream, and joins what it says."""

    def __init__(self, opened: Opened, *, repeats: bool) -> None:
        self._opened = opened
        self._repeats = repeats
        """whether a stream that was opened again may repeat what was read before"""

        self.answers: Answers = {}
        self.last = 0
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        async with aclosing(self._opened(self.last)) as stream:
            async for item in stream:
                self._take(item)
                await self.goes_on.wait()

    def _take(self, item: Any) -> None:
        if isinstance(item, e.Event):
            assert item.seq == self.last + 1
            self.last = item.seq
        if isinstance(item, BEGINS_AND_ENDS):
            self.answers.pop((item.step, item.call), None)
        elif isinstance(item, e.Delta):
            answer, part = (item.step, item.call), (item.channel, item.index)
            text, name = self.answers.get(answer, {}).get(part, ("", ""))
            assert item.at <= len(text), f"text is missing: {item}"
            assert item.tool_at <= len(name), f"a part of the name is missing: {item}"
            if not self._repeats:
                assert (item.at, item.tool_at) == (len(text), len(name)), f"it comes twice: {item}"
            self.answers.setdefault(answer, {})[part] = (
                text[: item.at] + item.text,
                name[: item.tool_at] + item.tool,
            )

    async def leave(self) -> None:
        self.reading.cancel()
        await asyncio.wait([self.reading])

    async def open_again(self) -> None:
        await self.leave()
        self.reading = asyncio.ensure_future(self._read())

    def has(self, written: Answers) -> bool:
        """Whether it has the answers; raises what ended its stream."""
        if self.reading.done() and not self.reading.cancelled():
            self.reading.result()
        return {answer: parts for answer, parts in self.answers.items() if parts} == written


def some_item(random: Random) -> Any:
    text = random.choice(["a", "word ", "\r\n", "\N{ROCKET}", "x" * 40])
    match random.randrange(5):
        case 0 | 1:
            return TextDelta(text)
        case 2:
            return ReasoningDelta(text)
        case 3:
            return ToolCallDelta(random.randrange(2), random.choice(["lo", "ok", "k"]), "")
        case _:
            return ToolCallDelta(random.randrange(2), random.choice(["", "", "x"]), text)


async def storm(random: Random, model: Dictated, opened: Opened, ended: Callable[[], Any], **how: Any) -> int:
    """Dictate a random history to the model, and hold every reader that reads against it; return how often."""
    first = Reader(opened, **how)
    others: list[Reader] = []
    compared = 0
    for _ in range(60):
        await until(lambda: len(model.open) > 0, 20)
        answer = random.choice(list(model.open))
        match random.choice("wwwwwwfjjjpgglor"):
            case "w":
                for _ in range(random.choice([1, 1, 2, 30])):
                    model.say(answer, some_item(random))
            case "f" if random.random() < 0.5:
                attempts = model.attempts
                model.say(answer, ModelError("busy", kind="overloaded"))
                await until(lambda attempts=attempts: model.attempts > attempts, 20)
            case "j":
                others.append(Reader(opened, **how))
            case "p" if others:
                random.choice(others).goes_on.clear()
            case "g" if others:
                random.choice(others).goes_on.set()
            case "l" if len(others) > 3:
                await others.pop().leave()
            case "o" if others and how["repeats"]:
                await random.choice(others).open_again()
            case "r" if random.random() < 0.5:
                model.say(answer, ModelAnswer(Message("assistant", (Text("done"),))))
                await until(lambda answer=answer: answer not in model.open, 20)
            case _:
                pass
        await said(model)
        for reader in (first, *(each for each in others if each.goes_on.is_set())):
            await until(lambda reader=reader: reader.has(model.written), 20)
            compared += len(model.written)
    for reader in others:
        reader.goes_on.set()
        await until(lambda reader=reader: reader.has(model.written), 20)
    while not ended():
        for answer in list(model.open):
            model.say(answer, ModelAnswer(Message("assistant", (Text("done"),))))
        await asyncio.sleep(0.01)
    for reader in (first, *others):  # each stream ends when the task is at rest
        await asyncio.wait_for(reader.reading, 20)
        assert (reader.last, reader.answers) == (first.last, {})
    return compared


async def said(model: Dictated) -> None:
    """Return once the model has written all that it was handed."""
    await until(lambda: model.taken == model.handed, 20)


@pytest.fixture(autouse=True)
def small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcast, "BUFFER", 8)
    monkeypatch.setattr(feed, "RING_ENTRIES", 8)
    monkeypatch.setattr(feed, "PAGE", 3)


@asynccontextmanager
async def running(runner: Runner, model: Dictated, requests: int) -> AsyncIterator[Any]:
    handle = await runner.start(agent_of(model, requests), "Go.")
    work = asyncio.ensure_future(handle.result())
    yield handle, work
    assert (await work).state == "completed"


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.sampled(2)
async def test_a_reader_of_a_handle_has_what_the_first_one_has(runner: Runner, seed: int) -> None:
    random, model = Random(seed), Dictated()
    async with running(runner, model, 1 + seed % 3) as (handle, work):

        def opened(after: int) -> AsyncGenerator[Any, None]:
            return handle.events(after=after)

        assert await storm(random, model, opened, work.done, repeats=False) > 50


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.sampled(2)
async def test_a_stream_over_http_has_what_the_first_reader_has(runner: Runner, seed: int) -> None:
    random, model = Random(seed), Dictated()
    cut = 256 if seed % 2 else None
    async with site(runner) as server, running(runner, model, 1 + seed % 3) as (handle, work):

        async def opened(after: int) -> AsyncGenerator[Any, None]:
            query: dict[str, Any] = {"until": "rest"} if cut is None else {"until": "rest", "cut": cut}
            async with server.open(handle.task_id, after or None, **query) as stream:
                async for frame in stream:
                    if (item := item_in(frame)) is not None:
                        yield item

        assert await storm(random, model, opened, work.done, repeats=True) > 50


def item_in(frame: Frame) -> Any:
    return event_in(frame.data) if frame.text is not None else None


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.sampled(1)
async def test_a_client_has_what_the_first_reader_has(seed: int) -> None:
    random, model = Random(seed), Dictated()
    with served(agent_of(model, 1 + seed % 3)) as url:
        async with client(url) as remote:
            handle = await remote.start("desk", "Go.")
            work = asyncio.ensure_future(handle.result())

            def opened(after: int) -> AsyncGenerator[Any, None]:
                return handle.events(after=after)

            assert await storm(random, model, opened, work.done, repeats=False) > 50
            assert (await work).state == "completed"
