"""Whether a tool asks is seen in its code when it is defined."""

import functools
from collections.abc import Callable
from typing import Any

import pytest

from treadle import ToolContext, tool
from treadle.errors import ToolDefinitionError
from treadle.tools.asking import asks


async def plain(ctx: ToolContext) -> str:
    return await ctx.ask("Go?")


def in_a_thread(there: ToolContext) -> bool:
    return there.wait(there.ask("Go?", bool))


async def in_an_inner_function(ctx: ToolContext) -> str:
    async def inner() -> str:
        return await ctx.ask("Go?")

    return await inner()


def with_a_generator(ctx: ToolContext) -> Any:
    yield ctx.wait(ctx.ask("Go?"))


async def another_ask(ctx: ToolContext, who: Any) -> str:
    ctx.progress(1)
    return who.ask("Go?")


async def through_a_helper(ctx: ToolContext) -> str:
    return await plain(ctx)


class Desk:
    async def method(self, ctx: ToolContext) -> str:
        return await ctx.ask("Go?")


@pytest.mark.parametrize(
    ("fn", "context", "expected"),
    [
        (plain, "ctx", True),
        (in_a_thread, "there", True),
        (in_an_inner_function, "ctx", True),
        (with_a_generator, "ctx", True),
        (Desk().method, "ctx", True),
        (functools.partial(plain), "ctx", True),
        (another_ask, "ctx", False),
        (through_a_helper, "ctx", False),
        (plain, None, False),
        (len, "ctx", False),
    ],
)
def test_a_function_asks_if_its_code_calls_ask_on_the_context(
    fn: Callable[..., Any], context: str | None, expected: bool
) -> None:
    assert asks(fn, context) is expected


def test_a_tool_that_asks_and_may_write_is_refused_when_it_is_defined() -> None:
    with pytest.raises(ToolDefinitionError, match="tool 'plain': idempotent: a tool that asks starts again"):
        tool(plain)
    assert tool(plain, idempotent=True).spec.effect == "idempotent"
    assert tool(in_a_thread, read_only=True).spec.effect == "read"
    assert tool(through_a_helper).spec.effect == "write"
