"""The tools of the golden task whose functions run in processes of their own: a new process imports this module."""

from __future__ import annotations

from tests.crash.witness import PAUSES, VARIABLE, act
from treadle import ToolContext, tool
from treadle.core.messages import ToolCall
from treadle.tools import Subprocess

HOST = Subprocess(env=(VARIABLE, PAUSES))


def take_back(tool_call: ToolCall, ctx: ToolContext) -> None:
    act(f"undo-{tool_call.name}", ctx.idempotency_key)


@tool(read_only=True, host=HOST)
def look(n: int, ctx: ToolContext) -> str:
    """Look."""
    return act("look", ctx.idempotency_key)


@tool(idempotent=True, undo=take_back, host=HOST)
def book(n: int, ctx: ToolContext) -> str:
    """Book."""
    return act("book", ctx.idempotency_key)


@tool(undo=take_back, host=HOST)
def pay(n: int, ctx: ToolContext) -> str:
    """Pay."""
    return act("pay", ctx.idempotency_key)
