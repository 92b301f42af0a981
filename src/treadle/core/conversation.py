"""What makes a conversation well-formed: what providers ask of it, and what no resume may break."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from treadle.core.messages import Message, ToolCall, ToolResult


def faults(messages: Sequence[Message]) -> Iterator[str]:
    """Yield what is wrong: every call has one result, right after its message and in order, and ids are unique."""
    seen: set[str] = set()
    owed: list[str] = []
    for place, message in enumerate(messages):
        given = [part.call_id for part in message.parts if type(part) is ToolResult]
        if (owed or given) and given != owed:
            yield f"message {place} gives results {given} where {owed} are owed"
        if bool(given) != (message.role == "tool"):
            yield f"message {place} of role {message.role} holds the results {given}"
        owed = [part.id for part in message.parts if type(part) is ToolCall]
        if owed and message.role != "assistant":
            yield f"message {place} of role {message.role} asks for {owed}"
        for call_id in owed:
            if call_id in seen or not call_id:
                yield f"message {place}: call id {call_id!r} twice or empty"
            seen.add(call_id)
    if owed:
        yield f"no results for {owed}"
