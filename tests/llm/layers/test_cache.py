"""The same request gets the cached answer at no cost; any difference makes another request."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from treadle import Agent, ModelAnswer, ModelSettings, Runner, RunOptions, ScriptedModel, ToolSpec, Usage
from treadle.core.messages import Message, Reasoning, Text, ToolCall, user
from treadle.core.model import NO_USAGE, ReasoningDelta, TextDelta, ToolCallDelta
from treadle.errors import ConfigurationError, ModelError
from treadle.models import Cache, OpenAIChat, call, fail, text, turn
from treadle.testing.conformance.model import ask, request


@pytest.mark.anyio
async def test_a_repeated_request_is_answered_from_the_cache_at_no_cost():
    model = ScriptedModel([turn("Let me see.", [call("add", a=1, b=[2])], reasoning="sums")])
    cached = Cache(model)
    _, first = await ask(cached, request())
    second_answer = request()
    second_answer.task_id, second_answer.step, second_answer.attempt, second_answer.asked_at = (
        "other",
        "s9",
        4,
        12,
    )
    deltas, second = await ask(cached, second_answer)
    assert len(model.requests) == 1
    assert (second.message, second.finish) == (first.message, "tool_calls")
    assert first.usage.total_tokens > 0
    assert second.usage == Usage()
    assert second.usage is not NO_USAGE  # which answer would repeat is undefined
    assert deltas == [
        ReasoningDelta("sums"),
        TextDelta("Let me see."),
        ToolCallDelta(0, "add", '{"a": 1, "b": [2]}'),
    ]


@pytest.mark.anyio
async def test_a_cached_answer_cannot_be_changed_by_its_receiver():
    cached = Cache(ScriptedModel([call("add", a=[1])]))
    for _ in range(3):
        _, answer = await ask(cached, request())
        assert answer.message.tool_calls[0].arguments == {"a": [1]}
        answer.message.tool_calls[0].arguments["a"].append(2)


def changed(**fields):
    changed_request = request()
    for name, value in fields.items():
        setattr(changed_request, name, value)
    return changed_request


@pytest.mark.parametrize(
    "other",
    [
        request(user("What is 1 + 3?")),
        request(user("What is 1 + 2?", "Quick.")),
        request(Message("system", (Text("What is 1 + 2?"),))),
        request(Message("user", (Text("What is 1 + 2?", {"cache": True}),))),
        request(Message("user", (Reasoning("What is 1 + 2?"),))),
        request(Message("assistant", (ToolCall("c", "add", {"a": 1}),))),
        request(settings=ModelSettings(temperature=0)),
        request(settings=ModelSettings(extra={"seed": 1})),
        request(settings=ModelSettings(extra={"seed": True})),
        changed(instructions="Be quick."),
        changed(tools=()),
        changed(tools=(ToolSpec(name="add", description="sums"),)),
        changed(tool_choice="none"),
        changed(output_schema={"type": "object"}),
    ],
)
@pytest.mark.anyio
async def test_every_difference_makes_another_cache_key(other):
    model = ScriptedModel(lambda _: "so")
    cached = Cache(model)
    await ask(cached, request())
    await ask(cached, request(settings=ModelSettings(extra={"seed": 1.0})))
    before = len(model.requests)
    await ask(cached, other)
    assert len(model.requests) == before + 1


@pytest.mark.parametrize(
    "answer",
    [turn("cut", finish="length"), turn("no", finish="refusal"), turn("", [call("a")], finish="length")],
)
@pytest.mark.anyio
async def test_only_whole_answers_are_cached(answer):
    model = ScriptedModel([answer])
    cached = Cache(model)
    await ask(cached, request())
    await ask(cached, request())
    assert len(model.requests) == 2


@pytest.mark.anyio
async def test_failures_and_abandoned_answers_are_not_cached():
    model = ScriptedModel([fail(503), text("so it is", chunk=2)])
    cached = Cache(model)
    with pytest.raises(ModelError):
        await ask(cached, request())
    stream = cached.stream(request(attempt=2))
    await anext(stream)
    await stream.aclose()
    assert isinstance((await ask(cached, request(attempt=2)))[1], ModelAnswer)
    assert len(model.requests) == 3


@pytest.mark.anyio
async def test_the_cache_is_bounded_and_evicts_the_least_recently_used_answer():
    model = ScriptedModel(lambda _: "so")
    cached = Cache(model, entries=2)
    for prompt in ("a", "b", "a", "c", "a", "b"):
        await ask(cached, request(user(prompt)))
    assert [request.messages[0].text for request in model.requests] == ["a", "b", "c", "b"]


@pytest.mark.anyio
async def test_a_cached_answer_expires():
    now = [0.0]
    model = ScriptedModel(lambda _: "so")
    cached = Cache(model, seconds=10, clock=lambda: now[0])
    await ask(cached, request())
    now[0] = 9.9
    await ask(cached, request())
    now[0] = 10
    await ask(cached, request())
    assert len(model.requests) == 2


def test_arguments_are_checked_by_name():
    with pytest.raises(ConfigurationError, match=r"^Cache: entries must be a whole number"):
        Cache(OpenAIChat("a"), entries=0)
    with pytest.raises(ConfigurationError, match=r"^Cache: seconds must be a number above 0, or None"):
        Cache(OpenAIChat("a"), seconds=0)
    with pytest.raises(ConfigurationError, match=r"^Cache: clock must be a function"):
        Cache(OpenAIChat("a"), clock=1)  # pyright: ignore[reportArgumentType]
    assert repr(Cache(OpenAIChat("a"))) == "Cache(OpenAIChat('openai:a'), entries=1000, seconds=None)"


# ------------------------------------------------------------------------------------- at the same time


@pytest.mark.anyio
async def test_of_equal_requests_at_the_same_time_one_is_sent():
    model = ScriptedModel(lambda _: text("Hello.", delay=0.01))
    cached = Cache(model)
    answers = await asyncio.gather(*(ask(cached, request()) for _ in range(20)))
    assert len(model.requests) == 1
    assert {answer.message.text for _, answer in answers} == {"Hello."}
    assert sum(answer.usage.total_tokens > 0 for _, answer in answers) == 1
    assert all(deltas == [TextDelta("Hello.")] for deltas, _ in answers)


@pytest.mark.anyio
@pytest.mark.parametrize("ending", ["failed", "cut"])
async def test_without_an_answer_that_can_be_cached_each_request_is_sent(ending):
    item = fail(503, delay=0.01) if ending == "failed" else turn("Half", finish="length", delay=0.01)
    model = ScriptedModel(lambda _: item)
    cached = Cache(model)
    results = await asyncio.gather(*(ask(cached, request()) for _ in range(5)), return_exceptions=True)
    assert len(model.requests) == 5
    assert all(isinstance(result, ModelError) == (ending == "failed") for result in results)
    assert cached._sent == {}


@pytest.mark.anyio
async def test_a_request_that_is_cancelled_neither_holds_nor_takes_down_the_others():
    model = ScriptedModel(lambda _: text("Hello.", delay=0.02))
    cached = Cache(model)
    tasks = [asyncio.create_task(ask(cached, request())) for _ in range(4)]
    await asyncio.sleep(0.005)
    tasks[0].cancel()
    tasks[1].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(result, asyncio.CancelledError) for result in results] == [True, True, False, False]
    assert len(model.requests) <= 3
    assert cached._sent == {}


def test_requests_of_several_event_loops_share_one_answer():
    model = ScriptedModel(lambda _: text("Hello.", delay=0.2))
    cached = Cache(model)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: asyncio.run(ask(cached, request()))[1], range(4)))
    assert {answer.message.text for answer in answers} == {"Hello."}
    assert len(model.requests) == 1


@pytest.mark.anyio
async def test_a_request_that_does_not_use_the_cache_is_asked_again_and_replaces_the_cached_answer():
    model = ScriptedModel(lambda _: f"answer {len(model.requests)}")
    cached = Cache(model)
    past_the_cache = request(settings=ModelSettings(use_cache=False))
    answers = [await ask(cached, each) for each in (request(), past_the_cache, request())]
    assert [answer.message.text for _, answer in answers] == ["answer 1", "answer 2", "answer 2"]


@pytest.mark.anyio
async def test_one_run_asks_past_the_cache_of_its_agent(store):
    model = ScriptedModel(lambda _: f"answer {len(model.requests)}")
    agent = Agent(Cache(model))
    fresh = RunOptions(model_settings=ModelSettings(use_cache=False))
    async with Runner(store) as runner:
        results = [await runner.run(agent, "Hello", options=each) for each in (None, fresh, None)]
    assert [result.final_text for result in results] == ["answer 1", "answer 2", "answer 2"]
