"""`drive`: a driver process, which adopts and drives the store's tasks until it receives a signal."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from typing import Annotated

import typer

from treadle.cli import agents
from treadle.cli.command import PolicyOption, Session, command, option, store_at
from treadle.cli.screen import STYLES, Screen
from treadle.cli.tracing import TraceOptions
from treadle.drivers.adoption import AT_MOST, Adoption
from treadle.errors import ConfigurationError, StoreFormatError
from treadle.llm.registry import default_model
from treadle.wiring import Runner

GRACE = 10.0

_MARKS = {
    "adopted": ("▶ ", "blue"),
    "lost": ("! ", "yellow"),
    "failed": ("✗ ", "red"),
    "suspect": ("… ", "yellow"),
    "given_up": ("■ ", "red"),
}

LeaseOption = Annotated[
    float | None,
    option(
        "SECONDS",
        "Seconds without a heartbeat after which other processes may take over the tasks of this one.",
    ),
]
GraceOption = Annotated[float, option("SECONDS", "Seconds that running calls get to end at SIGTERM.")]


@command
def drive(
    session: Session,
    *,
    agent: Annotated[
        list[str] | None, option("MODULE:AGENT", "The place to import an agent from; may be repeated.")
    ] = None,
    at_most: Annotated[int, option("N", "Maximum number of tasks to drive at the same time.")] = AT_MOST,
    per_tenant: Annotated[int | None, option("N", "Maximum number of these for one tenant.")] = None,
    lease: LeaseOption = None,
    policy: PolicyOption = None,
    grace: GraceOption = GRACE,
    tracing: TraceOptions,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document a line for each action.")
    ] = False,
) -> int:
    """Drive tasks whose driver crashed or released them, until SIGTERM or Ctrl-C; then release all tasks."""
    if grace < 0:
        raise ConfigurationError(f"--grace must be 0 seconds or more, got {grace}")
    driven, factory = agents.named_agents(agent or []), agents.listed_context_factory()
    judge = agents.listed_policy(policy)
    middleware, secrets = agents.listed_middleware(), agents.listed_secrets()
    observers = tracing.observers()

    async def work() -> int:
        store, screen = store_at(session.screen, session.store, lease=lease), session.screen
        async with Runner(
            store,
            agents=driven,
            observers=observers,
            context_factory=factory,
            policy=judge,
            middleware=middleware,
            secrets=secrets or None,
            model=default_model(),
        ) as runner:
            names = ", ".join(agent.name for agent in driven)
            screen.line(("driving ", "dim"), names, (f" on {store.url}; SIGTERM or Ctrl-C ends it", "dim"))
            counts = await _drive(runner, screen, at_most, per_tenant, grace)
            print_drained(screen, counts, store.fenced)
            return 0

    return session.run(work())


async def _drive(
    runner: Runner, screen: Screen, at_most: int, per_tenant: int | None, grace: float
) -> Counter[str]:
    """Adopt tasks until a signal arrives or output fails; return the number of adoption events by kind.

    Raises:
        OSError: output could not be written.
        StoreFormatError: a newer version migrated the store. In both cases all tasks are released first.
    """
    counts: Counter[str] = Counter()
    stops: asyncio.Queue[None] = asyncio.Queue()
    errors: list[OSError | StoreFormatError] = []
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        # A background job of a script ignores SIGINT from the start, since Ctrl-C in its terminal is not meant for it.
        if number == signal.SIGTERM or signal.getsignal(number) != signal.SIG_IGN:
            loop.add_signal_handler(number, stops.put_nowait, None)

    def tell(adoption: Adoption) -> None:
        counts[adoption.kind] += 1
        if errors:
            return
        if adoption.kind == "outdated":
            errors.append(StoreFormatError(adoption.text))
            stops.put_nowait(None)
            return
        try:
            print_adoption(screen, adoption)
        except OSError as error:
            errors.append(error)
            stops.put_nowait(None)

    screen.entry({"kind": "driving", "store": runner.store.url})
    runner.begin_adopting(at_most=at_most, per_tenant=per_tenant, tell=tell)
    await stops.get()
    draining = asyncio.ensure_future(runner.drain(grace))
    second_stop = asyncio.ensure_future(stops.get())
    await asyncio.wait([draining, second_stop], return_when=asyncio.FIRST_COMPLETED)
    if not draining.done():
        await runner.drain()
    second_stop.cancel()
    await draining
    if errors:
        raise errors[0]
    return counts


def print_adoption(screen: Screen, adoption: Adoption) -> None:
    """Print an event of the adopter; raise `OSError` if it cannot be written."""
    mark = _MARKS.get(adoption.kind, ("● ", STYLES.get(adoption.state or "", "")))
    screen.entry(adoption)
    screen.line(mark, adoption.text, (f"  {adoption.agent or ''}", "dim"))


def print_drained(screen: Screen, counts: Counter[str], fenced: int) -> None:
    """Print the number of adoption events by kind, and of fenced commits."""
    screen.entry({"kind": "drained", **counts, "fenced": fenced})
    lost = f"{counts['lost']} lost to other drivers, {fenced} commits refused"
    screen.line(("drained: ", "dim"), f"{counts['adopted']} adopted, {lost}")
