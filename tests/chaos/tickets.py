"""The processes of the storm of tickets: drivers, whose tools hand tickets out, and senders, who complete them.

    python -m tests.chaos.tickets driver STORE FOLDER TASKS CALLS
    python -m tests.chaos.tickets sender STORE FOLDER SEED TICKETS

What a tool hands out stands in a file, by the idempotency key of its call: a call that started again stands there with
several tickets, and any of them is used.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from treadle import Agent, Runner, ScriptedModel, ToolContext, tool
from treadle.errors import AlreadyDecided, StoreError, TicketNotFound
from treadle.models import call, text
from treadle.testing.clock import SLICE


def write(path: Path, line: Any) -> None:
    """Append a line to a file, as one write that a kill of this process does not take back."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(handle, (json.dumps(line) + "\n").encode())
    finally:
        os.close(handle)


def read(path: Path) -> list[Any]:
    """Return the lines of such a file; the last one may be half written."""
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def agent(folder: Path, calls: int) -> Agent[Any]:
    """Return an agent that leaves so many films to a farm, and answers all that it then reads."""

    @tool(background=True, idempotent=True)
    async def render(number: int, ctx: ToolContext[Any]) -> Any:
        """Render a film."""
        write(folder / "tickets", [ctx.idempotency_key, ctx.ticket])
        await asyncio.sleep(random.uniform(0, 0.05))
        return ctx.background({"film": number}, expires=3_600)

    films = [call("render", number=number) for number in range(calls)]

    def answer(request: Any) -> Any:
        return films if request.turn == 0 else text(f"answer {request.turn}")

    return Agent(ScriptedModel(answer), name="films", tools=[render])


async def drive(store: str, folder: Path, tasks: int, calls: int) -> None:
    """Begin the tasks that are not there yet, and drive what is to be driven until this process is killed."""
    films = agent(folder, calls)
    async with Runner(store, agents=[films], adopt=True) as runner:
        for number in range(tasks):
            await runner.start(films, f"{calls} films", task_id=f"films-{number}")
        await asyncio.Event().wait()


async def send(store: str, folder: Path, seed: int, expected: int) -> None:
    """Complete every ticket there is in an order of this process's own, and try what is to be refused."""
    chance, done, refused = random.Random(seed), set[str](), Counter[str]()
    async with Runner(store) as runner:
        while len(done) < expected:
            tickets: dict[str, list[str]] = {}
            for key, ticket in read(folder / "tickets"):
                tickets.setdefault(key, []).append(ticket)
            open_keys = [key for key in tickets if key not in done]
            if not open_keys:
                await asyncio.sleep(SLICE)
                continue
            key = chance.choice(open_keys)
            ticket = chance.choice(tickets[key])
            try:
                await runner.complete(ticket, f"the film of {key}.")
                done.add(key)
            except StoreError:
                continue  # it was not acknowledged, so it is sent again
            if chance.random() < 0.2:
                try:
                    await runner.complete(ticket, "another film")
                except AlreadyDecided:
                    refused["double"] += 1
                try:
                    await runner.complete(f"forged{ticket}", "no film")
                except TicketNotFound:
                    refused["forged"] += 1
                refused["tried"] += 2
    write(folder / "senders", {"seed": seed, "done": len(done), **refused})


if __name__ == "__main__":
    role, store, place, first, second = sys.argv[1:]
    work = drive if role == "driver" else send
    asyncio.run(work(store, Path(place), int(first), int(second)))
