"""A model that answers from a script, for tests, demonstrations and benchmarks."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Never, TypeAlias, cast

from treadle.core.data import frozen
from treadle.core.messages import Json, Message, Part, Reasoning, Text, ToolCall
from treadle.core.model import (
    WHOLE,
    Finish,
    ModelAnswer,
    ModelDelta,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from treadle.core.refused_uses import can_be_called, no_function
from treadle.core.unknown_names import explains_arguments
from treadle.errors import ConfigurationError, ModelError, ModelErrorKind, WrongArguments
from treadle.llm.arguments import parsed_call
from treadle.llm.errors import kind_of_status
from treadle.llm.recorded_answer import arguments_text, own_copy

CHUNK = 160
"""Characters of a streamed chunk, unless a turn sets another number."""


@frozen(kw_only=True)
class Turn:
    """One scripted answer; `text`, `call` and `turn` build it, `+` joins two."""

    parts: tuple[Part, ...] = ()
    usage: Usage | None = None
    finish: Finish | None = None
    delay: float = 0.0
    chunk: int = CHUNK
    pause: float = 0.0

    def __add__(self, other: Turn) -> Turn:
        return Turn(
            parts=self.parts + other.parts,
            usage=other.usage or self.usage,
            finish=other.finish or self.finish,
            delay=self.delay + other.delay,
            chunk=min(self.chunk, other.chunk),
            pause=max(self.pause, other.pause),
        )


@frozen(kw_only=True)
class Fail:
    """One scripted failure; `fail` builds it."""

    message: str
    kind: ModelErrorKind
    status: int | None = None
    retry_after: float | None = None
    after: str = ""
    delay: float = 0.0

    def error(self) -> ModelError:
        """Return the error to raise, a new one each time."""
        return ModelError(self.message, kind=self.kind, status=self.status, retry_after=self.retry_after)


Item: TypeAlias = "str | Turn | Fail | Sequence[str | Turn]"
Script: TypeAlias = "Sequence[Item] | Callable[[ModelRequest], Item | Awaitable[Item]]"


def text(words: str, *, delay: float = 0.0, chunk: int = CHUNK, pause: float = 0.0) -> Turn:
    """Return a turn with this text; for the timing see `turn`."""
    return Turn(parts=(Text(words),), delay=delay, chunk=chunk, pause=pause)


def call(name: str, /, *by_position: Never, **arguments: Json) -> Turn:
    """Return a turn that calls a tool with these arguments, each by its name."""
    if by_position:
        raise WrongArguments(
            f"call takes arguments by name: {by_position[0]!r:.80} is one too many by position; "
            "write call('add', a=1), or call('add', **{'a': 1})"
        )
    return Turn(parts=(ToolCall("", name, arguments),))


def call_raw(name: str, raw: str) -> Turn:
    """Return a turn that calls a tool with raw text as arguments, which may be cut off or invalid JSON."""
    return Turn(parts=(parsed_call("", name, raw),))


def turn(
    text: str = "",
    calls: Turn | Sequence[Turn] = (),
    *,
    reasoning: str = "",
    usage: Usage | None = None,
    finish: Finish | None = None,
    delay: float = 0.0,
    chunk: int = CHUNK,
    pause: float = 0.0,
) -> Turn:
    """Return a whole turn.

    Args:
        text: the text of the answer.
        calls: the tool calls, each built by `call` or `call_raw`.
        reasoning: the reasoning before the text.
        usage: tokens; by default 10 of input and one of output for each four characters.
        finish: why the answer ends. Its calls count as truncated unless it is `stop` or `tool_calls`.
        delay: seconds before the first chunk.
        chunk: characters of a streamed chunk; text is cut at spaces.
        pause: seconds between two chunks.
    """
    parts: tuple[Part, ...] = (Reasoning(reasoning),) if reasoning else ()
    if text:
        parts += (Text(text),)
    combined = Turn(parts=parts, usage=usage, finish=finish, delay=delay, chunk=chunk, pause=pause)
    for call in (calls,) if isinstance(calls, Turn) else calls:
        combined += call
    return combined


def fail(
    status: int | None = None,
    *,
    kind: ModelErrorKind | None = None,
    retry_after: float | None = None,
    message: str = "",
    after: str = "",
    delay: float = 0.0,
) -> Fail:
    """Return a failed attempt at the next answer of the script.

    Args:
        status: the HTTP status that the provider would send; it sets the kind.
        kind: the kind of `ModelError`, if the status does not set it.
        retry_after: seconds that the provider asks to wait.
        message: the provider's message.
        after: text that is streamed before the failure.
        delay: seconds before the first chunk or the failure.
    """
    kind = kind or (kind_of_status(status) if status is not None else "unknown")
    message = message or f"scripted failure: {status or kind}"
    return Fail(message=message, kind=kind, status=status, retry_after=retry_after, after=after, delay=delay)


class _Prepared:
    """A turn with its message, deltas and usage computed once for all answers."""

    __slots__ = ("calls", "delay", "deltas", "finish", "message", "pause", "usage")

    def __init__(self, item: Turn) -> None:
        self.calls = any(isinstance(part, ToolCall) for part in item.parts)
        self.finish: Finish = item.finish or ("tool_calls" if self.calls else "stop")
        parts = item.parts
        if self.finish not in WHOLE:
            parts = tuple(
                replace(part, arguments={}, problem="truncated") if isinstance(part, ToolCall) else part
                for part in parts
            )
        self.message = Message("assistant", parts)
        self.deltas = _deltas(item)
        self.usage = item.usage or Usage(10, _size(parts) // 4 + 1)
        self.delay = item.delay
        self.pause = item.pause

    def answer(self) -> ModelAnswer:
        """Return an answer whose arguments no other task shares."""
        message = own_copy(self.message) if self.calls else self.message
        return ModelAnswer(message, self.finish, self.usage)


@explains_arguments
class ScriptedModel:
    """A model that answers from a script and records its requests.

    The model has no cursor: `request.turn` indexes the list. So resume, fork, undo and concurrent tasks each get the
    answer of their turn. Failures in the list come before the next answer, one for each `request.attempt`.

    Args:
        script: a list of turns and failures. A turn is a text, a `Turn`, or a list of several to join. Or a function of
            the request, plain or async, that returns one of these.
        name: the name of the model.
        keep: how many of the newest requests are recorded.
    """

    def __init__(self, script: Script, *, name: str = "scripted", keep: int = 1_000) -> None:
        self.name = name
        self._requests: deque[ModelRequest] = deque(maxlen=keep)
        self._function: Callable[[ModelRequest], Item | Awaitable[Item]] | None = None
        self._turns: list[tuple[tuple[Fail, ...], _Prepared | None]] = []
        if can_be_called(script):
            self._function = script
        elif isinstance(script, (str, Turn, Fail)):
            raise ConfigurationError(
                f"ScriptedModel: script must be a list of turns, or a function of the request: [{script!r:.80}]"
            )
        elif not isinstance(script, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                f"ScriptedModel: script must be a list of turns, or a function of the request, got "
                f"{no_function(script)}"
            )
        else:
            self._turns = _turns(script)

    @property
    def requests(self) -> list[ModelRequest]:
        """The requests received, oldest first; only the newest `keep`."""
        return list(self._requests)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelAnswer]:
        self._requests.append(request)
        if self._function is None:
            item = self._scripted(request)
        else:
            returned = self._function(request)
            turn = _item(await returned if inspect.isawaitable(returned) else returned)
            item = _Prepared(turn) if isinstance(turn, Turn) else turn
        if item.delay:
            await asyncio.sleep(item.delay)
        if isinstance(item, Fail):
            if item.after:
                yield TextDelta(item.after)
            raise item.error()
        first = True
        for delta in item.deltas:
            if item.pause and not first:
                await asyncio.sleep(item.pause)
            first = False
            yield delta
        yield item.answer()

    def _scripted(self, request: ModelRequest) -> _Prepared | Fail:
        if request.turn < len(self._turns):
            fails, answer = self._turns[request.turn]
            if request.attempt <= len(fails):
                return fails[request.attempt - 1]
            if answer is not None:
                return answer
        answer_count = sum(answer is not None for _, answer in self._turns)
        raise ModelError(
            f"model {self.name!r} was asked for turn {request.turn} (counted from 0, attempt {request.attempt}), "
            f"but its script has {answer_count} answer{'' if answer_count == 1 else 's'}",
            kind="invalid_request",
        )

    def __repr__(self) -> str:
        return f"ScriptedModel({self.name!r})"


def _turns(script: Sequence[Item]) -> list[tuple[tuple[Fail, ...], _Prepared | None]]:
    """Return each answer of a script with the failures before it."""
    turns: list[tuple[tuple[Fail, ...], _Prepared | None]] = []
    fails: list[Fail] = []
    for item in map(_item, (script,) if isinstance(script, str) else script):
        if isinstance(item, Fail):
            fails.append(item)
        else:
            turns.append((tuple(fails), _Prepared(item)))
            fails = []
    if fails:
        turns.append((tuple(fails), None))
    return turns


def _item(item: Any) -> Turn | Fail:
    if isinstance(item, (Turn, Fail)):
        return item
    if isinstance(item, str):
        return text(item)
    if isinstance(item, (list, tuple)):
        combined = Turn()
        for part in map(_item, cast("Sequence[Item]", item)):
            if isinstance(part, Fail):
                raise ConfigurationError("a failure must be an item of the script itself, not part of a turn")
            combined += part
        return combined
    raise ConfigurationError(f"a script holds texts, turns and failures, not {type(item).__name__}")


def _deltas(item: Turn) -> list[ModelDelta]:
    deltas: list[ModelDelta] = []
    index = 0
    for part in item.parts:
        if isinstance(part, Text):
            deltas += map(TextDelta, _chunks(part.text, item.chunk))
        elif isinstance(part, Reasoning):
            deltas += map(ReasoningDelta, _chunks(part.text, item.chunk))
        elif isinstance(part, ToolCall):
            written = arguments_text(part)
            deltas.append(ToolCallDelta(index, part.name, written[: item.chunk]))
            for begin in range(item.chunk, len(written), item.chunk):
                deltas.append(ToolCallDelta(index, "", written[begin : begin + item.chunk]))
            index += 1
    return deltas


def _chunks(text: str, size: int) -> list[str]:
    """Return a text cut at spaces into chunks of at most `size` characters. A longer word stays whole."""
    if len(text) <= size:
        return [text] if text else []
    chunks = [""]
    for piece in re.findall(r"\s*\S+\s*?|\s+", text):
        if chunks[-1] and len(chunks[-1]) + len(piece) > size:
            chunks.append("")
        chunks[-1] += piece
    return chunks


def _size(parts: Sequence[Part]) -> int:
    return sum(len(part.text) if isinstance(part, (Text, Reasoning)) else 20 for part in parts)
