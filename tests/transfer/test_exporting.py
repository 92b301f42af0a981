"""Exports: the tasks they hold, and the files they leave."""

import asyncio
import io
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.transfer.exports import filled, leftovers
from treadle import Agent, Runner, ScriptedModel
from treadle.errors import StoreUnavailable, TaskNotFound
from treadle.ports import TaskFilter
from treadle.stores.memory import MemoryStore
from treadle.stores.sqlite import SQLiteStore
from treadle.testing.conformance.owner import Owner, add, remove
from treadle.testing.wrappers import WrappedStore
from treadle.transfer.exporting import Selection

pytestmark = pytest.mark.anyio


async def test_an_export_of_a_task_holds_its_bases_and_its_threads_only(tmp_path: Path) -> None:
    async with filled(MemoryStore()) as runner:
        report = await runner.export_tasks(io.BytesIO(), "two")
        assert sorted(report.tasks) == ["one", "two"]
        assert report.threads == ("talk",)
        tip = next(row for row in await runner.store.rows(TaskFilter()) if row.base not in (None, "base"))
        report = await runner.export_tasks(io.BytesIO(), tip.task_id)
        assert report.tasks[0] == "base"
        assert report.tasks[-1] == tip.task_id
        with pytest.raises(TaskNotFound):
            await runner.export_tasks(io.BytesIO(), "missing")


async def test_a_thread_keeps_what_was_taken_out_of_it() -> None:
    store = MemoryStore()
    one, two = (
        await Owner.create(store, "t", thread_id="talk"),
        await Owner.create(store, "u", thread_id="talk"),
    )
    await one.write(thread=add(0), release=True)
    await two.write(thread=add(1))
    await two.write(thread=remove(), release=True)
    selection = Selection(store)
    await selection.add("t")
    assert [(m.version, m.task_id, m.gone) for m in selection.threads["talk"].members] == [
        (1, "t", None),
        (2, "u", 3),
    ]


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


async def test_an_export_that_fails_leaves_no_file(tmp_path: Path) -> None:
    async with Runner(MemoryStore()) as runner:
        with pytest.raises(TaskNotFound):
            await runner.export_tasks(tmp_path / "all.jsonl", "missing")
    assert leftovers(tmp_path) == []
