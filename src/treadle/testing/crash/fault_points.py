"""Fault points: named places of a process, at one of which it is killed, stopped or fails.

A `Crash` names the place. A `CrashingStore` passes places before, inside and after each write. A `Ledger` passes them
around each effect, a `watched` agent around each request and call. Run a program once without a place to learn its
places, then once for each of them:

    crash = Crash.from_environment()
    runner = Runner(CrashingStore(SQLiteStore("journal.db"), crash), agents=[agent])

A place is named after the event (`before tool_started s1-0`), so the name does not depend on the grouping of commits.
All places are in wrappers of ports, so the engine has no code for them.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from treadle.core import codec
from treadle.core.events import Event
from treadle.core.permits import StandingGrant
from treadle.errors import StoreUnavailable
from treadle.ports import (
    Claim,
    Commit,
    CommitDone,
    Committed,
    InboxItem,
    JournalStore,
    Record,
    TaskRow,
    ThreadMember,
    ThreadRow,
)
from treadle.testing.wrappers import WrappedStore

if TYPE_CHECKING:
    from treadle.stores.postgres import PostgresStore

AT = "TREADLE_CRASH_AT"
DO = "TREADLE_CRASH_DO"
LOG = "TREADLE_CRASH_LOG"

Action: TypeAlias = Literal["kill", "stop", "raise"] | float
"""The action at the place: SIGKILL, SIGSTOP, a `StoreUnavailable`, or a sleep of that many seconds."""


class Crash:
    """The places at which this process is killed, stopped or fails; only the first one that it reaches counts.

    Args:
        at: one or several places; None to pass them all.
        log: a file that receives a line for each passed place and for the last one.
        do: the action at the place.
    """

    def __init__(
        self,
        at: str | Iterable[str] | None = None,
        log: str | os.PathLike[str] | None = None,
        do: Action = "kill",
    ) -> None:
        self.at = frozenset((at,) if isinstance(at, str) else at or ())
        self._do: Action = do
        self._log = Path(log) if log is not None else None
        self._seen: Counter[str] = Counter()
        self._lock = Lock()

    @classmethod
    def from_environment(cls) -> Crash:
        """Return a `Crash` with the place in TREADLE_CRASH_AT and the action in TREADLE_CRASH_DO.

        The action is `kill` (default), `stop`, `raise` or a number of seconds. The file TREADLE_CRASH_LOG receives the
        passed places.
        """
        do = os.environ.get(DO) or "kill"
        action: Action = do if do in ("kill", "stop", "raise") else float(do)
        return cls(os.environ.get(AT) or None, os.environ.get(LOG) or None, action)

    def numbered(self, name: str) -> str:
        """Return a name that is unique in this process: `name`, then `name #2` and so on."""
        with self._lock:
            self._seen[name] += 1
            count = self._seen[name]
        return name if count == 1 else f"{name} #{count}"

    def reach(self, *points: str) -> None:
        """Pass these places together; does not return if the process is killed at one of them."""
        if self._log is not None:
            self._write(*points)
        if self.at and not self.at.isdisjoint(points):
            self._happen(points)

    def _write(self, *lines: str) -> None:
        assert self._log is not None
        descriptor = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(descriptor, "".join(f"{line}\n" for line in lines).encode())
        os.close(descriptor)

    def _happen(self, points: tuple[str, ...]) -> None:
        if self._log is not None:
            self._write(*(f"{HERE}{point}" for point in points if point in self.at))
        if self._do == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
            signal.pause()  # another thread may receive the signal first
        elif self._do == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif self._do == "raise":
            point = next(point for point in points if point in self.at)
            raise StoreUnavailable(f"TREADLE_CRASH_AT or a Crash names the place {point!r}")
        else:
            time.sleep(float(self._do))


HERE = "# here: "
"""The prefix of a log line for the place at which the process was killed, stopped or failed."""


def places_in(log: str | os.PathLike[str]) -> tuple[list[str], list[str]]:
    """Return the passed places in a log, in order, and those at which the process was killed."""
    path = Path(log)
    lines = path.read_text().splitlines() if path.exists() else []
    happened = [line.removeprefix(HERE) for line in lines if line.startswith(HERE)]
    return [line for line in lines if not line.startswith(HERE)], happened


class CrashingStore(WrappedStore):
    """A store that passes a place before each write, inside it, and after it is durable.

    *Before* is before the store gets the write. *Inside* is in its transaction: between two of its rows in SQLite, and
    in PostgreSQL after everything except COMMIT is sent. *Committing* (PostgreSQL) is after COMMIT is sent, before its
    response. *After* is when the write is durable but not acknowledged. For a process that drives one task at a time.

    Args:
        store: the wrapped store, not opened yet.
        crash: the place at which the process is killed.
    """

    def __init__(self, store: JournalStore, crash: Crash) -> None:
        super().__init__(store)
        self._crash = crash
        self._inside: deque[list[str]] = deque()
        self._writing: dict[object, list[str]] = {}
        if store.url.startswith("sqlite"):
            self._watch_rows()
        elif store.url.startswith("postgresql"):
            from treadle.testing.crash.postgres import watch_transactions

            watch_transactions(cast("PostgresStore", store), self._writing, crash.reach)

    def commit(self, commit: Commit, done: CommitDone) -> None:
        names = [self._crash.numbered(name) for name in names_of(commit)]
        self._crash.reach(*[f"before {name}" for name in names])
        inside = [f"inside {name}" for name in names]
        if commit.record is not None:
            self._inside.append(inside)
        self._writing[id(commit)] = names

        def durable(verdict: Committed | Exception) -> None:
            if inside in self._inside:  # the store refused it or had written it before
                self._inside.remove(inside)
            self._writing.pop(id(commit), None)
            if not isinstance(verdict, Exception):
                self._crash.reach(*[f"after {name}" for name in names])
            done(verdict)

        self._store.commit(commit, durable)

    async def claim(self, task_id: str, *, enter: bool = False) -> Claim:
        name = self._crash.numbered("claim")
        self._crash.reach(f"before {name}")
        self._writing[task_id] = [name]
        try:
            claim = await self._store.claim(task_id, enter=enter)
        finally:
            self._writing.pop(task_id, None)
        self._crash.reach(f"after {name}")
        return claim

    async def post(self, task_id: str, item: InboxItem) -> bool:
        name = self._crash.numbered(f"post {item.kind}")
        self._crash.reach(f"before {name}")
        self._writing[id(item)] = [name]
        try:
            is_new = await self._store.post(task_id, item)
        finally:
            self._writing.pop(id(item), None)
        self._crash.reach(f"after {name}")
        return is_new

    async def delete(self, task_id: str) -> None:
        name = self._crash.numbered("delete")
        self._crash.reach(f"before {name}")
        await self._store.delete(task_id)
        self._crash.reach(f"after {name}")

    async def delete_thread(self, thread_id: str) -> None:
        name = self._crash.numbered("delete_thread")
        self._crash.reach(f"before {name}")
        await self._store.delete_thread(thread_id)
        self._crash.reach(f"after {name}")

    async def grants(self, *, tool: str | None = None, revoked: bool = False) -> list[StandingGrant]:
        return await self._store.grants(tool=tool, revoked=revoked)

    async def revoke(self, grant_id: str, time: int, by: str | None) -> bool:
        name = self._crash.numbered("revoke")
        self._crash.reach(f"before {name}")
        is_new = await self._store.revoke(grant_id, time, by)
        self._crash.reach(f"after {name}")
        return is_new

    async def threads(self, limit: int, *, after: str | None = None) -> list[ThreadRow]:
        return await self._store.threads(limit, after=after)

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
        """Pass a place at each row that SQLite changes, in connections opened from now on."""
        import apsw

        def changed(_kind: int, _database: str, table: str, _row: int) -> None:
            if table == "records" and self._inside:
                self._crash.reach(*self._inside.popleft())

        def opened(connection: apsw.Connection) -> None:
            connection.set_update_hook(changed)

        apsw.connection_hooks.append(opened)


def names_of(commit: Commit) -> list[str]:
    """Return the names of a commit's writes: its events, or the state of the task's row."""
    if commit.record is None:
        return [f"row {commit.state or 'given back'}"]
    record = commit.record
    return [name_of(event) for event in codec.decode(record.data, record.blobs, record.seq)]


def name_of(event: Event | Any) -> str:
    """Return an event's kind with its call or step."""
    subject = getattr(event, "call", None) or getattr(event, "step", None)
    return f"{event.kind} {subject}" if subject else event.kind
