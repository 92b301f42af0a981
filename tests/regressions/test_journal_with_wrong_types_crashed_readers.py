"""Journals with a valid chain and invalid events: every verb reports the damage, of that task alone."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from treadle import Agent, Runner, ScriptedModel, tool
from treadle.core import codec
from treadle.errors import ImportRefused, JournalCorrupt
from treadle.llm.scripted import call, text
from treadle.ports import JournalEnd, JournalStore, Record, ThreadMember
from treadle.transfer.export_format import FORMAT, ExportWriter

pytestmark = pytest.mark.anyio


@tool(read_only=True)
def look(city: str) -> str:
    """Look up the weather."""
    return f"sun in {city}"


AGENT = Agent(ScriptedModel([call("look", city="Ulm"), text("Sun.")]), name="weather", tools=[look])


def of_kind(events: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    return next(event for event in events if event["k"] == kind)


def a_text_for_a_token_count(events: list[dict[str, Any]]) -> None:
    of_kind(events, "model_returned")["usage"] = {"input_tokens": "many"}


def an_object_for_an_index(events: list[dict[str, Any]]) -> None:
    of_kind(events, "step_started")["index"] = {"of": 1}


def a_doubled_end_of_a_call(events: list[dict[str, Any]]) -> None:
    end = of_kind(events, "tool_ended")
    events.insert(events.index(end), dict(end))


def a_call_among_the_words_of_a_user(events: list[dict[str, Any]]) -> None:
    of_kind(events, "task_created")["input"] = [{"p": "call", "id": "c", "name": "look", "arguments": {}}]


def an_outcome_that_there_is_not(events: list[dict[str, Any]]) -> None:
    of_kind(events, "tool_ended")["outcome"] = ["ok"]


def a_time_after_the_end_of_all_calendars(events: list[dict[str, Any]]) -> None:
    of_kind(events, "step_started")["d"] = 10**18


DAMAGE = [
    a_text_for_a_token_count,
    an_object_for_an_index,
    a_doubled_end_of_a_call,
    a_call_among_the_words_of_a_user,
    an_outcome_that_there_is_not,
    a_time_after_the_end_of_all_calendars,
]


async def written(store: JournalStore, damage: Any) -> tuple[Any, Record]:
    """Return a finished task's row, and its journal as one record that is damaged and fits its chain."""
    async with Runner("memory:", agents=[AGENT]) as runner:
        await runner.run(AGENT, "go", task_id="bad", thread_id="talk")
        row = await runner.store.row("bad")
        records = await runner.store.read("bad")
    events = [event for record in records for event in json.loads(record.data)["e"]]
    damage(events)
    data = json.dumps({"v": 1, "t": row.created, "e": events}).encode()
    record = Record(len(events), len(events), 1, data, codec.chain(b"", data))
    row.head, row.mark, row.driver = record.seq, JournalEnd(record.seq, record.digest), None
    await store.open()
    return row, record


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
async def test_every_verb_that_reads_reports_a_journal_of_wrong_types_as_damaged(
    tmp_path: Path, damage: Any
) -> None:
    async with Runner(tmp_path / "journal.db", agents=[AGENT]) as runner:
        row, record = await written(runner.store, damage)
        await runner.store.restore(row, [record])
        await runner.store.restore_thread("talk", 1, [ThreadMember(1, "bad", record.seq)])
        for verb in (runner.get_task, runner.result, runner.get_completed_steps, runner.resume, runner.fork):
            with pytest.raises(JournalCorrupt) as noticed:
                await verb("bad")
            assert noticed.value.task_id == "bad"
            assert 1 <= noticed.value.seq <= record.seq
        with suppress(JournalCorrupt):
            await runner.get_thread("talk")
        assert [task.task_id for task in (await runner.list_tasks()).items] == ["bad"]
        assert [finding.task_id for finding in (await runner.verify()).findings][:1] == ["bad"]
        assert (await runner.run(AGENT, "go", task_id="good")).state == "completed"


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
async def test_a_file_with_a_journal_of_wrong_types_is_refused_before_a_task_is_imported(
    tmp_path: Path, damage: Any
) -> None:
    async with Runner("memory:") as runner:
        row, record = await written(runner.store, damage)
        with (tmp_path / "bad.jsonl").open("wb") as out:
            writer = ExportWriter(out)
            writer.line({"treadle_export": FORMAT, "made": 1})
            writer.task(row, row.state, record.digest, b"")
            writer.record(record)
            writer.end(row)
            writer.close()
        with pytest.raises(ImportRefused, match="task bad, event"):
            await runner.import_tasks(tmp_path / "bad.jsonl")
        assert (await runner.list_tasks()).items == ()


async def test_a_task_whose_journal_calls_it_a_fork_and_whose_row_does_not_is_not_driven(
    tmp_path: Path,
) -> None:
    def only_made_and_forked(events: list[dict[str, Any]]) -> None:
        forked = {"k": "task_forked", "d": 0, "parent": "other", "agent": "weather", "thread": "talk"}
        events[:] = [of_kind(events, "task_created"), forked]

    async with Runner(tmp_path / "journal.db", agents=[AGENT]) as runner:
        row, record = await written(runner.store, only_made_and_forked)
        row.state = "running"
        await runner.store.restore(row, [record])
        for verb in (runner.resume, runner.run_step, runner.resume):
            with pytest.raises(
                JournalCorrupt, match="the row says base None, the journal 'other'"
            ) as noticed:
                await verb("bad")
            assert (noticed.value.task_id, noticed.value.seq) == ("bad", 2)
        assert (await runner.store.row("bad")).driver is None
