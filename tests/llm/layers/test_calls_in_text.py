"""`CallsInText`: answers that are calls written as text are read as calls, and all else is passed on as it came."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from treadle import Agent, Runner, ScriptedModel, tool
from treadle.core.messages import Message, Text
from treadle.core.model import (
    ModelAnswer,
    ModelDelta,
    ModelRequest,
    ModelSettings,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)
from treadle.core.tools import ToolSpec
from treadle.models import CallsInText

pytestmark = pytest.mark.anyio

CALL = '{"name": "add", "arguments": {"a": 1, "b": 2}}'


@tool(read_only=True)
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


class Pieces:
    """A model that streams a text in pieces of three characters."""

    name = "pieces"

    def __init__(self, answer: str, finish: Any = "stop") -> None:
        self.answer, self.finish = answer, finish

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelAnswer]:
        yield ReasoningDelta("hm")
        for start in range(0, len(self.answer), 3):
            yield TextDelta(self.answer[start : start + 3])
        yield ModelAnswer(Message("assistant", (Text(self.answer),)), self.finish)


async def items(answer: str, finish: Any = "stop", tools: tuple[str, ...] = ("add",)) -> list[Any]:
    specs = tuple([ToolSpec(name=name) for name in tools])
    request = ModelRequest((), "", specs, "auto", ModelSettings(), "t", "s1", 0, 1)
    return [item async for item in CallsInText(Pieces(answer, finish)).stream(request)]


def streamed(seen: list[Any]) -> str:
    return "".join(item.text for item in seen if isinstance(item, TextDelta))


@pytest.mark.parametrize("answer", [CALL, f"<tool_call>{CALL}</tool_call>", f"```json\n{CALL}\n```"])
async def test_a_call_in_text_is_a_call_and_none_of_it_was_streamed_as_text(answer: str):
    seen = await items(answer)
    (call,) = seen[-1].message.tool_calls
    assert (call.name, call.arguments, call.problem) == ("add", {"a": 1, "b": 2}, None)
    assert (seen[-1].finish, seen[-1].message.text, streamed(seen)) == ("tool_calls", "", "")
    assert [type(item) for item in seen] == [ReasoningDelta, ToolCallDelta, ModelAnswer]


@pytest.mark.parametrize(
    ("answer", "finish"),
    [
        (CALL, "length"),
        (CALL, "filtered"),
        (CALL[:-1], "stop"),
        (f"{CALL} and more", "stop"),
        ('{"name": "other", "arguments": {}}', "stop"),
        ("It is 3.", "stop"),
        ("[1, 2]", "stop"),
    ],
)
async def test_all_else_stays_text(answer: str, finish: str):
    seen = await items(answer, finish)
    assert (seen[-1].message.text, seen[-1].message.tool_calls, seen[-1].finish) == (answer, (), finish)
    assert streamed(seen) == answer


async def test_without_tools_nothing_is_held_back():
    assert streamed(await items(CALL, tools=())) == CALL


async def test_plain_text_is_streamed_as_it_comes():
    seen = await items("It is three.")
    assert [item.text for item in seen if isinstance(item, TextDelta)] == ["It ", "is ", "thr", "ee."]


@pytest.mark.parametrize("answer", [f"[{CALL}, {CALL}]", CALL])
async def test_an_agent_behind_the_layer_runs_such_calls(answer: str):
    agent = Agent(CallsInText(ScriptedModel([answer, "It is 3."])), name="adder", tools=[add])
    async with Runner("memory:") as runner:
        result = await runner.run(agent, "1 + 2?")
    assert {it.output for it in result.tool_executions} == {3}
    assert (result.final_text, result.warnings) == ("It is 3.", ())
