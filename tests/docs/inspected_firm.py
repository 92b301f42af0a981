"""Agents of a made-up firm and about thirty tasks of theirs, in every state: the store of the inspector's pictures.

Models are scripts, and time is virtual, so each store has the same texts, times and durations.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path
from typing import Any

from treadle import (
    Agent,
    FailurePolicy,
    Limits,
    ModelRequest,
    Policy,
    Rule,
    Runner,
    RunOptions,
    ScriptedModel,
    ToolCall,
    ToolContext,
    Usage,
    tool,
)
from treadle.errors import TreadleError
from treadle.models import Price, Turn, call, turn
from treadle.testing import clock

BEGIN = 1_795_420_800_000_000
"""The time at which the firm opens: 2026-11-23, 08:00 UTC, in microseconds since 1970."""

PRICES = {
    "sonnet-5": Price(3, 15, cached=0.3),
    "haiku-5": Price(0.8, 4),
    "gpt-5.2": Price(1.75, 14),
}
CRASHES = "crash"
"""The argument of a process whose tools end it."""

HOLDS = asyncio.Event()
"""Set as soon as the task that runs in the pictures waits for the end of them."""


def now() -> int:
    """Return the time of the firm."""
    return BEGIN + int(asyncio.get_running_loop().time() * 1e6)


def says(
    words: str = "", calls: list[Turn] | None = None, *, think: str = "", used: int = 1800, delay: float = 0.4
) -> Turn:
    """Return a turn that takes about as long as one of a model."""
    size = 40 + len(words) // 4 + 60 * len(calls or [])
    return turn(
        words, calls or [], reasoning=think, usage=Usage(used, size), delay=delay, chunk=12, pause=0.02
    )


def users(request: ModelRequest) -> list[str]:
    """Return the words of people."""
    return [message.text for message in request.messages if message.role == "user"]


def called(request: ModelRequest) -> list[str]:
    """Return the names of the tools that were called."""
    parts = [part for message in request.messages if message.role == "assistant" for part in message.parts]
    return [part.name for part in parts if isinstance(part, ToolCall)]


_CHANCE = random.Random(7)


async def nap(low: float, high: float | None = None) -> None:
    """Take some time."""
    await asyncio.sleep(_CHANCE.uniform(low, high or low))


# -------------------------------------------------------------------------------------------- month end

BOOKS: dict[str, int] = {}


@tool(read_only=True)
async def read_ledger(account: str, month: str) -> dict[str, object]:
    """Read an account of the general ledger."""
    await nap(0.2, 0.9)
    unmatched = [
        {"date": "2026-10-30", "memo": "Hosting October", "cents": -184_900},
        {"date": "2026-10-31", "memo": "Card fees", "cents": -2_317},
    ]
    closing = 398_410 + int(account)
    return {
        "account": account,
        "month": month,
        "opening": 412_050,
        "closing": closing,
        "unmatched": unmatched,
    }


@tool(read_only=True)
async def bank_statement(iban: str, month: str) -> dict[str, object]:
    """Read the statement of the bank."""
    await nap(0.8, 1.4)
    return {"iban": iban, "month": month, "closing": 399_510, "lines": 142}


@tool(read_only=True)
async def open_invoices(month: str) -> list[dict[str, object]]:
    """List invoices that have not been paid."""
    await nap(0.3, 0.6)
    return [
        {"number": 2291, "customer": "Nordlicht GmbH", "cents": 1_290_000, "days": 34},
        {"number": 2304, "customer": "Ada Ltd.", "cents": 84_500, "days": 12},
    ]


def reverse(done: ToolCall, ctx: ToolContext) -> None:
    """Take a journal entry back."""
    BOOKS.pop(str(done.output), None)


@tool(undo=reverse)
async def post_entry(debit: str, credit: str, cents: int, memo: str) -> str:
    """Post a journal entry to the general ledger."""
    await nap(0.35, 0.6)
    number = f"JE-{1041 + len(BOOKS)}"
    BOOKS[number] = cents
    return number


@tool(read_only=True)
async def trial_balance(month: str) -> dict[str, object]:
    """Compute the trial balance."""
    await nap(1.1)
    return {"month": month, "debits": 8_113_204, "credits": 8_113_204, "balanced": True, "variance": 0}


def close_month(request: ModelRequest) -> Turn:
    """Read, post, check, report."""
    done, last = called(request), users(request)[-1]
    if "read_ledger" not in done:
        reads = [
            call("read_ledger", account="1200", month="2026-10"),
            call("read_ledger", account="2150", month="2026-10"),
            call("bank_statement", iban="DE02 1203 0000 0000 2020 51", month="2026-10"),
            call("open_invoices", month="2026-10"),
        ]
        think = (
            "The close needs the ledger, the bank and open invoices. These reads do not depend on each other."
        )
        return says(
            "I start with the balances, the bank and what is still open.", reads, think=think, used=2140
        )
    if "post_entry" not in done and "accru" in last:
        entry = call(
            "post_entry", debit="6300", credit="2150", cents=184_900, memo="Accrued hosting, October"
        )
        return says(
            "Right: hosting was used in October and billed in November: an accrual.", [entry], used=3310
        )
    if "post_entry" not in done:
        entry = call("post_entry", debit="6300", credit="1200", cents=184_900, memo="Hosting October")
        return says("Hosting for October is missing. I book it as paid.", [entry], used=3020, delay=0.7)
    if "trial_balance" not in done:
        fees = call("post_entry", debit="6855", credit="1200", cents=2_317, memo="Card fees October")
        return says("", [fees, call("trial_balance", month="2026-10")], used=3640)
    report = (
        "October is closed.\n\nOpening balance  4,120.50\nAccrued hosting  1,849.00  (6300 / 2150)\n"
        "Card fees           23.17  (6855 / 1200)\nDebits = credits = 81,132.04. One invoice is overdue: 2291, "
        "Nordlicht GmbH, 12,900.00, 34 days."
    )
    return says(report, used=4120, delay=0.8)


closer = Agent(
    ScriptedModel(close_month, name="sonnet-5"),
    name="month-end",
    limits=Limits(steps=20, cost=2.0),
    instructions="You close the books of a small firm each month. Read before you write. Post one entry at a time, "
    "with a memo that an auditor understands. Never touch a closed month.",
    tools=[read_ledger, bank_statement, open_invoices, post_entry, trial_balance],
)


# ---------------------------------------------------------------------------------------------- research


@tool(read_only=True)
async def search_notes(words: str) -> dict[str, str]:
    """Search the notes."""
    await nap(0.2, 0.8)
    return {
        "leases.md": "A lease is ownership for a while. Its holder renews it, or loses it.",
        "journals.md": "A journal is a list of events, to which lines are only added.",
    }


def research(request: ModelRequest) -> Turn:
    """Search twice, then answer."""
    question = users(request)[0]
    if request.turn < 2:
        words = question[:40] + (" examples" if request.turn else "")
        return says("", [call("search_notes", words=words)], used=700)
    return says(f"Two notes explain this and agree: {question.rstrip('?').lower()}.", used=900)


def edit(request: ModelRequest) -> Turn:
    """Ask researchers, then write."""
    if request.turn == 0:
        asked = ("What is a lease?", "What is a journal?", "Who renews a lease?")
        questions = [call("researcher", input=question) for question in asked]
        return says("Three questions can be asked at once.", questions, used=900)
    if request.turn == 1:
        return says("", [call("researcher", input="What happens to a lease without a renewal?")], used=1500)
    answer = "A lease is ownership for a while; a journal is a list that only grows. Together they make a task durable."
    return says(answer, used=2200)


researcher = Agent(
    ScriptedModel(research, name="haiku-5"),
    name="researcher",
    description="Answers one question from the notes.",
    instructions="Answer from the notes alone.",
    tools=[search_notes],
    limits=Limits(steps=5),
)
editor = Agent(
    ScriptedModel(edit, name="gpt-5.2"),
    name="editor",
    instructions="Split the question, ask researchers at the same time, then write.",
    subagents=[researcher],
)


# -------------------------------------------------------------------------------- support, with a handoff


@tool(read_only=True)
async def find_customer(email: str) -> dict[str, object]:
    """Find a customer."""
    await nap(0.2)
    return {"id": "c-771", "plan": "team", "since": "2023-04-02", "open_cases": 1}


def hand_over(request: ModelRequest) -> Turn:
    """Look the customer up, then hand the conversation over."""
    if request.turn == 0:
        return says("", [call("find_customer", email="maya@example.com")], used=600)
    return says("This is for billing.", [call("transfer_to_billing", reason="charged twice")], used=800)


_REVERSED = (
    "You were charged twice on 3 November. The second charge of 49.00 is reversed; it takes 3 to 5 days."
)
billing = Agent(
    ScriptedModel(lambda request: says(_REVERSED, used=1600), name="haiku-5"),
    name="billing",
    description="Knows invoices and refunds.",
    instructions="You work in billing.",
)
triage = Agent(
    ScriptedModel(hand_over, name="haiku-5"),
    name="triage",
    instructions="Find out what the customer needs, and hand over.",
    tools=[find_customer],
    handoffs=[billing],
)


# ------------------------------------------------------------------------------------ refunds, approvals


@tool(read_only=True)
async def look_up(order: str) -> dict[str, object]:
    """Look an order up."""
    await nap(0.2)
    return {"order": order, "paid_cents": 4000, "delivered": "2026-11-02"}


def preview(order: str, cents: int) -> str:
    """Say what a refund does."""
    return f"{cents / 100:.2f} EUR go back to the card that paid order {order}"


@tool(spends=True, preview=preview)
async def refund(order: str, cents: int) -> str:
    """Pay money back for an order."""
    await nap(0.3)
    return f"{cents} cents paid back for {order}"


def settle_refund(request: ModelRequest) -> Turn:
    """Look the order up, then pay."""
    words = users(request)[0].replace(":", " ").split()
    order = next((word for word in words if word.startswith("A-")), "A-17")
    if request.turn == 0:
        return says("", [call("look_up", order=order)], used=500)
    if "refund" not in called(request):
        reason = "The lamp arrived broken, and the order is within 30 days."
        return says(reason, [call("refund", order=order, cents=4000)], used=800)
    return says("The refund is settled.", used=900)


_SECOND_PERSON = Rule(
    "second-person",
    "ask",
    tool="refund",
    when={"arguments.cents": {"above": 1000}},
    reason="Refunds above ten euros need a second person.",
    excluded=["labels.clerk"],
    expires=14 * 24 * 3600,
)
desk = Agent(
    ScriptedModel(settle_refund, name="haiku-5"),
    name="refund-desk",
    instructions="Look the order up, then pay back a fair amount.",
    tools=[look_up, refund],
    policy=Policy(_SECOND_PERSON),
)


# --------------------------------------------------------------------------------------------- questions


@tool(idempotent=True)
async def order_tins(item: str, ctx: ToolContext) -> str:
    """Order more of an item."""
    tins = await ctx.ask(f"How many tins of {item} shall I order? The supplier has 40.", int)
    return f"{tins} ordered"


def buy(request: ModelRequest) -> Turn:
    """Order, then report."""
    if request.turn == 0:
        return says("Tea is nearly out.", [call("order_tins", item="Assam")], used=600)
    return says("Ordered.", used=700)


buyer = Agent(ScriptedModel(buy, name="haiku-5"), name="buyer", tools=[order_tins])


# --------------------------------------------------------------------- unknown outcomes, interrupted tasks


@tool
async def wire_transfer(iban: str, cents: int, reference: str) -> str:
    """Send money from the firm's account."""
    await nap(0.4)
    if CRASHES in sys.argv:
        os._exit(9)
    return "sent"


def pay(request: ModelRequest) -> Turn:
    """Pay, then report."""
    if request.turn == 0:
        transfer = call(
            "wire_transfer", iban="NL91 ABNA 0417 1643 00", cents=129_000, reference="Invoice 2026-118"
        )
        return says("I pay the supplier.", [transfer], used=900)
    return says("Paid.", used=950)


payer = Agent(
    ScriptedModel(pay, name="sonnet-5"),
    name="payables",
    instructions="Pay approved invoices.",
    tools=[wire_transfer],
)


@tool(read_only=True)
async def count_shelf(shelf: int) -> dict[str, int]:
    """Count a shelf of the store room."""
    await nap(0.8)
    if CRASHES in sys.argv and shelf == 3:
        os._exit(9)
    return {"shelf": shelf, "items": 40 + 7 * shelf}


counter = Agent(
    ScriptedModel(
        lambda request: says("", [call("count_shelf", shelf=request.turn + 1)], used=500), name="haiku-5"
    ),
    name="stock-count",
    tools=[count_shelf],
)


# --------------------------------------------------------------------------------------- failed, degraded


@tool(read_only=True)
async def crawl(url: str) -> str:
    """Read a page of the shop."""
    await nap(0.5)
    if "prices" in url:
        raise ConnectionError(f"{url}: connection refused after 3 attempts")
    return "Lamp, brass, 12.40, in stock"


def watch_price(request: ModelRequest) -> Turn:
    """Read two pages, of which one cannot be read."""
    if request.turn == 0:
        pages = [
            call("crawl", url="https://shop.example/prices"),
            call("crawl", url="https://shop.example/archive/lamp"),
        ]
        return says("I read the price list and the archive.", pages, used=480)
    return says("The price list cannot be read. The archive says 12.40, as of last week.", used=640)


crawler = Agent(ScriptedModel(watch_price, name="haiku-5"), name="price-watch", tools=[crawl])


def fail_to_ask(request: ModelRequest) -> Turn:
    """Fail as a wrong template does."""
    raise RuntimeError("the template of the prompt misses the field 'region'")


broken = Agent(
    ScriptedModel(fail_to_ask, name="gpt-5.2"),
    name="forecast",
    instructions="Forecast the week.",
    tools=[trial_balance],
)


# ---------------------------------------------------------------------------------------- long, and running


@tool(read_only=True)
async def check_row(row: int) -> dict[str, object]:
    """Check one row of the export."""
    await nap(0.03, 0.09)
    if row % 97 == 0:
        raise ValueError(f"row {row}: the postcode has no city")
    return {"row": row, "ok": True}


ROWS = int(os.environ.get("FIRM_ROWS", "120"))


def audit(request: ModelRequest) -> Turn:
    """Check two rows in each step."""
    if request.turn >= ROWS:
        return says("All rows are checked. Some have a postcode without a city.", used=3000)
    first = 2 * request.turn + 1
    checks = [call("check_row", row=first), call("check_row", row=first + 1)]
    return says("", checks, used=900 + request.turn, delay=0.15)


auditor = Agent(
    ScriptedModel(audit, name="haiku-5"),
    name="row-audit",
    instructions="Check every row.",
    tools=[check_row],
    limits=Limits(steps=5000),
)


@tool(read_only=True)
async def watch_feed(minute: int) -> dict[str, object]:
    """Watch the feed for a while."""
    await nap(1.5, 3)
    if minute >= 8:
        HOLDS.set()
        await asyncio.sleep(1e6)
    return {"minute": minute, "orders": 12 + minute % 5}


def watch(request: ModelRequest) -> Turn:
    """Watch two minutes in each step."""
    minute = 2 * request.turn + 1
    words = f"Minute {minute}: nothing unusual, the rate of orders is within two sigma of last week."
    calls = [call("watch_feed", minute=minute), call("watch_feed", minute=minute + 1)]
    return says(words, calls, used=900 + 40 * request.turn, delay=1.0)


watcher = Agent(
    ScriptedModel(watch, name="haiku-5"), name="feed-watch", tools=[watch_feed], limits=Limits(steps=400)
)

AGENTS = [closer, editor, triage, desk, buyer, payer, counter, crawler, broken, auditor, watcher]


# ------------------------------------------------------------------------------------------------- tasks


def labels(**given: str) -> RunOptions:
    """Return options with labels."""
    return RunOptions(labels=given)


async def close_books(runner: Runner) -> None:
    """Close a month, with a correction, and try two other ways."""
    task = await runner.create_task(
        closer,
        "Close October 2026. The hosting invoice came late.",
        task_id="close-2026-10",
        thread_id="books-2026",
        options=labels(team="finance", month="2026-10"),
    )
    await runner.run_step(task)
    await runner.run_step(task)
    await nap(140)
    await runner.undo_step(task, by="ann")
    await nap(40)
    correction = "Hosting was billed in November: book it as an accrual against 2150."
    await runner.send(task, correction, by="ann")
    await runner.resume(task)
    await nap(900)
    question = "What if we book hosting as prepaid: accrue nothing, and the rules for accruals do not apply?"
    fork = await runner.fork(task, at="s1", input=question, task_id="close-2026-10-what-if")
    await runner.resume(fork)
    fork = await runner.fork(task, replace={"s1-3": []}, task_id="close-2026-10-no-invoices")
    await runner.run_step(fork)


async def stop_some(runner: Runner) -> None:
    """Leave tasks that are cancelled, paused, answered and created."""
    night = await runner.create_task(
        watcher, "Watch the feed over night.", task_id="feed-night", options=labels(team="shop")
    )
    await runner.run_step(night)
    await runner.cancel(night, by="ann", reason="not needed")
    await nap(600)
    lunch = await runner.create_task(
        watcher, "Watch the feed over lunch.", task_id="feed-lunch", options=labels(team="shop")
    )
    await runner.run_step(lunch)
    await runner.pause(lunch, by="ann", reason="lunch is over")
    await nap(600)
    notes = await runner.create_task(
        researcher, "What is a fence?", task_id="notes-fence", options=labels(team="docs")
    )
    for _ in range(3):
        await runner.run_step(notes)
    await nap(600)
    options = labels(team="finance", month="2026-11")
    await runner.create_task(
        closer, "Close November 2026.", task_id="close-2026-11", thread_id="books-2026", options=options
    )


async def fill(runner: Runner) -> None:
    """Make the tasks, some hours apart."""

    async def leave(work: Awaitable[Any]) -> None:
        with suppress(TreadleError):  # the task has failed or waits, as it should
            await work
        await nap(700, 3000)

    async def begin(agent: Agent[Any], words: str, name: str, options: RunOptions, **more: Any) -> None:
        await leave(runner.run(agent, words, task_id=name, options=options, **more))

    await begin(auditor, "Check the export of customers.", "row-audit-2026-11", labels(team="data"))
    await close_books(runner)
    await begin(editor, "What are leases and journals?", "research-leases", labels(team="docs"))
    await begin(triage, "I was charged twice. maya@example.com", "case-5512", labels(team="support"))
    await begin(broken, "Forecast week 48.", "forecast-w48", labels(team="data"))
    cautious = RunOptions(labels={"team": "shop"}, on_failure=FailurePolicy(tool="degrade"))
    await begin(crawler, "What does the shop ask for the lamp today?", "price-lamp", cautious)
    await stop_some(runner)
    await begin(
        desk, "Order A-31: arrived after the party", "refund-A-31", labels(team="support", clerk="cem")
    )
    await runner.approve("refund-A-31", by="ann", arguments={"order": "A-31", "cents": 1500})
    await leave(runner.resume("refund-A-31"))
    await leave(runner.resume("pay-2026-118"))
    await begin(buyer, "See to it that we do not run out of tea.", "tea-november", labels(team="office"))
    for order, reason, clerk in (("A-17", "the lamp came broken", "bob"), ("A-23", "wrong colour", "bob")):
        words = f"Order {order}: {reason}"
        await begin(desk, words, f"refund-{order}", labels(team="support", clerk=clerk))


async def crash(store: str) -> None:
    """Run a task whose tool ends this process."""
    async with clock.runner(store, agents=AGENTS, prices=PRICES, clock=now) as runner:
        if sys.argv[1] == payer.name:
            words = "Pay invoice 2026-118 of Van Dijk BV: 1,290.00"
            await runner.run(payer, words, task_id="pay-2026-118", options=labels(team="finance"))
        await runner.run(
            counter, "Count the store room.", task_id="stock-november", options=labels(team="office")
        )


async def run_one(runner: Runner) -> int:
    """Begin the task that runs in the pictures, and return the time of the pictures."""
    await runner.start(
        watcher, "Watch the feed of orders today.", task_id="feed-today", options=labels(team="shop")
    )
    await HOLDS.wait()
    await asyncio.sleep(0.7)
    return now()


def begin_tasks(store: Path) -> None:
    """Make the tasks that a crash leaves behind."""
    for agent in (payer, counter):
        command = [sys.executable, "-m", "tests.docs.inspected_firm", agent.name, CRASHES, str(store)]
        subprocess.run(command, check=False)


if __name__ == "__main__":
    clock.run(crash(sys.argv[3]))
