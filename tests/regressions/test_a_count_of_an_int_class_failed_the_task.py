"""A model that reported token counts as members of an `IntEnum`, or of another class of `int`, failed its task."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import pytest

from treadle import Agent, Runner, ScriptedModel, Usage
from treadle.errors import ModelError
from treadle.llm.scripted import turn

pytestmark = pytest.mark.anyio


class Tokens(IntEnum):
    READ = 10
    WRITTEN = 2


class Count(int):
    """As numbers of other libraries are; what it converts itself to does not matter."""

    def __int__(self) -> int:
        return -1


@pytest.mark.parametrize(
    "counts", [(Tokens.READ, Tokens.WRITTEN), (Count(10), Count(2))], ids=["enum", "class"]
)
async def test_counts_of_a_class_derived_from_int_are_taken_as_whole_numbers(
    store: Any, counts: tuple[int, int]
) -> None:
    agent = Agent(ScriptedModel([turn("hi", usage=Usage(*counts))]), name="a")
    async with Runner(store) as runner:
        result = await runner.run(agent, "go", task_id="t")
    assert (result.state, result.usage.input_tokens, result.usage.output_tokens) == ("completed", 10, 2)
    async with Runner(store) as reader:
        stored = await reader.result("t")
    assert (stored.usage, type(result.usage.input_tokens)) == (result.usage, int)


async def test_such_counts_of_a_failed_request_are_recorded(store: Any) -> None:
    class Broken:
        name = "broken"

        async def stream(self, request: Any) -> Any:
            raise ModelError("no", kind="refused", usage=Usage(Tokens.READ, Tokens.WRITTEN))
            yield

    async with Runner(store) as runner:
        result = await runner.run(Agent(Broken(), name="a"), "go")
    assert (result.state, result.usage.input_tokens, result.usage.output_tokens) == ("failed", 10, 2)
