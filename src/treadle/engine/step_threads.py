"""Threads for sync functions, one for each running call. They do not delay the exit of the process."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from threading import Thread
from typing import Any, Final, TypeVar, cast
from weakref import WeakKeyDictionary

T = TypeVar("T")


_threads: Final = WeakKeyDictionary[asyncio.Future[Any], Thread]()
"""The threads by their waiting futures."""

_alone: Final = set[asyncio.Future[Any]]()
"""Running functions that do not depend on the event loop."""


def at_work() -> int:
    """Return the number of functions in threads that do not depend on the event loop, whose clock may stop for them."""
    return len(_alone)


def in_thread(fn: Callable[[], T], *, alone: bool = False) -> Awaitable[T]:
    """Call a function in its own thread, in a copy of this context.

    The executor of the event loop has few threads, and a process waits for them at its exit. A cancelled function that
    does not end would occupy one of them, and delay the exit.

    Args:
        fn: the function.
        alone: whether it does not depend on the event loop.
    """
    loop, context = asyncio.get_running_loop(), copy_context()
    done: asyncio.Future[T] = loop.create_future()
    if alone:
        _alone.add(done)
        done.add_done_callback(_alone.discard)

    def work() -> None:
        try:
            tell = partial(_give, done.set_result, done, context.run(fn))
        except StopIteration as stop:  # a future cannot hold that
            error = RuntimeError(f"the function raised StopIteration({stop.value!r:.200})")
            tell = partial(_give, done.set_exception, done, error)
        except BaseException as error:  # noqa: BLE001  it is the caller's to deal with
            tell = partial(_give, done.set_exception, done, error)
        with suppress(RuntimeError):  # the loop is closed, and the step is over
            loop.call_soon_threadsafe(tell)

    thread = _threads[done] = Thread(target=work, name="treadle-step", daemon=True)
    thread.start()
    return done


def thread_of(future: Any) -> int:
    """Return the `threading.get_ident()` of the thread that a future of `in_thread` waits for, else 0."""
    thread = _threads.get(cast("asyncio.Future[Any]", future)) if isinstance(future, asyncio.Future) else None
    return thread.ident or 0 if thread is not None else 0


def wait_from_thread(awaitable: Awaitable[T], loop: asyncio.AbstractEventLoop, refusal: type[Exception]) -> T:
    """Wait in another thread for an awaitable of an event loop, and return its value.

    Raises `refusal` in the thread of the event loop itself.
    """

    async def awaited() -> T:
        return await awaitable

    if running_loop() is loop:
        if inspect.iscoroutine(awaitable):
            awaitable.close()
        raise refusal("wait() is for functions that run in a thread; an async one says await")
    return asyncio.run_coroutine_threadsafe(awaited(), loop).result()


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread, if one does."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _give(settle: Callable[[Any], None], done: asyncio.Future[Any], outcome: Any) -> None:
    if not done.done():
        settle(outcome)
