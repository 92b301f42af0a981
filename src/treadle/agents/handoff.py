"""Handoffs: agents that a conversation may move to, as tools of the agent that it moves away from.

The call of such a tool does nothing by itself. When its step has ended, the conversation moves, and the next step
belongs to the other agent. That agent sees a view of the conversation so far, which a filter may narrow; the journal
keeps all of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeAlias, cast

from treadle.agents.output import OutputType
from treadle.core.data import frozen
from treadle.core.messages import Json, Message, ToolCall
from treadle.core.refused_uses import can_be_called, no_function
from treadle.core.tools import ToolSpec, Unknown, Verdict
from treadle.errors import ConfigurationError, ToolArgumentsInvalid
from treadle.ports import OutputT_co, ToolContext, ToolOutput

Filter: TypeAlias = Callable[[Sequence[Message]], Sequence[Message]]
"""Returns the messages that an agent sees of a conversation that moves to it; depends on its argument alone."""

PREFIX: Final = "transfer_to_"
_REASON: Final[Json] = {
    "type": "object",
    "properties": {"reason": {"type": "string", "description": "Why it is for that agent, in a sentence."}},
    "additionalProperties": False,
}


class HandoffTarget(Protocol[OutputT_co]):
    """The part of an agent's interface that a handoff uses."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def custom_worker(self) -> object: ...
    @property
    def typed(self) -> OutputType[OutputT_co] | None: ...


@frozen
class Handoff(Generic[OutputT_co]):
    """An agent that a conversation may move to, with the terms of the move.

    Args:
        agent: the agent, or the name of one that the runner knows.
        name: of the tool that the model calls; by default `transfer_to_` and the agent's name.
        description: the description of the tool for the model; by default it contains the agent's own description.
        input_type: the arguments of the call, as any type that pydantic supports; by default the model may give a
            `reason`. The other agent reads them in the conversation.
        filter: selects the messages that the other agent sees of the conversation so far: a function of messages, or
            several that are applied in order; by default it sees everything. It is called each time the agent is
            driven, so it must depend on the messages alone.

    Raises:
        ConfigurationError: an argument is not valid.
    """

    agent: HandoffTarget[OutputT_co] | str
    name: str | None = None
    description: str | None = None
    input_type: Any = None
    filter: Filter | Sequence[Filter] | None = None

    def __post_init__(self) -> None:
        for name in ("name", "description"):
            value: Any = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value):
                raise ConfigurationError(
                    f"Handoff to {self.agent_name}: {name} must be a text, got {value!r:.80}"
                )
        if self.name is not None and not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", self.name):
            raise ConfigurationError(
                f"Handoff to {self.agent_name}: name must be 1 to 64 letters, digits, '_' or '-', got {self.name!r}"
            )
        filters: Any = self.filter
        listed = cast("Sequence[Any]", filters if isinstance(filters, (list, tuple)) else (filters,))
        wrong = [item for item in listed if not can_be_called(item)]
        if filters is not None and wrong:
            raise ConfigurationError(
                f"Handoff to {self.agent_name}: filter must be a function of messages, or a list of them, got "
                f"{no_function(wrong[0])}"
            )

    @property
    def agent_name(self) -> str:
        """The name of the agent."""
        return self.agent if isinstance(self.agent, str) else self.agent.name

    @property
    def filters(self) -> tuple[Filter, ...]:
        """The filters, in the order in which they are applied."""
        if self.filter is None:
            return ()
        return (self.filter,) if can_be_called(self.filter) else tuple(self.filter)


class HandoffTool:
    """A handoff as a tool for the model of the agent.

    Args:
        handoff: the target of the conversation, with the terms.
    """

    def __init__(self, handoff: Handoff[Any]) -> None:
        self.handoff = handoff
        self._input: OutputType[Any] | None = None
        if handoff.input_type is not None:
            self._input = _input_type(handoff)
        agent = handoff.agent
        description = handoff.description
        if description is None:
            about = "" if isinstance(agent, str) else agent.description
            moves = f"Hands the conversation over to the agent {handoff.agent_name}, which goes on with it."
            description = f"{moves} {about}"
        self.spec = ToolSpec(
            name=handoff.name
            or PREFIX + re.sub(r"[^A-Za-z0-9_-]", "_", handoff.agent_name)[: 64 - len(PREFIX)],
            description=description.strip(),
            parameters=_REASON if self._input is None else self._input.schema,
            read_only=True,  # the conversation moves when the step has ended, not by the call
            declared=True,
            trusted=True,
        )

    def validate(self, arguments: dict[str, Json]) -> Any:
        """Return the arguments, of the handoff's input type; raises `ToolArgumentsInvalid`."""
        if self._input is not None:
            try:
                return self._input.read(cast("Json", arguments))
            except ValueError as error:
                raise ToolArgumentsInvalid(str(error)) from error
        if set(arguments) - {"reason"} or not isinstance(arguments.get("reason", ""), str):
            raise ToolArgumentsInvalid(f'{self.spec.name} takes {{"reason": text}} and nothing else')
        return arguments

    async def call(self, arguments: Any, ctx: ToolContext[Any]) -> ToolOutput:
        """Return the result for the model: that the conversation moves."""
        return ToolOutput(f"The agent {self.handoff.agent_name} goes on with the conversation.")

    async def undo(self, call: ToolCall, ctx: ToolContext[Any]) -> None:
        """Do nothing: undoing its step undoes the handoff."""

    async def reconcile(self, call: ToolCall, ctx: ToolContext[Any]) -> Verdict:
        """Return `Unknown`; a call that changes nothing is never reconciled."""
        return Unknown()


def check_takes_over(agent: HandoffTarget[Any]) -> None:
    """Raise `ConfigurationError` for an agent that cannot continue the conversation of another."""
    if agent.custom_worker is not None:
        raise ConfigurationError(
            f"agent {agent.name!r} cannot take over a conversation: its steps are not answers of its model; list it "
            "under subagents=[...], or give it the worker function_calling, react or planner"
        )


def facts(handoffs: Mapping[str, Handoff[Any]]) -> Json:
    """Return JSON data for the terms of handoffs that their tools do not contain, for the fingerprint of an agent."""
    return [
        [name, handoff.agent_name, [_name_of(each) for each in handoff.filters]]
        for name, handoff in handoffs.items()
    ]


def _name_of(function: Any) -> str:
    described = getattr(function, "facts", None)
    return (
        str(described())
        if callable(described)
        else getattr(function, "__qualname__", type(function).__qualname__)
    )


def _input_type(handoff: Handoff[Any]) -> OutputType[Any]:
    try:
        return OutputType(handoff.agent_name, handoff.input_type)
    except ConfigurationError as error:
        why = str(error).partition(" has no JSON schema: ")[2]
        raise ConfigurationError(
            f"Handoff to {handoff.agent_name}: input_type {handoff.input_type!r:.200} has no JSON schema: {why}"
        ) from None
