"""A tree of thirteen agents with handoffs is killed at random points: what was done is done once, and stays done."""

import asyncio
import random
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.crash.team import NEEDED, REQUESTS, TASKS, Fate, Team, drive
from tests.forked import completed
from treadle import Runner
from treadle.core import events as e
from treadle.replay.recording import journal_of
from treadle.testing.audit import Evidence, audit_store

pytestmark = pytest.mark.anyio

POINTS = 150
"""About how many points an undisturbed run passes."""


async def live(folder: Path, die_at: int) -> bool:
    """Drive the task in a process that dies at this point; False if it came to its end before."""
    command = [sys.executable, "-m", "tests.crash.team", str(folder), str(die_at)]
    code = (await asyncio.to_thread(completed, command)).returncode
    assert code in (0, -signal.SIGKILL), code
    return code != 0


async def assert_tree_is_sound(folder: Path, kills: int) -> None:
    """Check the end of a tree that was killed so often."""
    result = await drive(folder)
    requests = (folder / "requests").read_text().splitlines()
    assert len(requests) <= REQUESTS, "the providers see no more than the budget, over all lives"
    assert result.usage.model_calls <= REQUESTS
    assert (result.state, result.agent) == ("completed", "closer")
    assert set(result.usage.per_agent) == set(Team(folder, Fate(0)).named)
    paid = Counter((folder / "effects").read_text().split())
    assert len(paid) == 3
    assert set(paid.values()) == {1}, "no child's call is repeated"
    assert max(Counter(requests).values()) <= 1 + kills
    async with Runner(folder / "journal.db") as runner:
        tasks = (await runner.list_tasks(limit=100)).items
        assert len(tasks) == TASKS
        for task in tasks:
            await assert_journal_is_sound(runner, task.task_id)
        assert await audit_store(runner.store, Evidence(ended=True)) == []


async def assert_journal_is_sound(runner: Runner, task_id: str) -> None:
    """Check a task's journal alone: whole, with one end for each attempt and for each call."""
    report = await runner.verify(task_id)
    assert report.findings == ()
    events = await journal_of(runner.store, task_id)
    attempts = 1 + sum(isinstance(event, e.TaskReopened) for event in events)
    assert sum(isinstance(event, e.TaskEnded) for event in events) == attempts
    begun = {event.call for event in events if isinstance(event, e.ToolStarted)}
    ends = Counter(event.call for event in events if isinstance(event, e.ToolEnded))
    assert set(ends) >= begun
    assert set(ends.values()) <= {1}


async def kill_often(folder: Path, kills: int, seed: int) -> int:
    """Kill trees at random points, so often in all; return how many trees came to their end."""
    chance, trees, done = random.Random(seed), 0, 0
    while done < kills:
        trees += 1
        tree = folder / f"tree{trees}"
        tree.mkdir()
        lives = 0
        while lives < 6 and done < kills and await live(tree, chance.randrange(1, POINTS // 2)):
            lives += 1
            done += 1
        await assert_tree_is_sound(tree, lives)
    return trees


async def test_an_undisturbed_tree_of_thirteen_agents_hands_over_and_answers(tmp_path: Path) -> None:
    assert len(Team(tmp_path, Fate(0)).named) == 13
    await assert_tree_is_sound(tmp_path, 0)
    assert len((tmp_path / "requests").read_text().splitlines()) == NEEDED


async def test_a_killed_tree_with_handoffs_repeats_nothing(tmp_path: Path) -> None:
    await kill_often(tmp_path, kills=2, seed=1)


@pytest.mark.full
async def test_trees_with_handoffs_killed_at_fifty_random_points_repeat_nothing(tmp_path: Path) -> None:
    assert await kill_often(tmp_path, kills=50, seed=2) > 5
