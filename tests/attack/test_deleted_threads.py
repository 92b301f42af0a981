"""Threads that are deleted or pruned while a task begins in them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from treadle import Agent, Runner, RunOptions, ScriptedModel
from treadle.ports import TaskFilter, TaskRow, ThreadMember
from treadle.stores.sqlite import SQLiteStore
from treadle.testing.audit import audit_store


class Interposed(SQLiteStore):
    """A store where another process deletes a thread just after it was read."""

    deletes: str | None = None

    async def thread(self, thread_id: str, **options: Any) -> tuple[int, Sequence[ThreadMember]]:
        history = await super().thread(thread_id, **options)
        if options.get("version") is None and self.deletes == thread_id:
            self.deletes = None
            await self.delete_thread(thread_id)
        return history


@pytest.mark.anyio
@pytest.mark.parametrize("how", ["enqueue", "parallel"])
async def test_a_thread_deleted_just_as_a_task_begins_in_it_can_still_be_read(
    how: str, tmp_path: Path
) -> None:
    agent = Agent(ScriptedModel(lambda request: f"{len(request.messages)} heard"))
    store = Interposed(tmp_path / "journal.db")
    async with Runner(store, options=RunOptions(on_busy_thread=how)) as runner:  # type: ignore[arg-type]
        for _ in range(3):
            await runner.run(agent, "Hello.", thread_id="talk")
        store.deletes = "talk"
        result = await runner.run(agent, "Again.", thread_id="talk")
        assert result.state == "completed"
        assert len(await runner.get_thread("talk")) == 2
    async with Runner(tmp_path / "journal.db") as runner:
        assert len(await runner.get_thread("talk")) == 2
        assert (await runner.run(agent, "And again.", thread_id="talk")).final_text == "3 heard"
        assert await audit_store(runner.store) == []
        assert (await runner.verify()).findings == ()


class Meanwhile(SQLiteStore):
    """A store in which others do something just after a thread was read."""

    then: Callable[[], Awaitable[object]] | None = None

    async def thread(self, thread_id: str, **options: Any) -> tuple[int, list[ThreadMember]]:
        history = await super().thread(thread_id, **options)
        then, self.then = self.then, None
        if then is not None:
            await then()
        return history


@pytest.mark.anyio
@pytest.mark.parametrize("how", ["enqueue", "parallel", "create"])
async def test_a_turn_that_is_undone_and_deleted_as_a_task_begins_after_it_is_still_in_its_history(
    how: str, tmp_path: Path
) -> None:
    agent = Agent(ScriptedModel(lambda request: f"{len(request.messages)} heard"), name="heard")
    store = Meanwhile(tmp_path / "journal.db")
    async with Runner(store, agents=[agent]) as runner, Runner(tmp_path / "journal.db") as other:
        for name in ("one", "two"):
            await runner.run(agent, "Hello.", thread_id="talk", task_id=name)

        async def take_out() -> None:
            await other.undo_step("two")
            await other.delete_task("two")

        store.then = take_out
        if how == "create":
            await runner.create_task(agent, "Again.", thread_id="talk", task_id="three")
        else:
            options = RunOptions(on_busy_thread=how)  # type: ignore[arg-type]
            await runner.run(agent, "Again.", thread_id="talk", task_id="three", options=options)
    async with Runner(tmp_path / "journal.db", agents=[agent]) as runner:
        assert (await runner.verify()).findings == ()
        assert await audit_store(runner.store) == []
        assert (await runner.resume("three")).final_text == "3 heard"
        assert len(await runner.get_thread("talk")) == 4


class Listed(SQLiteStore):
    """A store in which others do something just after all its tasks were listed."""

    then: Callable[[], Awaitable[object]] | None = None

    async def rows(self, wanted: TaskFilter) -> list[TaskRow]:
        rows = await super().rows(wanted)
        then, self.then = self.then, None
        if then is not None:
            await then()
        return rows


@pytest.mark.anyio
async def test_a_thread_in_which_a_task_begins_during_pruning_stays(tmp_path: Path) -> None:
    agent = Agent(ScriptedModel(lambda request: "Hello."))
    store = Listed(tmp_path / "journal.db")
    async with Runner(store) as runner:
        await runner.run(agent, "Hello.", thread_id="talk")
        await runner.run(agent, "Hello.", thread_id="done")
        await asyncio.sleep(0.5)
        store.then = lambda: runner.run(agent, "Here again.", thread_id="talk")
        pruned = await runner.prune(0.4)
        assert pruned.threads == ("done",)
        assert len(await runner.get_thread("talk")) == 4


@pytest.mark.anyio
async def test_a_task_deleted_while_tasks_are_pruned_does_not_end_the_pruning(tmp_path: Path) -> None:
    agent = Agent(ScriptedModel(lambda request: "Hello."))
    store = Listed(tmp_path / "journal.db")
    async with Runner(store) as runner:
        for name in ("first", "second"):
            await runner.run(agent, "Hello.", thread_id=name, task_id=f"in-{name}")
        store.then = lambda: runner.delete_task("in-first")
        pruned = await runner.prune(0)
        assert pruned.threads == ("second",)
