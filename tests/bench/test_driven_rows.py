"""What `bench.driven_rows` counts: rows and changes of driven tasks follow at a bounded rate."""

from __future__ import annotations

import pytest

from bench.driven_rows import drive

pytestmark = pytest.mark.anyio


async def test_a_driven_task_updates_its_row_once_a_second_however_many_steps_it_takes() -> None:
    tasks, steps = 20, 30
    driven = await drive("memory:", tasks, steps, 0.05, "rows and changes")
    assert tasks <= driven.rows <= tasks * (driven.seconds + 1), "each row, at most once a second"
    updates_and_claims = driven.rows + 3 * tasks
    assert driven.changes <= updates_and_claims < tasks * steps, "changes are those of rows, not of steps"


async def test_without_updates_no_row_is_written() -> None:
    assert (await drive("memory:", 3, 2, 0.0, "neither")).rows == 0
