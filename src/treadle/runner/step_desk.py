"""Where steps that are functions hand in what they want, and get word when it has ended."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from treadle.core import events as e
from treadle.core.state import TaskState
from treadle.errors import WorkerError
from treadle.runner.flights import Recorder

T = TypeVar("T")


class StepDesk:
    """The desk of one drive: functions hand in, the drive takes down; both in the drive's event loop.

    Args:
        state: of the task.
        clock: returns microseconds since 1970, UTC.
    """

    def __init__(self, state: TaskState, clock: Callable[[], int]) -> None:
        self._state = state
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._wanted: deque[tuple[e.Event, asyncio.Future[None] | None]] = deque()
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self.wake: Callable[[], None] = _nothing

    # ----------------------------------------------------------------------------------- for functions

    def request(self, event: e.Event | None, call_id: str) -> Awaitable[None]:
        """Have something recorded, unless it is known; the future is done when it has ended."""
        done = self._loop.create_future()
        if event is None and not self._is_open(call_id):
            done.set_result(None)
            return done
        self._waiting.setdefault(call_id, []).append(done)
        if event is not None:
            self._wanted.append((event, None))
            self.wake()
        return done

    def keep(self, event: e.Event) -> Awaitable[None]:
        """Have an event recorded; the future is done when it is."""
        done = self._loop.create_future()
        self._wanted.append((event, done))
        self.wake()
        return done

    def now(self) -> float:
        """Return seconds since 1970, UTC."""
        return self._clock() / 1e6

    def random(self) -> float:
        """Return a number from 0 up to 1."""
        return random.random()  # noqa: S311  no secret

    def wait(self, awaitable: Awaitable[T]) -> T:
        """Wait in a thread for what the event loop does."""

        async def awaited() -> T:
            return await awaitable

        return asyncio.run_coroutine_threadsafe(awaited(), self._loop).result()

    def in_thread(self, fn: Callable[[], T]) -> Awaitable[T]:
        """Call a function in a thread; what it did not come to is lost if its step is stopped."""
        return asyncio.to_thread(fn)

    # ----------------------------------------------------------------------------------- for the drive

    @property
    def has_wishes(self) -> bool:
        """Whether something was handed in that is not recorded yet."""
        return bool(self._wanted)

    def take_down(self, record: Recorder) -> None:
        """Record what was handed in; a step that does not run any more gets nothing."""
        graph = self._state.graph
        while self._wanted:
            event: Any
            event, done = self._wanted.popleft()
            if graph is None or event.step not in graph.running:
                self._refuse(event, done)
                continue
            record(event)
            if done is not None and not done.done():
                done.set_result(None)

    def tell(self, event: Any) -> None:
        """Give word of an end."""
        for done in self._waiting.pop(event.call or "", ()):
            if not done.done():
                done.set_result(None)

    def _refuse(self, event: Any, done: asyncio.Future[None] | None) -> None:
        waiting = self._waiting.pop(getattr(event, "call", ""), [])
        error = WorkerError(f"task {self._state.task_id}: step {event.step} does not run any more")
        for future in (*waiting, *((done,) if done is not None else ())):
            if not future.done():
                future.set_exception(error)
                future.exception()  # whoever asked may have left

    def _is_open(self, call_id: str) -> bool:
        graph = self._state.graph
        if graph is None:
            return False
        return any(
            call_id in node.asked or (node.step is not None and call_id in node.step.open)
            for node in graph.running.values()
        )


def _nothing() -> None:
    pass
