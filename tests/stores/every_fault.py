"""`python -m tests.stores.every_fault`: every call of a store and every operation of its disk fails, in every test.

    python -m tests.stores.every_fault [--kinds memory sqlite disk postgres wire] [--only NAME] [--processes 2]

Each test of the conformance suite is run once for each of its calls of the store (`memory`, `sqlite`, `postgres`),
operations of the disk (`disk`) or messages to the server (`wire`), which fails then: once, or with all that follow it,
before it is carried out or after.
After each run the store is examined, used, opened again and examined. A store that ended as no run of its test before
is then used once more, and runs a task. Tests that make thousands of something make
some, so that each place of theirs is tried, too. The files are in memory where the system has such a folder: the faults
are made, and a sync need not be waited for.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

from tests.stores.faulty_disk import Fault, OneConnectionStore, faulty_disk
from tests.stores.nth_fault import CASES, PORT_FAULTS, Case, FaultyPort, Port, PortFault, trial
from tests.stores.proxy import WIRE_FAULTS, Wire, WireFault
from tests.stores.shared_server import SETTINGS, Backends, Schemas, lent_connections
from treadle.stores.memory import MemoryStore
from treadle.stores.postgres import PostgresStore
from treadle.stores.sqlite import SQLiteStore
from treadle.testing.postgres import PostgresServer

DISK_FAULTS: Final[tuple[Fault, ...]] = ("error once", "error until healed", "full until healed")
FAULTS: Final[dict[str, tuple[Any, ...]]] = {"disk": DISK_FAULTS, "wire": WIRE_FAULTS}
KINDS: Final = ("memory", "sqlite", "disk", "postgres", "wire")

ON_NEW_SCHEMAS: Final = ("test_open_and_close_may_be_repeated",)
"""Tests that make their tables on PostgreSQL: making them is a part of each trial."""

EVERY: Final = 24
"""Messages between two that are cut in one run: a session is replaced, and its transaction repeated, in fewer."""


async def _nothing() -> None: ...


async def every_fault(
    case: Case,
    path: Path,
    make: Callable[[Path], Any],
    reopen: Callable[[Any, Path], Any],
    plan: Any,
    fault: str,
    most: int | None = None,
    *,
    before: Callable[[], Awaitable[None]] = _nothing,
) -> Counter[str]:
    """Run a test with each fault in turn; return how many trials there were and what was found.

    With `most` about that many of its places are tried, evenly spread. `before` prepares each trial.
    """
    bounded = most is None
    (path / "0").mkdir()
    await before()
    unharmed = await trial(case, path / "0", make, reopen, plan, 1_000_000_000, fault, bounded=bounded)
    assert unharmed.findings == [], f"without a fault: {unharmed.findings}"
    counts, at = Counter[str](), 1
    if unharmed.skipped:
        counts["skipped"] = 1
        return counts
    counts["calls"] = unharmed.calls
    met, outcomes = set[int](), set[bytes]()
    while True:
        (path / str(at)).mkdir()
        await before()
        tried = await trial(
            case, path / str(at), make, reopen, plan, at, fault, bounded=bounded, outcomes=outcomes
        )
        shutil.rmtree(path / str(at))
        for finding in tried.findings:
            print(f"{case} {fault} at {tried.places}: {finding[:600]}", flush=True)
            counts["findings"] += 1
        if not tried.places:
            return counts
        counts["runs"] += 1
        counts["outcomes"] = len(outcomes)
        counts["trials"] += len(tried.places)
        met.update(tried.places)
        at += max(1, unharmed.calls // most) if most else 1
        while at in met:
            at += 1


async def at_port(
    kind: str, case: Case, path: Path, fault: PortFault, most: int | None = None
) -> Counter[str]:
    """Let calls of a store fail."""
    port = Port()
    if kind == "memory":
        return await every_fault(
            case, path, lambda _: FaultyPort(MemoryStore(), port), lambda store, _: store, port, fault, most
        )

    def made(folder: Path) -> FaultyPort:
        return FaultyPort(SQLiteStore(folder / "journal.db"), port)

    def again(_: Any, folder: Path) -> SQLiteStore:
        return SQLiteStore(folder / "journal.db")

    return await every_fault(case, path, made, again, port, fault, most)


class SharedServer:
    """A PostgreSQL server with its schemas and sessions, for all trials of a process."""

    def __init__(self, server: PostgresServer) -> None:
        self.schemas = Schemas(server)
        self.wire = Wire(server.folder, Backends(server.folder))

    def close(self) -> None:
        self.wire.close()
        self.wire.backends.close()
        self.schemas.close()


async def on_server(
    shared: SharedServer, case: Case, path: Path, fault: PortFault | WireFault, most: int | None = None
) -> Counter[str]:
    """Let calls of a store fail, or messages to its server."""
    schemas, wire = shared.schemas, shared.wire
    is_new = case.name in ON_NEW_SCHEMAS

    def again(_: Any, folder: Path) -> PostgresStore:
        return PostgresStore(schemas.url(folder, new=is_new))

    with lent_connections(schemas.server):
        if fault in PORT_FAULTS:
            port = Port()

            def made(folder: Path) -> FaultyPort:
                return FaultyPort(again(None, folder), port)

            return await every_fault(case, path, made, again, port, fault, most, before=schemas.begin)
        wire.every = None if most or fault.endswith("healed") else EVERY
        # A call that gets no answer fails soon; a call whose session was cut once has time to try again.
        patience = 0.3 if fault.endswith("healed") else 10.0

        def wired(folder: Path) -> PostgresStore:
            url = schemas.url(folder, new=is_new).replace(str(schemas.server.folder), str(wire.folder))
            return PostgresStore(url, patience=patience)

        return await every_fault(case, path, wired, again, wire, fault, most, before=schemas.begin)


async def on_disk(case: Case, path: Path, fault: Fault, most: int | None = None) -> Counter[str]:
    """Let operations of the disk under a SQLite store fail, from its first opening on."""
    first = path / "made.db"
    store = SQLiteStore(first)
    await store.open()
    await store.close()

    def made(folder: Path) -> OneConnectionStore:
        shutil.copy(first, folder / "journal.db")
        return OneConnectionStore(folder / "journal.db")

    def again(_: Any, folder: Path) -> SQLiteStore:
        return SQLiteStore(folder / "journal.db")

    with faulty_disk() as disk:
        return await every_fault(case, path, made, again, disk, fault, most)


# --------------------------------------------------------------------------------------------- the program


@contextmanager
def folder() -> Iterator[Path]:
    """Lend an empty folder, in memory if the system has such."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="every-fault-", dir=memory if memory.is_dir() else None) as path:
        yield Path(path)


@cache
def _server() -> SharedServer:
    """Start the server of this process."""
    return SharedServer(PostgresServer(**SETTINGS).__enter__())


def sweep(kind: str, case: Case, fault: Any) -> Counter[str]:
    """Try all places of one test with one fault."""
    with folder() as path:
        if kind == "disk":
            return asyncio.run(on_disk(case, path, fault))
        if kind in ("postgres", "wire"):
            return asyncio.run(on_server(_server(), case, path, fault))
        return asyncio.run(at_port(kind, case, path, fault))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.stores.every_fault")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--only", default="", help="tests whose name contains this")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    cases = [case for case in CASES if arguments.only in str(case)]
    sums: dict[tuple[str, str], Counter[str]] = {}
    skipped: set[str] = set()
    began = time.monotonic()
    with ProcessPoolExecutor(arguments.processes, mp_context=get_context("spawn")) as pool:
        work = {
            pool.submit(sweep, kind, case, fault): (kind, fault, case)
            for kind in arguments.kinds
            for fault in FAULTS.get(kind, PORT_FAULTS)
            for case in cases
        }
        for done in as_completed(work):
            kind, fault, case = work[done]
            if (error := done.exception()) is not None:
                print(f"{kind} {fault} {case}: could not be tried: {error!r}", flush=True)
                counts = Counter(findings=1)
            else:
                counts = done.result()
            sums.setdefault((kind, fault), Counter()).update(counts)
            sums[kind, fault]["tests"] += 1
            if counts["skipped"]:
                skipped.add(f"{kind}: {case}")
            if sums[kind, fault]["tests"] == len(cases):
                print(_line(kind, fault, sums[kind, fault]), flush=True)
    print("\n".join(["say of themselves that they do not fit:", *sorted(skipped)] if skipped else []))
    total = sum((counts for counts in sums.values()), Counter[str]())
    print(f"{total['trials']:,} trials, {total['findings']} findings, {time.monotonic() - began:,.0f} s")
    return 1 if total["findings"] or not total["trials"] else 0


def _line(kind: str, fault: str, counts: Counter[str]) -> str:
    return f"{kind:8} {fault:20} {counts['tests']:4} tests {counts['trials']:7,} trials {counts['findings']:4} findings"


if __name__ == "__main__":
    sys.exit(main())
