"""Prepare a model's answer for the journal. Its calls get new ids, and a broken answer cannot lead to an action."""

from __future__ import annotations

from dataclasses import fields, replace
from operator import attrgetter, is_
from typing import Any, Final, cast, get_args

from treadle.core.codec import NO_JSON, encode_part, flaw, is_writable
from treadle.core.ids import call_id
from treadle.core.messages import File, Image, Message, Part, Reasoning, Text, ToolCall
from treadle.core.model import NO_USAGE, WHOLE, Finish, ModelAnswer, SideCall, Usage
from treadle.core.observation import scrubbed
from treadle.core.redaction import SECRET

RAW_KEPT: Final = 2_000
"""The most characters that are kept of arguments which a record cannot hold."""

MAX_CALLS: Final = 1_000
"""The most calls of one answer. In an answer with more, none runs and the model gets the reason."""

MAX_TOKENS: Final = 10**12
"""The most tokens that one answer may report. Even sums of millions of answers then fit into the journal."""

SURPLUS: Final = "it was one of"
"""The beginning of the problem of a call from an answer with too many."""

WITHHELD: Final = "its arguments held a secret of this process"
"""The problem of a call in which a secret was masked: its arguments differ from the model's."""

FINISHES: Final = frozenset(get_args(Finish))

_COUNTS: Final = [item.name for item in fields(Usage) if item.name.endswith("_tokens")]
_fields_of: Final = attrgetter(*_COUNTS, "estimated", "tier")
_PLAIN: Final = (*[int] * len(_COUNTS), bool, str)
_can_be_counted: Final = range(MAX_TOKENS + 1).__contains__


class WrongAnswer(ValueError):
    """A model's answer is malformed. The message says why."""


def checked_answer(answer: ModelAnswer) -> ModelAnswer:
    """Return an answer with its counts as plain integers. `with_places` checks the arguments of its calls.

    Raises `WrongAnswer` for an answer that cannot be journalled or sent to a model again.
    """
    message: Any = answer.message
    if not isinstance(message, Message) or not isinstance(message.parts, tuple):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise WrongAnswer(
            f"its message must be a Message with a tuple of parts, got a {type(message).__name__}"
        )
    usage: Any = answer.usage
    if usage is not NO_USAGE:
        plain = plain_usage(usage)
        if plain is None:
            raise WrongAnswer(
                f"its usage must be a Usage of whole numbers from 0 to {MAX_TOKENS:,}, got {usage!r:.200}"
            )
        if plain is not usage:
            answer = replace(answer, usage=plain)
    if answer.finish not in FINISHES:
        raise WrongAnswer(
            f"its finish must be one of {', '.join(sorted(FINISHES))}, got {answer.finish!r:.80}"
        )
    if not isinstance(answer.model, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise WrongAnswer(f"its model must be a name, got {answer.model!r:.80}")
    if answer.also:
        answer = replace(answer, also=checked_side_calls(answer.also))
    for part in message.parts:
        _check_part(part)
    if message.meta is not None and not is_writable(message.meta):
        raise WrongAnswer("the message's meta is not JSON data")
    return answer


def is_empty(answer: ModelAnswer) -> bool:
    """Return whether a model ended its answer by itself without a call, a file, or visible text."""
    for part in answer.message.parts:
        if type(part) is Text:
            if part.text and not part.text.isspace():
                return False
        elif type(part) is not Reasoning:
            return False
    return answer.finish in WHOLE or answer.finish == "unknown"  # else it was truncated, or refused


def checked_side_calls(also: Any) -> tuple[SideCall, ...]:
    """Return side calls with their counts as plain integers.

    Raises `WrongAnswer` for side calls that cannot be journalled.
    """
    checked = (
        list(map(_plain_side_call, cast("tuple[Any, ...]", also))) if isinstance(also, tuple) else [None]
    )
    sides = tuple([side for side in checked if side is not None])
    if len(sides) < len(checked):
        raise WrongAnswer(f"the other requests sent with it must be a tuple of SideCall, got {also!r:.200}")
    return sides


def plain_usage(usage: Any) -> Usage | None:
    """Return a `Usage` with plain integers, or None if it cannot be journalled and added up.

    A count may be of a subclass of `int`, such as a member of an `IntEnum`.
    """
    if not isinstance(usage, Usage):
        return None
    values = _fields_of(usage)
    if tuple(map(type, values)) != _PLAIN:
        usage = _with_plain_counts(usage)
        if usage is None:
            return None
        values = _fields_of(usage)
    return usage if all(map(_can_be_counted, values[: len(_COUNTS)])) else None


def _with_plain_counts(usage: Usage) -> Usage | None:
    *counts, estimated, tier = _fields_of(usage)
    if type(estimated) is not bool or type(tier) is not str:
        return None
    if not all(isinstance(count, int) and type(count) is not bool for count in counts):
        return None
    return replace(usage, **dict(zip(_COUNTS, map(int.__int__, counts), strict=True)))


def _plain_side_call(side: Any) -> SideCall | None:
    if not isinstance(side, SideCall) or not isinstance(side.model, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        return None
    usage = plain_usage(side.usage)
    if usage is None or not isinstance(side.error, (str, type(None))):  # pyright: ignore[reportUnnecessaryIsInstance]
        return None
    return side if usage is side.usage else replace(side, usage=usage)


def _check_part(part: Any) -> None:
    kind = part.__class__
    if kind is Text:
        sound = part.text.__class__ is str and (part.label is None or _can_be_written(part))
    elif kind is ToolCall:
        sound = part.name.__class__ is str and part.arguments.__class__ is dict
        sound = sound and (part.raw is None or isinstance(part.raw, str))
        sound = sound and (part.problem is None or isinstance(part.problem, str))
    elif kind is Reasoning:
        sound = part.text.__class__ is str
    else:
        sound = (kind is Image or kind is File) and _can_be_written(part)
    if not sound or (part.meta is not None and not is_writable(part.meta)):
        raise _wrong_part(part)


def _wrong_part(part: Any) -> WrongAnswer:
    return WrongAnswer(f"a part of its message is wrong: {part!r:.200}")


def _can_be_written(part: Any) -> bool:
    try:
        encode_part(part)
    except (TypeError, ValueError, AttributeError):
        return False
    return True


def _whole(part: Part) -> Part:
    """Return a part without lone surrogates, which no record can hold."""
    if (type(part) is Text or type(part) is Reasoning) and not part.text.isascii():
        text = scrubbed(part.text)
        return part if text == part.text else replace(part, text=text)
    return part


def with_places(message: Message, step: str, finish: Finish, *, first: int = 0) -> Message:
    """Return a model's message with the ids of its calls replaced by their places in the task.

    A provider's own ids may be empty, duplicate or reused. Places are unique, and the same after a crash. A call in a
    truncated, filtered or refused answer is marked, so that it never becomes an action. So is a call whose arguments a
    record cannot hold. If an answer has too many calls, only the first stays, with a problem. Lone surrogates in its
    text become question marks.

    Args:
        message: the message of the adapter.
        step: id of the step that asked.
        finish: the reason why the model stopped.
        first: number of the first call, if the step has calls from an earlier answer.

    Raises:
        WrongAnswer: the arguments of a call are not JSON data.
    """
    original = message.parts
    parts = list(original) if len(original) <= MAX_CALLS else _bounded(original)
    number = first
    for index, part in enumerate(parts):
        if type(part) is ToolCall:
            problem, arguments, raw = part.problem, part.arguments, part.raw
            if problem is None and finish not in ("tool_calls", "stop"):
                problem = "truncated" if finish == "length" else finish
            if (flaw_text := flaw(arguments)) is not None:
                if flaw_text == NO_JSON:
                    raise _wrong_part(part)
                problem, arguments, raw = problem or flaw_text, {}, (raw or "")[:RAW_KEPT]
            parts[index] = ToolCall(
                call_id(step, number),
                scrubbed(part.name),
                arguments,
                raw and scrubbed(raw),
                problem,
                part.meta,
            )
            number += 1
        else:
            parts[index] = _whole(part)
    if number == first and message.role == "assistant" and all(map(is_, parts, original)):
        return message
    return Message("assistant", tuple(parts), message.meta)


def _bounded(message_parts: tuple[Part, ...]) -> list[Part]:
    """Return the parts of a message. If it has too many calls, only the first stays, marked as not to be run."""
    calls = sum([type(part) is ToolCall for part in message_parts])
    if calls <= MAX_CALLS:
        return list(message_parts)
    problem = f"{SURPLUS} {calls:,} calls in one answer, and {MAX_CALLS:,} are the most"
    parts: list[Part] = []
    for part in message_parts:
        if not isinstance(part, ToolCall):
            parts.append(part)
        elif calls:
            parts.append(ToolCall(part.id, part.name, part.arguments, part.raw, problem, part.meta))
            calls = 0
    return parts


def problem_clause(problem: str) -> str:
    """Return the problem of a call as a clause, and its remedy as a sentence."""
    if problem.startswith(SURPLUS):
        return f"{problem}. None of them was run. Ask for fewer at a time"
    if problem == WITHHELD:
        return f"{problem}, now {SECRET}. Ask for it without the secret"
    return f"its arguments were {problem}. Send the whole call again"
