"""All layers together: an answer passes unchanged, a cancellation passes at any moment, and nothing is left behind."""

import asyncio
from itertools import count

import pytest

from treadle import Agent, Limits, ScriptedModel
from treadle.errors import ModelError
from treadle.models import (
    Cache,
    CircuitBreaker,
    Fallback,
    Hedge,
    RateLimit,
    Retry,
    Timeout,
    breakers,
    fail,
    text,
    turn,
)
from treadle.testing import clock
from treadle.testing.conformance.model import ask, request

stacks = count()


def loop_time():
    return asyncio.get_running_loop().time()


class Model:
    """A model that counts its running requests."""

    def __init__(self, *script, name=None):
        self.name = name or f"stack{next(stacks)}:model"
        self.script = ScriptedModel(lambda _: script[min(self.asked, len(script)) - 1])
        self.asked = self.under_way = 0

    async def stream(self, asked):
        self.asked += 1
        self.under_way += 1
        try:
            async for item in self.script.stream(asked):
                yield item
        finally:
            self.under_way -= 1


def stack(model, other=None):
    def layered(model):
        calm = CircuitBreaker(Timeout(model, first_byte=50), failures=1, open_for=1, clock=loop_time)
        return Retry(Hedge(RateLimit(calm, requests_per_second=1, clock=loop_time), after=2))

    return Cache(Fallback([layered(model), layered(other or Model(text("never")))]))


def probes(model):
    return sum(state.probes for state in breakers() if state.service == model.name.partition(":")[0])


def test_an_answer_passes_through_all_layers_unchanged():
    model = Model(turn("so it is, and so it was", reasoning="why", chunk=4))

    async def main():
        deltas, answer = await ask(stack(model), request())
        plain, bare = await ask(
            ScriptedModel([turn("so it is, and so it was", reasoning="why", chunk=4)]), request()
        )
        assert deltas == plain
        assert (answer.message, answer.finish, answer.usage) == (bare.message, bare.finish, bare.usage)
        assert (answer.model, answer.also) == (model.name, ())

    clock.run(main())


def test_an_answer_in_time_creates_no_asyncio_task_in_any_layer():
    tasks_made = []

    def factory(loop, work, **options):
        tasks_made.append(work)
        return asyncio.Task(work, loop=loop, **options)

    async def main():
        model = stack(Model(turn("so it is", delay=1, chunk=2, pause=1)))
        asyncio.get_running_loop().set_task_factory(factory)
        await ask(model, request())
        assert tasks_made == []

    clock.run(main())


async def leaves_nothing(model):
    for _ in range(5):
        await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert (model.under_way, probes(model)) == (0, 0)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("is_probe", [True, False])
@pytest.mark.parametrize("after", [0, 0.5, 1, 1.06, 2, 2.5, 3, 4, 5])
def test_a_cancellation_at_any_moment_passes_through_all_layers_and_leaves_nothing(after, is_probe):
    """Before the first delta, while a hedge waits and runs, between deltas, at the end."""

    async def cancelled(ticks):
        slow = turn("so it is", delay=3, chunk=2, pause=1)
        model = Model(*([fail(503)] if is_probe else []), slow, slow, text("so", delay=0.1))
        layered = stack(model)
        if is_probe:
            with pytest.raises(ModelError):
                await ask(layered, request())
            await asyncio.sleep(2)
        task = asyncio.create_task(ask(layered, request()))
        await asyncio.sleep(after)
        for _ in range(ticks):
            await asyncio.sleep(0)
        if done := task.done():
            return True
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await leaves_nothing(model)
        return done

    async def main():
        for ticks in range(30):
            if await cancelled(ticks):
                break

    clock.run(main())


@pytest.mark.parametrize("items", range(5))
def test_closing_the_stream_after_any_delta_leaves_nothing(items):
    async def main():
        model = Model(turn("so it is", delay=1, chunk=2, pause=1))
        stream = stack(model).stream(request())
        for _ in range(items):
            await anext(stream, None)
        await stream.aclose()
        await leaves_nothing(model)

    clock.run(main())


def test_the_repr_of_the_stack_shows_all_arguments():
    model = Model(name="own:model")
    assert repr(stack(Retry(model))).count("ModelError") == 0
    shown = repr(Agent(stack(ScriptedModel([]))).model)
    for part in (
        "Cache(Fallback([Retry(Hedge(RateLimit(CircuitBreaker(Timeout(ScriptedModel('scripted'), ",
        "after=2",
    ):
        assert part in shown


def test_a_run_falls_back_after_streaming_began_and_streams_the_final_text_once():
    first = Model(fail(503, after="Half an ans"))
    second = Model(text("The whole answer."))

    async def main():
        agent = Agent(Fallback([first, second]), limits=Limits(model_calls=5))
        async with clock.runner(agents=[agent]) as runner:
            result = await runner.run(agent, "Go")
        assert (result.state, result.final_text) == ("completed", "The whole answer.")
        assert (result.usage.model_calls, first.asked, second.asked) == (2, 1, 1)

    clock.run(main())


def test_a_run_waits_for_an_open_breaker_without_spending_calls():
    model = Model(fail(503), text("Here I am."))

    async def main():
        calm = CircuitBreaker(model, failures=1, open_for=20, clock=loop_time)
        agent = Agent(Retry(calm), limits=Limits(model_calls=2))
        async with clock.runner(agents=[agent]) as runner:
            result = await runner.run(agent, "Go")
        assert (result.state, result.final_text) == ("completed", "Here I am.")
        assert (result.usage.model_calls, model.asked) == (2, 2)
        assert loop_time() >= 20

    clock.run(main())


def test_a_probe_whose_stream_ends_without_an_answer_is_released():
    class Twice(Model):
        async def stream(self, asked):
            async for item in super().stream(asked):
                yield item
            if self.asked > 1:
                yield item

    async def main():
        model = Twice(fail(503), text("so"))
        calm = CircuitBreaker(model, failures=1, open_for=20, clock=loop_time)
        async with clock.runner() as runner:
            assert (await runner.run(Agent(calm), "Go")).state == "failed"
            await asyncio.sleep(20)
            result = await runner.run(Agent(calm), "Go")
            assert (result.state, "answered twice" in result.error.message) == ("failed", True)
            assert (probes(model), model.under_way) == (0, 0)

    clock.run(main())


def test_requests_of_a_hedge_are_counted_against_the_limits():
    model = Model(text("slow", delay=100), text("slow", delay=50), text("third"))

    async def main():
        agent = Agent(Hedge(model, after=1), limits=Limits(model_calls=2))
        async with clock.runner(agents=[agent]) as runner:
            result = await runner.run(agent, "Go")
        assert (result.state, result.final_text, result.usage.model_calls) == ("completed", "slow", 2)
        assert result.usage.estimated
        agent = Agent(Hedge(Model(text("slow", delay=100)), after=1), limits=Limits(model_calls=1))
        async with clock.runner(agents=[agent]) as runner:
            assert (await runner.run(agent, "Go")).usage.model_calls == 1

    clock.run(main())
