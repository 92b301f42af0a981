"""Whether a tool may start a second time follows from what it declares."""

import pytest

from treadle.core.tools import ToolSpec


@pytest.mark.parametrize(
    ("spec", "effect"),
    [
        (ToolSpec(name="t"), "write"),
        (ToolSpec(name="t", idempotent=True), "idempotent"),
        (ToolSpec(name="t", read_only=True), "read"),
        (ToolSpec(name="t", read_only=True, idempotent=True), "read"),
    ],
)
def test_the_class_of_an_effect(spec: ToolSpec, effect: str) -> None:
    assert spec.effect == effect


def test_a_tool_takes_no_arguments_by_default_and_shares_no_schema() -> None:
    one, other = ToolSpec(name="a"), ToolSpec(name="b")
    assert one.parameters == {"type": "object", "properties": {}}
    assert one.parameters is not other.parameters
