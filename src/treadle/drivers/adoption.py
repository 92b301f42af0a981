"""Adopting tasks: finding those that nobody drives and somebody should, and driving them, some at a time.

A task may be what its drivers die of. One that five of them in a row left without having got anywhere, and without
being heard of again, is driven alone among its like, so that what is innocent gets on; after ten it is paused for a
person to look at.

Three kinds are found (`JournalStore.orphans`): those whose driver died or let its lease pass; those given back for
somebody to drive on, after a shutdown, a settlement, or until a time that has come; and those with unread mail, whose
sender died before its words were carried out. What a person stopped stays stopped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Final, Literal

from treadle.core import events as e
from treadle.core.data import frozen, mutable
from treadle.core.fold import RUNNER
from treadle.core.observation import error_text
from treadle.core.state import TaskState
from treadle.drivers.continuing import lift_stop
from treadle.drivers.driver import TaskDriver
from treadle.drivers.owned_tasks import OwnedTask
from treadle.engine import results
from treadle.engine.drive import DriveLoop
from treadle.engine.inbox import SURVIVED
from treadle.engine.interruption import DRIVER_CLOSED
from treadle.errors import (
    Fenced,
    StoreError,
    TaskBusy,
    TaskNotFound,
    TaskTooNew,
    TreadleError,
    VersionRefused,
)
from treadle.ports import TaskRow

SCAN_SECONDS: Final = 0.5
"""How often to look for orphans when nothing is heard: a lease that passes makes no noise.

Who is found is to be driven within a second, on a busy machine too: that leaves half of it for claiming and loading.
"""

LATE_SECONDS: Final = 1.0
"""After how long without a look this process, or its store, has stalled, and may have lost what it owns."""

BREATH_SECONDS: Final = 0.2
"""How long to wait after a look before the next, however much is heard."""

AT_MOST: Final = 100
"""How many adopted tasks are driven at the same time."""

PAGE: Final = 200

AGAIN_SECONDS: Final = (1.0, 2.0, 5.0, 15.0, 60.0)
"""How long a task is left alone after it could not be driven, the first time, the second, and so on."""

TRIES: Final = 5
"""How often one adopter tries to drive a task whose own code raises before the task is begun; then it is paused."""

NAMED_EVERY: Final = 60
"""After how many tries, about an hour, a task is named again that only another driver may be able to drive."""

SUSPECT: Final = 5
"""How many drivers in a row left a task without having got anywhere, when it is taken for what they died of."""

GIVEN_UP: Final = 10
"""With how many it is paused instead of being driven again: the last half of them died with no other suspect."""

ALONE_SECONDS: Final = 30.0
"""How long a suspect that gets nowhere keeps the next one waiting."""

Kind = Literal[
    "adopted", "stopped", "lost", "failed", "suspect", "given_up", "unknown_agent", "too_new", "scan_failed"
]


@frozen
class Adoption:
    """What an adopter did or met.

    Args:
        kind: `adopted` when it begins to drive a task; `stopped` when that has stopped, in `state`; `lost` when another
            driver took it over; `failed` when it could not be driven and is tried again later; `suspect`, once for each
            ownership, when it waits since drivers may die of it, and another such task is being driven; `given_up` when
            it is paused, since one driver after the other died of it, or it could not be driven time and again;
            `unknown_agent`, once for each, for an agent that this process was not given; `too_new`, once for each, for
            a task that only a newer version of Treadle may drive; `scan_failed` when the store could not be read.
        task_id: the task, if it is about one.
        agent: the agent's name.
        epoch: under which ownership it is, or was, driven.
        state: how the task stands.
        waited: of an adopted task, the seconds since this adopter first saw that nobody drove it.
        text: what happened, in words.
    """

    kind: Kind
    text: str
    task_id: str | None = None
    agent: str | None = None
    epoch: int | None = None
    state: str | None = None
    waited: float | None = None


Tell = Callable[[Adoption], None]

_LOG = logging.getLogger("treadle.adopting")
_LEVELS = {"adopted": logging.INFO, "stopped": logging.INFO}


def log(adoption: Adoption) -> None:
    """Tell the log `treadle.adopting`."""
    _LOG.log(_LEVELS.get(adoption.kind, logging.WARNING), adoption.text)


@mutable
class _Tries:
    """How often a task could not be driven, and when to try again, in seconds of the loop's clock."""

    count: int
    again: float


class Adopter:
    """Adopts tasks for one runner, in the event loop it is started in, until it is stopped.

    Args:
        driver: drives the tasks.
        at_most: how many tasks at the same time.
        tell: what to do with what is done and met; by default it is logged.
    """

    def __init__(self, driver: TaskDriver, *, at_most: int = AT_MOST, tell: Tell = log) -> None:
        self._driver = driver
        self._store = driver.store
        self._cache = driver.cache
        self._owned = driver.owned
        self._ownership = driver.ownership
        self._agents = driver.agents
        self._commands = driver.commands
        self._clock = driver.clock
        self._began, self._began_at = self._clock(), asyncio.get_running_loop().time()
        self._until = self._began
        self._at_most = at_most
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._heard = asyncio.Event()
        self._adopting: dict[str, asyncio.Task[None]] = {}
        self._tries: dict[str, _Tries] = {}
        self._unknown: set[str] = set()
        self._seen: dict[tuple[str, int], float] = {}
        """when each orphan was first seen, by task and epoch"""

        self._tended: set[tuple[str, int]] = set()
        """the children, by task and epoch, whose parents were told of them"""

        self._told: set[tuple[str, int]] = set()
        """of which suspects, by task and epoch, it was said that they wait"""

        self._too_new: set[tuple[str, int]] = set()
        """of which tasks, by task and epoch, it was said that a newer version is needed"""

        self._suspect: str | None = None
        self._alone_until = 0.0
        self._over: Future[None] = Future()
        self._over.set_running_or_notify_cancel()
        self._owned.on_news = self._news
        self._owned.watch_store()
        self._scanning = self._loop.create_task(self._run())

    async def stop(self, grace: float = 0.0) -> None:
        """Take nothing new, and return when all that was adopted is given back; from any loop.

        For `grace` seconds calls in flight may end; then they are stopped.
        """
        if self._over.done() or self._loop.is_closed():
            return
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(lambda: self._loop.create_task(self._stop(grace)))
            await asyncio.wrap_future(self._over)

    async def _stop(self, grace: float) -> None:
        self._owned.on_news = None
        self._scanning.cancel()
        drives: list[DriveLoop] = []
        for task_id, adopting in self._adopting.items():
            owned = self._owned.tasks.get(task_id)
            if owned is not None and owned.drive is not None:
                drives.append(owned.drive)
            else:
                adopting.cancel()  # it is about to claim, or to drive: what it has by then it gives back
        await asyncio.gather(*[drive.stop(DRIVER_CLOSED, grace) for drive in drives])
        while self._adopting:
            await asyncio.wait(list(self._adopting.values()))
        if not self._over.done():
            self._over.set_result(None)

    def _news(self) -> None:
        if self._heard.is_set():
            return  # the next look is still to begin
        with suppress(RuntimeError):  # its loop is closed
            self._loop.call_soon_threadsafe(self._heard.set)

    # ------------------------------------------------------------------------------------------ scanning

    async def _run(self) -> None:
        looked = self._loop.time()
        while True:
            self._heard.clear()
            begun = self._loop.time()
            if begun - looked > LATE_SECONDS:
                # What was lost meanwhile takes up room here, and may have been left by whoever took it.
                self._owned.check()
            try:
                await self._scan()
                looked = begun
            except Exception as error:  # noqa: BLE001  whatever a store raises, the next look may succeed
                self._say("scan_failed", f"looking for tasks to adopt failed, and is tried again: {error}")
            await asyncio.sleep(BREATH_SECONDS)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._heard.wait(), SCAN_SECONDS - BREATH_SECONDS)

    async def _scan(self) -> None:
        """Begin to adopt orphans, oldest first, as long as there is room."""
        after, now = None, self._loop.time()
        # Also what would be due if the clock had not been set back since this adopter began.
        passed = int((now - self._began_at) * 1e6)
        until = self._until = max(self._clock(), self._began + passed)
        found: set[tuple[str, int]] = set()
        if len(self._adopting) >= self._at_most:
            await self._store.orphans(1)  # who cannot look may have lost what takes up the room
        while len(self._adopting) < self._at_most:
            page = await self._store.orphans(PAGE, after=after, until=until)
            for row in page:
                key = (row.task_id, row.epoch)
                found.add(key)
                self._seen.setdefault(key, now)
                if len(self._adopting) < self._at_most and self._takes(row):
                    adopting = self._loop.create_task(self._adopt(row))
                    self._adopting[row.task_id] = adopting
                    adopting.add_done_callback(partial(self._adopted, row.task_id))
            if len(page) < PAGE:
                # Only who looked at all of them knows which are orphans no more.
                self._seen = {key: since for key, since in self._seen.items() if key in found}
                self._told &= found
                self._too_new &= found
                self._tended &= found
                return
            after = page[-1].task_id

    def _takes(self, row: TaskRow) -> bool:
        if row.task_id in self._adopting or self._owned.is_owned(row.task_id):
            return False
        tries = self._tries.get(row.task_id)
        if tries is not None and tries.again > self._loop.time():
            return False
        if row.format > e.JOURNAL_FORMAT:
            self._say_once_that_it_is_too_new(row)
            return False
        if row.parent is not None:
            return (row.task_id, row.epoch) not in self._tended
        if self._agents.knows(row.agent):
            return True
        if row.agent not in self._unknown:
            self._unknown.add(row.agent)
            text = f"tasks of agent {row.agent!r} are left alone: this process was not given that agent"
            self._say("unknown_agent", text, agent=row.agent)
        return False

    # ------------------------------------------------------------------------------------------ driving

    async def _adopt(self, row: TaskRow) -> None:
        """Drive an orphan to its next stop; whatever comes of it concerns no other task."""
        task_id = row.task_id
        try:
            if row.parent is not None:
                await self._tend(row, row.parent)
                return
            overdue = await self._is_overdue(row)
            if overdue is None or not await self._may_drive(row):
                return
            await self._drive(row, overdue=overdue)
            self._tries.pop(task_id, None)
        except (TaskBusy, TaskNotFound, Fenced):
            return  # somebody else was faster
        except TaskTooNew:
            return  # its row says so from now on, and the next look names it
        except Exception as error:  # noqa: BLE001  one task that cannot be driven stops no other
            await self._failed(row, error)

    def _adopted(self, task_id: str, adopting: asyncio.Task[None]) -> None:
        """Make room, however the adoption of a task ended; also one that was cancelled before its first turn."""
        del self._adopting[task_id]
        if self._suspect == task_id:
            self._suspect = None
        self._heard.set()

    async def _is_overdue(self, row: TaskRow) -> bool | None:
        """Whether a task's timer has fired only by the time that passed for this adopter; None if it waits on.

        That time counts after the clock was set back if the task's journal ends later than the clock stands: then the
        task was given back before. Any other may have been given back since, and is due when the clock says so.
        """
        clock = self._clock()
        if not clock < row.wanted <= self._until or await self._store.inbox(row.task_id):
            return False
        if (await self._cache.load(row.task_id)).state.time > clock:
            return True
        self._tries[row.task_id] = _Tries(0, self._loop.time() + (row.wanted - clock) / 1e6)
        return None

    async def _failed(self, row: TaskRow, error: Exception) -> None:
        """Leave a task that could not be driven alone for a while; after some tries, pause it for a person to look at.

        The store, or another version of the agent, may be there for the next try or for another driver: such a task is
        never paused for that, and named again from time to time.
        """
        count = self._tries[row.task_id].count + 1 if row.task_id in self._tries else 1
        wait = AGAIN_SECONDS[min(count, len(AGAIN_SECONDS)) - 1]
        self._tries[row.task_id] = _Tries(count, self._loop.time() + wait)
        why = f"it could not be driven, {count} times in a row: {error_text(error)}"
        may_pass = isinstance(error, (StoreError, VersionRefused)) or row.parent is not None
        if count < TRIES or (may_pass and count % NAMED_EVERY == 0):
            self._say("failed", f"task {row.task_id} is tried again later: {why}", row)
        elif not may_pass:
            with suppress(
                TreadleError
            ):  # another driver has it, or the store cannot be written: the next look tells
                async with self._ownership.acquire(row.task_id) as owned:
                    if owned.wanted and owned.state.ended is None:
                        await self._give_up(row, owned, why)
                self._tries.pop(row.task_id, None)

    async def _may_drive(self, row: TaskRow) -> bool:
        """Whether a task is to be driven now: one that drivers may die of waits for others of its kind."""
        if row.driver is None or row.epoch < SUSPECT:
            return True
        state = (await self._cache.load(row.task_id)).state
        if row.epoch - state.progress < SUSPECT or await self._is_excused(state):
            return True
        if self._suspect is not None and self._loop.time() < self._alone_until:
            suspect = self._owned.tasks.get(self._suspect)
            if suspect is None or suspect.state.progress < suspect.writer.epoch:
                self._say_once_that_it_waits(row)
                return False  # the next look finds it again
        self._suspect, self._alone_until = row.task_id, self._loop.time() + ALONE_SECONDS
        return True

    async def _tend(self, row: TaskRow, parent: str) -> None:
        """See to it that a child's mail is read, and that its parent goes on with it: it is never driven alone."""
        self._tended.add((row.task_id, row.epoch))
        if row.driver is None and not row.wanted:
            async with self._ownership.acquire(row.task_id):
                pass  # its mail is read as it is given back
        above = await self._cache.row_or_none(parent)
        if above is None or (above.driver is not None and not above.driver.alive):
            return  # whoever takes that one up goes on with this one
        await self._commands.tell_parents(row)

    async def _is_excused(self, state: TaskState) -> bool:
        """Whether a task got somewhere that its own journal says nothing of."""
        return await self._has_survivor(state.task_id) or await self._got_anywhere(state)

    async def _got_anywhere(self, state: TaskState) -> bool:
        """Whether, below a task, something happened under the last ownership: its own journal says nothing of that."""
        for call in state.open_children():
            if await self._cache.row_or_none(str(call.child)) is None:
                continue
            child = (await self._cache.load(str(call.child))).state
            if child.progress == child.epoch or await self._got_anywhere(child):
                return True
        return False

    def _say_once_that_it_waits(self, row: TaskRow) -> None:
        key = (row.task_id, row.epoch)
        if key not in self._told:
            self._told.add(key)
            text = f"task {row.task_id} waits: {row.epoch} drivers had it, the last ones died, and may have died of it"
            self._say("suspect", text, row)

    def _say_once_that_it_is_too_new(self, row: TaskRow) -> None:
        key = (row.task_id, row.epoch)
        if key not in self._too_new:
            self._too_new.add(key)
            text = (
                f"task {row.task_id} is left alone: driving it needs journal format {row.format}, and this version of "
                f"Treadle knows format {e.JOURNAL_FORMAT}; a driver of a newer version adopts it"
            )
            self._say("too_new", text, row)

    async def _has_survivor(self, task_id: str) -> bool:
        """Whether a driver that lost the task has said since that it lives."""
        return any(item.kind == SURVIVED for item in await self._store.inbox(task_id))

    async def _drive(self, row: TaskRow, *, overdue: bool = False) -> None:
        since = self._seen.get((row.task_id, row.epoch), self._loop.time())
        async with self._ownership.acquire(row.task_id) as owned:
            state = owned.state
            if not owned.wanted or state.ended is not None:
                return  # there is mail to read, or an end to leave as it is: giving it back does that
            due = state.next_due()
            if overdue and due is not None:
                owned.writer.not_before(due)
            lost = owned.writer.epoch - 1 - state.progress
            if lost and row.driver is None and row.epoch == owned.writer.epoch - 1:
                owned.writer.record(e.DriverSurvived(row.epoch))  # it gave the task back
            elif lost >= GIVEN_UP and not state.undo and not await self._is_excused(state):
                why = f"its last {lost} drivers died, or were not heard of again, before it got any further"
                await self._give_up(row, owned, why)
                return
            known = self._agents.version_for(state, self._agents.of(row.agent, None, row.task_id))
            if state.shutdown and not state.pausing:
                lift_stop(owned, RUNNER)
            self._seen.pop((row.task_id, row.epoch), None)
            self._say("adopted", f"task {row.task_id} adopted", row, owned, waited=self._loop.time() - since)
            try:
                await self._driver.drive(owned, "undo" if state.undo is not None else "end", known, None)
            except Fenced as refusal:
                self._say("lost", str(refusal), row, owned)
                return
        word = results.resting_word(state)
        self._say("stopped", f"task {row.task_id} is {word}", row, owned)

    async def _give_up(self, row: TaskRow, owned: OwnedTask, why: str) -> None:
        """Pause a task that is not to be driven again before a person has looked at it, and say so."""
        owned.writer.record(e.PauseRequested(RUNNER, why))
        await self._driver.drive(owned, "attend", None, None)
        text = f"task {row.task_id} is paused: {why}; find out why before you resume it"
        self._say("given_up", text, row, owned)

    def _say(
        self,
        kind: Kind,
        text: str,
        row: TaskRow | None = None,
        owned: OwnedTask | None = None,
        agent: str | None = None,
        waited: float | None = None,
    ) -> None:
        task_id = row.task_id if row is not None else None
        epoch = owned.writer.epoch if owned is not None else row.epoch if row is not None else None
        state = results.resting_word(owned.state) if owned is not None else None
        name = row.agent if row is not None else agent
        self._tell(Adoption(kind, text, task_id, name, epoch, state, waited))
