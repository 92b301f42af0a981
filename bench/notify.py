"""What telling other processes costs commits: `python -m bench.notify [SECONDS]`.

Sessions of several processes post to tasks of their own, one commit each, on a server of its own. Three ways take turns
in one run: nobody is told; the transaction that writes notifies, as the first release did; others are told after it.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
import time
from typing import Any

from treadle.ports import InboxItem
from treadle.stores.postgres import PostgresStore, writer
from treadle.stores.postgres.journal import Group
from treadle.testing.conformance.owner import Owner
from treadle.testing.postgres import PostgresServer

WAYS = ("nobody", "inside", "after")
PROCESSES = 4
ROUNDS = 2


def tell(way: str) -> None:
    """Have the writers of this process tell others in this way."""
    if way == "after":
        return
    writer.PostgresWriter._schedule_notification = lambda self, **what: None  # type: ignore[method-assign]
    if way == "inside":
        write = Group.write

        def notifying(self: Any) -> None:
            self._connection.execute("SELECT pg_notify(%s, %s)", (self._channel, "mail"))
            write(self)

        Group.write = notifying  # type: ignore[method-assign]


async def posts(url: str, first: int, sessions: int, seconds: float) -> int:
    """Post from each of some sessions for a while; return how many commits that made."""
    stores = [PostgresStore(url) for _ in range(sessions)]
    for number, store in enumerate(stores):
        await store.open()
        await Owner.create(store, f"t{first + number}-{time.time_ns()}")

    async def post(store: PostgresStore, until: float) -> int:
        done = 0
        assert store._writer is not None
        [task] = store._writer._owner.held
        while time.monotonic() < until:
            await store.post(task, InboxItem(f"i{done}", "note", {}, 0))
            done += 1
        return done

    until = time.monotonic() + seconds
    counts = await asyncio.gather(*[post(store, until) for store in stores])
    for store in stores:
        await store.close()
    return sum(counts)


def process(args: tuple[str, str, int, int, float]) -> int:
    """Run some sessions in a process of their own."""
    url, way, first, sessions, seconds = args
    tell(way)
    return asyncio.run(posts(url, first, sessions, seconds))


def main() -> None:
    """Print commits a second of 8 and of 32 sessions, each way, round by round."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 4.0
    context = multiprocessing.get_context("spawn")
    with PostgresServer() as server:
        for sessions in (8, 32):
            for turn in range(ROUNDS):
                for way in WAYS:
                    url = server.in_schema(f"n{sessions}_{turn}_{way}")
                    per_process = sessions // PROCESSES
                    work = [(url, way, n * per_process, per_process, seconds) for n in range(PROCESSES)]
                    with context.Pool(PROCESSES) as pool:
                        done = sum(pool.map(process, work, chunksize=1))
                    rate = f"{done / seconds:,.0f} commits/s"
                    print(f"{sessions} sessions, round {turn + 1}, told {way}: {rate}", flush=True)


if __name__ == "__main__":
    main()
