"""Dialects: how an agent speaks with a model that calls no tools of its own accord, but can write.

A dialect tells the model in words what it may do, and reads from its words what it does. It stands between the engine
and the model, as a model itself: whatever the engine sees are the messages, calls and results it always sees. So a
task is the same, in its journal and in all that can be done with it, whichever way its model is spoken with.

What could not be read is a `ToolCall` with a `problem`, and what the model wrote as `raw`: it never runs, and its
result tells the model what was wrong.
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
from treadle.core.messages import IN_WORDS, UNSEEN, Json, Message, Part, Reasoning, Text, ToolCall
from treadle.core.model import (
    Finish,
    ModelAnswer,
    ModelDelta,
    ModelRequest,
    TextDelta,
)
from treadle.core.model_answer import check_answer
from treadle.core.observation import unknown_tool_text
from treadle.errors import ConfigurationError, ModelError
from treadle.ports import Model

MAX_PARSE_ERRORS: Final = 3
"""How many answers in a row may be unreadable before the step fails, when nobody says otherwise."""

UNREADABLE: Final = "unreadable"
"""The name of a call of which not even the tool's name could be read."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


@frozen(kw_only=True)
class Reading:
    """What a model's words mean: a call, an answer, or, with a `problem`, nothing that could be read.

    Args:
        thinking: what the model thought before it spoke, between tags; kept, and not shown to it again.
        thought: what the model says it thinks.
        name: the tool it wants; with a `problem`, the tool it seems to have meant.
        arguments: what for; None unless it calls a tool.
        answer: its answer; None unless it answers.
        problem: why nothing can be done with its words, in words for the model.
    """

    thinking: str = ""
    thought: str = ""
    name: str = ""
    arguments: dict[str, Json] | None = None
    answer: str | None = None
    problem: str | None = None


Parser = Callable[[str], Reading]
"""Reads what a model wrote. It may be given any text, and says what is wrong with it by a `problem`."""


class DeltaReader(Protocol):
    """Follows one answer while it is being written, and tells which of the words are thought, call and answer."""

    def feed(self, text: str) -> Iterable[ModelDelta]:
        """Return what is certain now that some more text has come."""
        ...

    def end(self, message: Message) -> Iterable[ModelDelta]:
        """Return what is left to tell, now that the whole answer has been read."""
        ...


@runtime_checkable
class Dialect(Protocol):
    """How an agent speaks with its model. Immutable, holds nothing of a task, and may be shared by any number."""

    @property
    def header(self) -> str:
        """What each request holds besides instructions and tools: counted where requests are bounded."""
        ...

    @property
    def max_parse_errors(self) -> int:
        """How many answers in a row may be unreadable: the last of them fails the step."""
        ...

    def facts(self) -> Json:
        """Return what a version of an agent is told by: JSON data that differs when the dialect does."""
        ...

    def check(self, tools: Sequence[str]) -> None:
        """Raise `ConfigurationError` when tools of these names cannot be called in this dialect."""
        ...

    def ask(self, request: ModelRequest) -> ModelRequest:
        """Return a request as it is put to the model: no tools, but words that tell of them."""
        ...

    def read(self, answer: ModelAnswer, request: ModelRequest) -> ModelAnswer:
        """Return an answer with the calls in it as parts; `request` is the one before it was put into words."""
        ...

    def delta_reader(self, request: ModelRequest) -> DeltaReader:
        """Return what follows the answer to a request."""
        ...

    def correction(self, problem: str) -> str:
        """Return what the model is told of an answer with a problem."""
        ...


class DialectModel(Model):
    """A model that is spoken with in a dialect.

    Args:
        model: the model itself.
        dialect: how to speak with it.
    """

    def __init__(self, model: Model, dialect: Dialect) -> None:
        self._model = model
        self._dialect = dialect

    @property
    def output_mode(self) -> str:
        return "native"  # the dialect puts a schema into words

    @property
    def name(self) -> str:
        return self._model.name

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelAnswer]:
        dialect = self._dialect
        reader = dialect.delta_reader(request)
        async for item in self._model.stream(dialect.ask(request)):
            if isinstance(item, ModelAnswer):
                check_answer(item)
                answer = dialect.read(item, request)
                answers = not answer.message.tool_calls
                for delta in reader.end(answer.message):
                    yield _known(delta) if answers else delta
                yield answer
            elif isinstance(item, TextDelta):
                for delta in reader.feed(item.text):
                    yield _known(delta)
            else:
                yield item


def _known(delta: ModelDelta) -> ModelDelta:
    """Return a delta with what a dialect knows: words it tells apart from thoughts and calls are the answer."""
    return TextDelta(delta.text, final=True) if isinstance(delta, TextDelta) else delta


class WholeAnswerReader:
    """A reader that tells nothing before the end: for parsers of which nothing is known."""

    def feed(self, text: str) -> Iterable[ModelDelta]:
        return ()

    def end(self, message: Message) -> Iterable[ModelDelta]:
        return remaining_deltas(message)


class TextDialect:
    """What the dialects made of plain text share: the request in words, and parts from what a parser read.

    Args:
        header: what the model is told before its instructions; `{tools}` in it becomes the description of the tools,
            `{names}` their names.
        parser: what reads the model's words.
        max_parse_errors: how many answers in a row may be unreadable; the last of them fails the step.

    Raises:
        ConfigurationError: the header has no place for the tools, or a value is of another kind.
    """

    name = ""
    format = ""
    """reminds the model of what it is to write, unless that is known to nobody but the parser"""

    def __init__(self, header: str, parser: Parser, max_parse_errors: int) -> None:
        kind = type(self).__name__
        if not isinstance(cast("object", header), str) or "{tools}" not in header:
            raise ConfigurationError(f"{kind}: header must be text with {{tools}} in it, got {header!r:.200}")
        if not callable(cast("object", parser)):
            raise ConfigurationError(f"{kind}: parser must be a function of text, got {parser!r:.200}")
        if type(cast("object", max_parse_errors)) is not int or max_parse_errors < 1:
            raise ConfigurationError(f"{kind}: max_parse_errors must be 1 or more, got {max_parse_errors!r}")
        self.header = header
        self.parser = parser
        self.max_parse_errors = max_parse_errors

    # ----------------------------------------------------------------------- what each of them says

    def write_turn(self, turn: ModelTurn) -> str:
        """Return one turn of the model as the model would have written it."""
        raise NotImplementedError

    def schema_prompt(self, schema: Json) -> str:
        """Return how an answer is to look that has to fit a JSON schema."""
        raise NotImplementedError

    def answer_text(self, answer: str, request: ModelRequest) -> str:
        """Return an answer as people are to read it, or, where it has to fit a schema, as JSON."""
        return answer

    def delta_reader(self, request: ModelRequest) -> DeltaReader:
        return WholeAnswerReader()

    def check(self, tools: Sequence[str]) -> None:
        """Take any names."""

    # -------------------------------------------------------------------------------- what they share

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
        told = self.header.replace("{names}", ", ".join([tool.name for tool in request.tools]) or "none")
        told = told.replace("{tools}", described_tools(request))
        if request.output_schema is not None:
            told += f"\n\n{self.schema_prompt(request.output_schema)}"
        if request.instructions:
            told += f"\n\n{request.instructions}"
        if request.tool_choice == "required":
            told += "\n\nUse a tool in this turn."
        elif request.tool_choice not in ("auto", "none"):
            told += f"\n\nUse the tool {request.tool_choice} in this turn."
        return told.strip()

    def read(self, answer: ModelAnswer, request: ModelRequest) -> ModelAnswer:
        parts = answer.message.parts
        if any(isinstance(part, ToolCall) for part in parts):
            return answer  # it does call tools of its own accord, after all
        text = "".join([part.text for part in parts if isinstance(part, Text)])
        own: tuple[Part, ...] = tuple([part for part in parts if not isinstance(part, Text)])
        read = self._read(text)
        said = self.answer_text(read.answer, request) if read.answer is not None else ""
        last = request.tool_choice == "none"
        if read.problem is not None and (last or answer.finish in WITHHELD):
            # Asking again is of no use: these are the model's last words.
            said = read.thought or ("" if read.name else text.strip())
            read = Reading(thinking=read.thinking, answer="")
        elif read.arguments is not None and not _is_name(read.name, request):
            read = replace(read, name="", problem=_no_such_tool(read.name, request))
        elif (early := self._ended_early(read, answer.finish, last=last)) is not None:
            read = replace(read, problem=early)
        finish = answer.finish
        if read.answer is None and finish == "stop":
            finish = "tool_calls"
        if not _is_name(read.name, request):
            read = replace(read, name=UNREADABLE)
        message = Message("assistant", own + _parts(read, said, text), answer.message.meta)
        return ModelAnswer(message, finish, answer.usage, answer.model, answer.also)

    def _ended_early(self, read: Reading, finish: Finish, *, last: bool) -> str | None:
        """Return why what was read is not used, since the model had not come to the end of its words."""
        if finish == "length" and not last:
            return "your answer was cut off at the longest length you may write, and nothing of it was used"
        if read.arguments is not None and finish not in ("stop", "tool_calls"):
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
    """Whether a call may go by a name: that of a tool, or one that some model's provider could bear to see."""
    return _NAME.fullmatch(name) is not None or any(tool.name == name for tool in request.tools)


def _no_such_tool(name: str, request: ModelRequest) -> str:
    told = unknown_tool_text(name, [tool.name for tool in request.tools])
    return told[0].lower() + told[1:].removesuffix(".")


def _parts(read: Reading, said: str, text: str) -> tuple[Part, ...]:
    parts: list[Part] = []
    if read.thinking:
        parts.append(Reasoning(read.thinking, UNSEEN))
    if read.thought:
        parts.append(Reasoning(read.thought, IN_WORDS))
    if read.problem is not None:
        parts.append(ToolCall("", read.name, {}, text, read.problem, IN_WORDS))
    elif read.arguments is not None:
        parts.append(ToolCall("", read.name, read.arguments))
    elif said:
        parts.append(Text(said))
    return tuple(parts)


def described_tools(request: ModelRequest) -> str:
    """Return the tools of a request, a line or two each, as a model reads them."""
    if not request.tools:
        gone = request.tool_choice == "none"
        return "(no tool may be used any more: answer now, with what you know)" if gone else "(none)"
    from json import dumps

    lines: list[str] = []
    for tool in request.tools:
        told = " ".join(tool.description.split())
        lines.append(f"- {tool.name}: {told}" if told else f"- {tool.name}")
        lines.append(f"  arguments: {dumps(tool.parameters, ensure_ascii=False)}")
    return "\n".join(lines)


def replace_request(request: ModelRequest, *, messages: Sequence[Message], instructions: str) -> ModelRequest:
    """Return a request in other words, without what only models understand that call tools themselves."""
    return replace(
        request,
        messages=messages,
        instructions=instructions,
        tools=(),
        tool_choice="auto",
        output_schema=None,
    )
