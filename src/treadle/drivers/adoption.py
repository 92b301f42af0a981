"""Find tasks that need a driver and have none, and drive a limited number of them at a time.

Theory of operation
-------------------

An *orphan* is one of these tasks:

- a task whose driver crashed, or let its lease pass;
- a task that was released to be continued: after a shutdown, after a settlement, or at a due time;
- a task with an unread inbox, whose sender crashed before it carried out its command.

A task that a person paused or interrupted is not an orphan.

The adopter of a process *scans* soon after the store or this process reports news. It also scans every `SCAN_SECONDS`,
since an expiring lease causes no news. It drives each orphan to its next stop in an asyncio task of its own, at most
`at_most` at a time. Claims decide between the adopters of several processes.

A scan does not read the backlog of tasks that this process may not take. It makes three queries:

- `adoptable`, as long as there is room: orphans for that room, and `AHEAD` more. The query leaves out agents and
  formats that this process does not know, and tenants at their cap. It also leaves out tasks that are driven here or
  backed off. The tasks of dead drivers come first. Then the tenants take turns, each with its oldest task.
- `orphans(indirect=True)`, one page: children, whose parents are notified, and tasks that only have unread items. The
  next scan reads the page after it.
- `unadoptable`, every `LEFT_OUT_SECONDS`: one task of each agent and format that the first query excludes, to report.

A task that this process releases to be continued at once is *handed over* to its adopter by name. The adopter takes it
without a scan, unless other tasks wait for room: it does not overtake them. If a handover is lost, the next scan finds
the task. A claim shows whether it still needs a driver.

    orphan --- no agent of that name here, or a newer format ---> left alone, reported once
      |
      +--- a child ---> its inbox is read, and its parent notified; it is never driven alone
      |
      +--- failed here before ---> left alone until its back-off has passed
      |
      +--- suspected of crashing its drivers ---> driven without other suspects
      |                                             |
      |                                             +--- crashed GIVEN_UP drivers ---> paused, reported
      |
      +--- driven ---> stopped | lost to another driver | failed: retried later, paused after TRIES

Poison tasks
------------

A task may crash its drivers: it kills the process, or keeps it from renewing its lease. The journal shows it. A task's
`progress` is the last epoch that made progress, by an event that drivers do not repeat. So `epoch - progress` is the
number of drivers in a row that lost the task without progress. From `SUSPECT` on it is a *suspect*. When one process
crashes, all its tasks lose a driver, so most suspects are innocent. Therefore an adopter drives one suspect at a time,
for at most `ALONE_SECONDS` unless it makes progress. Innocent tasks make progress and are cleared. Only the poison task
crashes its driver. After `GIVEN_UP` lost drivers, the task is paused for a person to inspect.

Two facts excuse a task. A driver that stalled and lost its lease reports that it is alive (see `ownership`), so it did
not crash. And if a child made progress in its own last epoch, so did the task, though the task's journal does not show
it.

Invariant: a task is paused as poison only after at least `GIVEN_UP` drivers in a row lost it. None of them sent a
report, and its tree made no progress meanwhile. The last half of these drivers drove no other suspect in parallel.

Example: a process drives a hundred tasks, and task `bomb` kills it, five times in a row. All tasks that made no
progress between two crashes are suspects now. The next adopter drives one of them after the other. `bomb` crashes it,
and only `bomb` counts a sixth driver. After the tenth, `bomb` is paused and the others have ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Set
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any, Final, Literal

from treadle.core import events as e
from treadle.core.data import frozen, mutable
from treadle.core.events.control import RUNNER
from treadle.core.state import TaskState
from treadle.drivers.agent_version import check_version
from treadle.drivers.continuing import lift_stop
from treadle.drivers.driver import TaskDriver
from treadle.drivers.owned_tasks import OwnedTask
from treadle.drivers.tenant_drivers import LEAVE_SECONDS, TenantDrivers
from treadle.engine.drive import DriveLoop
from treadle.engine.effect_context import Goal
from treadle.engine.inbox import SURVIVED
from treadle.engine.options import from_json
from treadle.engine.release import DRIVER_CLOSED
from treadle.errors import (
    Fenced,
    StoreError,
    StoreFormatError,
    TaskBusy,
    TaskNotFound,
    TaskTooNew,
    ToolsetUnavailable,
    TreadleError,
    VersionRefused,
)
from treadle.ports import AT_ONCE, AdoptionQuery, TaskRow
from treadle.results.states import state_at_rest

SCAN_SECONDS: Final = 0.5
"""Seconds between two scans without news.

An orphan must be driven within a second, on a busy machine too. That leaves half of it for claiming and loading.
"""

STALL_SECONDS: Final = 1.0
"""Seconds between two scans after which this process or its store has stalled, and may have lost its leases."""

PAUSE_SECONDS: Final = 0.2
"""Minimum number of seconds between two scans."""

AT_MOST: Final = 100
"""Maximum number of adopted tasks that are driven at the same time."""

PAGE: Final = 200
"""Maximum number of rows that a query of a scan returns."""

AHEAD: Final = 32
"""Number of orphans that a scan reads beyond its room, so that `waited` counts from their first sight."""

LEFT_OUT_SECONDS: Final = 5.0
"""Seconds between two searches for excluded agents and formats."""

RETRY_SECONDS: Final = (1.0, 2.0, 5.0, 15.0, 60.0)
"""Seconds for which a task is left alone after a failed try to drive it, by the number of failures."""

TRIES: Final = 5
"""Number of tries to drive a task whose own code raises before the drive begins; then the adopter pauses it."""

REPORT_EVERY: Final = 60
"""Number of tries, about an hour, between two reports of a task that perhaps only another driver can drive."""

SUSPECT: Final = 5
"""Number of drivers in a row that lose a task without progress until it is suspected of crashing them."""

GIVEN_UP: Final = 10
"""Number of these drivers after which the task is paused; the last half of them drove no other suspect."""

ALONE_SECONDS: Final = 30.0
"""Seconds for which a suspect without progress blocks the next suspect."""

_Task = tuple[str, str]
"""A task: its tenant and its id."""

_Ownership = tuple[str, str, int]
"""One ownership of a task: its tenant, its id and the epoch."""

Kind = Literal[
    "adopted",
    "stopped",
    "lost",
    "failed",
    "suspect",
    "given_up",
    "unknown_agent",
    "too_new",
    "scan_failed",
    "outdated",
]


@frozen
class Adoption:
    """An action or observation of an adopter.

    Args:
        kind: `adopted`: it begins to drive a task. `stopped`: the task stopped, in `state`. `lost`: another driver
            took the task over. `failed`: the task could not be driven and is tried again later. `suspect`, once for
            each epoch: the task may crash its driver, and waits for another suspect. `given_up`: the task is paused,
            since it crashed several drivers in a row or could not be driven repeatedly. `unknown_agent`, once for each
            agent: this process does not have it. `too_new`, once for each epoch, agent and format: only a newer version
            of Treadle may drive the task. `scan_failed`: the store could not be read. `outdated`: a newer version
            migrated the store beyond this version. The adopter releases its tasks and takes no more.
        task_id: the task, if there is one.
        agent: the agent's name.
        epoch: the epoch in which the task is, or was, driven.
        state: the state of the task.
        waited: for an adopted task, seconds since this adopter first saw it without a driver.
        text: the description, as a sentence.
        tenant: the tenant of the task.
    """

    kind: Kind
    text: str
    task_id: str | None = None
    agent: str | None = None
    epoch: int | None = None
    state: str | None = None
    waited: float | None = None
    tenant: str = ""


Tell = Callable[[Adoption], None]

_LOG = logging.getLogger("treadle.adopting")
_LEVELS = {"adopted": logging.INFO, "stopped": logging.INFO}


def log(adoption: Adoption) -> None:
    """Write an adoption to the log `treadle.adopting`."""
    _LOG.log(_LEVELS.get(adoption.kind, logging.WARNING), adoption.text)


@mutable
class _Tries:
    """The number of failed tries to drive a task, and the time of the next one, in seconds of the loop's clock."""

    count: int
    again: float


class _Reports:
    """The reports of an adopter; some are made once for each agent, or for each epoch of a task."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._unknown_agents: set[str] = set()
        self._once: set[tuple[Kind, _Ownership]] = set()

    def add(
        self,
        kind: Kind,
        text: str,
        row: TaskRow | None = None,
        owned: OwnedTask | None = None,
        waited: float | None = None,
    ) -> None:
        """Report an action or an observation; `row` is that of its task, if any."""
        epoch = owned.writer.epoch if owned is not None else row.epoch if row is not None else None
        state = state_at_rest(owned.state) if owned is not None else None
        if row is None:
            self._tell(Adoption(kind, text, epoch=epoch, state=state, waited=waited))
        else:
            self._tell(Adoption(kind, text, row.task_id, row.agent, epoch, state, waited, row.tenant))

    def add_once(self, kind: Kind, text: str, row: TaskRow) -> None:
        """Report a fact about a task once in its epoch."""
        if (kind, _key(row)) not in self._once:
            self._once.add((kind, _key(row)))
            self.add(kind, text, row)

    def add_unknown_agent(self, agent: str) -> None:
        """Report once that this process does not have an agent."""
        if agent not in self._unknown_agents:
            self._unknown_agents.add(agent)
            text = f"tasks of agent {agent!r} are left alone: this process was not given that agent"
            self._tell(Adoption("unknown_agent", text, agent=agent))

    def forget_all_but(self, current: Set[_Ownership]) -> None:
        """Forget the facts about all other ownerships."""
        self._once = {(kind, key) for kind, key in self._once if key in current}


class Adopter:
    """Adopts tasks of all tenants for one runner, in the event loop that started it, until it is stopped.

    Args:
        drivers: the drivers of the tenants.
        at_most: maximum number of tasks at the same time.
        per_tenant: maximum number of these for one tenant; None for no limit.
        tell: called with each `Adoption`; by default they are logged.
    """

    def __init__(
        self,
        drivers: TenantDrivers,
        *,
        at_most: int = AT_MOST,
        per_tenant: int | None = None,
        tell: Tell = log,
    ) -> None:
        self._drivers = drivers
        self._agents = drivers.first.agents
        self._clock = drivers.first.clock
        self._at_most = at_most
        self._per_tenant = at_most if per_tenant is None else per_tenant
        self._reports = _Reports(tell)
        self._loop = asyncio.get_running_loop()
        self._began, self._began_at = self._clock(), self._loop.time()
        self._until = self._began
        """the time up to which tasks are due: the clock's, or a later one if the clock was set back"""

        self._news = asyncio.Event()
        self._adopting: dict[_Task, asyncio.Task[None]] = {}
        self._of_tenants: Counter[str] = Counter()
        """the number of these by tenant"""

        self._is_full = False
        """whether orphans may wait for room"""

        self._full_tenants: frozenset[str] = frozenset()
        """the tenants at their cap, whose orphans may wait"""

        self._last_tenant: str | None = None
        """the tenant whose task was taken last"""

        self._after: TaskRow | None = None
        """where the next page of indirect orphans begins"""

        self._indirect: set[_Ownership] = set()
        """the indirect orphans on the pages since the first one"""

        self._left_out: set[_Ownership] = set()
        """the excluded orphans at the last look, at `_left_out_at`"""

        self._left_out_at = float("-inf")

        self._handed_over: deque[_Task] = deque()
        """tasks that were released here to be continued at once; no more than there is room for"""

        self._taken: set[_Task] = set()
        """the tasks driven here since the last scan began, which may have read them earlier"""

        self._context = copy_context()  # not that of the caller that released a task
        self._tries: dict[_Task, _Tries] = {}
        self._seen: dict[_Ownership, float] = {}
        """when each orphan was first seen, by task and epoch"""

        self._parents_told: set[_Ownership] = set()
        """the children, by task and epoch, whose inbox was read and whose parents were notified"""

        self._suspect: _Task | None = None
        self._alone_until = 0.0
        self._leaving: asyncio.Task[None] | None = None  # it releases the tasks of a store that is outdated
        self._stopped: Future[None] = Future()
        self._stopped.set_running_or_notify_cancel()
        drivers.on_news, drivers.on_outdated = self._on_news, self._on_outdated
        drivers.first.owned.watch_store()
        self._scanning = self._loop.create_task(self._run())

    async def stop(self, grace: float = 0.0) -> None:
        """Take no further tasks, and return when all adopted ones are released; callable from any loop.

        Calls in flight get `grace` seconds to end; then they are stopped.
        """
        if self._stopped.done() or self._loop.is_closed():
            return
        self._at_most = 0  # no room for tasks that are handed over
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(lambda: self._loop.create_task(self._stop(grace)))
            await asyncio.wrap_future(self._stopped)

    def _on_outdated(self, error: StoreFormatError) -> None:
        """Stop adopting and release driven tasks: a newer version migrated the store. Callable from any thread."""

        def leave() -> None:
            self._reports.add("outdated", f"nothing is adopted any more: {error}")
            self._leaving = self._loop.create_task(self._stop(LEAVE_SECONDS))

        self._at_most = 0
        with suppress(RuntimeError):  # its loop is closed
            self._loop.call_soon_threadsafe(leave, context=self._context)

    async def _stop(self, grace: float) -> None:
        self._drivers.on_news = self._drivers.on_outdated = None
        self._scanning.cancel()
        await asyncio.wait([self._scanning])  # it takes no more once it has ended
        drives: list[DriveLoop] = []
        for task, adopting in self._adopting.items():
            owned = self._owned(task)
            if owned is not None and owned.drive is not None:
                drives.append(owned.drive)
            else:
                adopting.cancel()  # it is about to claim or to drive; it releases a claimed task
        await asyncio.gather(*[drive.stop(DRIVER_CLOSED, grace) for drive in drives])
        while self._adopting:
            await asyncio.wait(list(self._adopting.values()))
        if not self._stopped.done():
            self._stopped.set_result(None)

    def _owned(self, task: _Task) -> OwnedTask | None:
        """Return a task if this process owns it."""
        tenant, task_id = task
        driver = self._drivers.existing(tenant)
        return driver.owned.tasks.get(task_id) if driver is not None else None

    def _on_news(self, released: _Task | None) -> None:
        """Scan soon, and take at once a task that was released here to be continued; callable from any thread."""
        with suppress(RuntimeError):  # its loop is closed
            if released is not None and len(self._handed_over) < self._at_most:
                self._handed_over.append(released)
                self._loop.call_soon_threadsafe(self._take_over, context=self._context)
            if not self._news.is_set():  # else the next scan has not begun
                self._loop.call_soon_threadsafe(self._news.set)

    # ------------------------------------------------------------------------------------- handing over

    def _take_over(self) -> None:
        """Adopt the task that was handed over first, unless other tasks wait for room."""
        task = self._handed_over.popleft()
        tenant, _ = task
        if task in self._adopting:
            return
        if len(self._adopting) >= self._at_most:
            self._is_full = True
        elif self._of_tenants[tenant] >= self._per_tenant:
            self._full_tenants |= {tenant}
        elif not self._is_full and tenant not in self._full_tenants:
            self._begin(task, self._adopt_released(task))

    async def _adopt_released(self, task: _Task) -> None:
        """Adopt a task that was just released here, if it still needs a driver at once."""
        tenant, task_id = task
        try:
            row = await self._drivers.of(tenant).cache.row_or_none(task_id)
        except Exception:  # noqa: BLE001  the next scan reports that the store cannot be read
            return
        if row is None or row.due_at != AT_ONCE or row.driver is not None or row.parent is not None:
            return
        if self._is_adoptable(row):
            await self._adopt(row)

    # ------------------------------------------------------------------------------------------ scanning

    async def _run(self) -> None:
        scanned = self._loop.time()
        while True:
            self._news.clear()
            begun = self._loop.time()
            if begun - scanned > STALL_SECONDS:
                # A task with an expired lease takes up room here, and its new driver may have released it.
                for driver in self._drivers.all():
                    driver.owned.check()
            try:
                await self._scan()
                scanned = begun
            except Exception as error:  # noqa: BLE001  any error of a store: the next scan may succeed
                self._reports.add(
                    "scan_failed", f"the search for tasks to adopt failed, and is repeated: {error}"
                )
            await asyncio.sleep(PAUSE_SECONDS)
            with suppress(TimeoutError):
                # Not `wait_for`, which loses a cancellation that comes with the news.
                async with asyncio.timeout(SCAN_SECONDS - PAUSE_SECONDS):
                    await self._news.wait()

    async def _scan(self) -> None:
        """Begin to adopt orphans while there is room: first those of dead drivers, then those of tenants in turn."""
        now = self._loop.time()
        # If the clock was set back since this adopter began, tasks are due as if it had not been.
        elapsed = int((now - self._began_at) * 1e6)
        self._until = max(self._clock(), self._began + elapsed)
        orphans: set[_Ownership] = set()
        self._taken = set(self._adopting)
        if now - self._left_out_at >= LEFT_OUT_SECONDS:
            await self._report_left_out()
            self._left_out_at = now
        if self._room:
            await self._take_indirect(orphans)
        while True:  # even without room: an error shows that the driven tasks may be lost
            page = await self._drivers.tenants.adoptable(self._query(min(self._room + AHEAD, PAGE)))
            if not self._take(page, orphans) or not self._room:
                break
        self._is_full = not self._room
        self._full_tenants = self._tenants_at_their_cap()
        current = orphans | self._indirect | self._left_out
        self._seen = {
            key: since
            for key, since in self._seen.items()
            if key in current or key[:2] in self._tries or key[:2] in self._adopting
        }
        self._reports.forget_all_but(current | self._seen.keys())

    @property
    def _room(self) -> int:
        return max(self._at_most - len(self._adopting), 0)

    def _query(self, limit: int) -> AdoptionQuery:
        """Return the query of the store for tasks that this process may drive now."""
        now = self._loop.time()
        backed_off = [task for task, tries in self._tries.items() if tries.again > now]
        return AdoptionQuery(
            limit,
            tuple([agent.name for agent in self._agents.registered()]),
            e.JOURNAL_FORMAT,
            self._until,
            self._tenants_at_their_cap(),
            frozenset(self._taken.union(self._adopting, backed_off)),
            self._last_tenant,
        )

    def _tenants_at_their_cap(self) -> frozenset[str]:
        if self._per_tenant >= self._at_most:
            return frozenset()
        return frozenset([tenant for tenant, n in self._of_tenants.items() if n >= self._per_tenant])

    def _take(self, page: list[TaskRow], orphans: set[_Ownership]) -> int:
        """Begin to adopt the tasks of a page while there is room; return their number."""
        count = 0
        for row in page:
            key, task = _key(row), _task(row)
            orphans.add(key)
            self._seen.setdefault(key, self._loop.time())
            if not self._room or task in self._adopting or task in self._taken:
                continue
            if self._of_tenants[row.tenant] < self._per_tenant and self._is_adoptable(row):
                self._begin(task, self._adopt(row))
                self._last_tenant = row.tenant
                count += 1
        return count

    async def _take_indirect(self, orphans: set[_Ownership]) -> None:
        """Take the next page of children and of tasks with unread items; after the last page comes the first."""
        page = await self._drivers.tenants.orphans(PAGE, after=self._after, until=self._until, indirect=True)
        self._take(page, orphans)
        self._indirect.update(map(_key, page))
        if len(page) == PAGE:
            self._after = page[-1]
        else:
            self._parents_told &= self._indirect
            self._after, self._indirect = None, set()

    async def _report_left_out(self) -> None:
        """Report the agents and formats of tasks that are left alone."""
        rows = await self._drivers.tenants.unadoptable(self._query(PAGE))
        self._left_out = set(map(_key, rows))
        for row in rows:
            self._is_adoptable(row)

    def _is_adoptable(self, row: TaskRow) -> bool:
        driver = self._drivers.existing(row.tenant)
        if driver is not None and driver.owned.is_owned(row.task_id):
            return False
        tries = self._tries.get(_task(row))
        if tries is not None and tries.again > self._loop.time():
            return False
        if row.format > e.JOURNAL_FORMAT:
            text = (
                f"{_named(row)} is left alone: driving it needs journal format {row.format}, and this version of "
                f"Treadle knows format {e.JOURNAL_FORMAT}; a driver of a newer version adopts it"
            )
            self._reports.add_once("too_new", text, row)
            return False
        if row.parent is not None:
            return _key(row) not in self._parents_told
        if self._agents.has(row.agent):
            return True
        self._reports.add_unknown_agent(row.agent)
        return False

    # ------------------------------------------------------------------------------------------ driving

    def _begin(self, task: _Task, adoption: Coroutine[Any, Any, None]) -> None:
        """Begin an adoption, which takes up room until it ends."""
        adopting = self._adopting[task] = self._loop.create_task(adoption)
        tenant, _ = task
        self._of_tenants[tenant] += 1
        self._taken.add(task)
        adopting.add_done_callback(partial(self._adopted, task))

    async def _adopt(self, row: TaskRow) -> None:
        """Drive an orphan to its next stop; its errors do not affect other tasks."""
        driver = self._drivers.of(row.tenant)
        try:
            if row.parent is not None:
                await self._attend_child(driver, row, row.parent)
                return
            overdue = await self._is_overdue(driver, row)
            if overdue is None or not await self._may_drive(driver, row):
                return
            await self._drive(driver, row, overdue=overdue)
            self._tries.pop(_task(row), None)
        except (TaskBusy, TaskNotFound, Fenced):
            return  # another driver was faster
        except TaskTooNew:
            return  # its row names the format now, so the next scan reports it
        except Exception as error:  # noqa: BLE001  a task that cannot be driven must not stop others
            await self._back_off(driver, row, error)

    def _adopted(self, task: _Task, adopting: asyncio.Task[None]) -> None:
        """Make room after the adoption of a task, also if it was cancelled before its first turn."""
        del self._adopting[task]
        tenant, _ = task
        self._of_tenants[tenant] -= 1
        if not self._of_tenants[tenant]:
            del self._of_tenants[tenant]
        if self._suspect == task:
            self._suspect = None
        self._news.set()

    async def _attend_child(self, driver: TaskDriver, row: TaskRow, parent_id: str) -> None:
        """Read a child's inbox and notify its parent; a child is never driven alone."""
        self._parents_told.add(_key(row))
        if row.driver is None and not row.due_at:
            async with driver.ownership.acquire(row.task_id):
                pass  # its inbox is read as it is released
        parent = await driver.cache.row_or_none(parent_id)
        if parent is None or (parent.driver is not None and not parent.driver.alive):
            return  # the driver that adopts the parent continues this one
        await driver.commands.tell_parents(row)

    async def _is_overdue(self, driver: TaskDriver, row: TaskRow) -> bool | None:
        """Return whether a task is due only by the time that passed for this adopter; None if it must wait.

        That time counts if the task's journal ends later than the clock: then the task was released before the clock
        was set back. Any other task may have been released since, and is due by the clock.
        """
        clock = self._clock()
        if not clock < row.due_at <= self._until or await driver.store.inbox(row.task_id):
            return False
        if (await driver.cache.load(row.task_id)).state.time > clock:
            return True
        self._leave_alone(row, (row.due_at - clock) / 1e6)
        return None

    def _leave_alone(self, row: TaskRow, seconds: float) -> None:
        """Exclude a task from the scans for a while; the number of its failures stays the same."""
        tries = self._tries.get(_task(row))
        self._tries[_task(row)] = _Tries(tries.count if tries is not None else 0, self._loop.time() + seconds)

    async def _drive(self, driver: TaskDriver, row: TaskRow, *, overdue: bool = False) -> None:
        first_seen = self._seen.get(_key(row), self._loop.time())
        async with driver.ownership.acquire(row.task_id) as owned:
            state, writer = owned.state, owned.writer
            if not owned.wanted or state.ended is not None:
                return  # its inbox was unread, or it has ended: its release is enough
            due = state.next_due()
            if overdue and due is not None:
                writer.advance_to(due)
            lost = writer.epoch - 1 - state.progress
            if lost and row.driver is None and row.epoch == writer.epoch - 1:
                writer.record(e.DriverSurvived(row.epoch))  # it released the task
            elif lost >= GIVEN_UP and not state.undo and not await self._is_excused(driver, state):
                reason = f"its last {lost} drivers crashed, or did not respond, before it made progress"
                await self._give_up(driver, row, owned, reason)
                return
            agent = self._agents.with_task(state, self._agents.of(row.agent, None, row.task_id))
            goal: Goal = "undo" if state.undo is not None else "end"
            # Calls that may fail come first: until the drive begins, the task is as its last driver left it.
            if goal == "end":
                check_version(state, agent, from_json(state.options))
            context = await driver.contexts.of_drive(owned, agent, None, needed=goal == "end")
            if state.shutdown and not state.pausing:
                lift_stop(owned, RUNNER)
            self._seen.pop(_key(row), None)
            waited = self._loop.time() - first_seen
            self._reports.add("adopted", f"{_named(row)} adopted", row, owned, waited=waited)
            try:
                await driver.drive(owned, goal, agent, context)
            except Fenced as refusal:
                self._reports.add("lost", str(refusal), row, owned)
                return
        self._reports.add("stopped", f"{_named(row)} is {state_at_rest(state)}", row, owned)

    async def _back_off(self, driver: TaskDriver, row: TaskRow, error: Exception) -> None:
        """Leave a task that could not be driven alone for a while; after some tries, pause it for a person to inspect.

        A missing store or version of the agent may be available at the next try or to another driver. So a task is
        never paused for these, but reported again from time to time.
        """
        count = self._tries[_task(row)].count + 1 if _task(row) in self._tries else 1
        wait = RETRY_SECONDS[min(count, len(RETRY_SECONDS)) - 1]
        self._tries[_task(row)] = _Tries(count, self._loop.time() + wait)
        reason = f"it could not be driven, {count} times in a row: {driver.vault.error_text(error)}"
        may_pass = (
            isinstance(error, (StoreError, ToolsetUnavailable, VersionRefused)) or row.parent is not None
        )
        if count < TRIES or (may_pass and count % REPORT_EVERY == 0):
            self._reports.add("failed", f"{_named(row)} is tried again later: {reason}", row)
        elif not may_pass:
            # If another driver has it, or the store cannot be written, the next scan finds out.
            with suppress(TreadleError):
                async with driver.ownership.acquire(row.task_id) as owned:
                    if owned.wanted and owned.state.ended is None:
                        await self._give_up(driver, row, owned, reason)
                self._tries.pop(_task(row), None)

    async def _give_up(self, driver: TaskDriver, row: TaskRow, owned: OwnedTask, reason: str) -> None:
        """Pause a task until a person has inspected it, and report it."""
        owned.writer.record(e.PauseRequested(RUNNER, reason))
        await driver.read_inbox(owned)
        text = f"{_named(row)} is paused: {reason}; find out why before you resume it"
        self._reports.add("given_up", text, row, owned)

    # -------------------------------------------------------------------------------------- poison tasks

    async def _may_drive(self, driver: TaskDriver, row: TaskRow) -> bool:
        """Return whether to drive a task now; a suspect waits for another one that is being driven."""
        if row.driver is None or row.epoch < SUSPECT:
            return True
        state = (await driver.cache.load(row.task_id)).state
        if row.epoch - state.progress < SUSPECT or await self._is_excused(driver, state):
            return True
        if self._suspect is not None and self._loop.time() < self._alone_until:
            suspect = self._owned(self._suspect)
            if suspect is None or suspect.state.progress < suspect.writer.epoch:
                text = (
                    f"{_named(row)} waits: {row.epoch} drivers had it, and the last ones crashed, perhaps "
                    "because of it"
                )
                self._reports.add_once("suspect", text, row)
                self._leave_alone(row, 2 * SCAN_SECONDS)  # others are taken in the meantime
                return False
        self._suspect, self._alone_until = _task(row), self._loop.time() + ALONE_SECONDS
        return True

    async def _is_excused(self, driver: TaskDriver, state: TaskState) -> bool:
        """Return whether the driver that lost a task is alive, or a task below made progress."""
        inbox = await driver.store.inbox(state.task_id)
        return any(item.kind == SURVIVED for item in inbox) or await self._has_progress_below(driver, state)

    async def _has_progress_below(self, driver: TaskDriver, state: TaskState) -> bool:
        """Return whether a task below made progress in its last epoch."""
        for call in state.open_children():
            if await driver.cache.row_or_none(str(call.child)) is None:
                continue
            child = (await driver.cache.load(str(call.child))).state
            if child.progress == child.epoch or await self._has_progress_below(driver, child):
                return True
        return False


def _task(row: TaskRow) -> _Task:
    """Return the key of a task."""
    return row.tenant, row.task_id


def _key(row: TaskRow) -> _Ownership:
    """Return the key of one ownership of a task."""
    return row.tenant, row.task_id, row.epoch


def _named(row: TaskRow) -> str:
    """Return the name of a task in reports."""
    return f"task {row.task_id}" + (f" of tenant {row.tenant!r}" if row.tenant else "")
