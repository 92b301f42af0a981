"""A task from its journal as a model: it says again what was said then, and fails again as it failed then."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any, Final, cast

from treadle.core import events as e
from treadle.core.data import frozen, mutable
from treadle.core.fold import apply
from treadle.core.messages import ToolCall
from treadle.core.model import (
    ModelAnswer,
    ModelDelta,
    ModelRequest,
)
from treadle.core.state import start
from treadle.errors import ConfigurationError, ModelError, ModelErrorKind
from treadle.llm.recorded_answer import own, pieces


@mutable
class _Question:
    """One request as it was recorded: the failures before its answer, and the answer if there was one."""

    failures: list[e.ModelFailed]
    answer: e.ModelReturned | None = None


@frozen
class _Place:
    """Which question a request is: the turn of the conversation, or which of its requests a function's step makes."""

    turn: int
    step: str | None = None


_NUMBER: Final = re.compile(r"(.+)-m(\d+)")
"""What the id of a function's request is made of: its step, and a number, which skips those that a crash lost."""


class ReplayModel:
    """A journalled task as a model: the recorded answer for each turn, after the failures that were recorded.

    It has no cursor: a request is answered by its turn and attempt (`request.turn`, `request.attempt`), one of a step
    that is a function by its number in that step. So resume, fork, undo and concurrent tasks each get the answer of
    their place. Of a task that was undone in part, the answers are those of its last branch.

    Args:
        events: the events of the task from the first on, as `treadle.testing.replay.journals.journal_of` returns them.
        name: how the model is named; by default as the recorded one.
        output_mode: how a typed answer is asked for; by default as it was given when recorded.

    Raises:
        ConfigurationError: the events are not those of a task from its beginning.
    """

    def __init__(
        self, events: Sequence[e.Event], *, name: str | None = None, output_mode: str | None = None
    ) -> None:
        if not events or not isinstance(events[0], e.TaskCreated):
            raise ConfigurationError("ReplayModel: events must be those of a task, from its first one on")
        self._questions = _questions(events)
        self.name: str = name or next((x.model for x in events if isinstance(x, e.ModelStarted)), "replay")
        self.output_mode = output_mode or _mode(events)
        self.requests: list[ModelRequest] = []
        """what was asked, oldest first"""

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelAnswer]:
        self.requests.append(request)
        place = _Place(request.turn)
        if request.call is not None and (found := _NUMBER.fullmatch(request.call)) is not None:
            place = _Place(int(found[2]), found[1])
        question = self._questions.get(place)
        if question is not None and request.attempt <= len(question.failures):
            raise _error(question.failures[request.attempt - 1])
        if question is None or question.answer is None:
            what = f"turn {request.turn}" if request.call is None else f"the request {request.call}"
            raise ModelError(
                f"the recording has no answer to {what} (attempt {request.attempt})", kind="invalid_request"
            )
        message = own(question.answer.message)
        for delta in pieces(message):
            yield delta
        answer = question.answer
        yield ModelAnswer(message, answer.finish, answer.usage, answer.model, answer.also)

    def __repr__(self) -> str:
        return f"ReplayModel({self.name!r}, {len(self._questions)} requests)"


def _questions(events: Sequence[e.Event]) -> dict[_Place, _Question]:
    found: dict[_Place, _Question] = {}
    edited: dict[str, Any] = {}
    places: dict[str, _Place] = {}
    state = start("replay")
    for event in events:
        if isinstance(event, (e.ModelStarted, e.ModelFailed, e.ModelReturned)):
            place = _Place(state.turn) if event.call is None else places[event.call]
            question = found.get(place)
            if question is None or (isinstance(event, e.ModelStarted) and event.attempt == 1):
                question = found[place] = _Question([])
            if isinstance(event, e.ModelFailed):
                question.failures.append(event)
            elif isinstance(event, e.ModelReturned):
                question.answer = event
        elif isinstance(event, e.ModelRequested):
            before = {place for place in places.values() if place.step == event.step}
            places.setdefault(event.call, _Place(len(before) + 1, event.step))
        elif isinstance(event, e.CallEdited):
            edited[event.call] = event.arguments
        apply(state, event, 1)
        if isinstance(event, e.Rewound):
            found = {place: known for place, known in found.items() if place.step or place.turn < state.turn}
    for question in found.values():
        if question.answer is not None and any(c.id in edited for c in question.answer.message.tool_calls):
            parts = question.answer.message.parts
            changed = tuple([_edited(part, edited) if isinstance(part, ToolCall) else part for part in parts])
            question.answer = replace(
                question.answer, message=replace(question.answer.message, parts=changed)
            )
    return found


def _edited(call: ToolCall, edited: dict[str, Any]) -> ToolCall:
    """Return a call as a person changed it before it ran."""
    return replace(call, arguments=edited[call.id], raw=None, problem=None) if call.id in edited else call


def _mode(events: Sequence[e.Event]) -> str:
    typed = [
        event.typed for event in events if isinstance(event, e.ModelReturned) and event.typed is not None
    ]
    return "native" if typed and all(one.call is None for one in typed) else "tool"


def _error(failed: e.ModelFailed) -> ModelError:
    """Return a recorded failure; what was asked again then is asked again now, without the wait."""
    error = failed.error
    return ModelError(
        error.message,
        kind=cast("ModelErrorKind", error.kind),
        status=error.status,
        retry_after=error.retry_after,
        again_in=0.0 if failed.retry_at is not None else None,
        model=failed.model,
        route=failed.route,
        next_route=failed.next_route,
        also=failed.also,
    )
