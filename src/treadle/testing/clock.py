"""Virtual time, which passes only while all coroutines wait: a timeout of an hour takes milliseconds.

    from treadle.testing import clock

    async def test_it():
        async with clock.runner() as runner:
            result = await runner.run(agent, "go")      # tools may sleep, models may be slow, limits may be hours

    clock.run(test_it())

`VirtualTimeLoop` is an ordinary event loop, for `asyncio.run` and for anyio's pytest plugin. When all coroutines wait,
its time jumps to the next timer. The events of a runner made by `runner` have its time too.

Work in threads and other processes takes real time, during which virtual time stands still. The loop counts tools and
policies in threads, calls of its own executor, and calls of the store of `runner`.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from treadle.engine import step_threads
from treadle.ports import Commit, CommitDone, Committed, TaskStore
from treadle.testing.wrappers import WrappedStore
from treadle.tools import threads
from treadle.wiring import Runner, open_store

T = TypeVar("T")

BEGIN: Final = 1_767_225_600_000_000
"""The start of virtual time: 2026-01-01, in microseconds since 1970, UTC."""

SLICE: Final = 0.05
"""Real seconds between two checks for the end of work outside the loop."""


class _Selector(selectors.DefaultSelector):
    """A selector that advances virtual time instead of waiting."""

    loop: VirtualTimeLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        # Work wakes the loop before its count ends, so work without a count has already woken the loop.
        at_work = self.loop.outside or threads.at_work() or step_threads.at_work()
        ready = super().select(0)
        if ready:
            return ready
        if at_work:
            return super().select(min(timeout, SLICE))
        self.loop.jump(timeout)
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock advances only while all coroutines wait."""

    def __init__(self) -> None:
        selector = _Selector()
        selector.loop = self
        self.outside = 0
        """the number of calls that run outside the loop and take real time"""

        self._virtual_seconds = 0.0
        super().__init__(selector)

    def time(self) -> float:
        """Return the virtual seconds since the loop began."""
        return self._virtual_seconds

    def jump(self, seconds: float) -> None:
        """Advance the time at once."""
        self._virtual_seconds += seconds

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        self.outside += 1
        work = super().run_in_executor(executor, func, *args)
        work.add_done_callback(lambda _: self.done_outside())
        return work

    def done_outside(self) -> None:
        """Count one call outside the loop as done."""
        self.outside -= 1


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in virtual time, like `asyncio.run`."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(work)


def now() -> int:
    """Return the virtual time in microseconds since 1970, UTC; requires a running `VirtualTimeLoop`."""
    return BEGIN + int(asyncio.get_running_loop().time() * 1e6)


class SystemClock:
    """A machine's clock in virtual time that can be set wrong: `clock.runner(clock=system)`."""

    def __init__(self) -> None:
        self._offset = 0

    def __call__(self) -> int:
        return now() + self._offset

    def set_forward(self, seconds: float) -> None:
        """Set the clock forward by a number of seconds, or back by a negative one."""
        self._offset += int(seconds * 1e6)


def runner(store: str | os.PathLike[str] | TaskStore = "memory:", **arguments: Any) -> Runner:
    """Return a runner whose events use the virtual time of its event loop.

    Args:
        store: as for `Runner`.
        arguments: as for `Runner`; `clock` is virtual time by default.
    """
    system = arguments.pop("clock", now)
    return Runner(_CountedStore(open_store(store)), clock=system, **arguments)


class _CountedStore(WrappedStore):
    """A store whose calls count as work that takes real time."""

    def commit(self, commit: Commit, done: CommitDone) -> None:
        loop = _virtual_loop()
        loop.outside += 1

        def committed(outcome: Committed | Exception) -> None:
            loop.done_outside()
            done(outcome)

        self._store.commit(commit, committed)

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._store, name)
        if not inspect.iscoroutinefunction(attribute):
            return attribute

        async def counted(*args: Any, **options: Any) -> Any:
            loop = _virtual_loop()
            loop.outside += 1
            try:
                return await attribute(*args, **options)
            finally:
                loop.done_outside()

        return counted


def _virtual_loop() -> VirtualTimeLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop), "a runner of treadle.testing.clock runs in a VirtualTimeLoop"
    return loop
