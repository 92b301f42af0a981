"""A refund desk: large refunds wait for a second person, however often the processes are restarted meanwhile.

    python examples/refund_desk.py open A-17 "The lamp came broken" --clerk bob
    python examples/refund_desk.py waiting
    python examples/refund_desk.py approve refund-A-17 --by ann --cents 2500
    python examples/refund_desk.py work

Each command is a process of its own; without one, all of these run. `open` ends while its task waits on disk; days
later, anywhere, Ann decides; `work` goes on with what was decided, and so would `treadle drive`. A policy says what a
person has to see: refunds above ten euros, and never the clerk who opened the case. The tool books under the
idempotency key of its call and can look a booking up, so that a refund whose process was killed is paid once. Without
--model a script plays the model.
"""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from treadle import (
    Agent,
    Happened,
    ModelRequest,
    NotHappened,
    Policy,
    Rule,
    Runner,
    RunOptions,
    RunResult,
    ScriptedModel,
    ToolCall,
    ToolContext,
    tool,
)
from treadle.errors import TreadleError
from treadle.models import Turn, call, text

ORDERS = {"A-17": 4000, "A-18": 900}
"""What was paid, in cents: put your database here."""

BANK = Path(".treadle", "bank.jsonl")
"""The world outside: put your payment provider here."""

POLICY = Policy(
    Rule(
        "second-person",
        "ask",
        tool="refund",
        when={"arguments.cents": {"above": 1000}},
        reason="Refunds above ten euros need a second person.",
        excluded=["labels.clerk"],
        expires=14 * 24 * 3600,
    ),
    Rule("other-tools", "deny", tool="*", when={"effect": "executes"}, reason="This desk runs no programs."),
)


@tool(read_only=True)
def look_up(order: str) -> int:
    """Return what was paid for an order, in cents."""
    return ORDERS[order]


def booked(key: str) -> str | None:
    """Return the booking under an idempotency key, if there is one."""
    lines = BANK.read_text().splitlines() if BANK.exists() else []
    return next((line["text"] for line in map(json.loads, lines) if line["key"] == key), None)


def find(call: ToolCall, ctx: ToolContext) -> Happened | NotHappened:
    """Find out whether a refund was paid whose process was killed."""
    booking = booked(ctx.idempotency_key)
    return NotHappened() if booking is None else Happened(booking)


def preview(order: str, cents: int) -> str:
    """Tell the approver what a refund would do."""
    return f"{cents / 100:.2f} of {ORDERS[order] / 100:.2f} EUR go back for order {order}"


@tool(spends=True, preview=preview, reconcile=find)
def refund(order: str, cents: int, ctx: ToolContext) -> str:
    """Pay money back for an order."""
    if not 0 < cents <= ORDERS[order]:
        raise ValueError(f"{order}: at most {ORDERS[order]} cents can be paid back")
    booking = booked(ctx.idempotency_key)
    if booking is None:
        booking = f"{cents} cents paid back for {order}"
        BANK.parent.mkdir(exist_ok=True)
        with BANK.open("a") as bank:
            bank.write(json.dumps({"key": ctx.idempotency_key, "text": booking}) + "\n")
    return booking


def script(request: ModelRequest) -> Turn:
    """What a model may say: it looks the order up, and pays all of it back."""
    asked = next(message.text for message in request.messages if message.role == "user")
    order = next(word for word in asked.replace(":", " ").split() if word in ORDERS)
    last = request.messages[-1]
    if last.role == "user":
        return call("look_up", order=order)
    if "paid back" in str(last) or "refund was not run" in str(last):
        return text("The refund is settled." if "paid back" in str(last) else "No refund: a person said no.")
    return call("refund", order=order, cents=ORDERS[order])


TOUR = [
    ["open", "A-17", "The lamp came broken", "--clerk", "bob"],
    ["waiting"],
    ["approve", "refund-A-17", "--by", "bob"],
    ["approve", "refund-A-17", "--by", "ann", "--cents", "2500"],
    ["work"],
]


def desk_agent(model: str | None) -> Agent:
    """Make the agent; the same in every process."""
    return Agent(
        model if model is not None else ScriptedModel(script),
        name="refund-desk",
        instructions="You handle complaints of a shop. Look the order up, then pay back what is fair.",
        tools=[look_up, refund],
        policy=POLICY,
    )


agent = desk_agent(None)
"""The agent with the script as its model, for `treadle serve refund_desk:agent`."""


def tell(result: RunResult) -> None:
    """Print how a case stands."""
    about = result.pending[0].text if result.pending else result.final_text
    print(f"{result.task_id} is {result.state}: {about}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the example as the command line says."""
    parser = argparse.ArgumentParser(description="A refund desk.")
    parser.add_argument("--model", help="provider:name, such as openai:gpt-5.4-mini; a script by default")
    commands = parser.add_subparsers(dest="command")
    case = commands.add_parser("open", help="begin a case")
    case.add_argument("order")
    case.add_argument("complaint")
    case.add_argument("--clerk", required=True, help="who opens it")
    commands.add_parser("waiting", help="list what waits for a person")
    for name in ("approve", "deny"):
        decision = commands.add_parser(name, help=f"{name} a refund")
        decision.add_argument("task")
        decision.add_argument("--by", required=True, help="who decides")
        if name == "approve":
            decision.add_argument("--cents", type=int, help="pay this instead")
        else:
            decision.add_argument("--reason")
    commands.add_parser("work", help="go on with what was decided")
    parsed = parser.parse_args(arguments)
    if parsed.command is None:
        for command in TOUR:
            print(f"$ refund_desk.py {shlex.join(command)}")
            main(command)
        return 0
    desk = desk_agent(parsed.model)
    with Runner(agents=[desk]).sync as runner:
        try:
            match parsed.command:
                case "open":
                    options = RunOptions(labels={"clerk": parsed.clerk})
                    words = f"Order {parsed.order}: {parsed.complaint}"
                    result = runner.run(desk, words, task_id=f"refund-{parsed.order}", options=options)
                    tell(result)
                case "waiting":
                    for item in runner.list_pending():
                        print(f"{item.task_id}: {item.preview}, since rule {item.rule} asks")
                case "approve":
                    for item in runner.list_pending(parsed.task):
                        other = None if parsed.cents is None else {**item.arguments, "cents": parsed.cents}
                        runner.approve(parsed.task, item.request_id, arguments=other, by=parsed.by)
                case "deny":
                    runner.deny(parsed.task, reason=parsed.reason, by=parsed.by)
                case _:
                    for task in runner.list_tasks(state=["waiting", "interrupted", "between steps"]).items:
                        tell(runner.resume(task.task_id))
        except TreadleError as error:
            print(f"refused: {error}")
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
