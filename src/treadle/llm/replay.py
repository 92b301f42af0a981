"""A recorded task as a model: it repeats the recorded answers and the recorded failures."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any, Final, cast

from treadle.core import events as e
from treadle.core.data import frozen, mutable
from treadle.core.messages import Json, Message, Text, ToolCall
from treadle.core.model import (
    ModelAnswer,
    ModelDelta,
    ModelRequest,
)
from treadle.core.observation import as_text
from treadle.core.rules.fold import apply
from treadle.core.state import TaskState, start
from treadle.errors import ConfigurationError, ModelError, ModelErrorKind
from treadle.llm.recorded_answer import deltas_of, own_copy


@mutable
class _RecordedCall:
    """A recorded model call: the failures before its answer, and the answer if there was one."""

    failures: list[e.ModelFailed | e.AnswerHeld]
    """the failed attempts; for those that guardrails refused, their answers"""

    answer: e.ModelReturned | e.AnswerHeld | None = None
    held: e.AnswerHeld | None = None
    """the newest answer that guardrails held"""


@frozen
class _Position:
    """The position of a model call: its turn in the task, or its number in a step function."""

    turn: int
    """the turn, or the number of the call in the step"""
    step: str | None = None
    agent: str = ""
    """the agent that made it, if the conversation had moved from the agent that the task was created for"""


_NUMBER: Final = re.compile(r"(.+)-m(\d+)")
"""The id of a step function's model call: its step and a number. A crash may leave gaps."""


class ReplayModel:
    """A journalled task as a model: for each turn, the recorded failures and then the recorded answer.

    The model has no cursor. It finds an answer by the request's `turn` and `attempt`, or by its number in a step
    function. So resume, fork, undo and concurrent tasks each get the answer of their position. After a partial undo,
    the answers are those of the last branch.

    Args:
        events: the events of a task from its first one, as `treadle.replay.recording.journal_of` returns them.
        name: the name of the model; by default that of the recorded one.
        output_mode: how to ask for a typed answer; by default as in the recording.
        agent: the agent whose answers are repeated, if the conversation moved to it. The default is the agent that the
            task was created for.

    Raises:
        ConfigurationError: the first event is not the creation of a task.
    """

    def __init__(
        self,
        events: Sequence[e.Event],
        *,
        name: str | None = None,
        output_mode: str | None = None,
        agent: str = "",
    ) -> None:
        if not events or not isinstance(events[0], e.TaskCreated):
            raise ConfigurationError(
                "ReplayModel: events must be those of a task, beginning with its first event"
            )
        self._calls = _recorded_calls(events)
        self._agent = agent if agent != events[0].agent else ""
        self.name: str = name or next((x.model for x in events if isinstance(x, e.ModelStarted)), "replay")
        self.output_mode = output_mode or _mode(events)
        self.requests: list[ModelRequest] = []
        """the requests received, oldest first"""

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelAnswer]:
        self.requests.append(request)
        position = _Position(request.turn, None, self._agent)
        if request.call is not None and (match := _NUMBER.fullmatch(request.call)) is not None:
            position = _Position(int(match[2]), match[1])
        call = self._calls.get(position)
        answer = call.answer if call is not None else None
        if call is not None and request.attempt <= len(call.failures):
            before = call.failures[request.attempt - 1]
            if isinstance(before, e.ModelFailed):
                raise _error(before)
            answer = before
        if answer is None:
            request_name = f"turn {request.turn}" if request.call is None else f"the request {request.call}"
            raise ModelError(
                f"the recording has no answer to {request_name} (attempt {request.attempt})",
                kind="invalid_request",
            )
        message = own_copy(answer.message)
        for delta in deltas_of(message):
            yield delta
        yield ModelAnswer(message, answer.finish, answer.usage, answer.model, answer.also)

    def __repr__(self) -> str:
        return f"ReplayModel({self.name!r}, {len(self._calls)} requests)"


def _recorded_calls(events: Sequence[e.Event]) -> dict[_Position, _RecordedCall]:
    calls: dict[_Position, _RecordedCall] = {}
    edited: dict[str, Any] = {}
    positions: dict[str, _Position] = {}
    pieces: dict[str, Json] = {}
    state = start("replay")
    for event in events:
        if isinstance(event, (e.ModelStarted, e.AnswerHeld, e.ModelFailed, e.ModelReturned)):
            position = (
                _Position(state.turn, None, _agent_of(state)) if event.call is None else positions[event.call]
            )
            call = calls.get(position)
            if call is None or (isinstance(event, e.ModelStarted) and event.attempt == 1):
                call = calls[position] = _RecordedCall([])
            if isinstance(event, e.AnswerHeld):
                call.held = event
            elif isinstance(event, e.ModelFailed):
                refused = event.error.source == "guardrail"
                call.failures.append(_refused(call, event, pieces) if refused else event)
                call.held = None
            elif isinstance(event, e.ModelReturned):
                call.answer, call.held = call.held or event, None
        elif isinstance(event, e.ModelRequested):
            earlier = {position for position in positions.values() if position.step == event.step}
            positions.setdefault(event.call, _Position(len(earlier) + 1, event.step))
        elif isinstance(event, e.GuardrailJudged):
            pieces = event.content or {}
        elif isinstance(event, e.CallEdited):
            edited[event.call] = event.arguments
        apply(state, event, 1)
        if isinstance(event, e.Rewound):
            turns = dict(state.team.turns) if state.team is not None else {}
            turns = {"" if name == state.created_for else name: turn for name, turn in turns.items()}
            turns[_agent_of(state)] = state.turn
            calls = {at: call for at, call in calls.items() if at.step or at.turn < turns.get(at.agent, 0)}
    for call in calls.values():
        answer = call.answer
        if answer is not None and any(requested.id in edited for requested in answer.message.tool_calls):
            parts = [
                _edited(part, edited) if isinstance(part, ToolCall) else part for part in answer.message.parts
            ]
            call.answer = replace(answer, message=replace(answer.message, parts=tuple(parts)))
    return calls


def _agent_of(state: TaskState) -> str:
    return "" if state.agent == state.created_for else state.agent


def _refused(call: _RecordedCall, event: e.ModelFailed, pieces: dict[str, Json]) -> e.AnswerHeld:
    """Return an answer that guardrails refused: the held answer, or the part that was written."""
    if call.held is not None:
        return call.held
    text = Text(as_text(pieces.get("text")))
    return e.AnswerHeld(event.step, Message("assistant", (text,)), usage=event.usage, call=event.call)


def _edited(call: ToolCall, edited: dict[str, Any]) -> ToolCall:
    """Return a call with the arguments that a person gave it before it ran."""
    return replace(call, arguments=edited[call.id], raw=None, problem=None) if call.id in edited else call


def _mode(events: Sequence[e.Event]) -> str:
    typed = [
        event.typed for event in events if isinstance(event, e.ModelReturned) and event.typed is not None
    ]
    return "native" if typed and all(answer.call is None for answer in typed) else "tool"


def _error(failed: e.ModelFailed) -> ModelError:
    """Return a recorded failure as an error. A recorded retry is repeated without its wait."""
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
        usage=failed.usage,
    )
