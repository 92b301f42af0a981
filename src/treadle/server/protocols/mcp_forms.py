"""Open requests of a task as elicitation forms of MCP, and the answers in them. Pure.

A form is a flat object: each field is a text, a number, a truth value or a choice. A question with another schema has
one field, whose text is JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, cast

from treadle.core import events as e
from treadle.core.data import frozen
from treadle.core.display import clean, cut, exact_json
from treadle.core.messages import Json
from treadle.errors import InvalidField
from treadle.results.pending import FOR_PEOPLE, Pending
from treadle.server.protocols.decisions import Decision, decision_by
from treadle.server.protocols.mcp_tools import Frame
from treadle.server.protocols.stops import Stop

_MOST: Final = 4_000
"""The most characters of arguments in a form's message."""

_FIELD: Final = "answer"
"""The only field of a form whose question is no flat object."""

_KEPT: Final = (
    *("title", "description", "default", "format", "minLength", "maxLength", "minimum", "maximum"),
)
"""The keywords of a schema that a form's field may have."""


@frozen
class Ask:
    """A request that a client may answer.

    Args:
        key: its key, never used for another request of the task.
        request: the request of the protocol.
        item: the open request; None if the task was paused or interrupted, and asks whether to go on.
        task_id: its task, or one below it.
    """

    key: str
    request: Frame
    item: Pending | None
    task_id: str


def asks_of(task_id: str, head: int, stop: Stop) -> tuple[Ask, ...]:
    """Return the requests of a task that has stopped.

    Args:
        task_id: the task.
        head: the number of its last event, which makes a key of its own for each stop.
        stop: the state in which it stopped.
    """
    if stop.state in e.END_STATES:
        return ()
    people = [item for item in stop.pending if item.kind in FOR_PEOPLE and item.may_decide is not False]
    if not people and stop.state != "waiting":
        message = (
            f"Task {task_id} is {stop.state}{f': {clean(stop.reason)}' if stop.reason else ''}. Continue it?"
        )
        fields: Frame = {"continue": {"type": "boolean", "title": "Continue", "default": True}}
        return (Ask(f"{task_id}:resume@{head}", _form(message, fields, ["continue"]), None, task_id),)
    return tuple([_ask(item) for item in people])


def _ask(item: Pending) -> Ask:
    # The same call may become unknown twice, so the time of the request is a part of its key.
    key = f"{item.task_id}:{item.request_id}@{item.asked or 0}"
    message = _message_of(item)
    if item.kind == "question":
        fields, required = _question(item.schema)
        request = _form(message, fields, required)
    elif item.kind == "settlement":
        request = _form(
            message,
            {
                "verdict": _choice("Did it happen?", ["happened", "not_happened"]),
                "output": {"type": "string", "description": "If it happened: its result, as JSON or text."},
            },
            ["verdict"],
        )
    else:
        request = _form(message, _approval(item), ["approved"])
    return Ask(key, request, item, item.task_id)


def _approval(item: Pending) -> Frame:
    fields: Frame = {
        "approved": {"type": "boolean", "title": "Approve"},
        "reason": {"type": "string", "description": "The reason of a denial, which the model reads."},
    }
    if item.argument is not None:
        text = f"The value of the argument {item.argument}, as JSON or text."
        fields["value"] = {"type": "string", "description": text}
    elif not item.every_call:
        fields["scope"] = {**_choice("For", ["once", "task", "thread", "always"]), "default": "once"}
    return fields


def _message_of(item: Pending) -> str:
    lines = [clean(item.text)]
    if item.tool and item.kind != "question":
        lines.append(cut(f"{item.tool}({exact_json(item.arguments)})", _MOST))
    if item.preview is not None:
        lines.append(cut(f"Preview: {exact_json(item.preview)}", _MOST))
    if item.untrusted:
        lines.append(f"The model has read untrusted content from {', '.join(item.untrusted)}.")
    if item.kind == "settlement" and item.idempotency_key:
        lines.append(f"Its idempotency key is {item.idempotency_key}.")
    if item.kind == "question" and item.reason:
        lines.append(f"The last answer did not fit: {clean(item.reason)}")
    return "\n".join(lines)


def _form(message: str, fields: Frame, required: list[str]) -> Frame:
    schema = {"type": "object", "properties": fields, "required": required}
    return {
        "method": "elicitation/create",
        "params": {"mode": "form", "message": message, "requestedSchema": schema},
    }


def _choice(title: str, names: list[str]) -> Frame:
    return {"type": "string", "title": title, "enum": names}


# ------------------------------------------------------------------------------------------------ questions


def _question(schema: Json) -> tuple[Frame, list[str]]:
    """Return the fields of a question's form, and the names of those that are required."""
    flat = _fields_of(schema)
    if flat is not None:
        named: Any = cast("Frame", schema).get("required")
        return flat, [name for name in flat if name in (named or ())]
    single = _field(schema, _member(schema, "$defs"))
    if single is None:
        text = f"JSON that fits this schema: {cut(exact_json(schema), 1_000)}"
        single = {"type": "string", "description": text}
    return {_FIELD: single}, [_FIELD]


def _fields_of(schema: Json) -> Frame | None:
    """Return the fields of an object whose properties are all flat; None for another schema."""
    properties = _member(schema, "properties")
    fields = {name: _field(described, _member(schema, "$defs")) for name, described in properties.items()}
    flat = {name: field for name, field in fields.items() if field is not None}
    return flat if flat and len(flat) == len(fields) else None


def _field(described: Any, shared: Frame) -> Frame | None:
    """Return a flat schema as a form's field; None for another schema. `shared` are the `$defs` of the whole schema."""
    if not isinstance(described, dict):
        return {"type": "string"} if described in (None, True) else None
    facts = cast("Frame", described)
    if isinstance(facts.get("$ref"), str):
        target: Any = shared.get(str(facts["$ref"]).rpartition("/")[2])
        return _field({**target, **_kept(facts)}, {}) if isinstance(target, dict) else None
    options = [each for each in facts.get("anyOf") or () if each != {"type": "null"}]
    if len(options) == 1:
        inner = _field(options[0], shared)
        return None if inner is None else {**inner, **_kept(facts)}
    names = facts.get("enum") or ([facts["const"]] if "const" in facts else [])
    if names:
        return {**_kept(facts), "type": "string", "enum": names} if _are_texts(names) else None
    if not facts:
        return {"type": "string"}
    if facts.get("type") in ("string", "integer", "number", "boolean"):
        return {**_kept(facts), "type": facts["type"]}
    return None


def _member(schema: Json, name: str) -> Frame:
    """Return an object in a schema; empty if there is none."""
    member: Any = cast("Frame", schema).get(name) if isinstance(schema, dict) else None
    return cast("Frame", member) if isinstance(member, dict) else {}


def _kept(facts: Frame) -> Frame:
    kept = {name: facts[name] for name in _KEPT if facts.get(name) is not None}
    if kept.get("format") not in (None, "email", "uri", "date", "date-time"):
        del kept["format"]
    return kept


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(each, str) for each in cast("list[Any]", values))


# ------------------------------------------------------------------------------------------------ answers


def decision_of(ask: Ask, response: Mapping[str, Any]) -> Decision | None:
    """Return the verb that an answer asks for; None if nothing was decided.

    A declined approval is a denial. Nothing can take the place of any other answer, so the request stays open.

    Args:
        ask: the request.
        response: the client's `ElicitResult`.

    Raises:
        InvalidField: the answer does not fit the form.
    """
    item, place = ask.item, f"inputResponses[{ask.key!r}]"
    action, content = response.get("action"), response.get("content")
    if action != "accept":
        if action == "decline" and item is not None and item.kind == "approval":
            return decision_by(item, {"approved": False, "reason": "the person declined"}, place)
        return None
    fields = dict(cast("Frame", content)) if isinstance(content, Mapping) else {}
    if item is None:
        return Decision("resume", ask.task_id, {}) if fields.get("continue", True) is True else None
    if item.kind == "question":
        return decision_by(item, _answer(item.schema, fields, place), place)
    if item.kind == "settlement":
        return decision_by(item, {**fields, "output": _json_or_text(fields.get("output"))}, place)
    payload: Frame = {name: fields[name] for name in ("approved", "scope") if fields.get(name) is not None}
    if fields.get("reason"):
        payload["reason"] = fields["reason"]
    if item.argument is not None and payload.get("approved") is True:
        payload["value"] = _json_or_text(fields.get("value"))
    return decision_by(item, payload, place)


def _answer(schema: Json, fields: Frame, place: str) -> Json:
    if _fields_of(schema) is not None:
        return fields
    if _FIELD not in fields:
        raise InvalidField(f"should have a field `{_FIELD}`", field=place)
    value = fields[_FIELD]
    if _field(schema, _member(schema, "$defs")) is not None or not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise InvalidField("should be JSON that fits the schema", field=f"{place}.{_FIELD}") from None


def _json_or_text(value: Any) -> Json:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value
