"""From what a model answered to what is journalled: own ids for its calls, and no action from a broken answer."""

from __future__ import annotations

from treadle.core.messages import Message, ToolCall
from treadle.core.model import Finish


def with_places(message: Message, step: str, finish: Finish, *, first: int = 0) -> Message:
    """Return a model's message with the ids of its calls replaced by their places in the task.

    A provider's own ids may be empty, doubled or reused; places are none of these, and the same after a crash. A call
    in an answer that was cut off, filtered or refused is marked, so that it never becomes an action.

    Args:
        message: as the adapter assembled it.
        step: id of the step that asked.
        finish: why the model stopped.
        first: number of the first call, when the step has calls from an earlier answer.
    """
    parts = list(message.parts)
    number = first
    for index, part in enumerate(parts):
        if type(part) is ToolCall:
            problem = part.problem
            if problem is None and finish not in ("tool_calls", "stop"):
                problem = "truncated" if finish == "length" else finish
            parts[index] = ToolCall(
                f"{step}-{number}", part.name, part.arguments, part.raw, problem, part.meta
            )
            number += 1
    if number == first and message.role == "assistant":
        return message
    return Message("assistant", tuple(parts), message.meta)
