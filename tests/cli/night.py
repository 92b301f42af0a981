"""A night: a store with tasks in all states, as drivers leave it for an operator. The same at each run.

    python -m tests.cli.night SHIFT STORE TASKS                      # the tasks at rest, in virtual time
    python -m tests.cli.night SHIFT STORE 0 HOST PID LEASE NUMBER... # tasks of a driver on another host, left running

`SHIFT` is the folder of `shift.py`, the agents of the night.
"""
# ruff: noqa: E501 - the agents of the night are a text

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from hashlib import sha256
from pathlib import Path
from typing import Any

from treadle import Limits, Runner, RunOptions
from treadle.agents.agent import Agent as AnyAgent
from treadle.models import Price
from treadle.stores.postgres import writer as postgres_writer
from treadle.stores.processes import Process
from treadle.stores.sqlite import writer as sqlite_writer
from treadle.testing import clock
from treadle.wiring import open_store

PRICES = {"night:small": Price(3, 15)}

SHIFT = '''
"""The agents of the night."""

import asyncio
import time

from treadle import Agent, ScriptedModel, tool
from treadle.models import call, fail, text, turn


@tool(read_only=True)
def look_up(order: int) -> dict:
    """Look an order up."""
    return {"order": order, "total": 20 + order % 7, "paid": True}


@tool
async def charge(order: int, amount: int) -> str:
    """Charge a card; takes its time when the bank is slow."""
    await asyncio.sleep(3_600 if amount > 900 else 0.8)
    return f"charged {amount} for order {order}"


def take_back(call, ctx):
    """Take a refund back."""


@tool(undo=take_back)
def write_refund(order: int, amount: int) -> str:
    """Write a refund into the books."""
    return f"refund of {amount} for order {order}"


@tool(read_only=True)
def wait_for_bank(order: int) -> str:
    """Wait until the bank answers."""
    open(f"waiting-{order}", "a").close()
    time.sleep(1_000)
    return "ok"


def order_of(request):
    words = " ".join(m.text for m in request.messages if m.role == "user").split()
    return int(next(word for word in reversed(words) if word.isdigit()))


def support(request):
    said = " ".join(m.text for m in request.messages if m.role == "user")
    order, turn_ = order_of(request), request.turn
    if "refused" in said:
        return fail(400, message="the request was refused: prompt_cache_key is not supported by this deployment")
    if not request.tools:
        return text(f"I ran out of steps; order {order} needs a second look.", delay=0.7)
    if "loop" in said:
        return call("look_up", order=order)
    if turn_ == 0:
        return turn("Let me look that up.", call("look_up", order=order), reasoning="") if order % 2 else call("look_up", order=order)
    if "bank" in said:
        return call("charge", order=order, amount=999) if turn_ == 1 else text("The bank has answered.")
    if "refund" in said and turn_ == 1:
        return call("write_refund", order=order, amount=20 + order % 7)
    return text(f"Order {order} is settled: the total of {20 + order % 7} was paid, and nothing else is open.", delay=1.2)


support = Agent(
    ScriptedModel(support, name="night:small"), name="support", tools=[look_up, charge, write_refund],
    instructions="Settle orders.",
)
clerk = Agent(ScriptedModel(lambda r: text(f"Report on order {order_of(r)}: all is in order.", delay=2), name="night:small"), name="clerk")


def lead(request):
    order = order_of(request)
    return call("clerk", input=f"Report on order {order}") if request.turn == 0 else text(f"The clerk reports that order {order} is fine.")


lead = Agent(ScriptedModel(lead, name="night:small"), name="team-lead-of-the-night", subagents=[clerk])
bank = Agent(
    ScriptedModel(lambda r: call("wait_for_bank", order=order_of(r)) if r.turn == 0 else text("Paid."), name="night:small"),
    name="bank", tools=[wait_for_bank],
)
'''


def task_id(number: int) -> str:
    """Return the id of a task: of one batch, so that all begin alike."""
    end = sha256(str(number).encode()).hexdigest()
    return f"01a20275-803b-7{number % 4096:03x}-8{end[:3]}-{end[3:15]}"


class Night:
    """Makes the tasks at rest, each in its own way."""

    def __init__(self, runner: Runner, support: AnyAgent[Any], lead: AnyAgent[Any]) -> None:
        self.runner, self.support, self.lead = runner, support, lead

    async def run(self, number: int, text: str, agent: AnyAgent[Any] | None = None, **options: Any) -> None:
        await self.runner.run(
            agent or self.support,
            text,
            task_id=task_id(number),
            thread_id=f"customer-{number % 17}" if number % 3 == 0 else f"t{number}",
            options=self.options(number, **options),
        )

    def options(self, number: int, **options: Any) -> RunOptions:
        labels = {"team": ("blue", "red", "green")[number % 3]} | (
            {"urgent": "yes"} if number % 10 == 0 else {}
        )
        return RunOptions(labels=labels, **options)

    async def settled(self, number: int) -> None:
        await self.run(number, f"Settle order {number}")

    async def refunded(self, number: int) -> None:
        await self.run(number, f"Please refund order {number}")

    async def failed(self, number: int) -> None:
        await self.run(number, f"Settle the refused order {number}")

    async def degraded(self, number: int) -> None:
        await self.run(number, f"Settle order {number} and loop", limits=Limits(steps=3))

    async def paused_by_limit(self, number: int) -> None:
        await self.run(number, f"Settle order {number} carefully", limits=Limits(steps=1), on_limit="pause")

    async def led(self, number: int) -> None:
        await self.run(number, f"Have order {number} checked", self.lead)

    async def created(self, number: int) -> None:
        await self.make(number, f"Settle order {number} in the morning")

    async def make(self, number: int, text: str) -> str:
        made = await self.runner.create_task(
            self.support, text, task_id=task_id(number), thread_id=f"t{number}", options=self.options(number)
        )
        return made.task_id

    async def between_steps(self, number: int) -> None:
        await self.runner.run_step(await self.make(number, f"Settle order {number} step by step"))

    async def answered(self, number: int) -> None:
        made = await self.make(number, f"Settle order {number} step by step, to the answer")
        while not (await self.runner.run_step(made)).is_last:
            pass

    async def cancelled(self, number: int) -> None:
        made = await self.make(number, f"Settle order {number}, or not")
        await self.runner.cancel(made, reason="asked for twice", by="ann")

    async def paused(self, number: int) -> None:
        await self.between_steps(number)
        await self.runner.pause(task_id(number), reason="the price is being checked", by="ben")

    async def slow(self, number: int) -> None:
        """Interrupt a task while it charges a card: whether that happened is not known."""
        made = await self.make(number, f"Ask the bank about order {number}")
        handle = asyncio.ensure_future(self.runner.resume(made))
        await asyncio.sleep(60)
        await self.runner.interrupt(made, reason="the night driver was restarted")
        await handle

    async def waiting(self, number: int) -> None:
        await self.slow(number)
        await self.runner.resume(task_id(number))

    async def undone(self, number: int) -> None:
        await self.refunded(number)
        await self.runner.undo_step(task_id(number), to=1, by="ben")


async def at_rest(store: str, count: int, support: AnyAgent[Any], lead: AnyAgent[Any]) -> None:
    """Make so many tasks, two minutes after each other."""
    async with clock.runner(store, agents=[support, lead], prices=PRICES) as runner:
        night = Night(runner, support, lead)
        rare: list[Callable[[int], Coroutine[Any, Any, None]]] = [
            night.failed, night.paused_by_limit, night.waiting, night.degraded, night.slow, night.cancelled,
            night.between_steps, night.paused, night.answered, night.led, night.created, night.undone,
        ]  # fmt: skip
        for number in range(1, count + 1):
            kinds = [night.settled, night.refunded, rare[number // 3 % len(rare)]]
            await asyncio.sleep(max(0, 120 * number - asyncio.get_running_loop().time()))
            await kinds[number % 3](number)


async def held(
    store: str, numbers: list[int], host: str, pid: int, lease: float, bank: AnyAgent[Any]
) -> None:
    """Begin tasks as a process of another host, and end without a word while they run."""
    driver = Process(f"driver {pid} of {host}", host, f"boot of {host}", pid, 0)
    sqlite_writer.this_process = postgres_writer.this_process = lambda: driver
    times = iter(range(numbers[0], numbers[0] + 1_000))
    began = clock.BEGIN + 120_000_000 * numbers[0]
    runner = Runner(open_store(store, lease_seconds=lease), prices=PRICES, clock=lambda: began + next(times))
    for number in numbers:
        await runner.start(
            bank,
            f"Wait for the bank about order {number}",
            task_id=task_id(number),
            thread_id=f"t{number}",
            options=RunOptions(labels={"team": "bank"}),
        )
    for number in numbers:
        while not Path(f"waiting-{number}").exists() or (await runner.store.row(task_id(number))).head < 5:  # noqa: ASYNC110, ASYNC240
            await asyncio.sleep(0.02)
    os._exit(0)


def main() -> None:
    """Make what the command line names."""
    folder, store, count, *other = sys.argv[1:]
    sys.path.insert(0, folder)
    import shift

    if other:
        host, pid, lease, *numbers = other
        asyncio.run(held(store, [int(n) for n in numbers], host, int(pid), float(lease), shift.bank))
    else:
        clock.run(at_rest(store, int(count), shift.support, shift.lead))


if __name__ == "__main__":
    main()
