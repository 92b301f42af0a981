"""The rules of a well-formed conversation, and of tasks that may leave their thread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from treadle.core.messages import Message, ToolCall, ToolResult


def faults(messages: Sequence[Message]) -> Iterator[str]:
    """Yield the violations: every call has one result, right after its message and in order, and ids are unique."""
    call_ids: set[str] = set()
    owed: list[str] = []
    for place, message in enumerate(messages):
        answered = [part.call_id for part in message.parts if type(part) is ToolResult]
        if (owed or answered) and answered != owed:
            yield f"message {place} gives results {answered} where {owed} are owed"
        if bool(answered) != (message.role == "tool"):
            yield f"message {place} of role {message.role} holds the results {answered}"
        owed = [part.id for part in message.parts if type(part) is ToolCall]
        if owed and message.role != "assistant":
            yield f"message {place} of role {message.role} asks for {owed}"
        for call_id in owed:
            if call_id in call_ids or not call_id:
                yield f"message {place}: call id {call_id!r} twice or empty"
            call_ids.add(call_id)
    if owed:
        yield f"no results for {owed}"


def may_leave_thread(version: int, covers: int, later: Iterable[int]) -> bool:
    """Return whether a task may leave its thread: it is a summary, or the newest turn and not summarised.

    Args:
        version: the version that added the task.
        covers: the version up to which the task summarises; 0 if it is no summary.
        later: `covers` of each member that was added after it.
    """
    return bool(covers) or all(covered and covered < version for covered in later)
