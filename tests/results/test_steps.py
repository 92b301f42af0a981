"""The times of steps."""

import time

import pytest

from tests.cast import calculator
from treadle import Runner

pytestmark = pytest.mark.anyio


async def test_a_result_and_its_steps_have_times(runner: Runner) -> None:
    before = time.time_ns() // 1000
    task = await runner.create_task(calculator(), "?")
    assert ((await runner.result(task)).started_at, (await runner.result(task)).ended_at) == (None, None)
    first = await runner.run_step(task)
    stepped = await runner.result(task)
    assert (stepped.started_at, stepped.ended_at) == (first.started_at, None)
    [upcoming] = await runner.get_upcoming_steps(task)
    assert (upcoming.started_at, upcoming.ended_at) == (None, None)
    result = await runner.resume(task)
    steps = await runner.get_completed_steps(task)
    times = [before, *[time for step in steps for time in (step.started_at, step.ended_at)], result.ended_at]
    assert None not in times
    assert times == sorted(times)
    assert times[-1] <= time.time_ns() // 1000
    assert result.started_at == steps[0].step.started_at
    assert steps[0].duration == (steps[0].ended_at - steps[0].started_at) / 1e6
    assert 0 < result.duration <= (result.ended_at - before) / 1e6
    assert await runner.result(task) == result, "it is the same when it is read from the journal"
    fork = await runner.fork(task, at="s1")
    assert ((await runner.result(fork)).started_at, (await runner.result(fork)).ended_at) == (None, None)
    forked = await runner.resume(fork)
    assert result.ended_at < forked.started_at == (await runner.get_step(fork, 2)).started_at
    await runner.undo_step(task)
    assert (await runner.result(task)).ended_at is None, "it has not ended any more"
