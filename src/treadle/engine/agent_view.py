"""The conversation for an agent after a handoff: the filtered older messages, then all later ones."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from treadle.agents.handoff import Filter, filtered
from treadle.core import origins
from treadle.core.labels import Label, untrusted_origin
from treadle.core.messages import File, Image, Json, Message, Part, Text, ToolCall
from treadle.core.observation import as_text
from treadle.core.state import TaskState
from treadle.core.team import Team

_WITHOUT_LABEL: Final = ("user", "system")
"""Roles whose parts are trusted without a label."""


class AgentView:
    """The view of a task's present agent. It follows the conversation, and reads each message once.

    Args:
        state: the state of the task, after a handoff.
        team: the agents of the conversation.
        filters: the filters of the handoff.
    """

    def __init__(self, state: TaskState, team: Team, filters: Sequence[Filter]) -> None:
        self._state = state
        self._team = team
        self._filters = filters
        self._source: list[Message] = []
        self._read = 0
        self._seen: list[Message] = []
        self.own_from = 0
        """index of the first remaining message of the task itself"""

        self.summarised = False
        """whether the first message is a summary of older ones"""

    @property
    def fingerprint(self) -> str:
        return self._state.fingerprint

    @property
    def instructions(self) -> str | None:
        return self._state.instructions

    @property
    def messages(self) -> list[Message]:
        """The messages that the agent sees now. Raises `ModelError` if a filter fails."""
        source = self._state.messages
        if source is not self._source or len(source) < self._read:
            self._begin(source)
        self._seen.extend(source[self._read :])
        self._read = len(source)
        return self._seen

    def _begin(self, source: list[Message]) -> None:
        state, team = self._state, self._team
        before = source[: team.since]
        name = f"handoff {team.tool} of agent {team.previous}"
        seen = filtered(before, self._filters, name)
        first = source[state.own_from] if state.own_from < len(source) else None
        self.own_from = next((index for index, each in enumerate(seen) if each is first), 0)
        self.summarised = state.summarised and bool(seen) and seen[0] is source[0]
        seen = _labelled(before, seen) + _handoff_note(before, seen, team)
        self._source, self._seen, self._read = source, seen, len(before)


def _labelled(before: Sequence[Message], seen: Sequence[Message]) -> list[Message]:
    """Return filtered messages, with untrusted labels on texts of filters that read untrusted content.

    A filter that creates messages drops their labels, and a text without a label is not framed as untrusted.
    """
    origin = next(origins.of_messages(before), None)
    if origin is None:
        return list(seen)
    label = Label(origin, "untrusted")
    original_ids = {id(message) for message in before}
    trusted_texts = {
        part.text
        for message in before
        for part in message.parts
        if message.role in _WITHOUT_LABEL and isinstance(part, Text) and untrusted_origin(part.label) is None
    }
    return [
        message
        if id(message) in original_ids or message.role not in _WITHOUT_LABEL
        else replace(
            message, parts=tuple([_with_label(part, label, trusted_texts) for part in message.parts])
        )
        for message in seen
    ]


def _with_label(part: Part, label: Label, trusted_texts: Collection[str]) -> Part:
    if not isinstance(part, (Text, Image, File)) or part.label is not None:
        return part
    return part if isinstance(part, Text) and part.text in trusted_texts else replace(part, label=label)


def _handoff_note(before: Sequence[Message], seen: Sequence[Message], team: Team) -> list[Message]:
    """Return a message that restates the handoff's arguments, if the filters removed its call."""
    call = next(
        (part for message in reversed(before) for part in message.tool_calls if part.name == team.tool), None
    )
    if call is None or any(part.id == call.id for message in seen for part in message.tool_calls):
        return []
    return [Message("user", (Text(_handoff_text(call, team.previous)),))]


def _handoff_text(call: ToolCall, previous: str) -> str:
    reason: Json = call.arguments.get("reason") if list(call.arguments) == ["reason"] else call.arguments
    return f"[The agent {previous} handed this conversation over{f': {as_text(reason)}' if reason else ''}]"
