"""Requests, answers and readings that the tests of dialects share."""

from typing import Any

from treadle import React
from treadle.agents.dialects.dialect import Dialect
from treadle.agents.dialects.planner import Planner
from treadle.core.messages import Message, Text
from treadle.core.model import Finish, ModelAnswer, ModelRequest, ModelSettings, Usage
from treadle.core.tools import ToolSpec

ADD = ToolSpec(name="add", description="Add two\n  numbers.")


REACT, PLANNER = React(), Planner()


def request(
    *messages: Message, tools: Any = (ADD,), choice: str = "auto", schema: Any = None
) -> ModelRequest:
    return ModelRequest(messages, "Be brief.", tools, choice, ModelSettings(), "t", "s1", 0, 1, schema)


def answer(content: str, finish: Finish = "stop", *before: Any) -> ModelAnswer:
    return ModelAnswer(Message("assistant", (*before, Text(content))), finish, Usage(3, 4))


def read(
    dialect: Dialect, content: str, finish: Finish = "stop", *, choice: str = "auto", tools: Any = (ADD,)
) -> Any:
    return dialect.read(answer(content, finish), request(choice=choice, tools=tools))
