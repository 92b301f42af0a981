"""A journal of the next format, made by hand, before this version: all verbs but those that drive carry on.

`next_format.jsonl` has two kinds of events that are not known here, known kinds with further fields, also inside of
values, and a word that none of its kind had so far.
"""

import io
from pathlib import Path
from typing import Any

import pytest

from tests.journals.stories import AGENTS
from treadle import Runner
from treadle.core import events as e
from treadle.errors import TaskNotFound, TaskTooNew
from treadle.ports import TaskRow
from treadle.testing.audit import audit_store

pytestmark = pytest.mark.anyio

FILE = Path(__file__).with_name("next_format.jsonl")
LINES = FILE.read_bytes().splitlines()


@pytest.fixture(params=["its row says so", "only its journal says so"])
async def marked(request: pytest.FixtureRequest) -> bool:
    return request.param == "its row says so"


@pytest.fixture
async def next_runner(store: Any, marked: bool, tmp_path: Path) -> Any:
    """A runner with a task that the next version left, whose row may not have its format yet."""
    async with Runner(store, agents=AGENTS) as runner:
        if marked:
            await runner.import_tasks(FILE)
        else:
            async with Runner("memory:") as other:
                await other.import_tasks(FILE)
                row: TaskRow = await other.store.row("next")
                row.format = e.JOURNAL_FORMAT
                await runner.store.restore(row, await other.store.read("next"))
        yield runner


async def test_a_task_of_the_next_format_is_viewed_verified_exported_and_deleted(next_runner: Runner) -> None:
    runner = next_runner
    task = await runner.get_task("next")
    assert (task.state, task.agent) == ("paused", "booker")
    assert [step.step.step_id for step in await runner.get_completed_steps("next")] == ["s1"]
    result = await runner.result("next")
    assert [call.name for call in result.tool_executions] == ["look", "book"]
    assert [item.task_id for item in (await runner.list_tasks()).items] == ["next"]
    kinds = [event.kind async for event in runner.handle("next").events(deltas=False)]
    assert len(kinds) == 13
    assert (await audit_store(runner.store)) == []
    findings = (await runner.verify()).findings
    assert [finding.text for finding in findings if "format" not in finding.text] == []
    exported = io.BytesIO()
    await runner.export_tasks(exported, "next")
    assert exported.getvalue().splitlines()[2:-1][:-1] == LINES[2:-2]
    await runner.delete_task("next")
    with pytest.raises(TaskNotFound):
        await runner.get_task("next")


async def test_a_task_of_the_next_format_is_not_driven_and_owned_by_no_process_that_tried(
    next_runner: Runner,
) -> None:
    runner = next_runner
    for verb in (runner.pause, runner.cancel, runner.resume, runner.run_step, runner.undo_step, runner.fork):
        with pytest.raises(TaskTooNew):
            await verb("next")
        assert (await runner.store.row("next")).driver is None
    with pytest.raises(TaskTooNew, match="The send is in the task's inbox"):
        await runner.send("next", "And Oslo?")
    row = await runner.store.row("next")
    assert (row.driver, row.format) == (None, e.JOURNAL_FORMAT + 1)
    assert [item.kind for item in await runner.store.inbox("next")] == ["pause", "cancel", "send"]


async def test_a_journal_that_cannot_be_read_is_given_back_at_once(store: Any, tmp_path: Path) -> None:
    async with Runner(store, agents=AGENTS) as runner:
        async with Runner("memory:") as other:
            await other.import_tasks(FILE)
            row, records = await other.store.row("next"), await other.store.read("next")
        records[1].data = records[1].data.replace(b'"index":1', b'"index":"one"')
        row.format = 1
        await runner.store.restore(row, records)
        for verb in (runner.pause, runner.cancel, runner.resume):
            with pytest.raises(Exception, match=r"was changed|cannot be read"):
                await verb("next")
            assert (await runner.store.row("next")).driver is None
