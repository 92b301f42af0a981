"""A server that drops tools without an error, as llama.cpp may, ended a task that had to call one."""

import logging

import pytest

from treadle import Agent, ModelSettings, Runner, ScriptedModel, tool
from treadle.models import call

pytestmark = pytest.mark.anyio


@tool(read_only=True)
def stock(item: str) -> int:
    """Count an item."""
    return 3


@pytest.mark.parametrize(
    ("choice", "answers", "logged"),
    [
        ("required", ["Enough."], True),
        ("stock", ["Enough."], True),
        ("required", [call("stock", item="tea"), "Three."], False),
        ("auto", ["Enough."], False),
        ("none", ["Enough."], False),
        (None, ["Enough."], False),
    ],
)
async def test_an_answer_without_the_demanded_call_is_logged(
    choice: str | None, answers: list[object], logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    agent = Agent(
        ScriptedModel(answers), name="clerk", tools=[stock], model_settings=ModelSettings(tool_choice=choice)
    )
    with caplog.at_level(logging.WARNING, logger="treadle.tasks"):
        async with Runner("memory:") as runner:
            result = await runner.run(agent, "How much tea?")
    assert result.state == "completed"
    records = [record for record in caplog.records if getattr(record, "event", "") == "ignored_choice"]
    assert len(records) == logged
    if logged:
        assert f"although tool_choice={choice!r} demands it" in records[0].getMessage()
