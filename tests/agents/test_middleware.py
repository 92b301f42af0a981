"""What middleware is passed: a call that it may read, change a copy of, and note facts on."""

from functools import partial
from typing import Any

import pytest

from treadle import NextLayer, ToolContext, ToolInvocation, ToolOutput, tool
from treadle.agents.middleware import Layer, checked_middleware, layers_of, name_of


@tool(idempotent=True)
def save(text: str) -> str:
    """Save a text."""
    return text


def invocation(**arguments: Any) -> ToolInvocation:
    return ToolInvocation(
        save, arguments, ToolContext("t", "th", "s1", "s1-0", "key", "desk", 2, None), lambda: "d"
    )


async def passes(call: ToolInvocation, next: NextLayer) -> ToolOutput:
    return await next(call)


async def tells(region: str, call: ToolInvocation, next: NextLayer) -> ToolOutput:
    return await next(call)


def test_a_call_tells_what_its_tool_is_and_which_attempt_it_is() -> None:
    call = invocation(text="x")
    assert (call.name, call.effect, call.spec, call.attempt, call.key) == (
        "save",
        "idempotent",
        save.spec,
        2,
        "key",
    )


def test_other_arguments_make_another_call() -> None:
    call = invocation(text="x")
    other = call.with_arguments({"text": "y"})
    assert (call.arguments, other.arguments, other.context) == ({"text": "x"}, {"text": "y"}, call.context)


def test_a_call_does_not_change() -> None:
    with pytest.raises(AttributeError):
        invocation().arguments = {}  # type: ignore[misc]


def test_progress_is_rewritten_from_the_inside_out() -> None:
    outer = invocation().with_progress(lambda value: f"outer({value})")
    inner = outer.with_progress(lambda value: f"inner({value})")
    assert inner.on_progress is not None
    assert inner.on_progress("x") == "inner(outer(x))"


def test_a_note_is_json_data() -> None:
    call = invocation()
    call.note("took", 0.5)
    assert call.notes == {"took": 0.5}
    with pytest.raises(ValueError, match="object"):
        call.note("what", object())


def test_a_partial_function_has_the_name_of_its_function() -> None:
    assert [name_of(each) for each in (passes, partial(tells, "eu"))] == ["passes", "tells"]
    assert checked_middleware("x", [partial(tells, "eu")])


def test_the_order_is_runner_agent_tool() -> None:
    wrapped = tool(save, middleware=[tells.__get__("eu")])
    layers = layers_of(wrapped, [passes], [passes])
    assert [str(layer) for layer in layers] == ["passes (runner)", "passes (agent)", "tells (tool)"]
    assert layers[0] == Layer(passes, "runner")
