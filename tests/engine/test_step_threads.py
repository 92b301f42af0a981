"""Threads of step functions: results, errors and context variables; no limit on their number."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar

import pytest

from treadle.engine.step_threads import in_thread

pytestmark = pytest.mark.anyio

FLAVOUR: ContextVar[str] = ContextVar("flavour", default="plain")


def raises(error: BaseException) -> None:
    raise error


async def test_a_function_runs_in_a_daemon_thread_with_a_copy_of_the_context() -> None:
    FLAVOUR.set("sharp")

    def work() -> tuple[str, bool, bool]:
        flavour = FLAVOUR.get()
        FLAVOUR.set("sour")
        thread = threading.current_thread()
        return flavour, thread is threading.main_thread(), thread.daemon

    assert await in_thread(work) == ("sharp", False, True)
    assert FLAVOUR.get() == "sharp"


async def test_an_error_of_the_function_is_raised_to_its_caller() -> None:
    with pytest.raises(ValueError, match="broken"):
        await in_thread(lambda: raises(ValueError("broken")))


async def test_a_stop_iteration_becomes_an_error_that_a_future_can_hold() -> None:
    with pytest.raises(RuntimeError, match=r"raised StopIteration\(7\)"):
        await in_thread(lambda: raises(StopIteration(7)))


async def test_more_functions_than_an_executor_has_threads_run_at_a_time() -> None:
    together = threading.Barrier(40)
    async with asyncio.timeout(20):
        await asyncio.gather(*[in_thread(lambda: together.wait(15)) for _ in range(40)])


async def test_a_caller_that_was_cancelled_does_not_hear_of_the_result() -> None:
    opened, ended = threading.Event(), threading.Event()

    def work() -> None:
        opened.wait(5)
        ended.set()

    task = asyncio.ensure_future(in_thread(work))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    opened.set()
    assert await asyncio.to_thread(ended.wait, 5)
    await asyncio.sleep(0.01)
