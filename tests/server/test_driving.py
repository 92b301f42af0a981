"""The loop in which a server drives tasks."""

import asyncio
import logging
import threading

import pytest

from treadle.errors import ConfigurationError
from treadle.server.driving import DrivingLoop
from treadle.server.limits import ServerLimits


@pytest.fixture
async def driving():
    loop = DrivingLoop()
    yield loop
    await loop.close()


async def thread_name() -> str:
    return threading.current_thread().name


async def refuse() -> None:
    raise ValueError("no")


@pytest.mark.anyio
async def test_work_runs_in_a_thread_of_its_own_and_its_result_comes_back(driving: DrivingLoop):
    assert await driving.run(thread_name) == "treadle-driving"
    with pytest.raises(ValueError, match="no"):
        await driving.run(refuse)


@pytest.mark.anyio
async def test_work_that_blocks_its_loop_does_not_block_the_callers(driving: DrivingLoop):
    go_on = threading.Event()

    async def block() -> bool:
        return go_on.wait(20)  # as a tool does that has no business in a loop

    blocked = asyncio.ensure_future(driving.run(block))
    await asyncio.sleep(0.01)
    assert not blocked.done()
    go_on.set()
    assert await blocked


@pytest.mark.anyio
async def test_a_caller_that_is_cancelled_leaves_its_work_alone(driving: DrivingLoop):
    ended = threading.Event()

    async def work() -> None:
        await asyncio.sleep(0.1)
        ended.set()

    caller = asyncio.ensure_future(driving.run(work))
    await asyncio.sleep(0.02)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert await asyncio.to_thread(ended.wait, 5)


@pytest.mark.anyio
async def test_an_error_for_which_no_caller_waits_is_logged(
    driving: DrivingLoop, caplog: pytest.LogCaptureFixture
):
    go_on = threading.Event()

    async def work() -> None:
        await asyncio.to_thread(go_on.wait, 5)
        raise ValueError("nobody hears this")

    caller = asyncio.ensure_future(driving.run(work))
    await asyncio.sleep(0.02)
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    with caplog.at_level(logging.ERROR, "treadle.server"):
        go_on.set()
        await driving.run(lambda: asyncio.sleep(0.05))
    assert "nobody hears this" in caplog.text


@pytest.mark.anyio
async def test_closing_cancels_what_still_runs_and_the_next_use_begins_anew(driving: DrivingLoop):
    cancelled = threading.Event()

    async def endless() -> None:
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    running = driving.begin(endless)
    await driving.run(thread_name)
    await driving.close()
    assert cancelled.is_set()
    assert running.cancelled()
    assert "treadle-driving" not in [thread.name for thread in threading.enumerate()]
    assert await driving.run(thread_name) == "treadle-driving"


@pytest.mark.parametrize(
    "wrong", [{"streams": 0}, {"send_seconds": -1.0}, {"connections": 2.5}, {"streams": True}]
)
def test_a_limit_that_is_no_number_above_zero_is_refused_by_name(wrong: dict[str, float]):
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        ServerLimits(**wrong)
