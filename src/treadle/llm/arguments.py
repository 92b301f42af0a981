"""Parse the arguments that a model wrote for a tool call: complete JSON objects only, nothing is repaired."""

from __future__ import annotations

from treadle.core.codec import MAX_DEPTH, flaw
from treadle.core.messages import Json, ToolCall
from treadle.core.model_answer import RAW_KEPT
from treadle.core.strict_json import parse_object


def parsed_call(call_id: str, name: str, raw: str, *, truncated: bool = False, meta: Json = None) -> ToolCall:
    """Return the call that a model wrote, marked with a problem if it must not run.

    Args:
        call_id: the provider's own id, or an empty text.
        name: the tool.
        raw: the arguments exactly as the model wrote them.
        truncated: whether the answer was cut off or withheld, so that none of its calls may run.
        meta: data that the provider wants back with the call.
    """
    if truncated:
        return ToolCall(call_id, name, {}, raw=raw, problem="truncated", meta=meta)
    try:
        arguments = parse_object(raw)
    except (ValueError, RecursionError):
        return ToolCall(call_id, name, {}, raw=raw, problem="unparsable", meta=meta)
    if raw.count("{") + raw.count("[") > MAX_DEPTH and (problem := flaw(arguments)) is not None:
        # Marked before the arguments are copied or searched level by level.
        return ToolCall(call_id, name, {}, raw=raw[:RAW_KEPT], problem=problem, meta=meta)
    return ToolCall(call_id, name, arguments, meta=meta)
