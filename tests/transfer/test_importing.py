"""Exports: what is taken in elsewhere is what was written here, and nothing else is taken in."""

import asyncio
import io
import json
import stat
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from treadle import Agent, Image, Runner, RunOptions, ScriptedModel, ToolContext, tool
from treadle.core import events as e
from treadle.errors import ImportRefused, StoreUnavailable, TaskConflict, TaskNotFound
from treadle.llm.scripted import call, text
from treadle.ports import AT_ONCE, InboxItem, JournalStore, TaskFilter
from treadle.stores.memory import MemoryStore
from treadle.stores.sqlite import SQLiteStore
from treadle.testing.conformance.owner import Owner, add, dump, remove
from treadle.testing.postgres import PostgresServer
from treadle.testing.wrappers import WrappedStore
from treadle.transfer.export_format import FORMAT
from treadle.transfer.exporting import Selection
from treadle.wiring import open_store

pytestmark = pytest.mark.anyio


@tool(read_only=True)
def note(words: int) -> str:
    """Write down a long text."""
    return "wörd " * words


AGENT = Agent(
    ScriptedModel([call("note", words=3_000), call("note", words=1), text("noted")]),
    name="scribe",
    tools=[note],
)
THREADS = ("talk", "other")

STORES: dict[str, Callable[[Path], JournalStore]] = {
    "memory": lambda _: MemoryStore(),
    "sqlite": lambda folder: SQLiteStore(folder / "journal.db"),
}


@asynccontextmanager
async def filled(store: JournalStore) -> AsyncGenerator[Runner]:
    """A thread of two turns, a fork of a fork whose base was deleted, a task between steps with unread words."""
    async with Runner(store, agents=[AGENT]) as runner:
        await runner.run(
            AGENT,
            ["look", Image(data=b"\x89PNG" * 3_000, media_type="image/png")],
            task_id="one",
            thread_id="talk",
        )
        await runner.run(AGENT, "more", task_id="two", thread_id="talk")
        await runner.create_task(AGENT, "go", task_id="base")
        await runner.run_step("base")
        await runner.run_step("base")
        first = await runner.fork("base", at="s1", thread_id="other")
        second = await runner.fork(first, input="and now?")
        await runner.resume(second)
        await runner.delete_task("base")
        await runner.create_task(AGENT, "wait", task_id="half")
        await runner.run_step("half")
        await store.post("half", InboxItem("words", "send", {"parts": ["ü\u2028"], "role": "user"}, 5))
        yield runner


def content(path: Path) -> bytes:
    return path.read_bytes()


def put(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def shown(store: JournalStore) -> dict[str, Any]:
    return await dump(store, THREADS)


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


async def test_one_task_brings_its_bases_and_its_threads_and_no_others(tmp_path: Path) -> None:
    async with filled(MemoryStore()) as runner:
        report = await runner.export_tasks(io.BytesIO(), "two")
        assert sorted(report.tasks) == ["one", "two"]
        assert report.threads == ("talk",)
        tip = next(row for row in await runner.store.rows(TaskFilter()) if row.base not in (None, "base"))
        report = await runner.export_tasks(io.BytesIO(), tip.task_id)
        assert report.tasks[0] == "base"
        assert report.tasks[-1] == tip.task_id
        with pytest.raises(TaskNotFound):
            await runner.export_tasks(io.BytesIO(), "nobody")


async def test_a_line_is_an_event_that_people_and_programs_can_read(tmp_path: Path) -> None:
    file = tmp_path / "all.jsonl"
    async with filled(MemoryStore()) as runner:
        await runner.export_tasks(file, "two")
        journal = [
            event async for event in runner.handle("two").events(deltas=False) if isinstance(event, e.Event)
        ]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    start = next(number for number, line in enumerate(lines) if line.get("task") == "two")
    end = next(number for number, line in enumerate(lines) if line.get("end") == "two")
    kinds = [line["event"]["k"] for line in lines[start:end] if "event" in line]
    assert kinds == [event.kind for event in journal]
    assert lines[0]["treadle_export"] == FORMAT


async def test_a_thread_keeps_what_was_taken_out_of_it() -> None:
    store = MemoryStore()
    one, two = (
        await Owner.create(store, "t", thread_id="talk"),
        await Owner.create(store, "u", thread_id="talk"),
    )
    await one.write(thread=add(0), release=True)
    await two.write(thread=add(1))
    await two.write(thread=remove(), release=True)
    wanted = Selection(store)
    await wanted.add("t")
    assert [(m.version, m.task_id, m.gone) for m in wanted.threads["talk"].members] == [
        (1, "t", None),
        (2, "u", 3),
    ]


async def test_a_task_whose_driver_is_at_work_can_be_taken_up_where_it_was_taken_to(tmp_path: Path) -> None:
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


@pytest.fixture
async def export(tmp_path: Path) -> Path:
    async with filled(MemoryStore()) as runner:
        await runner.export_tasks(tmp_path / "all.jsonl")
    return tmp_path / "all.jsonl"


async def refused(path: Path) -> ImportRefused:
    """Import a file that is to be refused, into a store that is to stay empty."""
    async with Runner(MemoryStore()) as runner:
        with pytest.raises(ImportRefused, match=r"line \d+: ") as raised:
            await runner.import_tasks(path)
        assert await runner.store.rows(TaskFilter()) == []
        return raised.value


async def test_a_changed_line_is_refused_whichever_it_is(export: Path) -> None:
    lines = content(export).splitlines(keepends=True)
    section = 0
    for number, line in enumerate(lines, 1):
        section = number if line.startswith(b'{"task"') else section
        middle = len(line) // 2
        changed = line[:middle] + bytes([line[middle] ^ 2]) + line[middle + 1 :]
        put(export, b"".join([*lines[: number - 1], changed, *lines[number:]]))
        where = (await refused(export)).line
        # In the line itself, at the record it belongs to, or where its task ends.
        ends = [
            place
            for place, end in enumerate(lines, 1)
            if place >= number and end[:6] in (b'{"end"', b'{"expo')
        ]
        assert section <= where <= max(number, ends[0]) or where == len(lines)


async def test_a_file_that_was_cut_is_refused_wherever_it_was_cut(export: Path) -> None:
    whole = content(export)
    lines = whole.count(b"\n")
    for part in range(0, len(whole) - 1, len(whole) // 60):
        put(export, whole[:part])
        assert (await refused(export)).line == whole[:part].count(b"\n") + 1
    put(export, whole + b"{}\n")
    assert (await refused(export)).line == lines + 1


async def test_lines_that_are_missing_moved_or_there_twice_are_refused(export: Path) -> None:
    lines = content(export).splitlines(keepends=True)
    for number in range(len(lines)):
        put(export, b"".join(lines[:number] + lines[number + 1 :]))
        await refused(export)
        put(export, b"".join([*lines[: number + 1], *lines[number:]]))
        await refused(export)
    put(export, b"".join(lines[::-1]))
    assert (await refused(export)).line == 1


async def test_a_newer_export_is_refused_with_what_to_do(export: Path) -> None:
    put(export, content(export).replace(b'{"treadle_export":1', b'{"treadle_export":2', 1))
    assert "upgrade treadle" in str(await refused(export))
    put(export, b"not an export\n")
    assert (await refused(export)).line == 1
    with pytest.raises(ImportRefused, match="nowhere"):
        await Runner(MemoryStore()).import_tasks(export.parent / "nowhere")


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
    ids=["words", "thread", "labels"],
)
async def test_what_differs_between_two_tasks_of_one_id_is_named(
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
        there = other.store._tasks["one"]  # type: ignore[attr-defined]
        there.new.created = row.created
        with pytest.raises(TaskConflict, match=f"another {field}") as raised:
            await other.import_tasks(tmp_path / "one.jsonl")
        assert raised.value.field == field


async def test_a_task_that_has_gone_on_since_is_not_taken_for_the_older_one_in_the_file(
    tmp_path: Path,
) -> None:
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


async def test_a_thread_with_other_words_is_left_alone_and_nothing_is_imported(export: Path) -> None:
    async with Runner(MemoryStore(), agents=[AGENT]) as runner:
        await runner.run(AGENT, "something else", thread_id="talk")
        before = await dump(runner.store)
        with pytest.raises(TaskConflict, match="thread 'talk' is in this store at version 1") as raised:
            await runner.import_tasks(export)
        assert raised.value.field == "thread"
        assert await dump(runner.store) == before


async def test_a_thread_that_grew_meanwhile_is_known_when_its_words_are_taken_in_again(export: Path) -> None:
    async with Runner(MemoryStore(), agents=[AGENT]) as runner:
        await runner.import_tasks(export)
        await runner.run(AGENT, "newer words", thread_id="talk")
        words = await runner.get_thread("talk")
        report = await runner.import_tasks(export)
        assert (report.tasks, report.threads, report.events) == ((), (), 0)
        assert len(report.known) >= 4
        assert await runner.get_thread("talk") == words


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


class FailsHalfWay(WrappedStore):
    async def read(self, task_id: str, **range_: Any) -> Any:
        raise StoreUnavailable("the disk is gone")

    @asynccontextmanager
    async def snapshot(self) -> AsyncGenerator[Any]:
        async with self._store.snapshot() as lent:
            yield FailsHalfWay(lent)


async def test_an_export_that_fails_half_way_leaves_no_file(tmp_path: Path) -> None:
    store: Any = FailsHalfWay(MemoryStore())
    async with Runner(store) as runner:
        await runner.store.open()
        await (await Owner.create(store, "t")).release()
        with pytest.raises(StoreUnavailable):
            await runner.export_tasks(tmp_path / "all.jsonl")
    assert leftovers(tmp_path) == []


async def test_two_exports_to_one_file_at_once_both_leave_it_whole(tmp_path: Path) -> None:
    async with Runner(SQLiteStore(tmp_path / "j.db")) as runner:
        await runner.run(Agent(ScriptedModel(["Hi."])), "Hello", task_id="t")
        reports = await asyncio.gather(*[runner.export_tasks(tmp_path / "out.jsonl") for _ in range(2)])
    assert [report.tasks for report in reports] == [("t",), ("t",)]
    async with Runner(MemoryStore()) as elsewhere:
        assert (await elsewhere.import_tasks(tmp_path / "out.jsonl")).tasks == ("t",)


async def test_a_task_that_was_deleted_here_is_not_taken_for_known(export: Path) -> None:
    async with Runner(MemoryStore(), agents=[AGENT]) as runner:
        await runner.import_tasks(export)
        await runner.fork("half", at=(await runner.get_task("half")).head)  # it stays, unseen, for its fork
        await runner.delete_task("half")
        with pytest.raises(TaskConflict, match="half"):
            await runner.import_tasks(export)


async def test_a_summary_covers_the_same_words_where_it_was_taken_to(tmp_path: Path) -> None:
    async with Runner(MemoryStore(), agents=[AGENT]) as runner, Runner(MemoryStore()) as taker:
        for words in ("look", "more"):
            await runner.run(AGENT, words, thread_id="talk")
        report = await runner.compact_thread("talk", keep=0, model=ScriptedModel(["All was noted."]))
        assert report.covers == 2
        await runner.export_tasks(tmp_path / "all.jsonl")
        await taker.import_tasks(tmp_path / "all.jsonl")
        assert await taker.store.thread("talk") == await runner.store.thread("talk")
        report = await taker.import_tasks(tmp_path / "all.jsonl")
        assert (report.tasks, report.threads) == ((), ())


@pytest.mark.parametrize(("wanted", "there"), [(1_800_000_000_000_000, 1_800_000_000_000_000), (AT_ONCE, 0)])
async def test_a_task_that_waits_for_a_time_waits_for_it_there_and_none_is_begun_by_being_taken_in(
    tmp_path: Path, wanted: int, there: int
) -> None:
    async with Runner(MemoryStore(), agents=[AGENT]) as runner, Runner(MemoryStore()) as taker:
        await runner.create_task(AGENT, "wait", task_id="t")
        claim = await runner.store.claim("t")
        await Owner.of(runner.store, "t", claim).send(release=True, wanted=wanted)
        await runner.export_tasks(tmp_path / "all.jsonl")
        await taker.import_tasks(tmp_path / "all.jsonl")
        assert (await taker.store.row("t")).wanted == there


async def test_an_export_that_fails_leaves_no_file(tmp_path: Path) -> None:
    async with Runner(MemoryStore()) as runner:
        with pytest.raises(TaskNotFound):
            await runner.export_tasks(tmp_path / "all.jsonl", "nobody")
    assert leftovers(tmp_path) == []


def test_the_sync_bridge_has_the_verbs(tmp_path: Path) -> None:
    runner, other = Runner(MemoryStore()), Runner(MemoryStore())
    runner.run_sync(AGENT, "go", task_id="t")
    assert runner.sync.export_tasks(tmp_path / "f", "t").tasks == ("t",)
    assert other.sync.import_tasks(tmp_path / "f").tasks == ("t",)
    assert other.sync.verify().findings == ()
    runner.sync.close()
    other.sync.close()
