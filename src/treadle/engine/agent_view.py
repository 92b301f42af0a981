"""What an agent sees of a conversation that moved to it: what the filters of the handoff leave, and what came after."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.agents.handoff import Filter
from treadle.agents.handoff_filters import filtered
from treadle.core.messages import Json, Message, Text, ToolCall
from treadle.core.observation import as_text
from treadle.core.state import TaskState
from treadle.core.team import Team


class AgentView:
    """The view of the agent that a task is with; it follows the conversation, and reads each message once.

    Args:
        state: of the task, after a handoff.
        team: where its conversation is.
        filters: those of the handoff.
    """

    def __init__(self, state: TaskState, team: Team, filters: Sequence[Filter]) -> None:
        self._state = state
        self._team = team
        self._filters = filters
        self._source: list[Message] = []
        self._read = 0
        self._seen: list[Message] = []
        self.own_from = 0
        """index of the first message of the task itself that is left"""

        self.summarised = False
        """whether a summary of older messages is left, as the first one"""

    @property
    def fingerprint(self) -> str:
        """The version of the agent."""
        return self._state.fingerprint

    @property
    def instructions(self) -> str | None:
        """The instructions of the agent."""
        return self._state.instructions

    @property
    def messages(self) -> list[Message]:
        """What the agent sees now; raises `ModelError` if a filter fails."""
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
        seen += _told_apart(before, seen, team)
        self._source, self._seen, self._read = source, seen, len(before)


def _told_apart(before: Sequence[Message], seen: Sequence[Message], team: Team) -> list[Message]:
    """Return a message with what the model said of the handoff, if the call in which it did is not seen."""
    call = next(
        (part for message in reversed(before) for part in message.tool_calls if part.name == team.tool), None
    )
    if call is None or any(part.id == call.id for message in seen for part in message.tool_calls):
        return []
    return [Message("user", (Text(_note(call, team.previous)),))]


def _note(call: ToolCall, previous: str) -> str:
    told: Json = call.arguments.get("reason") if list(call.arguments) == ["reason"] else call.arguments
    return f"[The agent {previous} handed this conversation over{f': {as_text(told)}' if told else ''}]"
