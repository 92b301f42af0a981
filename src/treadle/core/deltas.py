"""Join deltas to the answer so far, and track how far a reader has read it.

A delta carries its position: `at` counts the characters of its channel before it, `tool_at` those of the call's name.
So a delta can be repeated and joined without loss: the answer is `text[:delta.at] + delta.text`. A reader that joins
late or falls behind first gets one delta for each channel, with `at=0` and its whole text.

Withhold the texts of answers from watchers until guardrails pass them. The journal has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from io import StringIO
from typing import Any, Final, TypeAlias, TypeVar

from treadle.core.events import (
    AnswerHeld,
    ApprovalGiven,
    Delta,
    Event,
    GuardrailJudged,
    ModelFailed,
    ModelRestarted,
    ModelReturned,
    ModelStarted,
    ModelStopped,
)
from treadle.core.ids import is_answer
from treadle.core.messages import Message

T = TypeVar("T")


def _without_message(event: AnswerHeld) -> Event:
    return _changed_copy(event, message=Message(event.message.role, ()), typed=None)


def _without_content(event: GuardrailJudged) -> Event:
    return _changed_copy(event, content=None, previous=None) if event.guards == "output" else event


def _without_arguments(event: ApprovalGiven) -> Event:
    return _changed_copy(event, arguments=None, previous=None) if is_answer(event.call) else event


_WITHHELD: Final[dict[type[Any], Callable[[Any], Event]]] = {
    AnswerHeld: _without_message,
    GuardrailJudged: _without_content,
    ApprovalGiven: _without_arguments,
}


def _changed_copy(event: Any, **changes: Any) -> Event:
    shown = replace(event, **changes)
    shown.seq, shown.time = event.seq, event.time
    if (name := getattr(event, "tool_name", None)) is not None:
        shown.tool_name = name
    return shown


def for_watchers(items: Sequence[T]) -> Sequence[T]:
    """Return events for watchers: the same sequence, unless some text is withheld."""
    if not any(type(item) in _WITHHELD for item in items):
        return items
    return [_WITHHELD[type(item)](item) if type(item) in _WITHHELD else item for item in items]  # type: ignore[misc]


AnswerKey: TypeAlias = tuple[str, str | None]
"""The key of an answer: its step, and the request if a function of the step made one."""

Place: TypeAlias = tuple[str, int]
"""The key of a part of an answer: a channel, and the index of the call for arguments."""

_BOUNDS = (ModelStarted, ModelReturned, ModelFailed, ModelStopped, ModelRestarted)


def ended_by(event: Event | ModelRestarted) -> AnswerKey | None:
    """Return the answer whose deltas an event completes or voids, or None if there is none."""
    return (event.step, event.call) if isinstance(event, _BOUNDS) else None


_UNREAD: Final = (0, 0)


class DeltaPlaces:
    """The positions of a reader in the answers that are being written."""

    __slots__ = ("_read",)

    def __init__(self) -> None:
        self._read: dict[tuple[str, str | None, str, int], tuple[int, int]] = {}
        """the characters read of each part of each answer, and of its call's name"""

    def forget(self, answer: AnswerKey) -> None:
        """Forget an answer: it has ended, or another attempt at it begins."""
        for part in [part for part in self._read if part[:2] == answer]:
            del self._read[part]

    def read_on(self, delta: Delta) -> bool:
        """Return whether a delta continues its part at the reader's position. If so, mark it as read."""
        part = delta.step, delta.call, delta.channel, delta.index
        at, tool_at = delta.at, delta.tool_at
        if self._read.get(part, _UNREAD) != (at, tool_at):
            return False
        self._read[part] = at + len(delta.text), tool_at + len(delta.tool)
        return True

    def is_gap(self, delta: Delta) -> bool:
        """Return whether text before a delta was not read."""
        chars, name = self._chars(delta)
        return delta.at > chars or delta.tool_at > name

    def new_part(self, delta: Delta) -> Delta | None:
        """Return the unread part of a delta and mark it as read, or None if all was read."""
        chars, name = self._chars(delta)
        end, name_end = delta.at + len(delta.text), delta.tool_at + len(delta.tool)
        if delta.at < chars or delta.tool_at < name:
            if end <= chars and name_end <= name:
                return None
            at, tool_at = max(delta.at, min(chars, end)), max(delta.tool_at, min(name, name_end))
            delta = part_of(
                delta, text=delta.text[at - delta.at :], at=at, tool=delta.tool[tool_at - delta.tool_at :]
            )
            delta.tool_at = tool_at
        self._read[delta.step, delta.call, delta.channel, delta.index] = max(end, chars), max(name_end, name)
        return delta

    def _chars(self, delta: Delta) -> tuple[int, int]:
        return self._read.get((delta.step, delta.call, delta.channel, delta.index), _UNREAD)


class DeltasSoFar:
    """The deltas of answers that are being written, joined: one for each part of each answer."""

    __slots__ = ("_answers",)

    def __init__(self) -> None:
        self._answers: dict[AnswerKey, dict[Place, tuple[Delta, StringIO, StringIO]]] = {}

    def add(self, delta: Delta) -> None:
        """Join a delta to those before it. Ignore it if those are missing."""
        answer = self._answers.setdefault((delta.step, delta.call), {})
        place = (delta.channel, delta.index)
        part = answer.get(place)
        if part is None:
            part = answer[place] = delta, StringIO(), StringIO()
        _, text, name = part
        if delta.at == text.tell() and delta.tool_at == name.tell():
            text.write(delta.text)
            name.write(delta.tool)

    def chars(self, delta: Delta) -> int:
        """Return the number of characters of the part that a delta continues."""
        answer = self._answers.get((delta.step, delta.call), {})
        part = answer.get((delta.channel, delta.index))
        return part[1].tell() if part is not None else 0

    def forget(self, answer: AnswerKey) -> None:
        """Forget an answer: it has ended, or another attempt at it begins."""
        self._answers.pop(answer, None)

    def forget_step(self, step: str) -> None:
        """Forget all answers of a step."""
        for key in [key for key in self._answers if key[0] == step]:
            del self._answers[key]

    def clear(self) -> None:
        """Forget all answers."""
        self._answers.clear()

    def deltas(self) -> Iterator[Delta]:
        """Yield one delta for each part, with all of its text so far."""
        for answer in list(self._answers.values()):
            for first, text, name in list(answer.values()):
                if text.tell() or name.tell():
                    whole = part_of(first, text=text.getvalue(), at=0, tool=name.getvalue())
                    whole.tool_at = 0
                    yield whole


def part_of(delta: Delta, *, text: str, at: int, tool: str) -> Delta:
    """Return a copy of a delta with another text and place. It comes from the same agent."""
    part = replace(delta, text=text, at=at, tool=tool)
    origin = getattr(delta, "origin", None)
    if origin is not None:
        part.origin = origin
    return part
