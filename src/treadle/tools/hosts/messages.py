"""The messages between the driver and a tool's process, as JSON data.

The driver sends `setup`, one request, and replies to requests for secrets. The process sends `ready`, any number of
`progress` and `secret`, and one last message. That is `failed` if nothing ran, else `error` or `result`. The driver
does not trust these messages. It reads known fields of the expected types, and refuses others.
"""

from __future__ import annotations

from typing import Any, Final, cast

from treadle.core.codec import UnreadableRecord, decode_part, encode_part, flaw, plain
from treadle.core.messages import Content, File, Image, Json, Text, ToolCall
from treadle.core.tools import Happened, NotHappened, Unknown, Verdict
from treadle.errors import ToolError
from treadle.ports import ToolContext, ToolOutput

_IDS: Final = ("task_id", "thread_id", "step_id", "call_id", "idempotency_key", "agent", "attempt")


def context_to_json(ctx: ToolContext[Any], *, takes_context: bool) -> dict[str, Json]:
    """Return the facts of a call for a process. The user's context is included only if it is JSON data."""
    document: dict[str, Json] = {name: getattr(ctx, name) for name in _IDS}
    if takes_context:
        try:
            context = plain(ctx.context)
            if flaw(context) is None:
                document["context"] = context
        except (TypeError, ValueError):
            pass  # not JSON data: the process raises when the function uses it
        document["context_type"] = type(ctx.context).__name__
    return document


def call_to_json(call: ToolCall) -> Json:
    """Return a call as JSON data, for `undo=` and `reconcile=`."""
    return {"id": call.id, "name": call.name, "arguments": call.arguments, "output": call.output}


def call_from_json(document: dict[str, Any]) -> ToolCall:
    """Return the call that `call_to_json` wrote."""
    return ToolCall(document["id"], document["name"], document["arguments"], output=document["output"])


def output_to_json(result: ToolOutput) -> dict[str, Json]:
    """Return a result as JSON data, with all its fields."""
    observation = result.observation
    return {
        "output": result.output,
        "observation": observation
        if observation is None or isinstance(observation, str)
        else [encode_part(_part(part)) for part in observation],
        "display": result.display,
        "sources": list(result.sources),
        "artifacts": [encode_part(file) for file in result.artifacts],
        "origin": result.origin,
    }


def output_from_json(document: Any) -> ToolOutput:
    """Return the result that a process sent.

    Raises:
        ToolError: the document is not a result.
    """
    if type(document) is not dict:
        raise ToolError("the tool's process sent a result that is not an object")
    fields = cast("dict[str, Any]", document)
    observation, display, origin = (fields.get(name) for name in ("observation", "display", "origin"))
    sources, artifacts = fields.get("sources", []), fields.get("artifacts", [])
    if not isinstance(origin, (str, type(None))):
        raise ToolError("the tool's process sent an origin that is not text")
    if not isinstance(display, (str, type(None))) or type(sources) is not list or type(artifacts) is not list:
        raise ToolError("the tool's process sent a result whose display, sources or artifacts are none")
    files = _parts(cast("list[Any]", artifacts))
    if not all(isinstance(file, (File, Image)) for file in files):
        raise ToolError("the tool's process sent artifacts that are not files")
    return ToolOutput(
        fields.get("output"),
        observation if observation is None or isinstance(observation, str) else _parts(observation),
        display,
        sources=tuple(cast("list[Json]", sources)),
        artifacts=tuple(cast("list[File]", files)),
        origin=origin or None,
    )


def verdict_to_json(verdict: Verdict) -> Json:
    """Return a verdict of `reconcile=` as JSON data."""
    if isinstance(verdict, Happened):
        return {"verdict": "happened", "output": verdict.output}
    return {"verdict": "not_happened" if isinstance(verdict, NotHappened) else "unknown"}


def verdict_from_json(document: Any) -> Verdict:
    """Return the verdict that a process sent.

    Raises:
        ToolError: the document is not a verdict.
    """
    fields: dict[str, Any] = document if type(document) is dict else {}  # pyright: ignore[reportUnknownVariableType]
    match fields.get("verdict"):
        case "happened":
            return Happened(fields.get("output"))
        case "not_happened":
            return NotHappened()
        case "unknown":
            return Unknown()
        case _:
            raise ToolError("the tool's process sent no verdict")


def _part(part: str | Content) -> Content:
    return Text(part) if isinstance(part, str) else part


def _parts(documents: Any) -> list[Content]:
    """Return content parts.

    Raises for a part with a path, which the driver would read instead of the tool's process.
    """
    try:
        parts = [decode_part(document) for document in cast("list[Any]", documents)]
    except (UnreadableRecord, TypeError, ValueError, AttributeError, KeyError) as error:
        raise ToolError(f"the tool's process sent a part that cannot be read: {error}") from None
    if any(getattr(part, "path", None) is not None for part in parts):
        raise ToolError("the tool's process sent a part that names a local file")
    if not all(isinstance(part, (Text, Image, File)) for part in parts):
        raise ToolError("the tool's process sent a part that is not text, an image or a file")
    return parts
