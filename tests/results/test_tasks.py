"""Snapshots of tasks, their summaries and their totals."""

from decimal import Decimal

import pytest

from tests.cast import sayer
from treadle import Runner, RunOptions
from treadle.ports import TaskSums
from treadle.results.tasks import totals

pytestmark = pytest.mark.anyio


async def test_a_task_and_its_summary_agree(runner: Runner) -> None:
    await runner.run(
        sayer(), "Hi.", task_id="job", thread_id="talk", options=RunOptions(labels={"room": "4"})
    )
    task, [listed] = await runner.get_task("job"), (await runner.list_tasks()).items
    names = ("task_id", "agent", "thread_id", "state", "driven", "created", "labels", "tenant", "state_text")
    assert [getattr(task, name) for name in names] == [getattr(listed, name) for name in names]
    assert (str(task), task.steps, listed.steps, listed.outcome) == ("job", 1, 1, "Hello.")


def test_totals_add_the_sums_of_all_states() -> None:
    dollar = 10**12
    total = totals({"running": TaskSums(2, 30, dollar, 1, 2), "completed": TaskSums(3, 12, 2 * dollar)})
    assert (total.tasks, total.driven, total.tokens, total.unpriced) == (5, 2, 42, 1)
    assert (list(total.states.items()), total.cost) == ([("completed", 3), ("running", 2)], Decimal(3))
