"""Layers around a real client and a real server: a cancelled attempt closes its connection."""

import asyncio
import time

import pytest

from treadle import Agent, Runner, TextDelta
from treadle.errors import ModelError
from treadle.models import Anthropic, CircuitBreaker, Fallback, Hedge, OpenAIChat, Retry, Timeout
from treadle.testing.conformance.model import ask, request
from treadle.testing.provider import ProviderServer, fail, turn


def openai(server):
    return OpenAIChat("gpt-x", base_url=server.openai_base_url, api_key="secret")


def anthropic(server):
    return Anthropic("claude-x", base_url=server.anthropic_base_url, api_key="secret")


async def leaves_nothing(before):
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    for _ in range(50):
        if asyncio.all_tasks() <= before:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(asyncio.all_tasks() - before)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("made", [openai, anthropic])
@pytest.mark.anyio
async def test_a_deadline_closes_the_connection_to_the_server(made):
    before = asyncio.all_tasks()
    script = [turn("so it is", delay=30), turn("so it is and so it was", chunk_delay=0.6), "so"]
    with ProviderServer(lambda asked: script[len(server.requests) - 1]) as server:
        model = made(server)
        await model.prepare()
        began = time.monotonic()
        with pytest.raises(ModelError, match=r"did not begin to answer within 0\.3 s"):
            await ask(Timeout(model, first_byte=0.3), request())
        kinds = set()

        async def read():
            stream = Timeout(model, first_byte=20, between=0.3).stream(request())
            async for item in stream:
                kinds.add(type(item))

        with pytest.raises(ModelError, match=r"fell silent for 0\.3 s in the middle of its answer"):
            await read()
        assert kinds == {TextDelta}
        assert time.monotonic() - began < 25
        assert (await ask(Timeout(model), request()))[
            1
        ].message.text == "so"  # the client is as good as before
    await leaves_nothing(before)


@pytest.mark.anyio
async def test_a_hedge_closes_the_connection_of_the_slower_request():
    before = asyncio.all_tasks()
    script = [turn("slow", delay=30), "so it is"]
    with ProviderServer(lambda asked: script[len(server.requests) - 1]) as server:
        model = openai(server)
        await model.prepare()
        _, answer = await ask(Hedge(model, after=0.1), request())
        assert (answer.message.text, len(answer.also), len(server.requests)) == ("so it is", 1, 2)
    await leaves_nothing(before)


@pytest.mark.anyio
async def test_a_run_gets_its_answer_from_the_provider_that_works():
    with ProviderServer(lambda asked: "Here I am." if asked.wire == "anthropic" else fail(503)) as server:
        broken = Retry(
            CircuitBreaker(Timeout(openai(server)), failures=2, open_for=600), attempts=2, base=0.01
        )
        agent = Agent(Fallback([broken, Retry(Timeout(anthropic(server)))]))
        async with Runner("memory:", agents=[agent]) as runner:
            first, second = await runner.run(agent, "Hello?"), await runner.run(agent, "Hello?")
        assert (first.final_text, first.usage.model_calls) == ("Here I am.", 3)
        assert (second.final_text, second.usage.model_calls) == ("Here I am.", 1)  # its breaker is open
        assert [request.wire for request in server.requests] == ["openai", "openai", "anthropic", "anthropic"]
