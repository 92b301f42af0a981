"""A thousand runs against a provider that comes and goes: rates, breakers and budgets hold, and every run ends."""

import asyncio
from bisect import bisect_left
from collections import Counter
from itertools import count

import pytest

from treadle import Agent, Limits, Runner, Usage, tool
from treadle.errors import ModelError
from treadle.models import (
    CircuitBreaker,
    OpenAIChat,
    RateLimit,
    Retry,
    ScriptedModel,
    Timeout,
    breakers,
    call,
    turn,
)
from treadle.testing import clock, provider
from treadle.testing.provider import ProviderServer

storms = count()


def loop_time():
    return asyncio.get_running_loop().time()


@tool(read_only=True)
def look() -> str:
    """Look around."""
    return "nothing"


class Flapping:
    """A provider that is down for a while and up for a while; while it is down it refuses, hangs or breaks off."""

    def __init__(self, down=20.0, up=20.0):
        self.name = f"storm{next(storms)}:model"
        self.period, self.down = down + up, down
        self.times: list[float] = []
        self.in_vain: list[float] = []
        self.by_task = Counter()
        self.under_way = 0

    async def stream(self, request):
        now = loop_time()
        self.times.append(now)
        self.by_task[request.task_id] += 1
        self.under_way += 1
        try:
            if now % self.period < self.down:
                self.in_vain.append(now)
                kind = len(self.in_vain) % 4
                if kind == 0:
                    await asyncio.sleep(3_600)
                if kind == 1:
                    raise ModelError("refused", kind="connection")
                if kind == 2:
                    raise ModelError("no", kind="server", status=503)
                async for item in ScriptedModel(lambda _: "Half an answer").stream(request):
                    yield item
                    raise ModelError("gone", kind="connection")
            await asyncio.sleep(0.2)
            answer = turn(
                "Done." if request.turn else "", [] if request.turn else [call("look")], usage=Usage(5, 5)
            )
            async for item in ScriptedModel(lambda _: answer).stream(request):
                yield item
        finally:
            self.under_way -= 1


def fullest(times, seconds):
    """Return the most of these moments in any stretch of so many seconds."""
    times = sorted(times)
    return max(bisect_left(times, time + seconds) - index for index, time in enumerate(times))


def breaker_of(service):
    [state] = [state for state in breakers() if state.service == service]
    return state


def stormed(runs, rate):
    """Let runs of two runners go through a storm; return the provider and how the runs ended."""
    model = Flapping()

    def agent(attempts):
        layered = Retry(
            RateLimit(
                CircuitBreaker(Timeout(model, first_byte=5), clock=loop_time),
                requests_per_second=rate,
                clock=loop_time,
            ),
            attempts=attempts,
            max_seconds=300,
        )
        return Agent(layered, name=f"a{attempts}", tools=[look], limits=Limits(model_calls=6))

    async def main():
        agents = agent(4), agent(3)
        async with clock.runner(agents=agents[:1]) as first, clock.runner(agents=agents[1:]) as two:
            ended = await asyncio.gather(
                *(
                    (first, two)[number % 2].run(agents[number % 2], "Go", task_id=f"t{number}")
                    for number in range(runs)
                )
            )
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert (breaker_of(agents[0].model.service).probes, model.under_way) == (0, 0)
        return ended

    return model, clock.run(main())


@pytest.mark.parametrize("runs", [120, pytest.param(1_000, marks=pytest.mark.full)])
def test_rates_breakers_and_budgets_hold_in_a_storm_and_every_run_ends(runs):
    model, ended = stormed(runs, rate=25)
    states = Counter(result.state for result in ended)
    assert set(states) <= {"completed", "failed", "degraded"}
    assert states["completed"] > runs / 2
    assert fullest(model.times, 1.0) <= 25
    for result in ended:
        assert model.by_task[result.task_id] == result.usage.model_calls <= 6
    known = [
        result for result in ended if not result.usage.estimated
    ]  # an answer that broke off is estimated
    assert known
    assert all(result.usage.total_tokens <= 10 * model.by_task[result.task_id] for result in known)
    # Both runners have one breaker: five failures open it, however many run, and then probes go, one by one.
    downs = [[time for time in model.in_vain if time // 40 == number] for number in range(100)]
    assert all(len(down) <= 20 for down in downs)


@pytest.mark.full
def test_the_server_gets_no_more_requests_than_configured_and_answers_every_run():
    stated, runs = 30, 150
    numbers = count()

    def answer(request):
        if 30 <= next(numbers) % 60 < 38:
            return provider.fail(503)
        return provider.text("Done.")

    with ProviderServer(answer, conversation=lambda request: request.time) as server:
        model = OpenAIChat("gpt-x", base_url=server.openai_base_url, api_key="secret")
        layered = Retry(
            RateLimit(CircuitBreaker(Timeout(model), open_for=1), requests_per_second=stated),
            attempts=8,
            cap=2,
        )
        agent = Agent(layered, limits=Limits(model_calls=10))

        async def main():
            async with Runner("memory:", agents=[agent]) as first, Runner("memory:", agents=[agent]) as two:
                assert (await first.run(agent, "Load what there is to load")).state == "completed"
                ended = await asyncio.gather(
                    *((first, two)[number % 2].run(agent, f"Go {number}") for number in range(runs))
                )
                assert breaker_of(layered.service).probes == 0
                return ended

        ended = asyncio.run(main())
        times = [request.time for request in server.requests]
    assert Counter(result.state for result in ended) == {"completed": runs}
    assert len(times) == sum(result.usage.model_calls for result in ended) + 1
    assert fullest(times, 1.0) <= stated
