"""Withhold from watchers the texts of answers that guardrails have not passed. The journal has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from treadle.core.events import AnswerHeld, ApprovalGiven, Event, GuardrailJudged
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
    """Return events for watchers; the same sequence, if nothing in it is withheld."""
    if not any(type(item) in _WITHHELD for item in items):
        return items
    return [_WITHHELD[type(item)](item) if type(item) in _WITHHELD else item for item in items]  # type: ignore[misc]
