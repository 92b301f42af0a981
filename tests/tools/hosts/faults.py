"""Functions that do what no tool should, of the standard library alone: tools, and the tools of a server, run them."""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

RELEASE = threading.Event()
"""Set by the test when it is over, so that what cannot be stopped does not outlive it."""

TIMEOUT = 0.4
"""Seconds that a call has."""

LATE = 0.9
"""Seconds that the late one takes: over its timeout, and within the grace that a cancelled call has."""


class Unprintable(Exception):
    """An error whose texts raise."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")

    __str__ = __repr__


class UnprintableValue:
    """A result whose text raises."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


def raises_exception() -> None:
    raise ValueError("broken")


def raises_base_exception() -> None:
    raise BaseException("broken")


def raises_system_exit() -> None:
    sys.exit(3)


def raises_keyboard_interrupt() -> None:
    raise KeyboardInterrupt


def raises_cancelled() -> None:
    raise asyncio.CancelledError


def raises_generator_exit() -> None:
    raise GeneratorExit


def never_returns() -> None:
    RELEASE.wait(60)


def sleeps_on() -> str:
    end = time.monotonic() + 60
    while time.monotonic() < end and not RELEASE.is_set():
        time.sleep(0.05)
    return "slept"


def spins() -> str:
    end = time.monotonic() + 60
    while time.monotonic() < end and not RELEASE.is_set():
        sum(range(1_000))
    return "spun"


def leaves_a_grandchild() -> int:
    return subprocess.Popen(["sleep", "20"]).pid


def exits() -> None:
    os._exit(3)


def crashes() -> None:
    ctypes.string_at(0)


def returns_200_megabytes() -> str:
    return "x" * 200_000_000


def yields_for_ever() -> Iterator[int]:
    number = 0
    while not RELEASE.is_set():
        number += 1
        yield number


def returns_an_object() -> Any:
    return object()


def returns_itself() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


def returns_nan() -> Any:
    return {"a": [float("nan"), float("inf")]}


def returns_bytes() -> bytes:
    return b"\xff\x00"


def returns_a_deep_nest() -> Any:
    value: list[Any] = []
    for _ in range(10_000):
        value = [value]
    return value


def writes_to_stdout() -> str:
    print("a line of the tool")
    sys.stdout.flush()
    return "written"


def prints_200_megabytes() -> str:
    for _ in range(200):
        os.write(1, b"x" * 1_000_000)
    return "printed"


def changes_the_process() -> str:
    os.chdir("/")
    os.environ["PATH"] = ""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return "changed"


def raises_in_repr() -> None:
    raise Unprintable


def returns_what_raises_in_repr() -> Any:
    return UnprintableValue()


def returns_late() -> str:
    time.sleep(LATE)
    return "late"


def returns_after_its_end() -> str:
    RELEASE.wait(60)
    return "too late"


async def awaits_for_ever() -> None:
    await asyncio.Event().wait()


async def ignores_its_cancellation() -> str:
    while not RELEASE.is_set():
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            continue
    return "released"


async def yields_for_ever_in_the_loop() -> AsyncIterator[int]:
    number = 0
    while not RELEASE.is_set():
        number += 1
        yield number


async def sleeps_too_long() -> str:
    await asyncio.sleep(LATE)
    return "late"


FAULTS: dict[str, Callable[..., Any]] = {
    fn.__name__: fn
    for fn in (
        *(raises_exception, raises_base_exception, raises_system_exit, raises_keyboard_interrupt),
        *(raises_cancelled, raises_generator_exit, never_returns, sleeps_on, spins, leaves_a_grandchild),
        *(exits, crashes, returns_200_megabytes, yields_for_ever, returns_an_object, returns_itself),
        *(returns_nan, returns_bytes, returns_a_deep_nest, writes_to_stdout, prints_200_megabytes),
        *(changes_the_process, raises_in_repr, returns_what_raises_in_repr, returns_late),
        returns_after_its_end,
    )
}

IN_THE_LOOP: dict[str, Callable[..., Any]] = {
    "never_returns": awaits_for_ever,
    "sleeps_on": ignores_its_cancellation,
    "yields_for_ever": yields_for_ever_in_the_loop,
    "returns_late": sleeps_too_long,
    "returns_after_its_end": ignores_its_cancellation,
}
"""The faults that an async function has in a way of its own."""


def as_async(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return an async function that does the same."""

    async def run() -> Any:
        return fn()

    run.__name__ = fn.__name__
    return run
