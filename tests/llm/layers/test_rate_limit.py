"""No sliding window sees more requests or tokens than configured; requests wait in order, or fail with their wait."""

import asyncio
import threading
from itertools import count, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.core.model import ModelSettings, Usage
from treadle.errors import ConfigurationError, ModelError
from treadle.llm.layers.rate_window import SlidingWindow
from treadle.models import OpenAIChat, RateLimit, ScriptedModel, Timeout, turn
from treadle.testing import clock
from treadle.testing.conformance.model import ask, request

accounts = count()


def loop_time():
    return asyncio.get_running_loop().time()


class Model:
    """A model that records when it is asked, and with which text."""

    def __init__(self, tokens=10, takes=0.0):
        self.name = f"limited{next(accounts)}:model"
        self.tokens = tokens
        self.takes = takes
        self.times = []
        self.who = []

    async def stream(self, asked):
        self.times.append(asyncio.get_running_loop().time())
        self.who.append(asked.task_id)
        answer = turn("so", usage=Usage(self.tokens, 0), delay=self.takes)
        async for item in ScriptedModel([answer]).stream(asked):
            yield item


def asked_by(name, asked_at=0):
    asked = request()
    asked.task_id, asked.asked_at = name, asked_at
    return asked


def most_within(times, seconds):
    """Return the most requests in any stretch of so many seconds."""
    times = sorted(times)
    return max(sum(begin <= time < begin + seconds for time in times) for begin in times)


@pytest.mark.parametrize("stated", [{"requests_per_second": 10}, {"requests_per_minute": 10}])
def test_no_sliding_window_sees_more_requests_than_configured(stated):
    model = Model()
    seconds = 1 if "requests_per_second" in stated else 60

    async def main():
        limited = RateLimit(model, clock=loop_time, hold=10_000, **stated)
        await asyncio.gather(*(ask(limited, request()) for _ in range(30)))
        await asyncio.sleep(0.99 * seconds)
        await asyncio.gather(*(ask(limited, request()) for _ in range(30)))
        assert most_within(model.times, seconds) == 10
        assert model.times[-1] < 8 * seconds  # and it is not slower than it has to be

    clock.run(main())


def test_limits_per_second_and_per_minute_hold_together():
    model = Model()

    async def main():
        limited = RateLimit(
            model, clock=loop_time, hold=10_000, requests_per_second=3, requests_per_minute=20
        )
        await asyncio.gather(*(ask(limited, request()) for _ in range(50)))
        assert (most_within(model.times, 1), most_within(model.times, 60)) == (3, 20)

    clock.run(main())


@settings(max_examples=50)
@given(st.lists(st.tuples(st.floats(0, 3), st.integers(1, 8)), max_size=40), st.integers(1, 10))
def test_a_window_never_exceeds_its_limit_and_predicts_the_wait(steps, most):
    window, now, passed = SlidingWindow(most, 1.0), 0.0, []
    for pause, amount in steps:
        now += pause
        now += window.wait(now, amount) + 1e-9
        assert window.wait(now, amount) == 0
        window.add(now, amount)
        passed.append((now, amount))
        for begin, _ in passed:
            within = [amount for time, amount in passed if begin <= time < begin + 1]
            assert sum(within) <= most or len(within) == 1


def test_requests_pass_in_the_order_in_which_their_calls_began():
    model = Model()

    async def main():
        limited = RateLimit(model, clock=loop_time, requests_per_second=1)
        await ask(limited, asked_by("first"))
        waiting = [
            asyncio.create_task(ask(limited, asked_by(name, at)))
            for name, at in (("c", 30), ("b", 20), ("d", 30), ("a", 10))
        ]
        await asyncio.gather(*waiting)
        assert model.who == ["first", "a", "b", "c", "d"]

    clock.run(main())


def test_a_request_that_would_wait_too_long_fails_with_its_wait_and_leaves_the_queue():
    model = Model()

    async def main():
        limited = RateLimit(model, clock=loop_time, requests_per_second=2, hold=3)
        results = await asyncio.gather(*(ask(limited, request()) for _ in range(20)), return_exceptions=True)
        refused = [result for result in results if isinstance(result, ModelError)]
        assert (len(refused), len(model.times)) == (14, 6)
        assert {error.kind for error in refused} == {"not_sent"}
        assert all(3 < error.again_in < 5 for error in refused)
        assert "its turn comes in about" in str(refused[0])
        await asyncio.sleep(refused[0].again_in)
        assert limited.ready_in() == 0

    clock.run(main())


def test_ready_in_includes_the_queue():
    async def main():
        limited = RateLimit(Model(), clock=loop_time, requests_per_minute=2, hold=1_000)
        waiting = [asyncio.create_task(ask(limited, request())) for _ in range(5)]
        await asyncio.sleep(0)
        await asyncio.sleep(10)
        assert limited.ready_in() == 0  # it would be held
        short = RateLimit(limited.model, clock=loop_time, requests_per_minute=2, hold=1)
        assert short.ready_in() == pytest.approx(60.05 * 2 - 10)
        await asyncio.gather(*waiting)

    clock.run(main())


def test_a_cancelled_waiter_leaves_the_queue():
    model = Model()

    async def main():
        limited = RateLimit(model, clock=loop_time, requests_per_second=1)
        await ask(limited, request())
        cancelled = [asyncio.create_task(ask(limited, request())) for _ in range(20)]
        last = asyncio.create_task(ask(limited, asked_by("last")))
        await asyncio.sleep(0.5)
        for task in cancelled:
            task.cancel()
        await asyncio.wait(cancelled)
        await last
        assert model.who[1:] == ["last"]
        assert loop_time() == pytest.approx(1.05)

    clock.run(main())


def test_a_waiter_cancelled_at_the_moment_of_its_turn_passes_the_turn_on():
    model = Model()

    async def main():
        limited = RateLimit(model, clock=loop_time, requests_per_second=1)
        await ask(limited, request())
        cancelled = asyncio.create_task(ask(limited, request()))
        last = asyncio.create_task(ask(limited, asked_by("last")))
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(1.05, cancelled.cancel)
        await asyncio.wait([cancelled])
        assert cancelled.cancelled()
        await last
        assert loop_time() == pytest.approx(1.05)

    clock.run(main())


@pytest.mark.parametrize("stands_still", [0.3, 0.6, 1.2, 3])
def test_a_request_counts_from_the_moment_it_passes_even_if_its_event_loop_was_blocked(stands_still):
    lost = [0.0]
    moments = []

    def now():
        return loop_time() + lost[0]

    def stand_still():
        lost[0] += stands_still

    class Timed(Model):
        async def stream(self, asked):
            moments.append(now())
            async for item in super().stream(asked):
                yield item

    async def main():
        limited = RateLimit(Timed(), clock=now, requests_per_second=2)
        waiting = [asyncio.create_task(ask(limited, request())) for _ in range(12)]
        for number in range(1, 6):  # as the next one is called
            asyncio.get_running_loop().call_later(0.525 * number, stand_still)
        await asyncio.gather(*waiting)
        assert all(later - earlier >= 0.5 for earlier, later in pairwise(moments)), moments

    clock.run(main())


def test_tokens_are_estimated_before_and_corrected_after():
    model = Model(tokens=1_000)
    large = request(settings=ModelSettings(max_tokens=4_000))

    async def main():
        limited = RateLimit(model, clock=loop_time, tokens_per_minute=10_000, hold=1_000)
        await asyncio.gather(*(ask(limited, large) for _ in range(6)))
        # Two requests fit at first; a request that costs less than reserved makes room for the next at once.
        assert loop_time() < 1
        await ask(limited, large)
        assert loop_time() == pytest.approx(60.05)

    clock.run(main())


def test_a_request_larger_than_the_limit_passes_alone():
    model = Model(tokens=5_000)
    large = request(settings=ModelSettings(max_tokens=4_000))

    async def main():
        limited = RateLimit(model, clock=loop_time, tokens_per_minute=100, hold=1_000)
        await asyncio.gather(*(ask(limited, large) for _ in range(3)))
        assert model.times == pytest.approx([0, 60.05, 120.1])

    clock.run(main())


@pytest.mark.anyio
async def test_limits_of_an_account_are_shared_by_all_threads_and_loops():
    model = Model()
    moments = []

    class Timed(Model):
        name = model.name

        async def stream(self, asked):
            moments.append(asyncio.get_running_loop().time())
            async for item in ScriptedModel(["so"]).stream(asked):
                yield item

    def work():
        async def main():
            timed = Timed()
            timed.name = model.name
            await asyncio.gather(
                *(ask(RateLimit(timed, requests_per_second=30), request()) for _ in range(9))
            )

        asyncio.run(main())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    await asyncio.to_thread(lambda: [thread.join() for thread in threads])
    assert len(moments) == 36
    assert most_within(moments, 1) <= 30


@pytest.mark.anyio
async def test_the_queue_moves_on_when_the_event_loop_of_a_waiter_was_closed():
    model = Model()
    limited = RateLimit(model, requests_per_second=3, hold=20)
    await ask(limited, request())
    loop = asyncio.new_event_loop()

    def stop_midway():
        task = loop.create_task(ask(limited, asked_by("dead")))
        loop.call_later(0.05, loop.stop)
        loop.run_forever()
        task._log_destroy_pending = False
        loop.close()
        return task

    dead = await asyncio.to_thread(stop_midway)
    await ask(limited, asked_by("alive", 1))
    assert model.who[1:] == ["alive"]
    assert not dead.done()


@pytest.mark.anyio
async def test_packages_of_the_first_request_are_loaded_before_its_turn():
    class Cold(Model):
        loaded = False

        async def prepare(self):
            await asyncio.sleep(0.01)
            self.loaded = True

        async def stream(self, asked):
            assert self.loaded
            async for item in super().stream(asked):
                yield item

    model = Cold()
    await ask(RateLimit(Timeout(model), requests_per_second=100), request())
    assert len(model.times) == 1


def test_a_request_that_an_inner_layer_refuses_uses_no_slot():
    model = Model()
    ready = [0.0]

    class Resting(Model):
        def ready_in(self):
            return ready[0]

        async def stream(self, asked):
            if asked.task_id == "refused":
                raise ModelError("not now", kind="not_sent", retry_after=3)
            async for item in model.stream(asked):
                yield item

    async def main():
        limited = RateLimit(Resting(), clock=loop_time, requests_per_second=1)
        with pytest.raises(ModelError, match="not now"):
            await ask(limited, asked_by("refused"))
        await ask(limited, request())
        assert model.times == [0.0]
        ready[0] = 7.0
        with pytest.raises(ModelError, match=r"takes no requests for 7\.0 s more") as caught:
            await ask(limited, request())  # and does not stand in line for that
        assert (caught.value.kind, caught.value.retry_after, loop_time()) == ("not_sent", 7, 0)
        assert limited.ready_in() == 7

    clock.run(main())


def test_accounts_differ_by_their_key_which_is_not_shown():
    limited = RateLimit(OpenAIChat("a", api_key="secret-one"), requests_per_second=1)
    two = RateLimit(OpenAIChat("b", api_key="secret-two"), requests_per_second=1)
    assert limited.account != two.account
    assert limited.account == RateLimit(OpenAIChat("b", api_key="secret-one"), requests_per_second=1).account
    assert "secret" not in limited.account
    assert "secret" not in repr(limited)
    assert repr(limited) == "RateLimit(OpenAIChat('openai:a'), requests_per_second=1, hold=30)"


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ({}, "set at least one of requests_per_second, requests_per_minute, tokens_per_minute"),
        ({"requests_per_second": 0}, "requests_per_second must be a whole number"),
        ({"requests_per_minute": 1.5}, "requests_per_minute must be a whole number"),
        ({"tokens_per_minute": -5}, "tokens_per_minute must be a whole number"),
        ({"requests_per_second": 1, "hold": -1}, "hold must be a number, 0 or more"),
        ({"requests_per_second": 1, "clock": 1}, "clock must be a function"),
    ],
)
def test_arguments_are_checked_by_name(argument, said):
    with pytest.raises(ConfigurationError, match=f"^RateLimit: {said}"):
        RateLimit(ScriptedModel([]), **argument)
