"""A count or status that no reader takes was recorded as a model reported it, and the task could not be read again."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from treadle import Agent, Limits, Runner, RunOptions, ScriptedModel, Usage, events
from treadle.core.codec import UnreadableRecord
from treadle.core.model_answer import MAX_TOKENS
from treadle.engine.journal_writer import encode_record
from treadle.llm.providers import Anthropic, Google, OpenAIChat
from treadle.llm.scripted import fail, turn
from treadle.testing.provider import ProviderServer
from treadle.testing.provider import turn as provider_turn

pytestmark = pytest.mark.anyio

COUNTS = [item.name for item in fields(Usage) if item.name.endswith("_tokens")]


async def check_readable(store: Any, task: str) -> Any:
    """Return the stored result of a task that every reader takes, in a process that has not driven it."""
    async with Runner(store) as reader:
        assert (await reader.verify()).findings == ()
        await reader.get_task(task)
        assert [event async for event in reader.handle(task).events(deltas=False)]
        return await reader.result(task)


@pytest.mark.parametrize(
    ("count", "amount"),
    [*[(count, 2**63) for count in COUNTS], ("input_tokens", MAX_TOKENS + 1), (COUNTS[1], -1)],
)
async def test_a_count_that_no_reader_takes_fails_the_request_and_the_task_stays_readable(
    store: Any, count: str, amount: int
) -> None:
    usage = Usage(**{"input_tokens": 10, "output_tokens": 1, count: amount})
    agent = Agent(ScriptedModel([turn("hi", usage=usage)]), name="a")
    async with Runner(store) as runner:
        result = await runner.run(agent, "go", task_id="t")
    assert result.state == "failed"
    assert "whole numbers from 0 to" in str(result.error)
    assert (await check_readable(store, "t")).error == result.error


@pytest.mark.parametrize("status", [10**30, -(2**63)])
async def test_a_status_that_no_reader_takes_fails_the_request_and_the_task_stays_readable(
    store: Any, status: int
) -> None:
    agent = Agent(ScriptedModel([fail(status, kind="refused", message="no")]), name="a")
    async with Runner(store) as runner:
        result = await runner.run(agent, "go", task_id="t")
    assert result.state == "failed"
    assert "status should be a whole number" in str(result.error)
    assert (await check_readable(store, "t")).error == result.error


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("wire", ["openai", "anthropic", "google"])
@pytest.mark.sampled(4)
async def test_counts_of_a_provider_that_cannot_be_are_estimated_and_flagged(
    store: Any, wire: str, stream: bool
) -> None:
    with ProviderServer([provider_turn("hi", usage=Usage(10**19, 1))]) as server:
        model: Any = {
            "openai": lambda: OpenAIChat("m", base_url=server.openai_base_url, api_key="k", stream=stream),
            "anthropic": lambda: Anthropic(
                "m", base_url=server.anthropic_base_url, api_key="k", stream=stream
            ),
            "google": lambda: Google("m", base_url=server.google_base_url, api_key="k", stream=stream),
        }[wire]()
        async with Runner(store) as runner:
            result = await runner.run(Agent(model, name="a"), "go", task_id="t")
    assert (result.state, result.final_text, result.usage.estimated) == ("completed", "hi", True)
    assert result.usage.input_tokens < 100
    assert (await check_readable(store, "t")).final_text == "hi"


async def test_a_negative_count_does_not_give_a_limit_back(store: Any) -> None:
    agent = Agent(ScriptedModel([turn("hi", usage=Usage(-1_000_000, 1))]), name="a")
    options = RunOptions(limits=Limits(tokens=5_000))
    async with Runner(store) as runner:
        result = await runner.run(agent, "go", task_id="t", options=options)
    assert (result.state, result.usage.total_tokens) == ("failed", 0)


def test_a_writer_refuses_an_event_that_no_reader_takes() -> None:
    failure = events.Failure("model", "refused", "no", status=2**63)
    with pytest.raises(UnreadableRecord, match=r"a model_failed event cannot be written: status should be"):
        encode_record([events.ModelFailed("s1", failure, seq=1, time=1)], 1, b"")
