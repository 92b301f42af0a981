"""Dialects: text protocols for models that cannot call tools but can write.

    engine -- ModelRequest --> DialectModel -- dialect.ask: tools as text ----> model
    engine <-- ModelAnswer --- DialectModel <- dialect.read: text as calls ---- model

A dialect describes the tools in the instructions and reads calls from the answer's text. `DialectModel` wraps a model
and is a model itself. So the engine sees the same messages, calls and results as with provider tool calls. The journal,
undo, fork and recovery are the same too.

An answer that cannot be read becomes a `ToolCall` with a `problem` and the text as `raw`. It never runs; its result
tells the model the problem.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol, cast, runtime_checkable

from treadle.agents.dialects.incremental import remaining_deltas
from treadle.agents.dialects.transcript import ModelTurn, Transcript
from treadle.agents.finish_reasons import WITHHELD
from treadle.core.data import frozen
from treadle.core.framing import FRAME_NOTE
from treadle.core.messages import IN_WORDS, UNSEEN, Json, Message, Part, Reasoning, Text, ToolCall
from treadle.core.model import (
    WHOLE,
    Finish,
    ModelAnswer,
    ModelDelta,
    ModelRequest,
    TextDelta,
)
from treadle.core.model_answer import checked_answer
from treadle.core.observation import unknown_tool_text
from treadle.core.refused_uses import can_be_called, no_function
from treadle.errors import ConfigurationError, ModelError
from treadle.ports import Model

MAX_PARSE_ERRORS: Final = 3
"""The default number of unreadable answers in a row after which the step fails."""

UNREADABLE: Final = "unreadable"
"""The name of a call whose tool name could not be read."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


@frozen(kw_only=True)
class Reading:
    """The meaning of an answer's text: a call, an answer, or, with a `problem`, neither.

    Args:
        thinking: the thinking before the text, between tags. It is stored, and not sent to the model again.
        thought: the thought that the protocol asks for.
        name: the called tool; with a `problem`, the tool that the model seems to mean.
        arguments: the arguments of the call; None for an answer.
        answer: the answer; None for a call.
        problem: why the text cannot be used, as a message to the model.
    """

    thinking: str = ""
    thought: str = ""
    name: str = ""
    arguments: dict[str, Json] | None = None
    answer: str | None = None
    problem: str | None = None


Parser = Callable[[str], Reading]
"""Reads the text of an answer. It takes any text, and returns a `problem` for text that it cannot read."""


class DeltaReader(Protocol):
    """Reads one answer while the model writes it, and returns its thought, call and answer as deltas."""

    def feed(self, text: str) -> Iterable[ModelDelta]:
        """Return the deltas that are certain after some more text."""
        ...

    def end(self, message: Message) -> Iterable[ModelDelta]:
        """Return the remaining deltas, now that the whole answer is read."""
        ...


@runtime_checkable
class Dialect(Protocol):
    """A text protocol between an agent and its model. Immutable, without task state; agents may share one."""

    @property
    def header(self) -> str:
        """The fixed text of each request besides instructions and tools. It counts towards a limit on tokens."""
        ...

    @property
    def max_parse_errors(self) -> int:
        """The number of unreadable answers in a row that fails the step."""
        ...

    def facts(self) -> Json:
        """Return JSON data that differs between dialects, for the fingerprint of an agent."""
        ...

    def check(self, tools: Sequence[str]) -> None:
        """Raise `ConfigurationError` if tools of these names cannot be called in this dialect."""
        ...

    def ask(self, request: ModelRequest) -> ModelRequest:
        """Return a request for the model, with its tools as text in the instructions."""
        ...

    def read(self, answer: ModelAnswer, request: ModelRequest) -> ModelAnswer:
        """Return an answer with the calls in its text as parts. `request` is the one passed to `ask`."""
        ...

    def delta_reader(self, request: ModelRequest) -> DeltaReader:
        """Return a reader for the answer to a request."""
        ...

    def correction(self, problem: str) -> str:
        """Return the message to the model about an answer with a problem."""
        ...


class DialectModel(Model):
    """A model that is called through a dialect.

    Args:
        model: the model.
        dialect: the text protocol to use with it.
    """

    def __init__(self, model: Model, dialect: Dialect) -> None:
        self._model = model
        self._dialect = dialect

    @property
    def output_mode(self) -> str:
        return "native"  # the dialect describes the schema in its instructions

    @property
    def name(self) -> str:
        return self._model.name

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelAnswer]:
        dialect = self._dialect
        reader = dialect.delta_reader(request)
        async for item in self._model.stream(dialect.ask(request)):
            if isinstance(item, ModelAnswer):
                answer = dialect.read(checked_answer(item), request)
                answers = not answer.message.tool_calls
                for delta in reader.end(answer.message):
                    yield _as_final(delta) if answers else delta
                yield answer
            elif isinstance(item, TextDelta):
                for delta in reader.feed(item.text):
                    yield _as_final(delta)
            else:
                yield item


def _as_final(delta: ModelDelta) -> ModelDelta:
    """Return a text delta marked as the answer, since the dialect separates it from thoughts and calls."""
    return TextDelta(delta.text, final=True) if isinstance(delta, TextDelta) else delta


class WholeAnswerReader:
    """A reader without deltas before the end, for a parser that reads only whole answers."""

    def feed(self, text: str) -> Iterable[ModelDelta]:
        return ()

    def end(self, message: Message) -> Iterable[ModelDelta]:
        return remaining_deltas(message)


class TextDialect:
    """A dialect in plain text: tools in the instructions, a transcript as conversation, a parser for answers.

    Args:
        header: the text before the agent's instructions. `{tools}` in it becomes the description of the tools,
            `{names}` their names.
        parser: reads the text of an answer.
        max_parse_errors: how many answers in a row may be unreadable. The last of them fails the step.

    Raises:
        ConfigurationError: the header has no `{tools}`, or a value is of the wrong type.
    """

    name = ""
    format = ""
    """reminds the model of the format; empty if only a custom parser knows it"""
    call_format = ""
    """the part of the header that explains calls; the last answer at a limit is requested without it"""

    def __init__(self, header: str, parser: Parser, max_parse_errors: int) -> None:
        kind = type(self).__name__
        if not isinstance(cast("object", header), str) or "{tools}" not in header:
            raise ConfigurationError(f"{kind}: header must be text with {{tools}} in it, got {header!r:.200}")
        if not can_be_called(cast("object", parser)):
            raise ConfigurationError(f"{kind}: parser must be a function of text, got {no_function(parser)}")
        if type(cast("object", max_parse_errors)) is not int or max_parse_errors < 1:
            raise ConfigurationError(f"{kind}: max_parse_errors must be 1 or more, got {max_parse_errors!r}")
        self.header = header
        self.parser = parser
        self.max_parse_errors = max_parse_errors

    # -------------------------------------------------------------------------------- of each dialect

    def write_turn(self, turn: ModelTurn) -> str:
        """Return the text of one turn, in the format that the model writes."""
        raise NotImplementedError

    def schema_prompt(self, schema: Json) -> str:
        """Return the instructions for an answer that must fit a JSON schema."""
        raise NotImplementedError

    def answer_text(self, answer: str, request: ModelRequest) -> str:
        """Return an answer as text for people, or as JSON if it must fit a schema."""
        return answer

    def delta_reader(self, request: ModelRequest) -> DeltaReader:
        return WholeAnswerReader()

    def check(self, tools: Sequence[str]) -> None:
        """Accept any names."""

    # -------------------------------------------------------------------------------- of all of them

    def facts(self) -> Json:
        parser = getattr(self.parser, "__qualname__", type(self.parser).__qualname__)
        return [self.name, self.header, parser, self.max_parse_errors]

    def ask(self, request: ModelRequest) -> ModelRequest:
        return replace_request(
            request,
            messages=Transcript(request.messages, self.write_turn),
            instructions=self._instructions(request),
        )

    def _instructions(self, request: ModelRequest) -> str:
        header = self.header
        if self.call_format and request.tool_choice == "none" and not request.tools:
            header = header.replace(self.call_format, "")
        text = header.replace("{names}", ", ".join([tool.name for tool in request.tools]) or "none")
        text = text.replace("{tools}", described_tools(request))
        if request.output_schema is not None:
            text += f"\n\n{self.schema_prompt(request.output_schema)}"
        if request.instructions:
            text += f"\n\n{request.instructions}"
        if request.tools:
            text += f"\n\n{FRAME_NOTE}"  # the request is sent without tools, which would add it with the first result
        if request.tool_choice == "required":
            text += "\n\nUse a tool in this turn."
        elif request.tool_choice not in ("auto", "none"):
            text += f"\n\nUse the tool {request.tool_choice} in this turn."
        return text.strip()

    def read(self, answer: ModelAnswer, request: ModelRequest) -> ModelAnswer:
        parts = answer.message.parts
        if any(isinstance(part, ToolCall) for part in parts):
            return answer  # the model called tools through its provider
        text = "".join([part.text for part in parts if isinstance(part, Text)])
        other_parts: tuple[Part, ...] = tuple([part for part in parts if not isinstance(part, Text)])
        reading = self._read(text)
        answer_text = self.answer_text(reading.answer, request) if reading.answer is not None else ""
        last = request.tool_choice == "none"
        if reading.problem is not None and (last or answer.finish in WITHHELD):
            # Another request would not help, so this text is the answer.
            answer_text = reading.thought or ("" if reading.name else text.strip())
            reading = Reading(thinking=reading.thinking, answer="")
        elif reading.arguments is not None and not _is_name(reading.name, request):
            reading = replace(reading, name="", problem=_no_such_tool(reading.name, request))
        elif (early := self._ended_early(reading, answer.finish, last=last)) is not None:
            reading = replace(reading, problem=early)
        finish = answer.finish
        if reading.answer is None and finish == "stop":
            finish = "tool_calls"
        if not _is_name(reading.name, request):
            reading = replace(reading, name=UNREADABLE)
        message = Message("assistant", other_parts + _parts(reading, answer_text, text), answer.message.meta)
        return ModelAnswer(message, finish, answer.usage, answer.model, answer.also)

    def _ended_early(self, read: Reading, finish: Finish, *, last: bool) -> str | None:
        """Return why a reading is not used, if the answer ended early."""
        if finish == "length" and not last:
            return "your answer was cut off at the longest length you may write, and nothing of it was used"
        if read.arguments is not None and finish not in WHOLE:
            return f"your answer ended early ({finish}), and nothing of it was used"
        return None

    def _read(self, text: str) -> Reading:
        try:
            read: Any = self.parser(text)
        except Exception as error:
            raise ModelError(
                f"{type(self).__name__}: the parser raised {type(error).__name__}: {error}"
            ) from error
        if not isinstance(read, Reading):
            raise ModelError(f"{type(self).__name__}: the parser must return a Reading, got {read!r:.200}")
        if read.problem is None and (read.arguments is None) == (read.answer is None):
            raise ModelError(
                f"{type(self).__name__}: the parser must return a call, an answer or a problem, got {read!r:.200}"
            )
        return read

    def correction(self, problem: str) -> str:
        return f"Nothing was run: {problem}. {self.format}".strip()


def _is_name(name: str, request: ModelRequest) -> bool:
    """Whether a call may have a name: that of a tool, or one that providers accept."""
    return _NAME.fullmatch(name) is not None or any(tool.name == name for tool in request.tools)


def _no_such_tool(name: str, request: ModelRequest) -> str:
    text = unknown_tool_text(name, [tool.name for tool in request.tools])
    return text[0].lower() + text[1:].removesuffix(".")


def _parts(read: Reading, answer_text: str, text: str) -> tuple[Part, ...]:
    parts: list[Part] = []
    if read.thinking:
        parts.append(Reasoning(read.thinking, UNSEEN))
    if read.thought:
        parts.append(Reasoning(read.thought, IN_WORDS))
    if read.problem is not None:
        parts.append(ToolCall("", read.name, {}, text, read.problem, IN_WORDS))
    elif read.arguments is not None:
        parts.append(ToolCall("", read.name, read.arguments))
    elif answer_text:
        parts.append(Text(answer_text))
    return tuple(parts)


def described_tools(request: ModelRequest) -> str:
    """Return the description of a request's tools, one or two lines each."""
    if not request.tools:
        none_left = request.tool_choice == "none"
        return "(no tool may be used any more: answer now, with what you know)" if none_left else "(none)"
    from json import dumps

    lines: list[str] = []
    for tool in request.tools:
        description = " ".join(tool.description.split())
        lines.append(f"- {tool.name}: {description}" if description else f"- {tool.name}")
        lines.append(f"  arguments: {dumps(tool.parameters, ensure_ascii=False)}")
    return "\n".join(lines)


def replace_request(request: ModelRequest, *, messages: Sequence[Message], instructions: str) -> ModelRequest:
    """Return a request with other messages and instructions, and without the fields for provider tool calls."""
    return replace(
        request,
        messages=messages,
        instructions=instructions,
        tools=(),
        tool_choice="auto",
        output_schema=None,
    )
