"""Imports: tasks arrive exactly as they were exported, and nothing else is imported."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.transfer.exports import AGENT, STORES, content, filled, put, shown
from treadle import Agent, Runner, RunOptions, ScriptedModel, ToolContext, tool
from treadle.core import events as e
from treadle.drivers.continuing import commit
from treadle.engine.journal_writer import encode_record
from treadle.errors import ImportRefused, TaskConflict
from treadle.llm.scripted import call, text
from treadle.ports import AT_ONCE, Commit, NewTask, TaskFilter
from treadle.stores.memory import MemoryStore
from treadle.stores.sqlite import SQLiteStore
from treadle.testing.conformance.owner import Owner, dump
from treadle.testing.postgres import PostgresServer
from treadle.transfer import exporting
from treadle.wiring import open_store

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("there", STORES)
@pytest.mark.parametrize("here", STORES)
async def test_a_store_is_the_same_after_a_round_trip(tmp_path: Path, here: str, there: str) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    store, other, file = STORES[here](tmp_path / "a"), STORES[there](tmp_path / "b"), tmp_path / "all.jsonl"
    async with filled(store) as runner, Runner(other, agents=[AGENT]) as taker:
        exported = await runner.export_tasks(file)
        imported = await taker.import_tasks(file)
        assert imported.tasks == exported.tasks
        assert "base" in imported.tasks
        assert imported.events == exported.events
        assert await shown(other) == await shown(store)
        assert (await taker.verify()).findings == ()
        # And again: what is there is left alone, and a second export is the same but for its time.
        assert (await taker.import_tasks(file)).known == exported.tasks
        again = io.BytesIO()
        await taker.export_tasks(again, *[row.task_id for row in reversed(await other.rows(TaskFilter()))])
        assert sorted(again.getvalue().splitlines()[1:-1]) == sorted(content(file).splitlines()[1:-1])
        # A task goes on where it stood.
        assert (await taker.resume("half")).state == "completed"
        assert (await taker.run(AGENT, "and?", thread_id="talk")).state == "completed"


async def test_a_round_trip_over_a_database_server(tmp_path: Path, postgres: PostgresServer) -> None:
    there = open_store(postgres.in_schema("carried"))
    async with (
        filled(MemoryStore()) as runner,
        Runner(there) as taker,
        Runner(SQLiteStore(tmp_path / "j")) as last,
    ):
        await runner.export_tasks(tmp_path / "one")
        await taker.import_tasks(tmp_path / "one")
        assert await shown(there) == await shown(runner.store)
        await taker.export_tasks(tmp_path / "two")
        await last.import_tasks(tmp_path / "two")
        assert await shown(last.store) == await shown(runner.store)
        assert (await taker.verify()).findings == ()


async def test_a_task_exported_while_it_is_driven_can_be_resumed_after_its_import(tmp_path: Path) -> None:
    file = tmp_path / "all.jsonl"

    @tool(read_only=True)
    async def take_away(ctx: ToolContext[Runner | None]) -> str:
        """Export the task that this is a part of."""
        if ctx.context is not None:
            await ctx.context.export_tasks(file, "t")
        return "taken"

    agent = Agent(ScriptedModel([call("take_away"), text("done")]), name="mover", tools=[take_away])
    async with Runner(tmp_path / "journal.db") as runner:
        await runner.run(agent, "go", task_id="t", context=runner)
    async with Runner(MemoryStore(), agents=[agent]) as taker:
        await taker.import_tasks(file)
        assert (await taker.get_task("t")).state == "interrupted"
        assert (await taker.resume("t")).final_text == "done"
        assert (await taker.verify()).findings == ()


# ------------------------------------------------------------------------------------------ what is refused


async def test_another_task_of_the_same_id_is_left_alone_and_nothing_is_imported(export: Path) -> None:
    async with Runner(MemoryStore(), agents=[AGENT]) as runner:
        await runner.run(AGENT, "something else", task_id="half")
        before = await dump(runner.store)
        with pytest.raises(TaskConflict, match="half") as raised:
            await runner.import_tasks(export)
        assert raised.value.task_id == "half"
        assert await dump(runner.store) == before


@pytest.mark.parametrize(
    ("how", "field"),
    [
        ({"input": "take a look"}, "journal"),
        ({"thread_id": "elsewhere"}, "thread_id"),
        ({"options": RunOptions(labels={"team": "a"})}, "labels"),
    ],
    ids=["input", "thread", "labels"],
)
async def test_the_conflict_of_two_tasks_of_one_id_names_the_field(
    tmp_path: Path, how: Any, field: str
) -> None:
    """Both journals have as many events."""

    def made(**more: Any) -> dict[str, Any]:
        return {"input": "look", "task_id": "one", "thread_id": "talk", **more}

    async with Runner(MemoryStore(), agents=[AGENT]) as one, Runner(MemoryStore(), agents=[AGENT]) as other:
        await one.run(AGENT, **made())
        await one.export_tasks(tmp_path / "one.jsonl")
        row = await one.store.row("one")
        await other.run(AGENT, **made(**how))
        there = other.store._tables.tasks["one"]  # type: ignore[attr-defined]
        there.new.created = row.created
        with pytest.raises(TaskConflict, match=f"another {field}") as raised:
            await other.import_tasks(tmp_path / "one.jsonl")
        assert raised.value.field == field


async def test_a_task_with_newer_events_than_the_export_is_a_conflict(tmp_path: Path) -> None:
    async with Runner(MemoryStore(), agents=[AGENT]) as one, Runner(MemoryStore(), agents=[AGENT]) as other:
        task_id = await one.create_task(AGENT, "look")
        await one.run_step(task_id)
        await one.export_tasks(tmp_path / "older.jsonl")
        await one.run_step(task_id)
        await one.export_tasks(tmp_path / "newer.jsonl")
        with pytest.raises(TaskConflict, match="another journal"):
            await one.import_tasks(tmp_path / "older.jsonl")
        await other.import_tasks(tmp_path / "older.jsonl")
        with pytest.raises(TaskConflict, match="another journal"):
            await other.import_tasks(tmp_path / "newer.jsonl")


async def test_a_thread_with_other_messages_is_not_changed_and_nothing_is_imported(export: Path) -> None:
    async with Runner(MemoryStore(), agents=[AGENT]) as runner:
        await runner.run(AGENT, "something else", thread_id="talk")
        before = await dump(runner.store)
        with pytest.raises(TaskConflict, match="thread 'talk' is in this store at version 1") as raised:
            await runner.import_tasks(export)
        assert raised.value.field == "thread"
        assert await dump(runner.store) == before


async def test_a_second_import_recognises_a_thread_that_grew_meanwhile(export: Path) -> None:
    async with Runner(MemoryStore(), agents=[AGENT]) as runner:
        await runner.import_tasks(export)
        await runner.run(AGENT, "a newer message", thread_id="talk")
        messages = await runner.get_thread("talk")
        report = await runner.import_tasks(export)
        assert (report.tasks, report.threads, report.events) == ((), (), 0)
        assert len(report.known) >= 4
        assert await runner.get_thread("talk") == messages


async def test_an_import_that_was_broken_off_is_finished_by_the_next(export: Path, tmp_path: Path) -> None:
    async with Runner(MemoryStore()) as whole, Runner(tmp_path / "j.db") as runner:
        await whole.import_tasks(export)
        row = await whole.store.row("one")
        await runner.store.open()
        await runner.store.restore(row, await whole.store.read("one"))
        report = await runner.import_tasks(export)
        assert report.known == ("one",)
        assert await shown(runner.store) == await shown(whole.store)


async def test_a_file_that_changes_between_two_looks_leaves_no_half_task(
    export: Path, tmp_path: Path
) -> None:
    class Changing(MemoryStore):
        async def restore(self, row: Any, records: Any, inbox: Any = ()) -> None:
            data = content(export)
            at = data.index(b'"k":"step_completed"')
            put(export, data[:at] + b'"k":"step_complexed"' + data[at + 20 :])
            await super().restore(row, records, inbox)

    async with Runner(Changing()) as runner:
        with pytest.raises(ImportRefused):
            await runner.import_tasks(export)
        assert await runner.store.rows(TaskFilter()) == []


async def test_an_import_of_a_deleted_task_is_a_conflict(export: Path) -> None:
    async with Runner(MemoryStore(), agents=[AGENT]) as runner:
        await runner.import_tasks(export)
        await runner.fork("half", at=(await runner.get_task("half")).head)  # it stays, unseen, for its fork
        await runner.delete_task("half")
        with pytest.raises(TaskConflict, match="half"):
            await runner.import_tasks(export)


async def test_an_imported_summary_covers_the_same_turns(tmp_path: Path) -> None:
    async with Runner(MemoryStore(), agents=[AGENT]) as runner, Runner(MemoryStore()) as taker:
        for message in ("look", "more"):
            await runner.run(AGENT, message, thread_id="talk")
        report = await runner.compact_thread("talk", keep=0, model=ScriptedModel(["All was noted."]))
        assert report.covers == 2
        await runner.export_tasks(tmp_path / "all.jsonl")
        await taker.import_tasks(tmp_path / "all.jsonl")
        assert await taker.store.thread("talk") == await runner.store.thread("talk")
        report = await taker.import_tasks(tmp_path / "all.jsonl")
        assert (report.tasks, report.threads) == ((), ())


@pytest.mark.parametrize(("wanted", "there"), [(1_800_000_000_000_000, 1_800_000_000_000_000), (AT_ONCE, 0)])
async def test_an_imported_task_waits_for_its_timer_and_is_not_started(
    tmp_path: Path, wanted: int, there: int
) -> None:
    async with Runner(MemoryStore(), agents=[AGENT]) as runner, Runner(MemoryStore()) as taker:
        await runner.create_task(AGENT, "wait", task_id="t")
        claim = await runner.store.claim("t")
        await Owner.of(runner.store, "t", claim).send(release=True, due_at=wanted)
        await runner.export_tasks(tmp_path / "all.jsonl")
        await taker.import_tasks(tmp_path / "all.jsonl")
        assert (await taker.store.row("t")).due_at == there


@pytest.mark.parametrize(
    ("row", "event", "where"),
    [
        ({"task_id": "acme\x1ft"}, {}, "line 2: the task holds a name with a unit separator"),
        ({"thread_id": "acme\x1ftalk"}, {}, "line 2: the task holds a name with a unit separator"),
        ({}, {"parent": "acme\x1ft"}, "event 1 holds a name with a unit separator"),
        ({}, {"thread": "acme\x1ftalk"}, "event 1 holds a name with a unit separator"),
    ],
)
async def test_an_import_names_nothing_of_another_tenant(
    tmp_path: Path, row: dict[str, Any], event: dict[str, Any], where: str
) -> None:
    new = replace(NewTask("t", "agent", "talk", 1), **row)
    created = replace(e.TaskCreated("agent", (), "talk"), **event)
    created.seq, created.time = 1, 1
    forged = MemoryStore()
    record = encode_record([created], 1, b"")
    await commit(forged, Commit(new.task_id, 1, record, new, "created", release=True))
    with (tmp_path / "forged").open("wb") as out:
        async with forged.snapshot() as snapshot:
            await exporting.export(snapshot, out, [new.task_id])
    async with Runner("memory:") as runner:
        with pytest.raises(ImportRefused, match=where):
            await runner.import_tasks(tmp_path / "forged")
        assert (await runner.list_tasks()).items == ()
