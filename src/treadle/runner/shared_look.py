"""Reads a task from the store once for all its watchers in one event loop.

Theory of operation
-------------------

Watchers of a task that is driven here receive its events from the channel of the task. If another process drives the
task, only the store has them. If each watcher read the store, ten watchers would make ten reads for each event. So the
watchers of a task in an event loop share a look:

    the store names the task as changed  --+
    the task was taken or released here  --+--> look_soon --> read the row --> new events? --> show them in the channel
    time has passed (a driver may crash) --+                      |
                                                                  +--> state or driver differ? --> wake the watchers

`channel.shown` is the last event that the channel has shown. Later events are read once and shown to all watchers
through the log of the channel, as if the driver were in this process. A watcher that joined later or was slow reads the
journal by itself until it has caught up.

Invariant: after `caught_up`, every later event appears in the log of the channel soon after it is durable. Otherwise a
gap in the numbers tells the watcher to read the journal.
"""

from __future__ import annotations

import asyncio
from typing import Final

from treadle.core.events import TaskStood
from treadle.drivers.owned_tasks import OwnedTask, OwnedTasks
from treadle.engine.broadcast import Channel, Watcher, call_in_loop
from treadle.errors import TaskNotFound
from treadle.runner.stored_events import StoredEvents

REST_SECONDS: Final = 5.0
"""Seconds between two reads of a task without a driver, in case the process that should report a change crashed."""


class SharedLook:
    """The state of a task for its watchers in one event loop. Get it with `of`, and call `leave` at the end."""

    def __init__(self, tasks: OwnedTasks, task_id: str, channel: Channel) -> None:
        self._tasks = tasks
        self._task_id = task_id
        self._channel = channel
        self._loop = asyncio.get_running_loop()
        self._stored = StoredEvents(tasks.store, task_id)
        self._users = 0
        self._is_stale = True
        """whether the task may have changed since the last read began"""

        self._looking: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._created: int | None = None
        """when the task was created, from its row; None before it was read"""

        self._made_here: OwnedTask | None = None
        """the task if this process created it while it had watchers"""

        self.generation = 0
        """changes when the task is deleted or another task is created with its id"""

        self._standing: TaskStood | None = None
        self._failure: Exception | None = None

    @classmethod
    def of(cls, tasks: OwnedTasks, task_id: str, watcher: Watcher) -> SharedLook:
        """Return the look that all watchers of a task in this event loop share."""
        channel, loop = watcher.channel, asyncio.get_running_loop()
        look = channel.looks.get(loop)
        if not isinstance(look, SharedLook):
            look = channel.looks[loop] = cls(tasks, task_id, channel)
        look._users += 1
        watcher.shares_look = True
        return look

    def leave(self) -> None:
        """Note that a watcher has gone; the look ends with its last watcher."""
        self._users -= 1
        if not self._users:
            self._channel.looks.pop(self._loop, None)
            if self._timer is not None:
                self._timer.cancel()

    async def current(self) -> TaskStood:
        """Return the state of the task; raise `TaskNotFound` or the error of the store."""
        if self._looking is not None and self._is_stale:
            await asyncio.shield(self._looking)  # it began before the change that the caller learned of
        self._begin()
        if self._looking is not None:
            await asyncio.shield(self._looking)
        if self._failure is not None:
            raise self._failure
        assert self._standing is not None, "the task was looked at"
        return self._standing

    def caught_up(self, seq: int) -> None:
        """Note that a watcher has read the journal up to an event, and receives later ones from the channel."""
        channel, stood = self._channel, self._standing
        if channel.shown is None:  # the caller may wait for an event that is still to come
            channel.shown = seq if stood is None else min(seq, stood.head)
        if stood is not None and not stood.live and stood.head > channel.shown:
            self.look_soon()  # they arrived while no watcher had caught up
        elif self._timer is None and self._looking is None:
            self._look_later()

    def look_soon(self) -> None:
        """Read the task soon, since it may have changed; from any thread."""
        live = self._tasks.live_standing(self._task_id)
        if live is not None:  # at once, so that watchers see it before the first delta
            owned = self._tasks.tasks.get(self._task_id)
            if owned is not None and owned.writer.is_new and owned is not self._made_here:
                self._made_here = owned
                self._begin_anew()
            self._set(live, None)
            return
        self._is_stale = True
        call_in_loop(self._loop, self._begin)

    def _begin(self) -> None:
        if self._is_stale and self._looking is None and self._users:
            self._looking = self._loop.create_task(self._look())

    async def _look(self) -> None:
        self._is_stale, stood, failure = False, None, None
        try:
            stood = self._tasks.live_standing(self._task_id)
            if stood is None:
                row = await self._tasks.cache.row(self._task_id)
                if row.created != self._created:
                    if self._created is not None:
                        self._begin_anew()
                    self._created = row.created
                await self._show(row.head)
                # It may have been taken meanwhile.
                stood = self._tasks.live_standing(self._task_id) or self._tasks.standing(row)
        except Exception as error:  # noqa: BLE001  each watcher gets it
            failure = error
            if isinstance(error, TaskNotFound):
                self._begin_anew()
        finally:
            self._looking = None
        self._set(stood, failure)
        self._look_later()
        self._begin()

    def _begin_anew(self) -> None:
        """Forget the watched task, which no longer exists."""
        self.generation += 1
        self._created = self._channel.shown = None
        self._stored = StoredEvents(self._tasks.store, self._task_id)

    async def _show(self, head: int) -> None:
        """Show the watchers the events of the journal after the last one shown."""
        shown = self._channel.shown
        if shown is not None and head > shown:
            self._channel.show(await self._stored.after(shown))

    def _set(self, stood: TaskStood | None, failure: Exception | None) -> None:
        before, self._standing, self._failure = self._standing, stood, failure
        if failure is not None or differs(stood, before):
            for watcher in list(self._channel.watchers):
                if watcher.shares_look and watcher.wakeup.loop is self._loop:
                    watcher.look_again()

    def _look_later(self) -> None:
        """Read again after a while, since a killed driver, or one with a closed event loop, reports nothing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        patience = self._tasks.patience(self._task_id)
        if patience is None or not self._users:
            return
        if self._standing is not None and not self._standing.driven:
            patience = REST_SECONDS
        self._timer = self._loop.call_later(patience, self._time_passed)

    def _time_passed(self) -> None:
        self._timer, self._is_stale = None, True
        self._begin()


def differs(stood: TaskStood | None, before: TaskStood | None) -> bool:
    """Whether a task's state or kind of driver has changed."""
    if stood is None or before is None:
        return stood is not before
    return (stood.state, stood.driven, stood.live) != (before.state, before.driven, before.live)
