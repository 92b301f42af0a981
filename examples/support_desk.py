"""A support desk: a customer's conversation, refunds that a person has to agree to, and undo.

    python examples/support_desk.py
    python examples/support_desk.py --model openai:gpt-5.4-mini --customer ada

Each line is a task in the customer's thread, so the desk remembers, also tomorrow. Before `refund` runs, the task
pauses on disk and asks: `y` lets it go on, anything else takes the model's turn back and tells it why. Who the customer
is comes from the program, never from the model. An empty line ends it. Without --model a script plays the model.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from treadle import (
    Agent,
    Breakpoint,
    Limits,
    ModelRequest,
    Runner,
    RunOptions,
    RunResult,
    ScriptedModel,
    ToolCall,
    ToolContext,
    tool,
)
from treadle.models import Turn, call, text


@dataclass
class Desk:
    """What the tools of one conversation reach: put your database here."""

    customer: str
    orders: dict[str, int] = field(default_factory=lambda: {"A-17": 4000})
    refunds: dict[str, int] = field(default_factory=dict[str, int])


@tool(read_only=True)
def my_orders(ctx: ToolContext[Desk]) -> dict[str, int]:
    """List the customer's orders, with what was paid, in cents."""
    return ctx.context.orders


def take_back(call: ToolCall, ctx: ToolContext[Desk]) -> None:
    """Undo a refund: what `undo_step` runs before it forgets the step."""
    ctx.context.refunds.pop(str(call.arguments["order"]), None)


@tool(undo=take_back)
def refund(ctx: ToolContext[Desk], order: str, cents: int) -> str:
    """Pay money back for an order."""
    paid = ctx.context.orders.get(order, 0)
    if not 0 < cents <= paid:
        raise ValueError(f"{order}: at most {paid} cents can be paid back")
    ctx.context.refunds[order] = cents
    return f"{cents} cents paid back for {order}"


def script(request: ModelRequest) -> Turn:
    """What a model may say: it looks, then pays back half, and does as it is told if that is refused."""
    last = request.messages[-1]
    if last.role == "user" and "late" in last.text:
        return call("my_orders")
    if last.role == "tool" and "my_orders" in str(last):
        return call("refund", order="A-17", cents=2000)
    if last.role == "tool":
        return text("I have paid half of it back.")
    return text("I am sorry, I cannot do that." if "refused" in last.text else "How can I help?")


def desk_agent(model: str | None) -> Agent:
    """Make the agent; the same in every process."""
    return Agent(
        model if model is not None else ScriptedModel(script),
        name="support",
        instructions="You help customers of a shop. Look orders up before you promise anything.",
        tools=[my_orders, refund],
        limits=Limits(steps=12),
    )


def converse(agent: Agent, desk: Desk, read: Callable[[str], str]) -> None:
    """Answer line after line, until an empty one."""
    options = RunOptions(break_on=[Breakpoint(before_tool="refund")], labels={"customer": desk.customer})
    with Runner(agents=[agent], options=options).sync as runner:
        while line := read("you> "):
            result = runner.run(agent, line, thread_id=f"customer-{desk.customer}", context=desk)
            while result.state == "paused" and (asked := waiting(result)):
                if (
                    read(f"refund {asked.arguments['cents']} cents for {asked.arguments['order']}? [y/N] ")
                    != "y"
                ):
                    runner.undo_step(result.task_id)
                    runner.send(result.task_id, "The refund was refused. Tell the customer.", role="system")
                result = runner.resume(result.task_id, context=desk)
            print(f"desk> {result}")


def waiting(result: RunResult) -> ToolCall | None:
    """The refund that the task stopped before; None if it stopped for another reason."""
    open_calls = [done for done in result.tool_executions if done.name == "refund" and done.outcome is None]
    return ToolCall(open_calls[-1].call_id, "refund", open_calls[-1].arguments) if open_calls else None


def main(arguments: Sequence[str] | None = None, read: Callable[[str], str] = input) -> int:
    """Run the example as the command line says."""
    parser = argparse.ArgumentParser(description="A support desk.")
    parser.add_argument("--model", help="provider:name, such as openai:gpt-5.4-mini; a script by default")
    parser.add_argument("--customer", default="ada", help="whose conversation it is")
    parsed = parser.parse_args(arguments)
    try:
        converse(desk_agent(parsed.model), Desk(parsed.customer), read)
    except EOFError:
        print("\nThe input has ended. Run this at a terminal, or pipe it the lines of a customer.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
