"""Answers of clients to open requests, as verbs of a runner. Pure."""

from __future__ import annotations

from typing import Any, Final, cast

from treadle.core.data import frozen
from treadle.core.messages import Json
from treadle.core.tools import Happened, NotHappened
from treadle.errors import InvalidField
from treadle.results.pending import Pending

SETTLEMENT: Final[Json] = {
    "type": "object",
    "properties": {
        "verdict": {"type": "string", "enum": ["happened", "not_happened"]},
        "output": {"description": "For `happened`: the result that the call would have returned."},
    },
    "required": ["verdict"],
}
"""JSON schema of an answer to a settlement."""


def approval_schema(item: Pending) -> Json:
    """Return the JSON schema of an answer to an approval."""
    scopes = ["once"] if item.every_call else ["once", "task", "thread", "always"]
    properties: dict[str, Json] = {
        "approved": {"type": "boolean"},
        "editedArgs": {"type": "object", "description": "All arguments, in place of those of the call."},
        "reason": {"type": "string", "description": "The reason of a denial, for the model."},
        "scope": {"type": "string", "enum": scopes},
    }
    if item.argument is not None:
        properties["value"] = {"description": f"The value of the argument {item.argument}."}
    return {"type": "object", "properties": properties, "required": ["approved"]}


@frozen
class Decision:
    """One verb that an answer asks for.

    Args:
        verb: the name of the runner's verb.
        task_id: its task.
        arguments: its further arguments.
    """

    verb: str
    task_id: str
    arguments: dict[str, Any]


def decision_by(item: Pending, payload: Any, place: str) -> Decision:
    """Return the verb that answers an open request of a person.

    Args:
        item: the request.
        payload: the answer: for a question its value, for an approval true, false or an object, for a settlement an
            object with `verdict`.
        place: the place of the payload in the client's request, for errors.

    Raises:
        InvalidField: the payload does not fit.
    """
    task_id, request = item.task_id, {"request_id": item.request_id}
    if item.kind == "question":
        return Decision("answer", task_id, {**request, "value": payload})
    if item.kind == "settlement":
        return Decision("settle", task_id, {**request, "verdict": _verdict(payload, place)})
    if isinstance(payload, bool):
        payload = {"approved": payload}
    if not isinstance(payload, dict) or not isinstance(cast("dict[str, Any]", payload).get("approved"), bool):
        raise InvalidField("should be an object with `approved`, true or false", field=place)
    fields = cast("dict[str, Any]", payload)
    if not fields["approved"]:
        reason = fields.get("reason")
        if reason is not None and not isinstance(reason, str):
            raise InvalidField("should be text", field=f"{place}.reason")
        return Decision("deny", task_id, {**request, "reason": reason})
    if item.argument is not None and "value" in fields:
        return Decision("answer", task_id, {**request, "value": fields["value"]})
    edited, scope = fields.get("editedArgs"), fields.get("scope", "once")
    if edited is not None and not isinstance(edited, dict):
        raise InvalidField("should be an object", field=f"{place}.editedArgs")
    if scope not in ("once", "task", "thread", "always"):
        raise InvalidField("should be once, task, thread or always", field=f"{place}.scope")
    return Decision("approve", task_id, {**request, "arguments": edited, "scope": scope})


def _verdict(payload: Any, place: str) -> Happened | NotHappened:
    word: Any = cast("dict[str, Any]", payload).get("verdict") if isinstance(payload, dict) else payload
    if word == "happened":
        output: Any = cast("dict[str, Any]", payload).get("output") if isinstance(payload, dict) else None
        return Happened(output)
    if word == "not_happened":
        return NotHappened()
    raise InvalidField("should be an object with `verdict`, happened or not_happened", field=place)
