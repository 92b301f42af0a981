"""Snapshots of tasks, their summaries and their totals."""

from dataclasses import fields
from decimal import Decimal

import pytest

from tests.cast import sayer
from treadle import Limits, Runner, RunOptions
from treadle.ports import TaskSums
from treadle.results.tasks import totals

LIMITS = [item.name for item in fields(Limits)]

pytestmark = pytest.mark.anyio


async def test_a_task_and_its_summary_agree(runner: Runner) -> None:
    await runner.run(
        sayer(), "Hi.", task_id="job", thread_id="talk", options=RunOptions(labels={"room": "4"})
    )
    task, [listed] = await runner.get_task("job"), (await runner.list_tasks()).items
    names = ("task_id", "agent", "thread_id", "state", "driven", "created", "labels", "tenant", "state_text")
    names += ("updated", "driver", "pending", "outcome")
    assert [getattr(task, name) for name in names] == [getattr(listed, name) for name in names]
    assert (str(task), task.steps, listed.steps, listed.outcome) == ("job", 1, 1, "Hello.")


async def test_a_task_says_which_options_and_limits_apply_to_it(runner: Runner) -> None:
    agent = sayer(limits=Limits(tokens=900, cost=None, tool_calls=7))
    await runner.run(agent, "Hi.", task_id="job", options=RunOptions(limits=Limits(tokens=500)))
    task = await runner.get_task("job")
    assert isinstance(task.options, dict)
    assert task.options["limits"] == {**dict.fromkeys(LIMITS), "tokens": 500}
    assert task.limits == Limits(tokens=500, tool_calls=7).with_defaults()
    assert task.limits is not None
    assert (task.limits.steps, task.limits.handoffs) == (200, 10)
    async with Runner(runner.store) as stranger:
        limits = (await stranger.get_task("job")).limits
    assert limits == Limits(tokens=500).with_defaults(), "without the agent's own"


def test_totals_add_the_sums_of_all_states() -> None:
    dollar = 10**12
    total = totals({"running": TaskSums(2, 30, dollar, 1, 2), "completed": TaskSums(3, 12, 2 * dollar)})
    assert (total.tasks, total.driven, total.tokens, total.unpriced) == (5, 2, 42, 1)
    assert (list(total.states.items()), total.cost) == ([("completed", 3), ("running", 2)], Decimal(3))
