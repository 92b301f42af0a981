"""Stop tasks when no stream follows them, for `RunOptions(on_disconnect=)`.

Watching does not affect a task unless its creator requested it. Then a stream that is opened with `?hold=1` holds the
task. Once no stream has held it for a while, the task is interrupted or cancelled. A server knows only its own streams.
With several servers, all streams of such a task must reach the same one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Literal, TypeAlias

from treadle.engine.options import from_json
from treadle.errors import TaskNotFound, TreadleError
from treadle.runner.runner import TaskRunner
from treadle.runner.views import driver_of
from treadle.server.feed import tenant_of

REASON = "no stream holds the task any more"

_LOG = logging.getLogger("treadle.server")

Stop = Literal["interrupt", "cancel"]

Key: TypeAlias = tuple[str, str, str]
"""A task: its tenant, its id, and its incarnation, which distinguishes it from earlier tasks of the same id."""

Hold: TypeAlias = Callable[[], Callable[[], None]]
"""Begins to hold a task, and returns a function that releases it."""


class Holds:
    """The tasks that streams of this server hold.

    Args:
        seconds: seconds for which a task may be without a holding stream.
    """

    def __init__(self, seconds: float = 15.0) -> None:
        self._seconds = seconds
        self._hold_counts: Counter[Key] = Counter()
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._stopping: set[asyncio.Task[None]] = set()
        self._leaving = False

    async def holder(self, runner: TaskRunner, task_id: str) -> Hold | None:
        """Return a function that begins to hold a task; None if its creator did not request it.

        Args:
            runner: stops the task; it is scoped to the stream's principal.
            task_id: the task.

        Raises:
            TaskNotFound: the task does not exist.
        """
        runner.handle(task_id)  # raises for an invalid id
        state = (await driver_of(runner).cache.load(task_id)).state
        stop = from_json(state.options).on_disconnect
        if stop is None or stop == "continue":
            return None
        key = (tenant_of(runner), task_id, state.incarnation)
        return lambda: self._hold(runner, key, stop)

    def _hold(self, runner: TaskRunner, key: Key, stop: Stop) -> Callable[[], None]:
        self._hold_counts[key] += 1
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        return lambda: self._let_go(runner, key, stop)

    def _let_go(self, runner: TaskRunner, key: Key, stop: Stop) -> None:
        self._hold_counts[key] -= 1
        if not self._hold_counts[key]:
            del self._hold_counts[key]
            if self._leaving:  # the server ended the stream; the client continues at another server
                return
            loop = asyncio.get_running_loop()
            self._timers[key] = loop.call_later(self._seconds, self._begin_to_stop, runner, key, stop)

    def _begin_to_stop(self, runner: TaskRunner, key: Key, stop: Stop) -> None:
        del self._timers[key]
        stopping = asyncio.get_running_loop().create_task(self._stop(runner, key, stop))
        self._stopping.add(stopping)
        stopping.add_done_callback(self._stopping.discard)

    async def _stop(self, runner: TaskRunner, key: Key, stop: Stop) -> None:
        _, task_id, incarnation = key
        try:
            if (await driver_of(runner).cache.load(task_id)).state.incarnation != incarnation:
                return  # it was deleted, and the creator of a new task with its id did not request this
            await (runner.cancel if stop == "cancel" else runner.interrupt)(task_id, reason=REASON)
        except TaskNotFound:
            pass  # the task has already ended
        except TreadleError as error:
            _LOG.warning("task %s, which no stream holds any more, could not be stopped: %s", task_id, error)

    def leave(self) -> None:
        """Stop no more tasks: the server ends, and its streams continue at another server."""
        self._leaving = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
