"""What is told of threads on the other stores holds on PostgreSQL: the same stories, a sample of them always."""

import inspect
from collections.abc import Awaitable, Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.runner import test_busy_threads, test_compaction, test_windows
from treadle import Runner
from treadle.testing.postgres import PostgresServer

pytestmark = pytest.mark.anyio

Story = Callable[[Runner], Awaitable[None]]
SAMPLE = (
    test_busy_threads.test_the_second_task_begins_after_the_first_and_sees_its_words,
    test_compaction.test_later_tasks_see_the_summary_and_the_newest_turns,
)


def stories() -> list[Any]:
    """Every test of these modules that needs a runner and nothing else."""
    told: list[Any] = []
    for module in (test_busy_threads, test_compaction, test_windows):
        for name, story in vars(module).items():
            if name.startswith("test_") and list(inspect.signature(story).parameters) == ["runner"]:
                marks = () if story in SAMPLE else pytest.mark.full
                told.append(pytest.param(story, marks=marks, id=name))
    return told


@pytest.mark.parametrize("story", stories())
async def test_on_postgres(story: Story, postgres: PostgresServer, tmp_path: Path) -> None:
    schema = f"t{sha256(str(tmp_path).encode()).hexdigest()[:20]}"
    async with Runner(postgres.in_schema(schema)) as runner:
        await story(runner)
