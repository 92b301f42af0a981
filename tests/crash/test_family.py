"""A tree of tasks on a budget is killed in the middle: spent stays spent, and nothing that was done is done again."""

import asyncio
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.crash.family import CHILDREN, REQUESTS, boss, drive, slow
from tests.forked import completed
from treadle import Runner
from treadle.testing.audit import Evidence, audit_store
from treadle.testing.boundaries import crash_at_every_boundary

pytestmark = pytest.mark.anyio


async def kill_at(folder: Path, at: int) -> None:
    """Drive the task in a process until it is killed at its request of this number."""
    command = [sys.executable, "-m", "tests.crash.family", str(folder), str(at)]
    assert (await asyncio.to_thread(completed, command)).returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    "kills",
    [(6, 12), *[pytest.param(epochs, marks=pytest.mark.full) for epochs in [(2,), (5, 9, 12), (17,), (18,)]]],
)
async def test_a_killed_tree_spends_no_more_than_its_budget_and_repeats_nothing(
    tmp_path: Path, kills: tuple[int, ...]
) -> None:
    for die_at in kills:
        await kill_at(tmp_path, die_at)
    result = await drive(tmp_path)
    requests = (tmp_path / "requests").read_text().splitlines()
    assert len(requests) <= REQUESTS, "the provider sees no more than the budget, over all lives"
    assert result.state == "degraded"
    assert result.usage.model_calls == REQUESTS, "what a kill cut off is paid for as well"
    paid = (tmp_path / "effects").read_text().split()
    assert max(Counter(paid).values()) == 1, "no call is repeated"
    assert max(Counter(requests).values()) <= 1 + len(kills)
    async with Runner(tmp_path / "journal.db", agents=[boss(tmp_path)]) as runner:
        children = (await runner.list_tasks(parent="job")).items
        assert len(children) == CHILDREN
        assert {child.state for child in children} <= {"completed", "degraded"}
        assert await audit_store(runner.store, Evidence(ended=True)) == []


async def test_a_killed_tree_is_adopted_as_a_whole(tmp_path: Path) -> None:
    await kill_at(tmp_path, 7)
    async with Runner(tmp_path / "journal.db", agents=[boss(tmp_path)], adopt=True) as runner:
        async with asyncio.timeout(30):
            while (await runner.get_task("job")).state not in ("degraded", "completed"):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert len((tmp_path / "requests").read_text().splitlines()) <= REQUESTS
        assert await audit_store(runner.store, Evidence(ended=True)) == []


async def test_driven_time_of_a_killed_child_counts_for_its_parent(tmp_path: Path) -> None:
    (tmp_path / "slow").write_text("4")
    await kill_at(tmp_path, 4)
    async with Runner(tmp_path / "journal.db") as runner:
        [child] = (await runner.list_tasks(parent="job")).items
        driven = (await runner._driver.cache.load(child.task_id)).state.driven
        assert driven >= 300_000
        assert (await runner._driver.cache.load("job")).state.driven < driven
    result = await drive(tmp_path)
    assert result.final_text == "That is all."
    async with Runner(tmp_path / "journal.db") as runner:
        assert (await runner._driver.cache.load("job")).state.driven >= driven + 100_000
        assert await audit_store(runner.store, Evidence(ended=True)) == []


@pytest.mark.full
async def test_a_task_with_a_child_that_makes_progress_is_no_poison_task(tmp_path: Path) -> None:
    (tmp_path / "slow").write_text("12")
    for number in range(1, 12):
        await kill_at(tmp_path, 2 * number)
    async with Runner(tmp_path / "journal.db", agents=[slow(tmp_path)], adopt=True) as runner:
        async with asyncio.timeout(30):
            while (state := (await runner.get_task("job")).state) not in ("completed", "paused"):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert state == "completed"


TEAM = """
from treadle import Agent, ScriptedModel, Subagent, tool
from treadle.models import call, fail, text


@tool(needs_approval=True)
async def pay(amount: int) -> str:
    return f"paid {amount}"


def clerk_says(request):
    if not request.turn:
        return call("pay", amount=5)
    return text("Paid.") if request.task_id.endswith("t2") else fail(400)


def boss_says(request):
    if request.turn:
        return text("Done.")
    return [call("clerk", input="pay"), call("poet", input="rhyme")]


clerk = Agent(ScriptedModel(clerk_says), name="clerk", tools=[pay])
poet = Agent(ScriptedModel([text("Roses.")]), name="poet")
boss = Agent(ScriptedModel(boss_says), name="boss", subagents=[Subagent(clerk, retries=1, timeout=60), poet])
"""


@pytest.mark.full
def test_a_tree_whose_child_asks_and_is_tried_again_survives_a_crash_at_every_boundary(
    tmp_path: Path,
) -> None:
    (tmp_path / "asking_team.py").write_text(TEAM)
    report = crash_at_every_boundary("asking_team:boss", "Pay.", cwd=tmp_path, kills_per_task=4)
    assert (report.broken, report.missed) == ([], [])
