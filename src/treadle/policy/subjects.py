"""Subjects of comparisons, and their values in a request.

If a call leaves out an argument, its value is the default in the tool's schema. Without a default it is `LEFT_OUT`: the
tool's behaviour is unknown. An argument that the tool does not have is `ABSENT`.
"""

from __future__ import annotations

from typing import Any, Final, cast

from treadle.core.data import frozen
from treadle.core.origins import FURTHER
from treadle.core.tools import ToolSpec
from treadle.policy.verdicts import EffectRequest

EFFECTS: Final = (
    *("read_only", "idempotent", "destructive", "open_world", "sends", "spends", "executes", "private"),
    *("undoable", "undeclared"),
)
"""The declarations of tools, as `effect` names them; `undeclared` is a tool whose author declared nothing."""

SUBJECTS: Final = {
    "arguments": "an argument of the call, such as arguments.amount or arguments.order.total",
    "agent": "the name of the agent",
    "agent_path": "the names of the agents above it and its own",
    "labels": "a label of the task, such as labels.tier",
    "state": "an entry of the task's extra_state, such as state.customer.id",
    "effect": f"the declarations of the tool: {', '.join(EFFECTS)}",
    "exposed": "the same, of all tools whose results the model has seen",
    "untrusted": "the origins of untrusted content that the model has read, such as tool:read_mail",
    "cost": "US dollars spent so far",
    "tokens": "tokens spent so far",
    "model_calls": "requests to models so far",
    "tool_calls": "tool calls before this one",
    "depth": "how many tasks are above this one",
    "task": "the id of the task",
    "thread": "the id of its thread",
}
"""The subjects of comparisons, each with its description."""

WITH_NAME: Final = ("arguments", "labels", "state")
"""The subjects that are followed by a name."""


MAX_REFERENCES: Final = 16
"""How many references and unions of a schema are followed to find the schema of a part."""


@frozen
class NoValue:
    """The marker of a missing value; `why` is the reason."""

    why: str

    def __repr__(self) -> str:
        return self.why


ABSENT: Final = NoValue("absent")
"""An argument that the tool does not have."""

LEFT_OUT: Final = NoValue("left out")
"""An argument of the tool that the call leaves out and whose default is not known."""


def subject_values(request: EffectRequest, subject: str) -> list[Any]:
    """Return the values of a subject: several if its path leads through lists, `ABSENT` or `LEFT_OUT` for none."""
    root, _, path = subject.partition(".")
    match root:
        case "arguments":
            schema = request.spec.parameters if request.spec is not None else None
            return _values_at(request.arguments, path.split(".") if path else [], schema, schema)
        case "labels":
            return [request.labels.get(path)]
        case "state":
            values = _values_at(dict(request.state), path.split("."), None, None)
            return [None if value is ABSENT else value for value in values]
        case "effect":
            return [declared_effects(request.spec) if request.spec is not None else ABSENT]
        case "exposed":
            return [sorted(request.exposed)]
        case "untrusted":
            named = [origin for origin in request.untrusted if origin != FURTHER]
            # For None `exists` is false. Comparisons with origins that have no name are unknown.
            return [named or None, *([LEFT_OUT] if FURTHER in request.untrusted else [])]
        case "agent_path":
            return [[*request.agent_path]]
        case "task":
            return [request.task_id]
        case "thread":
            return [request.thread_id]
        case "cost":
            return [request.cost if request.cost is not None else LEFT_OUT]
        case _:
            return [getattr(request, root)]


def taken_values(request: EffectRequest, subject: str) -> list[Any]:
    """Return the values of an argument as the tool receives it; none if they are missing or unknown."""
    root, _, path = subject.partition(".")
    if request.taken is None or root != "arguments":
        return []
    values = _values_at(dict(request.taken), path.split("."), None, None)
    return [value for value in values if not isinstance(value, NoValue)]


def declared_effects(spec: ToolSpec) -> list[str]:
    """Return the declared effects of a tool, by their names in `EFFECTS`."""
    names = [name for name in EFFECTS[:-1] if getattr(spec, name)]
    return names if spec.declared or names else ["undeclared"]


def _values_at(value: Any, path: list[str], schema: Any, root: Any) -> list[Any]:
    """Return the values at a path; the path continues in each item of a list.

    Args:
        value: the document.
        path: the names that are left.
        schema: the JSON schema of the value, if it is known.
        root: the whole schema, for its `$defs`.
    """
    if not path:
        return [value]
    if isinstance(value, list):
        items = _subschema(schema, "items", root)
        return [found for item in cast("list[Any]", value) for found in _values_at(item, path, items, root)]
    declared = _subschema(schema, path[0], root) if schema is not None else None
    if not isinstance(value, dict):
        return [ABSENT if value is None else LEFT_OUT]
    document = cast("dict[str, Any]", value)
    if path[0] in document:
        return _values_at(document[path[0]], path[1:], declared, root)
    if declared is None:
        return [ABSENT]
    default: Any = cast("dict[str, Any]", declared).get("default", LEFT_OUT)
    return [LEFT_OUT] if default is LEFT_OUT else _values_at(default, path[1:], declared, root)


def _subschema(schema: Any, name: str, root: Any, depth: int = 0) -> Any:
    """Return the schema of a property, or None if there is none. `items` names the items of a list too.

    A schema may come from a stranger, so every part is checked. One that refers to itself ends at `MAX_REFERENCES`.
    """
    if not isinstance(schema, dict) or depth > MAX_REFERENCES:
        return None
    part = cast("dict[str, Any]", schema)
    reference = part.get("$ref")
    if isinstance(reference, str):
        definitions = _member(root, "$defs")
        return _subschema(_member(definitions, reference.rpartition("/")[2]), name, root, depth + 1)
    for found in (_member(part.get("properties"), name), part.get(name) if name == "items" else None):
        if isinstance(found, dict):
            return cast("dict[str, Any]", found)
    for union in ("anyOf", "oneOf", "allOf"):
        options: Any = part.get(union)
        for option in cast("list[Any]", options) if isinstance(options, list) else ():
            found = _subschema(option, name, root, depth + 1)
            if found is not None:
                return found
    return None


def _member(value: Any, name: str) -> Any:
    return cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None
