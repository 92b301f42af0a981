"""The nth fault of a store, for every n: a test of the conformance suite meets it, and then the store is examined.

What the test expects does not hold any more, so its assertions are no findings. These are: an error that is not typed,
a hang, something acknowledged that is not as it was, a task that changed though no failed call was about it, and a
store that cannot be used afterwards, as it is or opened again. A witness in front of the store does to a store in
memory what was acknowledged; the two must show the same of all tasks that no failed call was about.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import pytest

from treadle import Agent, Runner, ScriptedModel
from treadle.core.events import JOURNAL_FORMAT
from treadle.errors import (
    AlreadyFinalized,
    Fenced,
    JournalCorrupt,
    StoreUnavailable,
    TaskBusy,
    TaskNotFound,
    TaskTooNew,
    ThreadBusy,
    ThreadNotFound,
    TreadleError,
)
from treadle.ports import Commit, CommitDone, Committed, InboxItem, JournalStore, Refused, TaskFilter
from treadle.stores.memory import MemoryStore
from treadle.testing.conformance.owner import Owner, dump, item, until
from treadle.testing.conformance.store import StoreConformance
from treadle.testing.conformance.store_tenants import TenantConformance

REFUSALS = (
    *(Refused, Fenced, TaskNotFound, TaskBusy, ThreadBusy, ThreadNotFound, AlreadyFinalized, JournalCorrupt),
)
"""The errors after which certainly nothing was written."""

WRITES = frozenset(
    ("commit", "claim", "post", "delete", "delete_thread", "restore", "restore_thread", "open", "close")
)
SECONDS = 20.0

PortFault = Literal["before once", "before until healed", "after once", "after until healed"]
PORT_FAULTS: tuple[PortFault, ...] = (
    "before once",
    "before until healed",
    "after once",
    "after until healed",
)


# ------------------------------------------------------------------------------------------ faults at the port


class Port:
    """Which calls of a store fail: the nth of those in `methods`, before they are carried out or after."""

    def __init__(self, methods: frozenset[str] | None = None) -> None:
        self.methods = methods
        self.count = 0
        self.at: int | None = None
        self.fault: PortFault = "before once"

    def failing(self, at: int, fault: PortFault) -> None:
        self.count, self.at, self.fault = 0, at, fault

    def heal(self) -> None:
        self.at = None

    def met(self) -> list[int]:
        """Return which calls met the fault; of those that fail until it is healed, the first."""
        return [self.at] if self.at is not None and self.count >= self.at else []

    def call(self, method: str) -> Literal["", "before", "after"]:
        """Count a call; return whether and when it fails."""
        when: Literal["before", "after"] = "after" if self.fault.startswith("after") else "before"
        if self.methods is not None and method not in self.methods:
            return ""
        if when == "after" and method not in WRITES:
            return ""
        self.count += 1
        if self.at is None or self.count < self.at:
            return ""
        return when if self.fault.endswith("healed") or self.count == self.at else ""


@cache
def _is_async(kind: type, name: str) -> bool:
    return asyncio.iscoroutinefunction(getattr(kind, name, None))


class FaultyPort:
    """A store in front of another, whose calls fail as a `Port` says."""

    def __init__(self, inner: Any, port: Port) -> None:
        self.inner = inner
        self.port = port

    def commit(self, commit: Commit, done: CommitDone) -> None:
        match self.port.call("commit"):
            case "before":
                refusal = StoreUnavailable("the store does not answer")
                asyncio.get_running_loop().call_soon(done, refusal)
            case "after":
                self.inner.commit(commit, lambda _: done(StoreUnavailable("the answer was lost")))
            case _:
                self.inner.commit(commit, done)

    def watch(self, wake: Any) -> Callable[[], None]:
        if self.port.call("watch"):
            raise StoreUnavailable("the store does not answer")
        return self.inner.watch(wake)

    @asynccontextmanager
    async def snapshot(self) -> AsyncGenerator[FaultyPort]:
        if self.port.call("snapshot"):
            raise StoreUnavailable("the store does not answer")
        async with self.inner.snapshot() as lent:
            yield FaultyPort(lent, self.port)

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.inner, name)
        if not _is_async(type(self.inner), name):
            return attribute

        async def called(*args: Any, **named: Any) -> Any:
            when = self.port.call(name)
            if when == "before":
                raise StoreUnavailable("the store does not answer")
            result = await attribute(*args, **named)
            if when == "after":
                raise StoreUnavailable("the answer was lost")
            return result

        return called


# ----------------------------------------------------------------------------------------------- the witness


class Witness:
    """Stands in front of a store, and applies acknowledged writes to a store in memory.

    `doubtful` are the tasks and threads that calls were about which failed without saying whether they were carried
    out; `offered` is what these would have written.
    """

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.shadow: Any = MemoryStore()
        self.doubtful: set[str] = set()
        self.everything_doubtful = False
        self.records: dict[tuple[str, int], Any] = {}
        self.posted: dict[tuple[str, str], InboxItem] = {}
        self.taken: set[tuple[str, str]] = set()
        self.loop = asyncio.get_running_loop()
        self.unanswered = 0
        self.families: list[set[str]] = []
        """tasks that a delete which failed would have removed together"""

        self.outcome = b""
        """a digest of all that the last examination saw, and of what had been acknowledged"""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def open(self) -> None:
        await self.shadow.open()
        await self.inner.open()

    async def close(self) -> None:
        await self.inner.close()
        await self.shadow.close()
        await self.shadow.open()

    def commit(self, commit: Commit, done: CommitDone) -> None:
        self.taken |= {(commit.task_id, key) for key in commit.taken}
        is_own_loop = asyncio.get_running_loop() is self.loop
        if not is_own_loop:
            self.doubtful.add(commit.task_id)  # an event loop that is closed meanwhile gets no result
        self.unanswered += is_own_loop

        def told(result: Committed | Exception) -> None:
            self.unanswered -= is_own_loop
            if isinstance(result, Committed):
                if commit.record is not None:
                    self.records[commit.task_id, commit.record.seq] = commit.record
                answers: list[Any] = []
                self.shadow.commit(commit, answers.append)
                if not isinstance(answers[0], Committed):
                    self._doubt(commit)
            elif not isinstance(result, REFUSALS):
                self._doubt(commit)
            done(result)

        try:
            self.inner.commit(commit, told)
        except StoreUnavailable:
            self.unanswered -= is_own_loop
            raise

    def _doubt(self, commit: Commit) -> None:
        self.doubtful.add(commit.task_id)
        if commit.thread is not None:
            self.doubtful.add(f"thread {commit.thread.thread_id}")

    async def _both(self, about: Callable[[], set[str]], call: Callable[[Any], Awaitable[Any]]) -> Any:
        """Call the store, and the one in memory if it was acknowledged."""
        try:
            result = await call(self.inner)
        except REFUSALS:
            raise
        except BaseException:
            self.doubtful |= about()
            raise
        try:
            await call(self.shadow)
        except (TreadleError, Refused):
            self.doubtful |= about()
        return result

    async def claim(self, task_id: str, *, enter: bool = False) -> Any:
        return await self._both(lambda: {task_id}, lambda store: store.claim(task_id, enter=enter))

    async def post(self, task_id: str, item: InboxItem) -> bool:
        new = await self._both(lambda: {task_id}, lambda store: store.post(task_id, item))
        if new:
            # The story may change what it has posted.
            self.posted[task_id, item.item_id] = replace(item, data=deepcopy(item.data))
        return new

    async def delete(self, task_id: str) -> None:
        family = await self._family({task_id})
        await self._both(lambda: self._broken_up(family), lambda store: store.delete(task_id))
        self._forget(family)

    async def delete_thread(self, thread_id: str) -> None:
        wanted = TaskFilter(thread_id=thread_id, limit=1_000)
        family = await self._family({row.task_id for row in await self.shadow.rows(wanted)})
        about = f"thread {thread_id}"
        await self._both(
            lambda: self._broken_up(family) | {about}, lambda store: store.delete_thread(thread_id)
        )
        self._forget(family)

    async def _family(self, family: set[str]) -> set[str]:
        while True:
            children = {
                row.task_id
                for row in await self.shadow.rows(TaskFilter(limit=1_000))
                if row.parent in family and row.task_id not in family
            }
            if not children:
                return family
            family |= children

    def _broken_up(self, family: set[str]) -> set[str]:
        self.everything_doubtful = True  # of threads: they go with the last of their tasks
        self.families.append(family)
        return family

    def _forget(self, family: set[str]) -> None:
        for kept in (self.records, self.posted):
            for key in [key for key in kept if key[0] in family]:
                del kept[key]

    async def restore(self, row: Any, records: Any, inbox: Any = ()) -> None:
        await self._both(lambda: {row.task_id}, lambda store: store.restore(row, records, inbox))

    async def restore_thread(self, thread_id: str, version: int, members: Any) -> None:
        about = {f"thread {thread_id}"}
        await self._both(lambda: about, lambda store: store.restore_thread(thread_id, version, members))

    # ------------------------------------------------------------------------------------------ examination

    async def examined(self, store: Any) -> list[str]:
        """Compare what a store shows with what was acknowledged."""
        threads = (
            [] if self.everything_doubtful else [row.thread_id for row in await self.shadow.threads(100)]
        )
        wanted = _without_wanted(await dump(self.shadow, threads))
        stored = _without_wanted(await dump(store, threads))
        findings: list[str] = []
        knowledge = (sorted(self.doubtful), self.everything_doubtful, self.families, sorted(self.taken))
        self.outcome = sha256(repr((wanted, stored, knowledge)).encode()).digest()
        for key in sorted(wanted.keys() | stored.keys()):
            if key in self.doubtful:
                continue
            if wanted.get(key) != stored.get(key):
                findings.append(f"{key}: changed: {wanted.get(key)!r} became {stored.get(key)!r}")
        deleted = {key for family in self.families for key in family}
        for family in self.families:
            remaining = {key for key in family & stored.keys() if key in wanted}
            if remaining and remaining != family & wanted.keys():
                findings.append(f"a delete of {sorted(family)} left {sorted(remaining)}")
        findings += await self._not_kept(store, {key for key in deleted if key not in stored})
        return findings

    async def _not_kept(self, store: Any, deleted: set[str]) -> list[str]:
        findings: list[str] = []
        journals: dict[str, dict[int, Any]] = {}
        for (task, seq), record in self.records.items():
            if task in deleted:
                continue
            if task not in journals:
                journals[task] = {r.seq: r for r in await store.read(task)}
            stored_record = journals[task].get(seq)
            if stored_record is None or _essence(stored_record) != _essence(record):
                findings.append(f"{task}: acknowledged event {seq} is {journals[task].get(seq)!r}")
        inboxes: dict[str, list[InboxItem]] = {}
        again: list[tuple[str, InboxItem]] = []
        for (task, key), posted in self.posted.items():
            if task in deleted:
                continue
            if (task, key) not in self.taken and task not in inboxes:
                inboxes[task] = await store.inbox(task)
            if (task, key) not in self.taken and posted not in inboxes[task]:
                findings.append(f"{task}: the acknowledged item {key} is gone")
            else:
                again.append((task, posted))
        news = await asyncio.gather(*(store.post(task, posted) for task, posted in again))
        for (task, posted), new in zip(again, news, strict=True):
            if new:
                findings.append(f"{task}: the acknowledged item {posted.item_id} was accepted again")
        return findings

    async def used(self, number: int, new: str | None = None) -> list[str]:
        """Use the store through this witness: append to each task, and go through the life of a new one.

        Each step is made with all tasks at once, so that the store writes it as a group.
        """
        findings: list[str] = []
        creation = [self._created(new)] if new else []
        rows = {row.task_id: row for row in await self.inner.rows(TaskFilter(limit=20))}
        owners = await _each(*creation, *(self._owner(row) for row in rows.values()))
        if new:
            fresh: Any = owners.pop(0)
            await fresh.write(2, blobs={new: b"1" * 9_000}, release=True)
            rows[new] = await self.inner.row(new)
            owners.append(await self._owner(rows[new]))
        taken_up: list[tuple[Owner, Any]] = []
        for row, owner in zip(rows.values(), owners, strict=True):
            # The owner of such a task knows its format; every other driver has to be refused.
            is_too_new = row.format > JOURNAL_FORMAT and not (row.driver is not None and row.driver.alive)
            if isinstance(owner, Exception):
                if not (is_too_new and isinstance(owner, TaskTooNew)):
                    findings.append(f"{row.task_id}: cannot be taken up: {owner!r}; {row}")
            elif is_too_new:
                findings.append(f"{row.task_id}: was taken up, though its journal is too new; {row}")
            else:
                taken_up.append((owner, row))
        ends = await _each(*(self._appended(owner, row, f"use {number}") for owner, row in taken_up))
        for (_, row), end in zip(taken_up, ends, strict=True):
            if isinstance(end, Exception):
                findings.append(f"{row.task_id}: cannot be used: {end!r}; {row}")
        for row in await self.inner.rows(TaskFilter(limit=20)):
            if row.driver is not None and row.format <= JOURNAL_FORMAT and not findings:
                findings.append(f"{row.task_id}: was not given back; {row}")
        return findings

    async def _created(self, key: str) -> Owner:
        return await Owner.create(self._port, key)

    async def _owner(self, row: Any) -> Owner:
        """Take a task up, or go on with one that the story owns; its digest is read later."""
        if row.driver is not None and row.driver.alive:
            return Owner(self._port, row.task_id, row.epoch, row.head)
        return await Owner.claim(self._port, row.task_id)

    async def _appended(self, owner: Owner, row: Any, key: str) -> None:
        """Append to a task, send it an item, take it, and release the task."""
        records = await self.inner.read(row.task_id)
        owner.digest = b"" if not records else records[-1].digest
        _, new = await asyncio.gather(owner.write(2), self.post(row.task_id, item(key)))
        assert new
        waiting = await self.inner.inbox(row.task_id)
        assert item(key) in waiting
        await owner.write(taken=tuple(i.item_id for i in waiting), release=True)
        read = await self.inner.read(row.task_id)
        assert read[: len(records)] == records
        assert [r.seq for r in read[len(records) :]] == [row.head + 2, row.head + 3]

    @property
    def _port(self) -> JournalStore:
        store: Any = self
        return store


async def _each(*calls: Awaitable[Any]) -> list[Any]:
    """Make calls at once; return their results, and the errors of a store in place of results."""
    ends = await asyncio.gather(*calls, return_exceptions=True)
    for end in ends:
        if isinstance(end, BaseException) and not isinstance(end, TreadleError | Refused):
            raise end
    return ends


def _essence(record: Any) -> tuple[Any, ...]:
    """Return a record without the bytes of its blobs: a store keeps those that came first under a digest."""
    return record.seq, record.count, record.epoch, record.data, record.digest, sorted(record.blobs)


def _without_wanted(shown: dict[str, Any]) -> dict[str, Any]:
    """Return a row without `wanted`: stores notice at different times that a driver ended."""
    return {
        key: value if isinstance(value[0], int) else (replace(value[0], due_at=0), *value[1:])
        for key, value in shown.items()
    }


# ------------------------------------------------------------------------------------------------ the suite


@dataclass(slots=True, frozen=True)
class Case:
    """A test of the conformance suite with its parameters."""

    name: str
    parameters: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        return "-".join([self.name.removeprefix("test_"), *(str(value) for _, value in self.parameters)])


def cases() -> Iterator[Case]:
    """All tests of the conformance suite of stores."""
    for name in sorted(dir(StoreConformance)):
        if not name.startswith("test_"):
            continue
        marks = [
            m for m in getattr(getattr(StoreConformance, name), "pytestmark", ()) if m.name == "parametrize"
        ]
        for values in itertools.product(*(mark.args[1] for mark in marks)):
            yield Case(name, tuple((mark.args[0], v) for mark, v in zip(marks, values, strict=True)))


APART = {
    "test_a_restored_task_that_ends_with_another_record_than_its_row_says_is_not_claimed": "it leaves a task "
    "that no driver can claim, as the test says",
    "test_a_thread_is_free_once_the_store_of_its_holder_was_closed": "the next owner may, or need not, count on the "
    "epoch of the holder that it finds gone",
    **{
        name: "the witness looks at the tasks of one tenant; what tenants add is names, and no call of their own"
        for name in dir(TenantConformance)
        if name.startswith("test_")
    },
}
"""Tests after which a store may differ from the one in memory, and why."""

CASES = tuple(case for case in cases() if case.name not in APART)


class Subject(StoreConformance):
    """The suite over stores with faults; a store is left open when its test ends early, as a process leaves it."""

    def __init__(self, make: Callable[[Path], Any], *, bounded: bool = False) -> None:
        self._made = make
        self._few = bounded
        self.witnesses: dict[Path, Witness] = {}

    def many(self, number: int) -> int:
        return max(number // 50, 12) if self._few else number

    def make(self, place: Path) -> JournalStore:
        store: Any = self.witnesses.setdefault(place, Witness(self._made(place)))
        return store

    @asynccontextmanager
    async def opened(self, place: Path) -> AsyncGenerator[JournalStore]:
        store = self.make(place)
        await store.open()
        yield store
        await store.close()


@dataclass(slots=True)
class Trial:
    """What a run with a fault met and what was found."""

    calls: int
    places: list[int]
    """the numbers of the calls that met the fault"""

    skipped: bool = False
    findings: list[str] = field(default_factory=list[str])


async def _told_story(subject: Subject, case: Case, path: Path, trial: Trial) -> None:
    """Run the body of a test; what it expects does not matter."""
    before = asyncio.all_tasks()
    try:
        async with asyncio.timeout(SECONDS):
            await getattr(subject, case.name)(tmp_path=path, **dict(case.parameters))
    except TimeoutError:
        trial.findings.append("it hangs")
    except pytest.skip.Exception:
        trial.skipped = True
    except (TreadleError, Refused, AssertionError, pytest.fail.Exception):
        pass
    except Exception as error:
        logging.getLogger(__name__).exception("not typed")
        trial.findings.append(f"not typed: {error!r}")
    strays = asyncio.all_tasks() - before
    if strays and (await asyncio.wait(strays, timeout=SECONDS))[1]:
        trial.findings.append("a caller is never answered")
    with suppress(TimeoutError):
        await until(lambda: _all_answered(subject), SECONDS)
    if not await _all_answered(subject):
        trial.findings.append(
            f"{[w.unanswered for w in subject.witnesses.values()]} commits are not answered"
        )
    for stray in strays:
        if stray.done() and not stray.cancelled():
            error = stray.exception()
            if error is not None and not isinstance(error, TreadleError | Refused | AssertionError):
                trial.findings.append(f"not typed: {error!r}")


async def _all_answered(subject: Subject) -> bool:
    return all(witness.unanswered == 0 for witness in subject.witnesses.values())


async def _runs_a_task(store: Any, name: str) -> list[str]:
    async with Runner(store) as runner:
        result = await runner.run(Agent(ScriptedModel(["done"])), "go", task_id=name)
        findings = [f for f in (await runner.verify()).findings if f.task_id == name]
        if result.state != "completed" or findings:
            return [f"a new task ends as {result.state}, {findings}"]
    return []


async def trial(
    case: Case,
    path: Path,
    make: Callable[[Path], Any],
    reopen: Callable[[Any, Path], Any],
    plan: Any,
    at: int,
    fault: str,
    *,
    bounded: bool = False,
    outcomes: set[bytes] | None = None,
) -> Trial:
    """Run a test with a fault; heal, examine and use the store, open it again, examine and use it.

    With `bounded`, tests that make many of something make some. `outcomes` are those of trials of this test before:
    a store that holds the same after the same acknowledgements is not used once more after it was opened again.
    """
    outcomes = set() if outcomes is None else outcomes
    subject, result = Subject(make, bounded=bounded), Trial(0, [])
    loop, unheard = asyncio.get_running_loop(), list[str]()

    def heard(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if "never retrieved" not in context["message"]:
            unheard.append(f"{context['message']}: {context.get('exception')!r}")

    loop.set_exception_handler(heard)
    plan.failing(at, fault)
    try:
        await _told_story(subject, case, path, result)
        result.calls, result.places = plan.count, plan.met()
        plan.heal()
        async with asyncio.timeout(SECONDS):
            for where, witness in subject.witnesses.items():
                result.findings += await _afterwards(witness, where, reopen, outcomes)
    except TimeoutError:
        result.findings.append("it hangs afterwards")
    except Exception as error:
        logging.getLogger(__name__).exception("cannot be used")
        result.findings.append(f"cannot be used afterwards: {error!r}")
    finally:
        plan.heal()
        for witness in subject.witnesses.values():
            with suppress(TreadleError):
                await witness.inner.close()
        loop.set_exception_handler(None)
    result.findings += unheard
    return result


async def _afterwards(
    witness: Witness, where: Path, reopen: Callable[[Any, Path], Any], outcomes: set[bytes]
) -> list[str]:
    """Examine a store and use it, open it again and examine it; use it again if no trial before ended in this way."""
    await witness.open()
    findings = [f"as it is: {f}" for f in await witness.examined(witness.inner)]
    is_new = witness.outcome not in outcomes
    outcomes.add(witness.outcome)
    findings += [f"as it is: {f}" for f in await witness.used(1, new="new")]
    await witness.close()
    witness.inner = reopen(witness.inner, where)
    await witness.open()
    findings += [f"opened again: {f}" for f in await witness.examined(witness.inner)]
    if is_new or findings:
        findings += [f"opened again: {f}" for f in await witness.used(2)]
        findings += await _runs_a_task(witness.inner, "run afterwards")
    await witness.close()
    return findings
