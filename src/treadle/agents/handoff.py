"""Handoffs: agents that a conversation may move to, as tools of the agent that it moves away from.

The call of such a tool does nothing by itself. When its step has ended, the conversation moves, and the next step
belongs to the other agent. A filter may narrow the other agent's view of the conversation. The journal keeps all of it.

A filter of a handoff is a function of messages that returns those the agent sees afterwards.

It keeps the conversation well-formed: each call has its result, and each result its call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Generic, Protocol, TypeAlias, cast

from treadle.agents.output import OutputType
from treadle.core.data import frozen
from treadle.core.messages import Json, Message, Reasoning, Text, ToolCall, faults
from treadle.core.refused_uses import can_be_called, no_function
from treadle.core.tools import ToolSpec, Unknown, Verdict
from treadle.errors import ConfigurationError, ModelError, ToolArgumentsInvalid
from treadle.ports import OutputT_co, ToolContext, ToolOutput


def without_tool_calls(messages: Sequence[Message]) -> list[Message]:
    """Return the conversation without tool calls and their results. Text beside a call stays."""
    kept: list[Message] = []
    for message in messages:
        if message.role == "tool":
            continue
        if not message.tool_calls:
            kept.append(message)
            continue
        # Reasoning belongs to the calls that it led to: providers refuse it without them.
        parts = tuple([part for part in message.parts if not isinstance(part, (ToolCall, Reasoning))])
        if any(not isinstance(part, Text) or part.text.strip() for part in parts):
            kept.append(replace(message, parts=parts))
    return kept


def only_user_messages(messages: Sequence[Message]) -> list[Message]:
    """Return the messages of the user."""
    return [message for message in messages if message.role == "user"]


@frozen
class LastMessages:
    """Keep the newest messages, from a user message on. Providers refuse a conversation that begins otherwise.

    If the oldest of them is an answer or a result, the messages back to its user message are kept too. If it has none,
    the conversation is cut to the next user message.

    Args:
        count: the minimum number of messages, at least 1. Each tool result and each answer is a message.

    Raises:
        ConfigurationError: the count is not valid.
    """

    count: int

    def __post_init__(self) -> None:
        if isinstance(self.count, bool) or not isinstance(self.count, int) or self.count < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"LastMessages takes a whole number from 1 up, got {self.count!r}")

    def facts(self) -> Json:
        """Return JSON data that differs when the settings do, for the fingerprint of an agent."""
        return f"LastMessages({self.count})"

    def __call__(self, messages: Sequence[Message]) -> list[Message]:
        """Return the newest messages; raises `ModelError` if none of them is from the user."""
        oldest = max(0, len(messages) - self.count)
        earlier = (index for index in range(oldest, -1, -1) if messages[index].role == "user")
        later = (index for index in range(oldest, len(messages)) if messages[index].role == "user")
        start = next(earlier, next(later, None)) if messages else 0
        if start is None:
            text = f"{self.facts()} finds no message of the user among {len(messages)} to begin with"
            raise ModelError(text, kind="invalid_request")
        return list(messages[start:])


def filtered(messages: Sequence[Message], filters: Sequence[Any], name: str) -> list[Message]:
    """Return a conversation after its filters; raises `ModelError` if the result is malformed.

    Args:
        messages: the conversation so far.
        filters: applied in order.
        name: the name of the handoff in errors.
    """
    seen: Any = messages
    for each in filters:
        try:
            seen = list(each(seen))
        except Exception as error:
            text = f"the filter of the {name} failed: {type(error).__name__}: {error}"
            raise ModelError(text, kind="invalid_request") from error
        wrong = next((item for item in seen if not isinstance(item, Message)), None)
        if wrong is not None:
            text = f"the filter of the {name} returned a {type(wrong).__name__} among the messages"
            raise ModelError(text, kind="invalid_request")
    fault = next(faults(seen), None)
    if fault is not None:
        text = f"the filter of the {name} left a conversation that no provider takes: {fault}"
        raise ModelError(text, kind="invalid_request")
    return seen


Filter: TypeAlias = Callable[[Sequence[Message]], Sequence[Message]]
"""Returns the messages that an agent sees of a conversation that moves to it. It depends on its argument alone."""

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
        description: the description of the tool for the model. By default it contains the agent's own description.
        input_type: the arguments of the call, as any type that pydantic supports. By default the model may give a
            `reason`. The other agent reads them in the conversation.
        filter: selects the messages that the other agent sees of the conversation so far. It is a function of messages,
            or several that are applied in order. By default the agent sees everything. It is called each time the agent
            is driven, so it must depend on the messages alone.

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
    """Return the terms of handoffs that their tools do not contain, as JSON data for the fingerprint of an agent."""
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
