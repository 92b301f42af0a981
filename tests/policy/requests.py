"""Effects that tests judge: a refund, or what a test names instead."""

from typing import Any

from treadle import EffectRequest, ToolSpec
from treadle.policy.verdicts import EffectKind

REFUND = ToolSpec(
    name="refund",
    parameters={
        "type": "object",
        "properties": {
            "amount": {"type": "number"},
            "to": {"type": "array", "items": {"type": "string"}},
            "note": {"type": "string", "default": "none"},
            "url": {"type": "string"},
            "path": {"type": "string"},
            "urgent": {"type": "boolean", "default": False},
            "order": {"$ref": "#/$defs/Order"},
            "items": {"type": "array", "items": {"$ref": "#/$defs/Item"}},
        },
        "$defs": {
            "Order": {"type": "object", "properties": {"total": {"type": "number", "default": 7}, "day": {}}},
            "Item": {
                "anyOf": [{"type": "object", "properties": {"price": {"type": "number"}}}, {"type": "null"}]
            },
        },
    },
)


def a_call(name: str = "refund", /, *, spec: ToolSpec | None = REFUND, **arguments: Any) -> EffectRequest:
    """The call of a tool, with these arguments."""
    return EffectRequest(kind="tool", name=name, arguments=arguments, spec=spec, agent="desk")


def an_effect(kind: EffectKind, name: str, **fields: Any) -> EffectRequest:
    """An effect of a kind."""
    return EffectRequest(kind=kind, name=name, **{"agent": "desk", **fields})
