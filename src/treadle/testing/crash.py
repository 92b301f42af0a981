"""Killing a process at a chosen place: at each write of its store, and wherever else it says where it is.

A `Crash` knows the one place to die at; a `CrashingStore` passes it before, inside and after each write, a `Ledger`
around each effect. Run a program once without a place to learn the places there are, then once for each of them:

    crash = Crash.from_environment()
    runner = Runner(CrashingStore(SQLiteStore("journal.db"), crash), agents=[agent])

Places are named for what happens there (`before tool_started s1-0`), so they stay the same when commits are grouped
differently. This needs no help from the code under test.
"""

from __future__ import annotations

import os
import signal
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from treadle.core import codec
from treadle.core.events import Event
from treadle.ports import (
    Claim,
    Commit,
    CommitDone,
    Committed,
    InboxItem,
    JournalStore,
    Record,
    TaskFilter,
    TaskRow,
    ThreadMember,
)

AT = "TREADLE_CRASH_AT"
LOG = "TREADLE_CRASH_LOG"


class Crash:
    """The place where this process is to be killed by SIGKILL, if there is one.

    Args:
        at: the place; None to pass them all.
        log: a file that gets a line for each place passed, and for the last one.
    """

    def __init__(self, at: str | None = None, log: str | os.PathLike[str] | None = None) -> None:
        self.at = at
        self._log = Path(log) if log is not None else None
        self._seen: Counter[str] = Counter()
        self._lock = Lock()

    @classmethod
    def from_environment(cls) -> Crash:
        """Return the place that TREADLE_CRASH_AT names; places passed are logged to the file TREADLE_CRASH_LOG."""
        return cls(os.environ.get(AT) or None, os.environ.get(LOG) or None)

    def numbered(self, name: str) -> str:
        """Return a name that no other occurrence in this process has: `name`, then `name #2` and so on."""
        with self._lock:
            self._seen[name] += 1
            count = self._seen[name]
        return name if count == 1 else f"{name} #{count}"

    def reach(self, *places: str) -> None:
        """Say that the process is at these places, all at once; does not return from the one to die at."""
        if self._log is not None:
            descriptor = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            os.write(descriptor, "".join(f"{place}\n" for place in places).encode())
            os.close(descriptor)
        if self.at in places:
            os.kill(os.getpid(), signal.SIGKILL)
            signal.pause()  # a signal to oneself may be delivered to another thread first


class CrashingStore(JournalStore):
    """A store that passes a place before each write, inside it (SQLite only) and once it is durable.

    *Before* is before the store gets the write; *inside* between two rows of its transaction; *after* when it is
    durable and its caller has not heard so. Meant for a process that drives one task at a time.

    Args:
        store: the store that does the work; not opened yet.
        crash: where to die.
    """

    def __init__(self, store: JournalStore, crash: Crash) -> None:
        self._store = store
        self._crash = crash
        self._inside: deque[list[str]] = deque()
        self._watch_rows()

    @property
    def url(self) -> str:
        return self._store.url

    @property
    def fenced(self) -> int:
        return self._store.fenced

    async def open(self) -> None:
        await self._store.open()

    async def close(self) -> None:
        await self._store.close()

    # ----------------------------------------------------------------------------------------- writes

    def commit(self, commit: Commit, done: CommitDone) -> None:
        names = [self._crash.numbered(name) for name in names_of(commit)]
        self._crash.reach(*[f"before {name}" for name in names])
        inside = [f"inside {name}" for name in names]
        if commit.record is not None:
            self._inside.append(inside)

        def durable(verdict: Committed | Exception) -> None:
            if inside in self._inside:  # it was refused, or written before
                self._inside.remove(inside)
            if not isinstance(verdict, Exception):
                self._crash.reach(*[f"after {name}" for name in names])
            done(verdict)

        self._store.commit(commit, durable)

    async def claim(self, task_id: str, *, enter: bool = False) -> Claim:
        name = self._crash.numbered("claim")
        self._crash.reach(f"before {name}")
        claim = await self._store.claim(task_id, enter=enter)
        self._crash.reach(f"after {name}")
        return claim

    async def post(self, task_id: str, item: InboxItem) -> bool:
        name = self._crash.numbered(f"post {item.kind}")
        self._crash.reach(f"before {name}")
        is_new = await self._store.post(task_id, item)
        self._crash.reach(f"after {name}")
        return is_new

    async def delete(self, task_id: str) -> None:
        name = self._crash.numbered("delete")
        self._crash.reach(f"before {name}")
        await self._store.delete(task_id)
        self._crash.reach(f"after {name}")

    async def restore(self, row: TaskRow, records: Iterable[Record], inbox: Sequence[InboxItem] = ()) -> None:
        name = self._crash.numbered("restore")
        self._crash.reach(f"before {name}")
        await self._store.restore(row, records, inbox)
        self._crash.reach(f"after {name}")

    async def restore_thread(self, thread_id: str, version: int, members: Sequence[ThreadMember]) -> None:
        name = self._crash.numbered("restore_thread")
        self._crash.reach(f"before {name}")
        await self._store.restore_thread(thread_id, version, members)
        self._crash.reach(f"after {name}")

    def _watch_rows(self) -> None:
        """Hear of each row that SQLite changes in connections opened from now on."""
        import apsw

        def changed(_kind: int, _database: str, table: str, _row: int) -> None:
            if table == "records" and self._inside:
                self._crash.reach(*self._inside.popleft())

        def opened(connection: apsw.Connection) -> None:
            connection.set_update_hook(changed)

        apsw.connection_hooks.append(opened)

    # ------------------------------------------------------------------------------------------ reads

    async def read(self, task_id: str, *, after: int = 0, upto: int | None = None) -> list[Record]:
        return await self._store.read(task_id, after=after, upto=upto)

    async def row(self, task_id: str, *, deleted: bool = False) -> TaskRow:
        return await self._store.row(task_id, deleted=deleted)

    async def rows(self, wanted: TaskFilter) -> list[TaskRow]:
        return await self._store.rows(wanted)

    async def orphans(self, limit: int, *, after: str | None = None) -> list[TaskRow]:
        return await self._store.orphans(limit, after=after)

    async def inbox(self, task_id: str) -> list[InboxItem]:
        return await self._store.inbox(task_id)

    async def thread(self, thread_id: str, *, version: int | None = None) -> tuple[int, list[ThreadMember]]:
        return await self._store.thread(thread_id, version=version)

    def watch(self, wake: Callable[[Sequence[str]], None]) -> Callable[[], None]:
        return self._store.watch(wake)


def names_of(commit: Commit) -> list[str]:
    """Return what a commit writes, in words: its events, or the word it puts on the task's row."""
    if commit.record is None:
        return [f"row {commit.state or 'given back'}"]
    record = commit.record
    return [name_of(event) for event in codec.decode(record.data, record.blobs, record.seq)]


def name_of(event: Event | Any) -> str:
    """Return an event's kind and place: the call, or the step, that it is about."""
    place = getattr(event, "call", None) or getattr(event, "step", None)
    return f"{event.kind} {place}" if place else event.kind
