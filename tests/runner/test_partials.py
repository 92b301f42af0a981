"""Partial answers, as they are read while a model writes."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import date
from typing import Any

import pytest

from tests.runner.acts import until
from tests.runner.typed_cases import ROME, City, Point, scripted, written
from treadle import (
    Agent,
    Message,
    ModelAnswer,
    ModelRequest,
    Runner,
    ScriptedModel,
    Text,
    TextDelta,
)
from treadle.errors import ModelError
from treadle.events import Delta, ModelRestarted
from treadle.models import Retry, fail, text, turn
from treadle.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio


@pytest.fixture
def store() -> MemoryStore:
    """Deltas are not stored, so one store shows them."""
    return MemoryStore()


BERGEN = City(name="Bergen", founded=date(1070, 1, 1))
CITIES = [{"name": "Rome", "founded": "0001-04-21"}, {"name": "Bergen", "founded": "1070-01-01"}]


@pytest.mark.parametrize("mode", ["native", "prompt", "react"])
async def test_partials_yield_a_typed_answer_while_the_model_writes(runner: Runner, mode: Any) -> None:
    agent = scripted(list[City], mode)
    turns = [text(written(agent, answer), chunk=4) for answer in ([{"name": "Nowhere"}], CITIES)]
    async with runner.run_stream(agent.replace(model=ScriptedModel(turns)), "Which?") as stream:
        seen = [partial async for partial in stream.partials()]
    assert stream.result.output == [ROME, City(name="Bergen", founded=date(1070, 1, 1))]
    wrong = seen.index([{"name": "Nowhere"}])
    right = seen[wrong + 1 :]
    assert (right[0], right[-1]) == ([{}], CITIES)
    assert {"name": "Rome"} in [cities[0] for cities in right if cities]
    sizes = [len(json.dumps(cities)) for cities in right]
    assert sizes == sorted(sizes)


async def test_partials_leave_out_json_in_the_thinking_of_the_model(runner: Runner) -> None:
    thought = "<think>Perhaps {} or {}? No.</think>\n{}"
    answers = [thought.format('{"x": 1}', '{"x": 2}', '{"x": 3}'), '<think>It is {"x": 4}', '{"x": 5}']
    for turns, meant in ((answers, Point(3.0)), (answers[1:], Point(5.0))):
        agent = Agent(ScriptedModel(turns), output_type=Point, output_mode="prompt")
        async with runner.run_stream(agent, "Where?") as stream:
            seen = [partial async for partial in stream.partials()]
        assert stream.result.output == meant
        assert [point for point in seen if point] == [{"x": meant.x}]


async def test_partials_yield_text_while_the_model_writes(runner: Runner) -> None:
    agent = Agent(ScriptedModel([text("one two three", chunk=4, pause=0.001)]))
    handle = await runner.start(agent, "Count.")
    assert [partial async for partial in handle.partials()][-2:] == ["one two", "one two three"]


async def test_partials_start_over_when_the_model_starts_over():
    model = ScriptedModel([fail(503, after="It is th"), turn("It is here.", chunk=3)])
    async with Runner("memory:") as runner, runner.run_stream(Agent(Retry(model, base=0)), "Go.") as stream:
        partials_seen = [piece async for piece in stream.partials()]
    assert partials_seen[0] == "It is th"
    assert [len(piece) for piece in partials_seen[1:]] == sorted(len(piece) for piece in partials_seen[1:])
    assert partials_seen[1] in ("It", "It ")
    assert partials_seen[-1] == "It is here."


async def test_checked_partials_are_of_the_output_type(runner: Runner) -> None:
    agent = scripted(list[City], "native")
    agent = agent.replace(model=ScriptedModel([text(written(agent, CITIES), chunk=4)]))
    rome, bergen = ROME, City(name="Bergen", founded=date(1070, 1, 1))
    async with runner.run_stream(agent, "Which?") as stream:
        seen = [partial async for partial in stream.partials(checked=True)]
    assert seen == [[], [rome], [rome, bergen]]
    handle = await runner.start(agent, "Which?")
    assert [partial async for partial in handle.partials(checked=True)][-1] == [rome, bergen]


async def test_a_checked_partial_of_an_object_appears_when_all_that_it_requires_is_written(
    runner: Runner,
) -> None:
    agent = scripted(City, "native")
    answer = {"name": "Rome", "founded": "0001-04-21"}
    agent = agent.replace(model=ScriptedModel([text(written(agent, answer), chunk=4)]))
    async with runner.run_stream(agent, "Which?") as stream:
        assert [partial async for partial in stream.partials(checked=True)] == [ROME]


def test_checked_partials_without_asyncio_of_an_answer_that_is_text() -> None:
    agent = Agent(ScriptedModel([text("one two", chunk=4)]))
    with Runner("memory:").sync as runner, runner.run_stream(agent, "Count.") as stream:
        assert list(stream.partials(checked=True)) == ["one", "one two"]


class Dictated:
    """A model that writes the next piece of an answer when the test lets it."""

    name = "test:dictated"

    def __init__(self, *pieces: str) -> None:
        self.pieces = pieces
        self.may_write = asyncio.Semaphore(0)
        self.written = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        for piece in self.pieces:
            await self.may_write.acquire()
            yield TextDelta(piece)
            self.written += 1
        await self.may_write.acquire()
        yield ModelAnswer(Message("assistant", (Text("".join(self.pieces)),)))

    async def write(self, pieces: int) -> None:
        """Have it write so many pieces."""
        upto = self.written + pieces
        for _ in range(pieces):
            self.may_write.release()
        await until(lambda: self.written >= upto)


async def test_partials_that_begin_in_the_middle_of_a_text_have_its_beginning(runner: Runner) -> None:
    model = Dictated("one ", "two ", "three ", "four")
    handle = await runner.start(Agent(model), "Count.")
    await model.write(2)
    async with aclosing(handle.partials()) as partials:
        seen = [await asyncio.wait_for(anext(partials), 20)]
        for _ in range(2):
            model.may_write.release()
            seen.append(await asyncio.wait_for(anext(partials), 20))
    assert seen == ["one two ", "one two three ", "one two three four"]
    await handle.cancel()


@pytest.mark.parametrize("checked", [False, True])
async def test_partials_that_begin_in_the_middle_of_a_typed_answer_have_its_beginning(
    runner: Runner, checked: bool
) -> None:
    agent = scripted(list[City], "native", tools=())
    answer = written(agent, CITIES)
    cuts = [answer[:30], answer[30:65], answer[65:]]
    model = Dictated(*cuts)
    agent = agent.replace(model=model)
    handle = await runner.start(agent, "Which?")
    await model.write(2)
    async with aclosing(handle.partials(checked=checked)) as partials:
        first: Any = await asyncio.wait_for(anext(partials), 20)
        assert (first if checked else first[:1]) == ([ROME] if checked else CITIES[:1])
        model.may_write.release()
        assert await asyncio.wait_for(anext(partials), 20) == ([ROME, BERGEN] if checked else CITIES)
    await handle.cancel()


async def test_partials_yield_an_answer_whole_of_which_no_delta_comes(runner: Runner) -> None:
    for mode in ("prompt", "tool"):
        agent = scripted(list[City], mode, CITIES)
        handle = runner.handle((await runner.run(agent, "Which?")).task_id)
        assert [partial async for partial in handle.partials()] == [CITIES]


async def test_the_watcher_of_an_answer_that_it_got_so_far_is_told_that_the_model_starts_over(
    runner: Runner,
) -> None:
    class Broken(Dictated):
        async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
            async for item in super().stream(request):
                if isinstance(item, ModelAnswer) and request.attempt == 1:
                    raise ModelError("busy", kind="overloaded")
                yield item

    model = Broken("Good ", "morning")
    handle = await runner.start(Agent(Retry(model, base=0)), "Hi")
    await model.write(2)
    async with asyncio.timeout(20), aclosing(handle.events()) as events:
        text_so_far, seen = "", list[str]()
        async for event in events:
            if isinstance(event, Delta):
                text_so_far += event.text
                seen.append(text_so_far)
                model.may_write.release()
            elif isinstance(event, ModelRestarted):
                text_so_far = ""
                model.may_write.release()
    assert (seen[0], seen[-1]) == ("Good morning", "Good morning")
    assert "Good " in seen
