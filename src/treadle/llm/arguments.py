"""From what a model wrote to a tool call: complete JSON objects only, nothing is ever repaired."""

from __future__ import annotations

from treadle.core.codec import MAX_DEPTH, flaw
from treadle.core.messages import Json, ToolCall
from treadle.core.model_answer import RAW_KEPT
from treadle.core.strict_json import parse_object


def parsed_call(call_id: str, name: str, raw: str, *, truncated: bool = False, meta: Json = None) -> ToolCall:
    """Return the call that a model wrote, marked with a problem when it must not run.

    Args:
        call_id: the provider's own id, or nothing.
        name: the tool.
        raw: the arguments exactly as they were written.
        truncated: the provider said that the answer was cut off or withheld, so nothing in it may run.
        meta: what the provider wants back with the call.
    """
    if truncated:
        return ToolCall(call_id, name, {}, raw=raw, problem="truncated", meta=meta)
    try:
        arguments = parse_object(raw)
    except (ValueError, RecursionError):
        return ToolCall(call_id, name, {}, raw=raw, problem="unparsable", meta=meta)
    if raw.count("{") + raw.count("[") > MAX_DEPTH and (beyond := flaw(arguments)) is not None:
        # Marked here already, before arguments are copied or searched level by level.
        return ToolCall(call_id, name, {}, raw=raw[:RAW_KEPT], problem=beyond, meta=meta)
    return ToolCall(call_id, name, arguments, meta=meta)
