"""Deadlines on a model: each is named, cancels the attempt, and leaves nothing behind."""

import asyncio

import pytest

from treadle import ModelAnswer, TextDelta
from treadle.core.model import RawDelta
from treadle.errors import ConfigurationError, ModelError
from treadle.models import ScriptedModel, Timeout, fail, text
from treadle.testing import clock
from treadle.testing.conformance.model import ask, request


async def error_of(model):
    with pytest.raises(ModelError) as caught:
        await ask(model, request())
    return caught.value


class Model:
    """A model that streams deltas after waits, and records whether it was closed."""

    name = "own:slow"

    def __init__(self, *waits):
        self.waits = waits
        self.closed = 0

    async def stream(self, _):
        try:
            for wait in self.waits:
                await asyncio.sleep(wait)
                yield TextDelta("so ")
            answer = [item async for item in ScriptedModel(["so"]).stream(request())]
            yield answer[-1]
        finally:
            self.closed += 1


@pytest.mark.parametrize(
    ("waits", "said"),
    [
        ((130,), "own:slow did not begin to answer within 120 s"),
        ((1, 70), "own:slow fell silent for 60 s in the middle of its answer"),
        ((1,) + (59,) * 11, "own:slow did not finish its answer within 600 s"),
    ],
)
def test_a_missed_deadline_is_named_and_closes_the_attempt(waits, said):
    model = Model(*waits)

    async def main():
        error = await error_of(Timeout(model))
        assert (error.kind, str(error), error.status) == ("timeout", said, None)
        assert model.closed == 1
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await asyncio.sleep(0)  # the cancellation is over

    clock.run(main())


def test_an_answer_in_time_passes_even_if_its_reader_is_slow():
    model = Model(119, 59, 59)

    async def main():
        deltas = []
        async for item in Timeout(model).stream(request()):
            deltas.append(item)
            await asyncio.sleep(100)  # no request waits for the model meanwhile
        assert [type(item) for item in deltas] == [TextDelta] * 3 + [ModelAnswer]

    clock.run(main())


def test_a_reader_that_is_slow_with_the_last_delta_still_gets_the_answer():
    async def main():
        async for item in Timeout(ScriptedModel(["so"]), total=5).stream(request()):
            if isinstance(item, ModelAnswer):
                await asyncio.sleep(10)

    clock.run(main())


def test_the_total_deadline_holds_also_while_the_reader_is_busy():
    async def main():
        async def read():
            async for _ in Timeout(Model(1, 1), total=5).stream(request()):
                await asyncio.sleep(10)

        with pytest.raises(ModelError, match="did not finish its answer within 5 s"):
            await read()

    clock.run(main())


def test_none_sets_no_deadline():
    async def main():
        await ask(Timeout(Model(10_000, 10_000), first_byte=None, between=None, total=None), request())

    clock.run(main())


@pytest.mark.parametrize("after", [0, 0.5, 1.5])
def test_a_cancellation_from_outside_is_not_mistaken_for_a_deadline(after):
    model = Model(1, 1, 1)

    async def main():
        task = asyncio.create_task(ask(Timeout(model), request()))
        await asyncio.sleep(after)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert model.closed == 1

    clock.run(main())


def test_a_cancellation_at_the_moment_of_the_deadline_is_not_lost():
    model = Model(50)

    async def main():
        task = asyncio.create_task(ask(Timeout(model, first_byte=5), request()))
        asyncio.get_running_loop().call_later(5, task.cancel)  # both timers are due in one turn of the loop
        with pytest.raises(asyncio.CancelledError):
            await task
        assert model.closed == 1

    clock.run(main())


def test_nested_timeouts_are_distinguished():
    async def main():
        both = Timeout(Timeout(Model(50), first_byte=5), first_byte=5, total=100)
        assert (await error_of(both)).kind == "timeout"
        outer = Timeout(Timeout(Model(50), first_byte=9), first_byte=5)
        assert "within 5 s" in str(await error_of(outer))

    clock.run(main())


def test_a_model_that_turns_its_cancellation_into_an_error_has_timed_out():
    class Odd(Model):
        async def stream(self, _):
            try:
                await asyncio.sleep(50)
            except asyncio.CancelledError:
                raise RuntimeError("connection lost") from None
            yield

    async def main():
        assert (await error_of(Timeout(Odd(), first_byte=5))).kind == "timeout"
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    clock.run(main())


def test_a_model_that_ignores_its_cancellation_times_out_at_its_next_delta():
    class Deaf(Model):
        async def stream(self, _):
            for _ in range(3):
                try:
                    await asyncio.sleep(50)
                except asyncio.CancelledError:
                    self.closed += 1
                yield TextDelta("what?")

    async def main():
        model = Deaf()
        assert (await error_of(Timeout(model, first_byte=5))).kind == "timeout"
        assert model.closed == 1
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    clock.run(main())


def test_an_answer_in_spite_of_a_cancellation_counts():
    class Deaf(Model):
        async def stream(self, asked):
            try:
                await asyncio.sleep(50)
            except asyncio.CancelledError:
                yield [item async for item in ScriptedModel(["so"]).stream(asked)][-1]

    async def main():
        assert (await ask(Timeout(Deaf(), first_byte=5), request()))[1].message.text == "so"
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    clock.run(main())


@pytest.mark.anyio
async def test_closing_the_stream_early_closes_the_model():
    model = Model(0, 0, 0)
    stream = Timeout(model).stream(request())
    await anext(stream)
    await stream.aclose()
    assert model.closed == 1


@pytest.mark.parametrize("raw", [True, False])
def test_raw_chunks_change_no_deadline(raw):
    class Chatty(Model):
        async def stream(self, asked):
            for _ in range(14):
                await asyncio.sleep(10)
                if asked.raw:
                    yield RawDelta({"ping": True})
            yield TextDelta("late")

    async def main():
        chatty_request = request()
        chatty_request.raw = raw
        with pytest.raises(ModelError, match="did not begin to answer within 120 s"):
            await ask(Timeout(Chatty()), chatty_request)
        assert asyncio.get_running_loop().time() == 120

    clock.run(main())


@pytest.mark.anyio
async def test_failures_of_the_model_pass_through():
    error = await error_of(Timeout(ScriptedModel([fail(429, retry_after=3), text("never")])))
    assert (error.kind, error.retry_after, error.again_in) == ("rate_limit", 3, None)


@pytest.mark.parametrize("field", ["connect", "first_byte", "between", "total"])
@pytest.mark.parametrize("value", [0, -1, "5", True, float("nan"), float("inf")])
def test_an_invalid_deadline_is_refused_by_name(field, value):
    with pytest.raises(ConfigurationError, match=rf"Timeout: {field} must be a number above 0, or None, got"):
        Timeout(ScriptedModel([]), **{field: value})
