"""A page of zeroes left a row without the number of its format, and `verify` raised a TypeError for all tasks."""

from pathlib import Path

import apsw
import pytest

from treadle import Agent, Runner, ScriptedModel


@pytest.mark.anyio
async def test_a_row_without_its_format_is_named_and_the_other_tasks_are_verified(tmp_path: Path) -> None:
    path, agent = tmp_path / "journal.db", Agent(ScriptedModel(["well", "well"]), name="clerk")
    async with Runner(path) as runner:
        for task_id in ("damaged", "whole"):
            await runner.run(agent, "go", task_id=task_id)
    execute(path, "UPDATE sqlite_schema SET sql = replace(sql, 'format INTEGER NOT NULL', 'format INTEGER')")
    execute(path, "UPDATE tasks SET format = NULL WHERE key = 'damaged'")
    async with Runner(path) as runner:
        report = await runner.verify()
    assert [(finding.task_id, finding.problem) for finding in report.findings] == [("damaged", "row")]
    assert {task.task_id for task in report.tasks} == {"damaged", "whole"}


def execute(path: Path, statement: str) -> None:
    """Change a file as only damage does."""
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute(statement)
    connection.close()
