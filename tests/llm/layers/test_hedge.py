"""A second request when the first is slow to begin: both are counted, one answers, both are closed."""

import asyncio

import pytest

from treadle import TextDelta
from treadle.core.model import RawDelta, SideCall, Usage
from treadle.core.tokens import estimated_usage
from treadle.errors import ConfigurationError, ModelError
from treadle.models import Hedge, OpenAIChat, ScriptedModel, Timeout, fail, text, turn
from treadle.testing import clock
from treadle.testing.conformance.model import ask, request

INPUT = estimated_usage(request(), None).input_tokens
"""Tokens of the request, estimated."""


class Model:
    """A model with a script for each request: turns and failures."""

    def __init__(self, *script, name="own:model"):
        self.name = name
        self.script = script
        self.asked = []
        self.under_way = 0

    async def stream(self, asked):
        item = self.script[min(len(self.asked), len(self.script) - 1)]
        self.asked.append(asked)
        self.under_way += 1
        try:
            async for each in ScriptedModel(lambda _: item).stream(asked):
                yield each
        finally:
            self.under_way -= 1


def hedged(model, **options):
    return Hedge(model, **{"after": 5, **options})


def run(work):
    async def main():
        await work()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    clock.run(main())


def test_a_model_that_begins_in_time_gets_one_request():
    model = Model(turn("so it is", delay=4.9, chunk=2, pause=10))

    async def work():
        deltas, answer = await ask(hedged(model), request())
        assert (len(deltas), answer.message.text, answer.also) == (3, "so it is", ())
        assert len(model.asked) == 1

    run(work)


def test_a_second_request_that_begins_sooner_answers_and_the_first_is_counted():
    model = Model(text("slow", delay=100), turn("so it is", delay=2, chunk=2, pause=10))

    async def work():
        deltas, answer = await ask(hedged(model), request())
        assert "".join(delta.text for delta in deltas) == answer.message.text == "so it is"
        assert asyncio.get_running_loop().time() == 27
        assert (answer.model, answer.also) == (
            "own:model",
            (SideCall("own:model", Usage(INPUT, 0, estimated=True)),),
        )
        assert model.under_way == 0

    run(work)


def test_a_first_request_that_begins_sooner_after_all_answers_and_the_second_is_counted():
    other = Model(text("slow", delay=100), name="own:other")
    model = Model(turn("so it is", delay=7, chunk=2, pause=10))

    async def work():
        _, answer = await ask(hedged(model, other=other), request())
        assert (answer.message.text, answer.model) == ("so it is", "")
        assert answer.also == (SideCall("own:other", Usage(INPUT, 0, estimated=True)),)
        assert (model.under_way, other.under_way, len(other.asked)) == (0, 0, 1)

    run(work)


def test_two_requests_that_begin_at_the_same_moment_give_one_answer():
    model = Model(text("first", delay=7), text("second", delay=2))

    async def work():
        deltas, answer = await ask(hedged(model), request())
        assert "".join(delta.text for delta in deltas) == answer.message.text
        assert len(answer.also) == 1

    run(work)


def test_a_first_request_that_fails_leaves_the_second_to_answer():
    model = Model(fail(503, delay=7), text("so it is", delay=4))

    async def work():
        _, answer = await ask(hedged(model), request())
        assert answer.message.text == "so it is"
        assert answer.also == (SideCall("own:model", Usage(), "scripted failure: 503"),)

    run(work)


def test_a_first_request_that_fails_before_a_second_is_sent_has_failed():
    model = Model(fail(503, delay=4))

    async def work():
        with pytest.raises(ModelError) as caught:
            await ask(hedged(model), request())
        assert (caught.value.status, caught.value.also, len(model.asked)) == (503, (), 1)

    run(work)


def test_a_second_request_that_fails_leaves_the_first_to_answer():
    model = Model(text("so it is", delay=20), fail(503, delay=1))

    async def work():
        _, answer = await ask(hedged(model), request())
        assert answer.message.text == "so it is"
        assert answer.also == (SideCall("own:model", Usage(), "scripted failure: 503"),)

    run(work)


@pytest.mark.parametrize("delays", [(7, 9), (20, 1)])
def test_when_both_requests_fail_one_failure_is_raised_and_both_are_counted(delays):
    model = Model(fail(503, delay=delays[0]), fail(500, delay=delays[1]))

    async def work():
        with pytest.raises(ModelError) as caught:
            await ask(hedged(model), request())
        error = caught.value
        assert {error.status, int(error.also[0].error[-3:])} == {500, 503}
        assert (len(error.also), error.also[0].usage) == (1, Usage())

    run(work)


def test_an_answer_that_breaks_off_counts_the_other_request_too():
    model = Model(text("slow", delay=100), fail(503, after="so", delay=1))

    async def work():
        with pytest.raises(ModelError) as caught:
            await ask(hedged(model), request())
        assert (caught.value.status, len(caught.value.also)) == (503, 1)
        model.asked.clear()
        model.script = (fail(500, after="so", delay=6), text("slow", delay=100))
        with pytest.raises(ModelError) as caught:
            await ask(hedged(model), request())
        assert (caught.value.status, len(caught.value.also)) == (500, 1)

    run(work)


@pytest.mark.parametrize(("spare", "requests", "left"), [(None, 2, None), (0, 1, None), (1, 2, 0), (7, 2, 6)])
def test_limits_decide_whether_there_is_a_second_request(spare, requests, left):
    model = Model(text("slow", delay=20), text("so", delay=1))

    async def work():
        first_request = request()
        first_request.spare_calls = spare
        await ask(hedged(model), first_request)
        assert len(model.asked) == requests
        assert requests == 1 or model.asked[1].spare_calls == left

    run(work)


@pytest.mark.parametrize("when", [0.1, 5.5, 6.5, 9])
def test_a_cancellation_ends_both_requests(when):
    model = Model(text("slow", delay=20), turn("so it is", delay=1, chunk=2, pause=10))

    async def work():
        task = asyncio.create_task(ask(hedged(model), request()))
        await asyncio.sleep(when)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert model.under_way == 0

    run(work)


def test_a_cancellation_at_the_moment_of_the_switch_is_not_lost():
    model = Model(text("slow", delay=20), text("so", delay=1))

    async def work():
        task = asyncio.create_task(ask(hedged(model), request()))
        asyncio.get_running_loop().call_later(6, task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert model.under_way == 0

    run(work)


@pytest.mark.parametrize("pause", [0, 10])
def test_closing_the_stream_early_leaves_nothing_behind(pause):
    async def work():
        for script in (
            [turn("so it is", delay=1, chunk=2, pause=pause)],
            [text("slow", delay=20), turn("so it is", delay=1, chunk=2, pause=pause)],
            [turn("so it is", delay=7, chunk=2, pause=pause), text("slow", delay=20)],
        ):
            model = Model(*script)
            stream = hedged(model).stream(request())
            assert isinstance(await anext(stream), TextDelta)
            await stream.aclose()
            assert model.under_way == 0

    run(work)


def test_deadlines_inside_and_outside_a_hedge_hold():
    async def work():
        model = Model(text("slow", delay=20), text("slow", delay=20))
        with pytest.raises(ModelError, match="within 8 s"):
            await ask(Timeout(hedged(model), first_byte=8), request())
        assert model.under_way == 0
        model = Model(text("slow", delay=20), text("so", delay=9))
        _, answer = await ask(hedged(Timeout(model, first_byte=10)), request())
        assert (answer.message.text, answer.also[0].error) == (
            "so",
            "own:model did not begin to answer within 10 s",
        )

    run(work)


@pytest.mark.parametrize("raw", [True, False])
def test_raw_chunks_do_not_count_as_the_beginning_of_an_answer(raw):
    class Chatty(Model):
        async def stream(self, asked):
            if asked.raw:
                yield RawDelta({"number": len(self.asked)})
            async for item in super().stream(asked):
                yield item

    async def work():
        for delays, expected, seen in (((20, 1), "second", 1), ((7, 20), "first", 0)):
            model = Chatty(text("first", delay=delays[0]), text("second", delay=delays[1]))
            first_request = request()
            first_request.raw = raw
            deltas, answer = await ask(hedged(model), first_request)
            assert answer.message.text == expected
            assert deltas == [*([RawDelta({"number": seen})] if raw else []), TextDelta(expected)]

    run(work)


def test_a_request_that_was_not_sent_is_not_counted():
    async def work():
        model = Model(fail(kind="not_sent", delay=7), text("so", delay=4))
        assert (await ask(hedged(model), request()))[1].also == ()

    run(work)


def test_arguments_are_checked_by_name():
    with pytest.raises(ConfigurationError, match=r"^Hedge: after must be a number above 0"):
        Hedge(OpenAIChat("a"), after=0)
    with pytest.raises(ConfigurationError, match=r"^Hedge: a model is a name"):
        Hedge(OpenAIChat("a"), after=1, other=7)  # pyright: ignore[reportArgumentType]
    assert repr(Hedge("openai:a", after=2.5, other="openai:b")) == (
        "Hedge(OpenAIChat('openai:a'), after=2.5, other=OpenAIChat('openai:b'))"
    )
