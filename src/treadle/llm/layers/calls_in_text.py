"""A layer that reads calls written as text, for servers that do not tell calls from text."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from treadle.core.calls_in_text import calls_in, may_be_calls
from treadle.core.messages import Message, Part, Reasoning, Text, ToolCall
from treadle.core.model import WHOLE, ModelAnswer, ModelDelta, ModelRequest, TextDelta, ToolCallDelta
from treadle.core.unknown_names import explains_arguments
from treadle.llm.layers.layer import Layer, close
from treadle.llm.recorded_answer import deltas_of
from treadle.ports import Model


@explains_arguments
class CallsInText(Layer):
    """A model whose answers are read as tool calls if their whole text is calls.

    For local servers that were started without their template for tools, and for models that leave out its tags. An
    answer counts only as a whole: it must be one JSON object, or a list of objects. Each object has the `name` of a
    tool of the request and an object of `arguments`. A `<tool_call>` tag or a code fence may enclose the answer. The
    form `<function=NAME>ARGUMENTS</function>` of Llama's models is read too.

    All else stays text: an answer that was cut off, or is not valid JSON, never becomes an action. Text that begins
    like a call is streamed once it is known not to be a call.

    Args:
        model: the model inside.
    """

    def __init__(self, model: Model | str) -> None:
        super().__init__(model)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelAnswer]:
        names = {tool.name for tool in request.tools}
        inner = self.model.stream(request)
        held: list[ModelDelta] = []
        text, holds = "", bool(names)
        try:
            async for item in inner:
                if type(item) is ModelAnswer:
                    answer = _read(item, names) if names else None
                    for delta in held if answer is None else _calls_of(answer):
                        yield delta
                    held = []
                    yield item if answer is None else answer
                elif holds and type(item) is TextDelta:
                    text += item.text
                    held.append(item)
                    if not may_be_calls(text):
                        holds = False
                        for delta in held:
                            yield delta
                        held = []
                else:
                    yield item
        finally:
            await close(inner)


def _read(answer: ModelAnswer, names: set[str]) -> ModelAnswer | None:
    """Return an answer with the calls in its text as tool calls; None if its text is not calls."""
    parts = answer.message.parts
    if answer.finish not in WHOLE or any(type(part) not in (Text, Reasoning) for part in parts):
        return None
    calls = calls_in(answer.message.text, names)
    if not calls:
        return None
    kept: list[Part] = [part for part in parts if type(part) is Reasoning]
    kept += [ToolCall(f"text-{place}", name, arguments) for place, (name, arguments) in enumerate(calls)]
    message = Message("assistant", tuple(kept), answer.message.meta)
    return replace(answer, message=message, finish="tool_calls")


def _calls_of(answer: ModelAnswer) -> list[ModelDelta]:
    """Return the deltas of an answer's calls. Its reasoning was streamed as it came."""
    return [delta for delta in deltas_of(answer.message) if type(delta) is ToolCallDelta]
