"""`drive`: a process that drives a store's tasks which nobody drives and somebody should, until it is told to end."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from typing import Annotated, Any

import typer

from treadle.agents.agent import Agent
from treadle.cli import agents
from treadle.cli.command import StoreOption, in_loop
from treadle.cli.screen import STYLES, Screen
from treadle.cli.tracing import TraceContentOption, TraceOption, observers
from treadle.drivers.adoption import AT_MOST, Adoption
from treadle.errors import ConfigurationError
from treadle.wiring import Runner, open_store

GRACE = 10.0

_MARKS = {
    "adopted": ("▶ ", "blue"),
    "lost": ("! ", "yellow"),
    "failed": ("✗ ", "red"),
    "suspect": ("… ", "yellow"),
    "given_up": ("■ ", "red"),
}


def drive(
    ctx: typer.Context,
    agent: Annotated[
        list[str] | None,
        typer.Option("--agent", metavar="MODULE:AGENT", help="Where an agent is; may be repeated."),
    ] = None,
    at_most: Annotated[
        int, typer.Option("--at-most", metavar="N", help="How many tasks at the same time.")
    ] = AT_MOST,
    lease: Annotated[
        float | None,
        typer.Option("--lease", metavar="SECONDS", help="How long this process is taken for alive unheard."),
    ] = None,
    grace: Annotated[
        float, typer.Option("--grace", metavar="SECONDS", help="How long calls in flight may end at SIGTERM.")
    ] = GRACE,
    trace: TraceOption = None,
    trace_content: TraceContentOption = False,
    store: StoreOption = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document a line for what is done and met.")
    ] = False,
) -> int:
    """Drive tasks that nobody drives and somebody should, until SIGTERM or Ctrl-C; then give all back."""
    if grace < 0:
        raise ConfigurationError(f"--grace must be 0 seconds or more, got {grace}")
    known = _agents(agent or [])
    listening = observers(trace, content=trace_content)

    async def work(screen: Screen) -> int:
        opened = open_store(store, lease_seconds=lease)
        async with Runner(opened, agents=known, observers=listening) as runner:
            names = ", ".join(a.name for a in known)
            screen.line(("driving ", "dim"), names, (f" on {opened.url}; SIGTERM or Ctrl-C ends it", "dim"))
            counted = await _drive(runner, screen, at_most, grace)
            screen.entry({"kind": "drained", **counted, "fenced": opened.fenced})
            screen.line(
                ("drained: ", "dim"),
                f"{counted['adopted']} adopted, {counted['lost']} lost to other drivers, "
                f"{opened.fenced} commits refused",
            )
            return 0

    return in_loop(ctx, work)


async def _drive(runner: Runner, screen: Screen, at_most: int, grace: float) -> Counter[str]:
    """Adopt until a signal says to end, or nobody hears what is said, and return how often each kind of thing happened.

    Raises `OSError` when output could not be written; all tasks are given back by then.
    """
    counted: Counter[str] = Counter()
    asked: asyncio.Queue[None] = asyncio.Queue()
    unheard: list[OSError] = []
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        # A script's background job starts with SIGINT ignored: the Ctrl-C of its terminal is not meant for it.
        if number == signal.SIGTERM or signal.getsignal(number) != signal.SIG_IGN:
            loop.add_signal_handler(number, asked.put_nowait, None)

    def tell(adoption: Adoption) -> None:
        counted[adoption.kind] += 1
        mark = _MARKS.get(adoption.kind, ("● ", STYLES.get(adoption.state or "", "")))
        if unheard:
            return
        try:
            screen.entry(adoption)
            screen.line(mark, adoption.text, (f"  {adoption.agent or ''}", "dim"))
        except OSError as error:
            unheard.append(error)
            asked.put_nowait(None)

    screen.entry({"kind": "driving", "store": runner.store.url})
    runner.begin_adopting(at_most=at_most, tell=tell)
    await asked.get()
    draining = asyncio.ensure_future(runner.drain(grace))
    hurried = asyncio.ensure_future(asked.get())
    await asyncio.wait([draining, hurried], return_when=asyncio.FIRST_COMPLETED)
    if not draining.done():
        await runner.drain()
    hurried.cancel()
    await draining
    if unheard:
        raise unheard[0]
    return counted


def _agents(places: list[str]) -> tuple[Agent[Any], ...]:
    """Return the agents named, else those the project lists."""
    if places:
        return tuple([agent for place in places for agent in agents.at_place(place)])
    found = agents.known()
    if not found.agents:
        problems = "".join(f"; {place}: {problem}" for place, problem in found.problems.items())
        raise ConfigurationError(f"there is no agent to drive tasks with: {agents.WAYS}{problems}")
    return tuple(found.agents.values())
