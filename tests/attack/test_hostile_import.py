"""Hostile files: their content is data, and a task that they import harms itself alone."""

import json
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from treadle import Agent, Runner, ScriptedModel
from treadle.core import codec
from treadle.errors import ImportRefused, TreadleError
from treadle.llm.scripted import text
from treadle.ports import InboxItem, JournalEnd, Record, TaskFilter, TaskRow
from treadle.transfer.export_format import FORMAT, ExportWriter

pytestmark = pytest.mark.anyio

AGENT = Agent(ScriptedModel([text("done")]), name="agent")
CREATED = {"k": "task_created", "agent": "agent", "input": ["go"], "thread": "talk"}
PICKLED = "gASVIQAAAAAAAACMBXBvc2l4lIwGc3lzdGVtlJOUjAZ0cnVlICMglIWUUpQu"
PAYLOADS: dict[str, Any] = {
    "a constructor by name": {
        **CREATED,
        "extra_state": {"lc": 1, "type": "constructor", "id": ["os", "system"]},
    },
    "a reduction": {
        **CREATED,
        "extra_state": {"__reduce__": ["os.system", ["true"]], "py/object": "os.system"},
    },
    "a pickle": {**CREATED, "extra_state": PICKLED},
    "a template": {**CREATED, "input": ["{{ ''.__class__.__mro__ }} ${7*7} %(x)s {0.__class__}"]},
    "a kind that is a module": {"k": "os.system", "args": ["true"]},
    "a part that is a class": {**CREATED, "input": [{"p": "builtins.eval", "text": "1"}]},
    "a field that is none": {**CREATED, "__class__": "os", "__init__": 1},
    "a number without end": {**CREATED, "extra_state": "1e400", "base": 10**30},
    "words of another type": {**CREATED, "input": 7},
    "no beginning": {"k": "step_completed", "step": "s9"},
    "a fork of nothing": {"k": "task_forked", "parent": "missing", "agent": "agent", "thread": "t"},
    "options of its own": {**CREATED, "options": {"limits": {"steps": "many"}, "on_limit": "explode"}},
    "a deep well": {**CREATED, "extra_state": json.loads("[" * 900 + "]" * 900)},
}
FORBIDDEN = ("os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "os.fork", "pickle.find_class")
HEARD: list[str] = []
LISTENING: list[bool] = []


def hear(event: str, _: Any) -> None:
    if LISTENING and event in FORBIDDEN:
        HEARD.append(event)


sys.addaudithook(hear)


def crafted(
    path: Path,
    event: Any,
    inbox: InboxItem | None = None,
    *,
    times: int = 1,
    more: int = 0,
    epoch: int = 1,
    **row_says: Any,
) -> None:
    """Write an export with a chain that fits: only what it says is hostile.

    The task is in it so many times, and it says that `more` tasks are in it than there are. Its record is of this
    epoch; its row says something else than usual where that is given.
    """
    data = json.dumps({"v": 1, "t": 5, "e": [event]}).encode()
    shared = b"of the base" if "base" in row_says else b""
    digest = codec.chain(shared, data)
    row = TaskRow(
        "bad", "agent", "talk", "interrupted", 1, None, None, 0, 1, {}, None, 1, JournalEnd(1, digest)
    )
    row = replace(row, **row_says)
    row.head += row.base_seq
    with path.open("wb") as out:
        writer = ExportWriter(out)
        writer.line({"treadle_export": FORMAT, "made": 1})
        for _ in range(times):
            writer.task(row, "interrupted", digest, shared)
            writer.record(Record(row.head, 1, epoch, data, digest))
            if inbox is not None:
                writer.inbox(inbox)
            writer.end(row)
        writer.tasks += more
        writer.close()


@pytest.mark.parametrize("payload", PAYLOADS)
async def test_a_hostile_file_runs_nothing_and_harms_at_most_its_own_task(
    tmp_path: Path, payload: str
) -> None:
    crafted(tmp_path / "bad.jsonl", PAYLOADS[payload])
    async with Runner(tmp_path / "journal.db", agents=[AGENT]) as runner:
        await runner.run(AGENT, "go", task_id="good")
        LISTENING.append(True)
        try:
            with suppress(ImportRefused):
                await runner.import_tasks(tmp_path / "bad.jsonl")
                for verb in (runner.verify, runner.result, runner.resume):
                    with suppress(TreadleError):
                        await verb("bad")
        finally:
            LISTENING.clear()
        assert HEARD == []
        assert (await runner.result("good")).final_text == "done"
        assert (await runner.run(AGENT, "go")).state == "completed"
        assert len(await runner.store.rows(TaskFilter())) in (2, 3)
        report = await runner.verify()
        assert {finding.task_id for finding in report.findings} <= {"bad"}


@pytest.mark.parametrize(
    ("made", "why"),
    [
        ({"times": 2}, "is in this file twice"),
        ({"more": 1}, "2 tasks should be here, and are 1"),
        ({"epoch": 2}, "epoch 2 follows epoch 0 of 1"),
        ({"base": "missing", "base_seq": 1}, "was forked from task missing, which is not here like that"),
    ],
    ids=["twice", "too few", "epoch", "base"],
)
async def test_a_file_that_contradicts_itself_is_refused_before_a_task_is_imported(
    tmp_path: Path, made: dict[str, Any], why: str
) -> None:
    crafted(tmp_path / "bad.jsonl", CREATED, **made)
    async with Runner("memory:") as runner:
        with pytest.raises(ImportRefused, match=why):
            await runner.import_tasks(tmp_path / "bad.jsonl")
        assert await runner.store.rows(TaskFilter()) == []


async def test_a_task_keeps_the_parent_that_made_it(tmp_path: Path) -> None:
    crafted(tmp_path / "child.jsonl", CREATED, parent="maker")
    async with Runner("memory:") as runner:
        await runner.import_tasks(tmp_path / "child.jsonl")
        assert [task.task_id for task in (await runner.list_tasks(parent="maker")).items] == ["bad"]


async def test_unreadable_messages_are_rejected_and_the_task_goes_on(tmp_path: Path) -> None:
    crafted(tmp_path / "odd.jsonl", CREATED, InboxItem("words", "send", {"text": "no parts"}, 1))
    async with Runner("memory:", agents=[AGENT]) as runner:
        await runner.import_tasks(tmp_path / "odd.jsonl")
        assert (await runner.resume("bad")).final_text == "done"
        kinds = [event.kind async for event in runner.handle("bad").events(deltas=False)]
        assert "command_rejected" in kinds
