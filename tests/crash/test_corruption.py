"""One changed byte in a record: its task is reported with task and sequence number, all others run on."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from pathlib import Path

import apsw
import pytest

from treadle import Agent, Runner, ScriptedModel, tool
from treadle.cli.main import main
from treadle.errors import JournalCorrupt
from treadle.llm.scripted import call, text

LOOKS: list[str] = []


@tool(read_only=True)
def look(place: str) -> str:
    """Look at a place."""
    LOOKS.append(place)
    return f"{place} is free"


AGENT = Agent(ScriptedModel([call("look", place="oslo"), text("free")]), name="looker", tools=[look])
TASKS = ("first", "second", "third")


@pytest.fixture
async def store(tmp_path: Path) -> Path:
    """Three tasks after their first step, and a completed task."""
    path = tmp_path / "journal.db"
    async with Runner(path) as runner:
        for task_id in TASKS:
            await runner.create_task(AGENT, "go", task_id=task_id)
            await runner.run_step(task_id, agent=AGENT)
        await runner.run(AGENT, "go", task_id="done")
    return path


def records(path: Path, task_id: str) -> list[tuple[int, int, bytes]]:
    """Return of each record its row, the sequence number of its last event, and its data."""
    connection = apsw.Connection(str(path))
    query = "SELECT r.pos, r.seq, r.data FROM records r JOIN tasks t ON t.id = r.task WHERE t.key = ? ORDER BY r.seq"
    records = list(connection.execute(query, (task_id,)))
    connection.close()
    return records


def write(path: Path, row: int, column: str, value: object) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(f"UPDATE records SET {column} = ? WHERE pos = ?", (value, row))
    connection.close()


def flipped(data: bytes, offset: int, bit: int = 0) -> bytes:
    return data[:offset] + bytes([data[offset] ^ (1 << bit)]) + data[offset + 1 :]


@pytest.mark.anyio
async def test_a_changed_byte_is_reported_with_task_and_event_and_other_tasks_run_on(store: Path) -> None:
    """An unreadable record is an error that names task and number, never an empty value that a task goes on with."""
    looked = len(LOOKS)
    row, seq, data = records(store, "second")[1]
    write(store, row, "data", flipped(data, len(data) // 2))
    async with Runner(store, agents=[AGENT]) as runner:
        for verb in (runner.resume, runner.run_step, runner.get_task):
            with pytest.raises(JournalCorrupt, match="second") as raised:
                await verb("second")
            assert (raised.value.task_id, raised.value.seq) == ("second", seq)
        assert len(LOOKS) == looked
        findings = (await runner.verify()).findings
        assert [(f.task_id, f.seq, f.problem) for f in findings] == [("second", seq, "journal")]
        for task_id in ("first", "third"):
            assert (await runner.verify(task_id)).findings == ()
            assert (await runner.resume(task_id)).final_text == "free"
        assert (await runner.run(AGENT, "go")).state == "completed"
        assert len((await runner.list_tasks()).items) == 5
        assert (await runner.result("done")).final_text == "free"


@pytest.mark.anyio
async def test_whichever_byte_of_a_journal_is_changed_it_is_noticed(store: Path, tmp_path: Path) -> None:
    dice = random.Random(7)
    damaged = tmp_path / "damaged.db"
    rows = records(store, "second")
    for _ in range(60):
        shutil.copy(store, damaged)
        row, seq, data = dice.choice(rows)
        write(damaged, row, "data", flipped(data, dice.randrange(len(data)), dice.randrange(8)))
        async with Runner(damaged) as runner:
            findings = (await runner.verify()).findings
            assert {finding.task_id for finding in findings} == {"second"}
            assert findings[0].seq <= seq


@pytest.mark.anyio
@pytest.mark.parametrize("number", [0, 1])
async def test_a_missing_record_before_another_record_is_noticed(store: Path, number: int) -> None:
    row, _, _ = records(store, "second")[number]
    connection = apsw.Connection(str(store))
    connection.execute("DELETE FROM records WHERE pos = ?", (row,))
    connection.close()
    async with Runner(store, agents=[AGENT]) as runner:
        findings = (await runner.verify()).findings
        assert {(finding.task_id, finding.problem) for finding in findings} == {("second", "journal")}
        with pytest.raises(JournalCorrupt, match="second at event"):
            (await runner.verify("second")).raise_for_findings()


@pytest.mark.anyio
async def test_a_missing_last_record_is_noticed_by_every_verb(store: Path) -> None:
    row, seq, _ = records(store, "second")[-1]
    before = records(store, "second")[-2][1]
    connection = apsw.Connection(str(store))
    connection.execute("DELETE FROM records WHERE pos = ?", (row,))
    connection.close()
    async with Runner(store, agents=[AGENT]) as runner:
        [finding] = (await runner.verify()).findings
        assert (finding.task_id, finding.seq, finding.problem) == ("second", before + 1, "journal")
        for verb in (runner.resume, runner.run_step, runner.get_task, runner.fork):
            with pytest.raises(JournalCorrupt, match=f"events {before + 1} to {seq} are missing") as raised:
                await verb("second")
            assert (raised.value.task_id, raised.value.seq) == ("second", before + 1)
        assert (await runner.resume("first")).final_text == "free"


@pytest.mark.anyio
async def test_a_thread_with_a_damaged_turn_goes_on_without_it_and_reports_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "journal.db"
    async with Runner(path) as runner:
        await runner.run(AGENT, "go", task_id="one", thread_id="talk")
        await runner.run(AGENT, "on", task_id="two", thread_id="talk")
        thread = await runner.get_thread("talk")
        assert thread.damaged == ()
    connection = apsw.Connection(str(path))
    connection.execute("DELETE FROM records WHERE pos = ?", (records(path, "one")[-1][0],))
    connection.execute("UPDATE tasks SET mark_seq = NULL, mark_digest = NULL")
    connection.close()
    async with Runner(path, agents=[AGENT]) as runner:
        readable = await runner.get_thread("talk")
        assert readable == thread[len(thread) // 2 :]
        [turn] = readable.damaged
        assert turn.task_id == "one"
        assert "are missing" in turn.reason
        await runner.run(AGENT, "go", task_id="three", thread_id="talk")
        assert len((await runner._driver.cache.load("three")).state.history) == len(readable)
        assert "task three begins without the messages of task one" in caplog.text
        assert (await runner.resume("two")).state == "completed"
        findings = (await runner.verify()).findings
        assert {finding.task_id for finding in findings} == {"one", "two", "three"}
        assert all("one" in finding.text for finding in findings if finding.task_id != "one")


@pytest.mark.anyio
async def test_verify_on_the_command_line_names_the_damaged_task_alone(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row, seq, data = records(store, "second")[0]
    write(store, row, "data", flipped(data, 3))
    status = await asyncio.to_thread(main, ["verify", "--store", str(store), "--json"])
    items = {item["task_id"]: item for item in json.loads(capsys.readouterr().out)["items"]}
    assert status == 1
    assert items["second"]["findings"][0]["seq"] <= seq
    assert {name for name, item in items.items() if not item["findings"]} == {"first", "third", "done"}
