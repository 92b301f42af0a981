"""The answers of a scripted provider, as data: parts, turns, failures, and the choice of one for a request."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, TypeAlias, TypedDict, TypeVar, Unpack, cast, get_args

from treadle.core.data import frozen
from treadle.core.model import Usage
from treadle.errors import ConfigurationError

Cut = Literal["reset", "close", "eof", "error"]
"""The ways in which an answer stops too early: a TCP reset, a plain close, or a regular end of an incomplete HTTP
body. In streams also an error event of the provider.
"""


@frozen
class Text:
    """Text of the answer."""

    text: str


@frozen
class Reasoning:
    """Thinking: an Anthropic thinking block, or `reasoning_content` of OpenAI-compatible servers."""

    text: str
    signature: str | None = None


@frozen
class Refusal:
    """Text with which the model declines to answer."""

    text: str


@frozen
class ScriptedCall:
    """A tool call; `arguments` is sent unchanged, valid JSON or not. Without `id` it gets a fresh one."""

    name: str
    arguments: str
    id: str | None = None


Part: TypeAlias = Text | Reasoning | Refusal | ScriptedCall
_P = TypeVar("_P", Text, Reasoning, Refusal, ScriptedCall)


class How(TypedDict, total=False):
    """Keyword options of `turn`, `fail` and `raw`; see `Delivery`."""

    delay: float
    chunk_delay: float
    chunk_size: int
    split: int | Sequence[int] | None
    crlf: bool
    comments: bool
    interleave: bool
    cut: Cut | None
    cut_after: int | None


@frozen(kw_only=True)
class Delivery:
    """The delivery of the bytes of an answer to the client.

    Args:
        delay: seconds before the first byte, headers included.
        chunk_delay: seconds between two pieces.
        chunk_size: characters of text or arguments in one streamed delta.
        split: cut the body anew, across events and characters: into pieces of this number of bytes, or at these places
            in bytes.
        crlf: end the lines of a stream with CR LF.
        comments: put a comment line before each streamed event.
        interleave: in OpenAI streams, send the arguments of parallel calls in turns, not one after another.
        cut: stop the answer early, in this way.
        cut_after: the number of pieces before the cut, as the end of a Python slice. `-1` leaves out only the last, the
            terminal event of a stream. A large number cuts after all of them. By default half of them.
    """

    delay: float = 0.0
    chunk_delay: float = 0.0
    chunk_size: int = 8
    split: int | Sequence[int] | None = None
    crlf: bool = False
    comments: bool = False
    interleave: bool = False
    cut: Cut | None = None
    cut_after: int | None = None

    def __post_init__(self) -> None:
        if self.delay < 0 or self.chunk_delay < 0:
            raise ConfigurationError("delay and chunk_delay are seconds, 0 or more")
        sizes = (self.split,) if isinstance(self.split, int) else self.split or ()
        if self.chunk_size < 1 or any(size < 1 for size in sizes):
            raise ConfigurationError("chunk_size and split are 1 or more")
        if self.cut is not None and self.cut not in get_args(Cut):
            raise ConfigurationError(f"cut is one of {', '.join(get_args(Cut))}, not {self.cut!r}")


PLAIN = Delivery()


@frozen(kw_only=True)
class ScriptedTurn:
    """One answer of the model. Made by `turn`."""

    parts: tuple[Part, ...]
    usage: Usage | Literal["missing"] | None = None
    finish: str | None = None
    answers: bool = True
    how: Delivery = PLAIN

    def of(self, kind: type[_P]) -> list[_P]:
        """Return the parts of one kind, in order."""
        return [part for part in self.parts if isinstance(part, kind)]


@frozen(kw_only=True)
class Failure:
    """An HTTP error in the provider's own envelope. Made by `fail`."""

    status: int
    message: str
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    how: Delivery = PLAIN
    answers: Literal[False] = False


@frozen(kw_only=True)
class Raw:
    """A response byte for byte. Made by `raw`."""

    body: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    answers: bool = False
    how: Delivery = PLAIN


@frozen(kw_only=True)
class HangUp:
    """The connection ends before any byte of a response. Made by `hang_up`."""

    by: Literal["reset", "close"] = "reset"
    delay: float = 0.0
    answers: Literal[False] = False


Item: TypeAlias = ScriptedTurn | Failure | Raw | HangUp
Scripted: TypeAlias = Item | Part | str | Sequence[Part | str]
"""An item of a script: text, a part, several parts, a turn, or a fault."""


def text(words: str) -> Text:
    """Return text that the model writes."""
    return Text(words)


def reasoning(words: str, *, signature: str | None = None) -> Reasoning:
    """Return reasoning of the model. In Anthropic's format it has a signature, by default one made from the text."""
    return Reasoning(words, signature)


def refusal(words: str) -> Refusal:
    """Text with which the model declines to answer."""
    return Refusal(words)


def call(name: str, /, **arguments: Any) -> ScriptedCall:
    """Return a call of the tool `name` with these arguments."""
    return ScriptedCall(name, json.dumps(arguments))


def raw_call(name: str, arguments: str | Mapping[str, Any], *, call_id: str | None = None) -> ScriptedCall:
    """Return a call whose argument text is sent unchanged, or with any id, also an empty or repeated one."""
    return ScriptedCall(name, arguments if isinstance(arguments, str) else json.dumps(arguments), call_id)


def turn(
    *parts: Part | str,
    usage: Usage | Literal["missing"] | None = None,
    finish: str | None = None,
    answers: bool | None = None,
    **how: Unpack[How],
) -> ScriptedTurn:
    """Return one answer made of parts.

    Args:
        parts: text, reasoning, refusals and calls, in order.
        usage: tokens to report; as everywhere in Treadle, input includes cached tokens and output includes reasoning.
            `"missing"` leaves them out. By default they are estimated from lengths.
        finish: `stop`, `tool_calls`, `length`, `content_filter` or `refusal`, translated to each provider's names; any
            other value is sent unchanged. In the format of Chat Completions, `null` is sent as JSON's null, and
            `absent` leaves the field out.
        answers: whether the conversation goes on after it, see `Script`; by default True unless it is cut.
        how: options of `Delivery`.
    """
    delivery = Delivery(**how)
    contents = tuple(Text(part) if isinstance(part, str) else part for part in parts)
    counts = delivery.cut is None if answers is None else answers
    return ScriptedTurn(parts=contents, usage=usage, finish=finish, answers=counts, how=delivery)


def fail(
    status: int,
    message: str | None = None,
    *,
    retry_after: float | str | None = None,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
    **how: Unpack[How],
) -> Failure:
    """Return an HTTP error in the provider's own envelope.

    Args:
        status: the HTTP status, 400 to 599.
        message: the provider's message.
        retry_after: seconds, or an HTTP date, for the `retry-after` header.
        code: OpenAI's `code` or Anthropic's error `type`, instead of the usual one for this status.
        headers: further response headers.
        how: options of `Delivery`.

    Raises:
        ConfigurationError: the status is not that of an error.
    """
    if not 400 <= status <= 599:
        raise ConfigurationError(f"fail() takes a status from 400 to 599, not {status}")
    sent = dict(headers or {})
    if retry_after is not None:
        sent["retry-after"] = retry_after if isinstance(retry_after, str) else f"{retry_after:g}"
    text = message or f"The script answers with status {status}."
    return Failure(status=status, message=text, code=code, headers=sent, how=Delivery(**how))


def raw(
    body: bytes | str,
    *,
    status: int = 200,
    content_type: str = "application/json",
    headers: Mapping[str, str] | None = None,
    answers: bool = False,
    **how: Unpack[How],
) -> Raw:
    """Return a response byte for byte; with `answers=True` it counts as an answer, see `Script`."""
    data = body.encode() if isinstance(body, str) else body
    sent = {"content-type": content_type, **(headers or {})}
    return Raw(body=data, status=status, headers=sent, answers=answers, how=Delivery(**how))


def hang_up(by: Literal["reset", "close"] = "reset", *, delay: float = 0.0) -> HangUp:
    """End the connection before any byte of the response, after `delay` seconds."""
    if by not in ("reset", "close"):
        raise ConfigurationError(f"by is reset or close, not {by!r}")
    return HangUp(by=by, delay=delay)


def as_item(scripted: Scripted) -> Item:
    """Return an item of a script as a response."""
    if isinstance(scripted, (ScriptedTurn, Failure, Raw, HangUp)):
        return scripted
    if isinstance(scripted, (str, Text, Reasoning, Refusal, ScriptedCall)):
        return turn(scripted)
    return turn(*scripted)


class OutOfScript(LookupError):
    """A conversation continued after the script's last turn."""


class Script:
    """A list of responses without a cursor: the request itself determines its response.

    The turn of a request is the number of its assistant messages. It picks the answer of that place, so retries,
    resumes, forks and concurrent conversations need no reset. A failure, raw bytes, a hang-up or a cut turn is no
    answer. It belongs to the answer after it, and is sent once for each conversation and turn, in order. If no answer
    follows, the last one is sent for ever.
    """

    def __init__(self, items: Sequence[Scripted]) -> None:
        self._places: list[list[Item]] = []
        waiting: list[Item] = []
        for item in map(as_item, items):
            waiting.append(item)
            if item.answers:
                self._places.append(waiting)
                waiting = []
        if waiting:
            self._places.append(waiting)

    def pick(self, turn: int, attempt: int) -> Item:
        """Return the response for a request by its attempt and its turn, each from 0.

        Raises:
            OutOfScript: the script has no such turn.
        """
        if turn >= len(self._places):
            raise OutOfScript(f"the script has {len(self._places)} turns, and turn {turn + 1} was requested")
        index = self._places[turn]
        return index[min(attempt, len(index) - 1)]


def from_json(items: Any) -> list[Item]:
    """Return a script written as JSON: a list whose items are text, objects, or lists of these.

    A part is `{"text": ...}`, `{"reasoning": ..., "signature": ...}`, `{"refusal": ...}` or `{"call": name,
    "arguments": object or text, "id": ...}`. A turn is a part, or `{"parts": [...]}`, with the options of `turn`. A
    fault is `{"fail": status, ...}`, `{"raw": text, ...}` or `{"hang_up": "reset" | "close", ...}`, with the options of
    the function of that name.

    Raises:
        ConfigurationError: an item is none of these.
    """
    if not isinstance(items, list):
        raise ConfigurationError("a script in JSON is a list of turns")
    script: list[Item] = []
    for index, item in enumerate(cast("list[Any]", items)):
        try:
            script.append(_item_from_json(item))
        except (TypeError, KeyError, ValueError) as error:
            raise ConfigurationError(f"turn {index} of the script: {error}") from error
    return script


def _item_from_json(item: Any) -> Item:
    if isinstance(item, list):
        return turn(*map(_part_from_json, cast("list[Any]", item)))
    if not isinstance(item, dict):
        return turn(_part_from_json(item))
    options = dict(cast("dict[str, Any]", item))
    for name, make in _FAULTS.items():
        if name in options:
            return make(options.pop(name), **options)
    if isinstance(usage := options.get("usage"), dict):
        options["usage"] = Usage(**cast("dict[str, Any]", usage))
    if "parts" in options:
        return turn(*map(_part_from_json, options.pop("parts")), **options)
    part = {name: options.pop(name) for name in _PART_KEYS if name in options}
    return turn(_part_from_json(part), **options)


_FAULTS: dict[str, Callable[..., Item]] = {"fail": fail, "raw": raw, "hang_up": hang_up}
_PART_KEYS = ("text", "reasoning", "signature", "refusal", "call", "arguments", "id")


def _part_from_json(value: Any) -> Part:
    if isinstance(value, str):
        return Text(value)
    if not isinstance(value, dict):
        raise TypeError(f"not a part of a turn: {value!r}")
    part = cast("dict[str, Any]", value)
    match part:
        case {"text": content, **rest} if not rest:
            return Text(content)
        case {"refusal": content, **rest} if not rest:
            return Refusal(content)
        case {"reasoning": content, **rest} if rest.keys() <= {"signature"}:
            return reasoning(content, **rest)
        case {"call": name, **rest} if rest.keys() <= {"arguments", "id"}:
            return raw_call(name, rest.get("arguments", {}), call_id=rest.get("id"))
        case _:
            raise ValueError(f"not a part of a turn: {part!r}")
