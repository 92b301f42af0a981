"""A model that says what a script tells it to: for tests, demonstrations and benchmarks."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, cast

from treadle.core.data import frozen
from treadle.core.messages import Json, Message, Part, Reasoning, Text, ToolCall
from treadle.core.model import (
    Finish,
    ModelAnswer,
    ModelDelta,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from treadle.errors import ConfigurationError, ModelError, ModelErrorKind
from treadle.llm.arguments import parsed_call
from treadle.llm.errors import kind_of_status

CHUNK = 160
"""Characters of a streamed piece, when a turn does not say."""


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
    """Return a turn that says these words; the timing is that of `turn`."""
    return Turn(parts=(Text(words),), delay=delay, chunk=chunk, pause=pause)


def call(name: str, /, **arguments: Json) -> Turn:
    """Return a turn that calls a tool with these arguments."""
    return Turn(parts=(ToolCall("", name, arguments),))


def call_raw(name: str, raw: str) -> Turn:
    """Return a turn that calls a tool with arguments written like this: cut off, not JSON, whatever."""
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
        text: what is said.
        calls: the tools called, each built by `call` or `call_raw`.
        reasoning: the thinking shown before the words.
        usage: tokens; by default 10 of input and one of output for each four characters.
        finish: why the answer ends; with `length` and the like its calls count as truncated.
        delay: seconds before the first piece.
        chunk: characters of a streamed piece, cut at spaces.
        pause: seconds between two pieces.
    """
    said: tuple[Part, ...] = (Reasoning(reasoning),) if reasoning else ()
    if text:
        said += (Text(text),)
    whole = Turn(parts=said, usage=usage, finish=finish, delay=delay, chunk=chunk, pause=pause)
    for asked in (calls,) if isinstance(calls, Turn) else calls:
        whole += asked
    return whole


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
        status: the HTTP status the provider would send; it tells the kind.
        kind: the kind of `ModelError`, where the status does not tell it.
        retry_after: seconds the provider asks to wait.
        message: the provider's words.
        after: words streamed before it fails.
        delay: seconds before anything happens.
    """
    what = kind or (kind_of_status(status) if status is not None else "unknown")
    said = message or f"scripted failure: {status or what}"
    return Fail(message=said, kind=what, status=status, retry_after=retry_after, after=after, delay=delay)


class _Prepared:
    """A turn with all that does not change from one answer to the next worked out once."""

    __slots__ = ("calls", "delay", "deltas", "finish", "message", "pause", "usage")

    def __init__(self, item: Turn) -> None:
        self.calls = any(isinstance(part, ToolCall) for part in item.parts)
        self.finish: Finish = item.finish or ("tool_calls" if self.calls else "stop")
        parts = item.parts
        if self.finish not in ("stop", "tool_calls"):
            parts = tuple(_cut_off(part) if isinstance(part, ToolCall) else part for part in parts)
        self.message = Message("assistant", parts)
        self.deltas = _deltas(item)
        self.usage = item.usage or Usage(10, _size(parts) // 4 + 1)
        self.delay = item.delay
        self.pause = item.pause

    def answer(self) -> ModelAnswer:
        """Return an answer of its own, so that no task can change another's arguments."""
        message = self.message
        if self.calls:
            message = Message("assistant", tuple(map(_own, message.parts)))
        return ModelAnswer(message, self.finish, self.usage)


class ScriptedModel:
    """A model that answers from a script and remembers what it was asked.

    It has no cursor: a list is indexed by `request.turn`, so resume, fork, undo and concurrent tasks each get the
    answer of their place. Failures in the list belong to the next answer and are taken by `request.attempt`.

    Args:
        script: a list of turns (a text, a `Turn`, or several joined in a list) and failures; or a function of the
            request, plain or async, that returns one of them.
        name: how the model is named.
        keep: how many of the newest requests `requests` holds.
    """

    def __init__(self, script: Script, *, name: str = "scripted", keep: int = 1_000) -> None:
        self.name = name
        self._requests: deque[ModelRequest] = deque(maxlen=keep)
        self._function: Callable[[ModelRequest], Item | Awaitable[Item]] | None = None
        self._places: list[tuple[tuple[Fail, ...], _Prepared | None]] = []
        if callable(script):
            self._function = script
        else:
            self._places = _places(script)

    @property
    def requests(self) -> list[ModelRequest]:
        """What was sent, oldest first; only the newest `keep`."""
        return list(self._requests)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelAnswer]:
        self._requests.append(request)
        if self._function is None:
            item = self._place(request)
        else:
            made = self._function(request)
            item = _prepared(_item(await made if inspect.isawaitable(made) else made))
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

    def _place(self, request: ModelRequest) -> _Prepared | Fail:
        if request.turn < len(self._places):
            fails, answer = self._places[request.turn]
            if request.attempt <= len(fails):
                return fails[request.attempt - 1]
            if answer is not None:
                return answer
        answers = sum(answer is not None for _, answer in self._places)
        raise ModelError(
            f"model {self.name!r} was asked for turn {request.turn} (counted from 0, attempt {request.attempt}), "
            f"but its script has {answers} answer{'' if answers == 1 else 's'}",
            kind="invalid_request",
        )

    def __repr__(self) -> str:
        return f"ScriptedModel({self.name!r})"


def _places(script: Sequence[Item]) -> list[tuple[tuple[Fail, ...], _Prepared | None]]:
    places: list[tuple[tuple[Fail, ...], _Prepared | None]] = []
    fails: list[Fail] = []
    for item in map(_item, (script,) if isinstance(script, str) else script):
        if isinstance(item, Fail):
            fails.append(item)
        else:
            places.append((tuple(fails), _Prepared(item)))
            fails = []
    if fails:
        places.append((tuple(fails), None))
    return places


def _item(item: Any) -> Turn | Fail:
    if isinstance(item, (Turn, Fail)):
        return item
    if isinstance(item, str):
        return text(item)
    if isinstance(item, (list, tuple)):
        whole = Turn()
        for part in map(_item, cast("Sequence[Item]", item)):
            if isinstance(part, Fail):
                raise ConfigurationError("a failure stands by itself in a script, not inside a turn")
            whole += part
        return whole
    raise ConfigurationError(f"a script holds texts, turns and failures, not {type(item).__name__}")


def _deltas(item: Turn) -> list[ModelDelta]:
    deltas: list[ModelDelta] = []
    index = 0
    for part in item.parts:
        if isinstance(part, Text):
            deltas += map(TextDelta, _pieces(part.text, item.chunk))
        elif isinstance(part, Reasoning):
            deltas += map(ReasoningDelta, _pieces(part.text, item.chunk))
        elif isinstance(part, ToolCall):
            deltas.append(ToolCallDelta(index, part.name, part.raw or ""))
            index += 1
    return deltas


def _pieces(words: str, size: int) -> list[str]:
    """Cut at spaces into pieces of at most `size` characters, a longer word staying whole; joined they are `words`."""
    if len(words) <= size:
        return [words] if words else []
    pieces = [""]
    for word in re.findall(r"\s*\S+\s*?|\s+", words):
        if pieces[-1] and len(pieces[-1]) + len(word) > size:
            pieces.append("")
        pieces[-1] += word
    return pieces


def _prepared(item: Turn | Fail) -> _Prepared | Fail:
    return _Prepared(item) if isinstance(item, Turn) else item


def _cut_off(asked: ToolCall) -> ToolCall:
    return replace(asked, arguments={}, problem="truncated")


def _own(part: Part) -> Part:
    if not isinstance(part, ToolCall):
        return part
    return ToolCall(part.id, part.name, _copy(part.arguments), part.raw, part.problem, part.meta)


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(inner) for key, inner in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_copy(inner) for inner in cast("list[Any]", value)]
    return value


def _size(parts: Sequence[Part]) -> int:
    return sum(len(part.text) if isinstance(part, (Text, Reasoning)) else 20 for part in parts)
