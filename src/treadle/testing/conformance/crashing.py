"""A process that uses a store and is killed, for the durability suite: `python -m ... MODE FACTORY ADDRESS REST`.

crash K        make the first K scripted calls, acknowledge each, queue the next, end by SIGKILL
hold TASK      become the owner of TASK and enter its thread, acknowledge, wait for the end of standard input
stall TASK     become the owner of TASK, acknowledge, wait for a line; write a record, claim TASK, report the result
               of each and the number of fenced commits
write TASK N   create TASK and append N records, acknowledge each

An acknowledgement is a line on standard output. `FACTORY` is `module:callable`; called with `ADDRESS`, it returns a
store.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from importlib import import_module

from treadle.errors import TreadleError
from treadle.ports import JournalStore, ThreadChange
from treadle.testing.conformance.owner import Owner, item, new_task

Call = Callable[[], Awaitable[object]]


def script(store: JournalStore) -> list[Call]:
    """Return calls that together write every kind of data, starting from an empty store."""
    first, second, fork, doomed = (Owner(store, name) for name in ("one", "two", "fork", "doomed"))
    fork.seq = 3

    async def claim_two() -> None:
        claimed = await Owner.claim(store, "two")
        second.epoch, second.seq, second.digest = claimed.epoch, claimed.seq, claimed.digest

    return [
        lambda: first.write(create=new_task("one", thread_id="talk")),
        lambda: first.write(3, blobs={"big": b"b" * 20_000}, state="running"),
        lambda: second.write(create=new_task("two", parent="one"), release=True),
        lambda: store.post("one", item("hello", text="hello")),
        lambda: store.post("two", item("later", text="hello")),
        lambda: first.write(2, taken=("hello",)),
        claim_two,
        lambda: first.write(
            thread=ThreadChange("add", "talk", 0), state="completed", seal=True, release=True
        ),
        lambda: fork.send(create=new_task("fork", base="one", base_seq=3)),
        lambda: fork.write(2, release=True),
        lambda: second.write(2, taken=("later",), release=True, state="failed"),
        lambda: doomed.write(create=new_task("doomed"), blobs={"own": b"o" * 20_000}, release=True),
        lambda: store.delete("doomed"),
        lambda: store.delete("one"),
        lambda: store.delete("fork"),
    ]


def acknowledge(marker: int | str) -> None:
    """Write a line for the suite: the number of durable calls, or a word."""
    sys.stdout.write(f"{marker}\n")
    sys.stdout.flush()


async def crash(store: JournalStore, after: int) -> None:
    """Make some calls of the script, then end by SIGKILL with the next call in the queue, or at the end with none."""
    await store.open()
    calls = script(store)
    for number, call in enumerate(calls[:after], 1):
        await call()
        acknowledge(number)
    queued = [asyncio.ensure_future(call()) for call in calls[after : after + 1]]
    await asyncio.sleep(0)
    # The store may be in any phase of its work. A store without asynchronous writes has already written the call.
    time.sleep(random.random() * 0.002)  # noqa: ASYNC251, S311
    assert not any(call.done() and call.exception() for call in queued)
    os.kill(os.getpid(), signal.SIGKILL)


async def hold(store: JournalStore, task_id: str) -> None:
    """Own a task until standard input ends, without releasing it."""
    await store.open()
    claim = await store.claim(task_id, enter=True)
    acknowledge(claim.epoch)
    await asyncio.to_thread(sys.stdin.read)


async def stall(store: JournalStore, task_id: str) -> None:
    """Own a task; after a line on standard input continue as if it were still owned, and report the results."""
    await store.open()
    claim = await store.claim(task_id)
    acknowledge(claim.epoch)
    await asyncio.to_thread(sys.stdin.readline)
    for late in (Owner.of(store, task_id, claim).write, lambda: store.claim(task_id)):
        try:
            await late()
            acknowledge("done")
        except TreadleError as error:
            acknowledge(type(error).__name__)
    acknowledge(store.fenced)


async def write(store: JournalStore, task_id: str, count: int) -> None:
    """Append records one after the other."""
    await store.open()
    owner = await Owner.create(store, task_id)
    for _ in range(count):
        await owner.write()
        acknowledge(owner.seq)
    await store.close()


def main(mode: str, factory: str, address: str, *arguments: str) -> None:
    """Run one mode."""
    module, _, name = factory.partition(":")
    store: JournalStore = getattr(import_module(module), name)(address)
    if mode == "crash":
        asyncio.run(crash(store, int(arguments[0])))
    elif mode == "hold":
        asyncio.run(hold(store, arguments[0]))
    elif mode == "stall":
        asyncio.run(stall(store, arguments[0]))
    else:
        asyncio.run(write(store, arguments[0], int(arguments[1])))


if __name__ == "__main__":
    main(*sys.argv[1:])
