"""`python -m bench.backlog`: how long a task waits for a driver beside many that wait for others.

    python -m bench.backlog [--store sqlite | postgresql | URL] [--tasks 100000] [--lease 5] [--limit 1]
    python -m bench.backlog --tenants 1000 [--store ...] [--limit 1]

The store is filled with copies of a task that waits: first of an agent that is not here, then of a tenant at its cap.
Beside each of these a task is submitted, and one is left by a driver that was killed. Each must be adopted within a
second of the time at which it may be: at once, and when the lease of the killed driver has passed.

With `--tenants`, one tenant has that many tasks ready to be driven, of 0.2 seconds each, and they take up all room.
Then ten tasks of the tenant `small` are submitted, once beside `big` and once beside `zbig`. The two tenants take
turns, so the n-th of the ten has room once 2n tasks have stopped; it must be adopted within a second of that.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from typing import Any

from bench.load import lent
from treadle import Agent, Runner, ScriptedModel
from treadle.models import turn
from treadle.stores.sqlite import SQLiteStore
from treadle.wiring import open_store

OURS: Agent[Any] = Agent(ScriptedModel(["Done."]), name="ours")
STAYING: Agent[Any] = Agent(ScriptedModel([turn("Done.", delay=3_600)]), name="staying")
THEIRS: Agent[Any] = Agent(ScriptedModel(["Done."]), name="theirs")
BRIEF: Agent[Any] = Agent(ScriptedModel([turn("Done.", delay=0.2)]), name="brief")
AT_MOST = 20
FEW = 10
KILLED = "INSERT INTO drivers(key, host, boot, pid, started, lease) VALUES ('killed', 'elsewhere', 'b', 1, 1, {lease})"


class Backdoor:
    """Statements beside the store: a hundred thousand tasks are copied, not submitted."""

    def __init__(self, store: Any) -> None:
        self.is_file = isinstance(store, SQLiteStore)
        if self.is_file:
            import sqlite3

            self._connection: Any = sqlite3.connect(
                store.url.removeprefix("sqlite:///"), timeout=30, check_same_thread=False
            )
            self._columns = [row[1] for row in self.run("PRAGMA table_info(tasks)")]
        else:
            import psycopg

            address = store._to
            self._connection = psycopg.connect(address.conninfo("bench"), autocommit=True)
            self.run(f'SET search_path TO "{address.schema}"')
            self._columns = [
                name
                for (name,) in self.run(
                    "SELECT column_name FROM information_schema.columns WHERE table_name = 'tasks' "
                    f"AND table_schema = '{address.schema}' AND is_generated = 'NEVER'"
                )
            ]

    def run(self, sql: str) -> list[Any]:
        cursor = self._connection.execute(sql)
        rows = cursor.fetchall() if cursor.description else []
        self._connection.commit()
        return rows

    def copy(self, key: str, prefix: str, count: int) -> None:
        """Copy a task that waits, so many times."""
        columns = [name for name in self._columns if name not in ("id", "tenant")]
        values = [{"key": f"'{prefix}' || n"}.get(name, f"t.{name}") for name in columns]
        numbers = f"generate_series(1, {count}) n"
        if self.is_file:
            numbers = f"(WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x LIMIT {count}) SELECT n FROM x)"
        else:
            columns, values = ["id", *columns], ["nextval('task_ids')", *values]
        self.run(
            f"INSERT INTO tasks ({', '.join(columns)}) SELECT {', '.join(values)} FROM tasks t, {numbers} "
            f"WHERE t.key = '{key}'"
        )

    def kill(self, key: str, lease: float) -> None:
        """Let a task be that of a driver whose last heartbeat was just now."""
        until = (
            int((time.time() + lease) * 1e6)
            if self.is_file
            else f"clock_timestamp() + interval '{lease} seconds'"
        )
        self.run(KILLED.format(lease=until))
        self.run(f"UPDATE tasks SET wanted = 0, driver = (SELECT max(id) FROM drivers) WHERE key = '{key}'")


async def measure(url: str, count: int, lease: float, theirs: str) -> tuple[float, float]:
    """Return for how long a submitted task waited for its driver, and one whose driver was killed behind its lease."""
    begun: dict[str, float] = {}

    def tell(adoption: Any) -> None:
        if adoption.kind == "adopted":
            begun.setdefault(adoption.task_id, time.monotonic())

    store = open_store(url)
    async with Runner(store, agents=[OURS, STAYING]) as runner:
        whose, agent = (runner, THEIRS) if theirs == "agent" else (runner.scoped(tenant="big"), STAYING)
        await whose.submit(agent, "Go", task_id="a")
        separated = "a" if theirs == "agent" else "big\x1fa"
        backdoor = Backdoor(store)
        began = time.monotonic()
        await asyncio.to_thread(backdoor.copy, separated, separated, count)
        print(f"{count} tasks copied in {time.monotonic() - began:.1f} s", flush=True)
        runner.begin_adopting(at_most=20, per_tenant=5, tell=tell)
        await asyncio.sleep(2)
        zoo = runner.scoped(tenant="zoo")
        submitted = time.monotonic()
        await zoo.submit(OURS, "Go", task_id="submitted")
        while "submitted" not in begun:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        maker = Runner(url)
        await maker.create_task(OURS, "Go", task_id="killed")
        await maker.aclose()
        killed = time.monotonic()
        await asyncio.to_thread(backdoor.kill, "killed", lease)
        while "killed" not in begun:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return begun["submitted"] - submitted, begun["killed"] - killed - lease


async def measure_turns(url: str, count: int, theirs: str) -> tuple[float, float, float]:
    """Return the longest wait of a task of `small` since it had room, and when the first and the last of them began.

    Times are in seconds; the last two count from when the tasks were submitted.
    """
    begun: dict[str, float] = {}
    stops: list[float] = []
    is_full, have_begun = asyncio.Event(), asyncio.Event()

    def tell(adoption: Any) -> None:
        now = time.monotonic()
        if adoption.kind == "stopped":
            stops.append(now)
        elif adoption.kind == "adopted":
            begun[f"{adoption.tenant} {adoption.task_id}"] = now
            if len(begun) >= AT_MOST:
                is_full.set()
            if len([name for name in begun if name.startswith("small ")]) == FEW:
                have_begun.set()

    async with Runner(url) as maker:
        crowd = maker.scoped(tenant=theirs)
        await asyncio.gather(*(crowd.submit(BRIEF, "Go", task_id=f"t{n}") for n in range(count)))
    async with Runner(url, agents=[BRIEF]) as runner:
        runner.begin_adopting(at_most=AT_MOST, tell=tell)
        await is_full.wait()
        small = runner.scoped(tenant="small")
        await asyncio.gather(*(small.submit(BRIEF, "Go", task_id=f"t{n}") for n in range(FEW)))
        submitted = time.monotonic()
        await have_begun.wait()
        assert len(begun) < count, "the other tenant had no task left that waits"
    rooms = [at for at in stops if at >= submitted]
    starts = sorted(at for name, at in begun.items() if name.startswith("small "))
    waits = [start - rooms[2 * n + 1] for n, start in enumerate(starts) if 2 * n + 1 < len(rooms)]
    return max([0.0, *waits]), starts[0] - submitted, starts[-1] - submitted


def compare_turns(store: str, count: int, limit: float) -> bool:
    """Print how long tasks of a small tenant wait beside those of one whose name is before its own, and after it."""
    failed = False
    for theirs in ("big", "zbig"):
        with lent(store) as url:
            wait, first, last = asyncio.run(measure_turns(url, count, theirs))
        failed |= wait > limit
        print(
            f"beside {count} tasks of {theirs}: {FEW} tasks of small began {first:.2f} to {last:.2f} s after submit, "
            f"each at most {wait:.2f} s after it had room",
            flush=True,
        )
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.backlog")
    parser.add_argument("--store", default="sqlite")
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--lease", type=float, default=5.0)
    parser.add_argument("--limit", type=float, default=1.0)
    parser.add_argument(
        "--tenants", type=int, metavar="TASKS", help="measure turns beside so many tasks of a tenant"
    )
    options = parser.parse_args()
    if options.tenants is not None:
        sys.exit(compare_turns(options.store, options.tenants, options.limit))
    failed = False
    for theirs in ("agent", "tenant"):
        with lent(options.store) as url:
            waits = asyncio.run(measure(url, options.tasks, options.lease, theirs))
        failed |= max(waits) > options.limit
        kind = "an agent that is not here" if theirs == "agent" else "a tenant at its cap"
        print(
            f"beside {options.tasks} tasks of {kind}: adopted {waits[0]:.2f} s after submit, "
            f"{waits[1]:.2f} s after the lease of a killed driver passed",
            flush=True,
        )
    sys.exit(failed)


if __name__ == "__main__":
    main()
