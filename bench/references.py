"""What Treadle is measured against: loops written by hand that do only what they must.

`bare` asks the model and runs the tool. `featured` also has what an engine cannot do without: message objects,
checked arguments, a timeout around model and tool, and four events a step that somebody consumes. `durable` is
`bare` with one SQLite commit (WAL, FULL) a step, made alone on the event loop or by a thread that commits all that
waits.
"""

from __future__ import annotations

import asyncio
import json
import queue
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

QUESTION = "please add the numbers"
INSTRUCTIONS = "You add numbers."
ANSWER = "done"
NAP = 0.020

Ask = Callable[[int], Awaitable[dict[str, Any]]]
Persist = Callable[[int, list[dict[str, Any]]], Awaitable[None]]

TIMEOUT = 60


def model(turns: int, delay: float = 0.0, fan: int = 0) -> Ask:
    """A model of `turns` turns: each but the last calls `add`; with `fan` the first calls `nap` that many times."""

    async def ask(turn: int) -> dict[str, Any]:
        if delay:
            await asyncio.sleep(delay)
        if fan and turn == 1:
            calls = [_call(f"c{n}", "nap", '{"ms": 20}') for n in range(fan)]
        elif turn < turns:
            calls = [_call(f"c{turn}", "add", f'{{"a": {turn}, "b": 1}}')]
        else:
            return {"role": "assistant", "content": ANSWER, "calls": []}
        return {"role": "assistant", "content": None, "calls": calls}

    return ask


def _call(key: str, name: str, arguments: str) -> dict[str, str]:
    return {"id": key, "name": name, "arguments": arguments}


async def add(a: int, b: int) -> int:
    return a + b


async def nap(ms: int) -> int:
    await asyncio.sleep(NAP)
    return ms


TOOLS: dict[str, Callable[..., Awaitable[Any]]] = {"add": add, "nap": nap}
TYPES = {"add": {"a": int, "b": int}, "nap": {"ms": int}}


# ----------------------------------------------------------------------------------------------- bare


async def bare(model: Ask, persist: Persist | None = None, past: list[dict[str, Any]] | None = None) -> str:
    messages = past or [
        {"role": "system", "content": INSTRUCTIONS},
        {"role": "user", "content": QUESTION},
    ]
    turn = len(messages) // 2
    while True:
        answer = await model(turn)
        new = [answer]
        calls = answer["calls"]
        if len(calls) == 1:
            new.append(await _run(calls[0]))
        elif calls:
            new += await asyncio.gather(*[_run(call) for call in calls])
        messages += new
        if persist is not None:
            await persist(turn, new)
        if not calls:
            return answer["content"]
        turn += 1


async def _run(call: dict[str, str]) -> dict[str, Any]:
    result = await TOOLS[call["name"]](**json.loads(call["arguments"]))
    return {"role": "tool", "id": call["id"], "content": json.dumps(result)}


# ------------------------------------------------------------------------------------------- featured


class Said:
    __slots__ = ("calls", "content", "key", "role")

    def __init__(self, role: str, content: Any, calls: Any = (), key: str | None = None) -> None:
        self.role, self.content, self.calls, self.key = role, content, calls, key


async def featured(model: Ask) -> str:
    events: asyncio.Queue[Any] = asyncio.Queue()
    emit = events.put_nowait

    async def consume() -> None:
        while await events.get() is not None:
            pass

    consumer = asyncio.create_task(consume())
    messages = [Said("system", INSTRUCTIONS), Said("user", QUESTION)]
    turn = 1
    while True:
        emit(("step_started", turn))
        async with asyncio.timeout(TIMEOUT):
            raw = await model(turn)
        answer = Said(raw["role"], raw["content"], raw["calls"])
        messages.append(answer)
        if len(answer.calls) == 1:
            messages.append(await _run_checked(answer.calls[0], emit))
        elif answer.calls:
            messages += await asyncio.gather(*[_run_checked(call, emit) for call in answer.calls])
        emit(("step_completed", turn))
        if not answer.calls:
            emit(None)
            await consumer
            return answer.content
        turn += 1


async def _run_checked(call: dict[str, str], emit: Callable[[Any], None]) -> Said:
    name, arguments = call["name"], json.loads(call["arguments"])
    for field, kind in TYPES[name].items():
        if type(arguments.get(field)) is not kind:
            raise TypeError(f"{name}: {field} must be {kind.__name__}")
    emit(("tool_started", name, arguments))
    async with asyncio.timeout(TIMEOUT):
        result = await TOOLS[name](**arguments)
    emit(("tool_ended", name, result))
    return Said("tool", json.dumps(result), key=call["id"])


# -------------------------------------------------------------------------------------------- durable

_TABLE = "CREATE TABLE IF NOT EXISTS log(run TEXT, step INT, body TEXT, PRIMARY KEY(run, step)) WITHOUT ROWID"
_INSERT = "INSERT INTO log VALUES(?, ?, ?)"


def connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(_TABLE)
    return connection


class Alone:
    """A commit for each step, on the event loop's own thread."""

    def __init__(self, path: Path) -> None:
        self.connection = connect(path)

    def of(self, run: str) -> Persist:
        async def persist(step: int, new: list[dict[str, Any]]) -> None:
            self.connection.execute(_INSERT, (run, step, json.dumps(new)))

        return persist

    def size(self) -> int:
        """Bytes of the pages in use."""
        self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        pages, free, size = (
            self.connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        return (pages - free) * size

    def close(self) -> None:
        self.connection.close()


class Grouped:
    """A thread commits all that waits in one transaction; a step goes on after its commit."""

    def __init__(self, path: Path) -> None:
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._work, args=(path,), daemon=True)
        self._thread.start()

    def of(self, run: str) -> Persist:
        async def persist(step: int, new: list[dict[str, Any]]) -> None:
            done = self._loop.create_future()
            self._queue.put(((run, step, json.dumps(new)), done))
            await done

        return persist

    def _work(self, path: Path) -> None:
        connection = connect(path)
        while (first := self._queue.get()) is not None:
            group = [first]
            while not self._queue.empty():
                group.append(self._queue.get())
            connection.execute("BEGIN")
            connection.executemany(_INSERT, [row for row, _ in group])
            connection.execute("COMMIT")
            self._loop.call_soon_threadsafe(self._tell, [done for _, done in group])
        connection.close()

    def _tell(self, waiting: list[asyncio.Future[None]]) -> None:
        for done in waiting:
            done.set_result(None)

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()


async def reopen(path: Path, run: str, model: Ask) -> str:
    """Open the file, read a run, ask the model once more and commit its answer."""
    connection = connect(path)
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": INSTRUCTIONS},
        {"role": "user", "content": QUESTION},
    ]
    for (body,) in connection.execute("SELECT body FROM log WHERE run = ? ORDER BY step", (run,)):
        messages += json.loads(body)

    async def persist(step: int, new: list[dict[str, Any]]) -> None:
        connection.execute(_INSERT, (run, step, json.dumps(new)))

    answer = await bare(model, persist, messages)
    connection.close()
    return answer


async def deltas(count: int) -> int:
    async def words() -> Any:
        for _ in range(count):
            yield {"delta": "tok "}

    return len([delta async for delta in words()])
