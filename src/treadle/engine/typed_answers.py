"""Typed answers: requesting them from a model, and reading them.

An answer is read once, when it arrives, and the journal stores its JSON data. Later decisions, also after a crash, do
not need the type. Only a result is built with it, from the JSON data of the journal.
"""

from __future__ import annotations

import json
from typing import Any, Final

from treadle.agents.agent import Agent, OutputMode
from treadle.agents.finish_reasons import REFUSED
from treadle.agents.output import OutputType
from treadle.core import events as e
from treadle.core.data import frozen
from treadle.core.messages import Json, Message
from treadle.core.model import WHOLE, Finish
from treadle.core.model_answer import problem_clause
from treadle.core.observation import as_text
from treadle.core.strict_json import STRICTLY
from treadle.core.tools import ToolSpec
from treadle.ports import Model, output_mode_of

TOOL: Final = "final_answer"
"""The name of the tool by which a model answers, if the agent's tools do not have that name."""


@frozen
class TypedAnswers:
    """The way to request and read the typed answers of an agent, computed once for all its tasks.

    Args:
        output: the type.
        mode: the way to ask the model for the type.
        tool: the tool that the model calls to answer, in mode `tool`.
        instructions: the addition to the instructions.
    """

    output: OutputType
    mode: OutputMode
    tool: ToolSpec | None
    instructions: str

    def read(self, message: Message, finish: Finish) -> e.TypedAnswer | None:
        """Return the answer in a model's message, or None after a refusal or with calls of tools."""
        calls = message.tool_calls
        if self.tool is None:
            return None if calls else self._read_text(message.text, finish)
        giving = [call for call in calls if call.name == self.tool.name]
        if not giving:
            return None if calls else self._read_text("", finish)
        read: list[e.TypedAnswer] = []
        for call in giving:
            if call.problem is not None:
                read.append(e.TypedAnswer.rejected(problem_clause(call.problem), call.id))
                continue
            try:
                return e.TypedAnswer(self.output.read(call.arguments), None, call.id)
            except ValueError as error:
                read.append(e.TypedAnswer.rejected(str(error), call.id))
        return read[0]

    def _read_text(self, text: str, finish: Finish) -> e.TypedAnswer | None:
        if finish in REFUSED:
            return None
        if finish == "length":
            return e.TypedAnswer.rejected(
                "it was cut off at the longest length that is allowed", how=", shorter"
            )
        if finish not in WHOLE:
            return e.TypedAnswer.rejected("it broke off")
        if self.tool is not None:
            name = self.tool.name
            return e.TypedAnswer.rejected(f"it was text, and no call of {name}", how=f", by calling {name}")
        try:
            return e.TypedAnswer(self.output.read(_json_in(text)))
        except RecursionError:
            return e.TypedAnswer.rejected("its JSON is nested too deeply")
        except ValueError as error:
            return e.TypedAnswer.rejected(str(error))


def _json_in(text: str) -> Json:
    """Return the JSON of a text, else the only object in it. Raises `ValueError` unless there is exactly one."""
    from treadle.agents.dialects.lenient_json import single_object, without_thinking

    text = without_thinking(text)
    try:
        return json.loads(text, **STRICTLY)
    except ValueError:
        return single_object(text)


def typed_answers(agent: Agent[Any], output: OutputType, model: Model | None) -> TypedAnswers:
    """Return the way to request and read typed answers of an agent. Without a model it is the most common one."""
    mode = agent.output_mode
    if mode == "auto":
        mode = output_mode_of(model) if model is not None else "tool"
    if mode == "native":
        return TypedAnswers(output, mode, None, "")
    if mode == "prompt":
        return TypedAnswers(output, mode, None, f"{_PROMPT}\n{as_text(output.schema)}")
    taken, name, number = {tool.spec.name for tool in agent.tools}, TOOL, 2
    while name in taken:
        name, number = f"{TOOL}_{number}", number + 1
    described = f"Give the final answer, a {output.name}. Call it once, when you have the answer."
    tool = ToolSpec(name=name, description=described, parameters=output.schema, read_only=True, declared=True)
    return TypedAnswers(output, mode, tool, f"Give your final answer by calling {name}, never as text.")


_PROMPT: Final = (
    "When you have the final answer, write it as one JSON object, alone. It has to fit this schema:"
)
