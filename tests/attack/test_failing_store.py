"""A store that fails at any commit, once or until it is healed: the error is typed, nothing runs twice, nothing stays
owned, and the task goes on in this runner or in another.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.attack.failing import Failing
from tests.cast import Gate, look
from tests.runner.acts import until
from treadle import Agent, Runner, ScriptedModel, ToolContext, tool
from treadle.core.tools import Happened
from treadle.drivers import ownership
from treadle.errors import StoreUnavailable, TaskNotFound
from treadle.llm.scripted import call, fail, turn
from treadle.ports import Commit, CommitDone, JournalStore
from treadle.stores.memory import MemoryStore
from treadle.stores.sqlite import SQLiteStore
from treadle.testing.audit import audit_store

pytestmark = pytest.mark.anyio


def booking(starts: Counter[str]) -> Agent[Any]:
    @tool
    async def book(ctx: ToolContext[Any]) -> str:
        starts[ctx.idempotency_key] += 1
        await asyncio.sleep(0)
        return "booked"

    script = [call("book"), turn(calls=[call("book"), call("look")]), "done"]
    return Agent(ScriptedModel(script), name="booking", tools=[book, look])


async def goes_on(runner: Runner, task_id: str) -> str:
    result = await runner.resume(task_id)
    while result.state == "waiting":
        for pending in result.pending:
            await runner.settle(task_id, pending.request_id, Happened("booked"))
        result = await runner.resume(task_id)
    return result.state


@pytest.mark.sampled(12)
@pytest.mark.parametrize("written", [False, True], ids=["refused", "acknowledgement lost"])
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "until healed"])
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("n", range(1, 7))
async def test_a_task_whose_commit_failed_goes_on_once_the_store_works_again(
    kind: str, lasting: bool, written: bool, n: int, tmp_path: Path
) -> None:
    """The write after a tool ended fails too; its result, or the question what came of it, is there later."""
    inner: JournalStore = MemoryStore() if kind == "memory" else SQLiteStore(tmp_path / "journal.db")
    failing = Failing(inner, (lambda k: k >= n) if lasting else (lambda k: k == n), written=written)
    starts: Counter[str] = Counter()
    agent = booking(starts)
    store: Any = failing
    async with asyncio.timeout(10), Runner(store, agents=[agent]) as runner:
        elsewhere = Runner(inner, agents=[agent])
        other = asyncio.ensure_future(elsewhere.run(agent, "Go.", task_id="other"))
        try:
            await runner.run(agent, "Go.", task_id="t", thread_id="thread")
        except StoreUnavailable:
            assert "t" not in runner._driver.owned.tasks
        failing.fails = lambda _: False
        assert (await other).state == "completed"
        try:
            assert await goes_on(elsewhere if n % 2 else runner, "t") == "completed"
        except TaskNotFound:
            assert n == 1  # it was never made
        assert await audit_store(inner) == []
        assert set(starts.values()) <= {1}


@pytest.mark.parametrize("whole", [False, True], ids=["the task", "its thread"])
async def test_a_task_that_could_not_be_released_can_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    monkeypatch.setattr(ownership, "RELEASE_SECONDS", (3600.0,))
    failing: Any = Failing(SQLiteStore(tmp_path / "journal.db"), lambda k: k >= 2, written=False)
    agent = booking(Counter())
    async with asyncio.timeout(5), Runner(failing, agents=[agent]) as runner:
        with pytest.raises(StoreUnavailable):
            await runner.run(agent, "Go.", task_id="t", thread_id="talk")
        failing.fails = lambda _: False
        await (runner.delete_thread("talk") if whole else runner.delete_task("t"))
        with pytest.raises(TaskNotFound):
            await runner.get_task("t")


async def test_closing_releases_tasks_that_could_not_be_released_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ownership, "RELEASE_SECONDS", (3600.0,))
    failing: Any = Failing(SQLiteStore(tmp_path / "journal.db"), lambda k: k >= 2, written=False)
    agent = booking(Counter())
    runner = Runner(failing, agents=[agent])
    with pytest.raises(StoreUnavailable):
        await runner.run(agent, "Go.", task_id="t")
    failing.fails = lambda _: False
    await runner.aclose()
    async with Runner(tmp_path / "journal.db") as other:
        assert (await other.store.row("t")).driver is None


async def free(store: JournalStore, task_id: str) -> None:
    """Return once the task has no owner in the store."""
    async with asyncio.timeout(5):
        while (await store.row(task_id)).driver is not None:  # noqa: ASYNC110  no driver of this process signals it
            await asyncio.sleep(0.005)


async def test_a_release_that_fails_is_retried_until_it_succeeds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No caller asks for it meanwhile; the store then fails a second time."""
    monkeypatch.setattr(ownership, "RELEASE_SECONDS", (0.0, 0.01))
    inner = MemoryStore()
    failing: Any = Failing(inner, lambda k: k >= 2, written=False)
    agent = booking(Counter())
    async with Runner(failing, agents=[agent]) as runner:
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                await runner.run(agent, "Go.", task_id="t")
            tries = failing.count + 4
            await until(lambda tries=tries: failing.count > tries)
            failing.fails = lambda _: False
            await free(inner, "t")
            failing.fails = lambda k, after=failing.count: k > after
        failing.fails = lambda _: False


async def test_a_claimed_task_that_could_neither_be_read_nor_released_is_free_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ownership, "RELEASE_SECONDS", (0.0, 0.01))

    class Unreadable(Failing):
        away = False

        async def read(self, *args: Any, **options: Any) -> Any:
            self.away = self.fails(0)
            if self.away:
                raise StoreUnavailable("the disk cannot be read")
            return await self.inner.read(*args, **options)

        async def row(self, *args: Any, **options: Any) -> Any:
            if self.away and self.fails(1):
                raise StoreUnavailable("nor can it now")
            return await self.inner.row(*args, **options)

    inner, agent = MemoryStore(), booking(Counter())
    async with Runner(inner, agents=[agent]) as maker:
        await maker.create_task(agent, "Go.", task_id="t")
        failing: Any = Unreadable(inner, lambda _: True, written=False)
        async with Runner(failing, agents=[agent]) as runner:
            with pytest.raises(StoreUnavailable):
                await runner.resume("t")
            await asyncio.sleep(0.03)  # several attempts fail
            assert (await inner.row("t")).driver is not None
            failing.fails = lambda _: False
            await free(inner, "t")
        assert (await maker.resume("t")).state == "completed"


async def test_the_state_of_a_task_can_be_read_while_it_cannot_be_released(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ownership, "RELEASE_SECONDS", (3600.0,))
    failing: Any = Failing(MemoryStore(), lambda k: k >= 3, written=False)
    agent = booking(Counter())
    async with Runner(failing, agents=[agent]) as runner:
        handle = await runner.start(agent, "Go.", task_id="t")
        with pytest.raises(StoreUnavailable):
            await handle.result()
        async with asyncio.timeout(20):
            await runner.handle("t").result()
        failing.fails = lambda _: False


async def test_a_task_that_could_not_be_released_is_adopted_once_the_store_works_again() -> None:
    inner = MemoryStore()
    failing: Any = Failing(inner, lambda k: k >= 2, written=False)
    agent = Agent(ScriptedModel(["done"]), name="sayer")
    async with (
        Runner(failing, agents=[agent]) as runner,
        Runner(inner, agents=[agent], adopt=True) as adopter,
    ):
        with pytest.raises(StoreUnavailable):
            await runner.run(agent, "Go.", task_id="t")
        failing.fails = lambda _: False
        async with asyncio.timeout(10):
            while (await adopter.get_task("t")).state != "completed":  # noqa: ASYNC110  no driver of this process signals it
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("rounds", range(0, 24, 3))
async def test_a_resume_during_the_delivery_of_a_message_drives_the_task(rounds: int, tmp_path: Path) -> None:
    agent = Agent(ScriptedModel(["done"]))
    async with Runner(tmp_path / "journal.db", agents=[agent]) as runner:
        task = await runner.create_task(agent, "Go.")
        sending = asyncio.ensure_future(runner.send(task, "And this."))
        for _ in range(rounds):
            await asyncio.sleep(0.0003)
        assert (await runner.resume(task)).state == "completed"
        await asyncio.wait([sending])


@pytest.mark.parametrize("claimed", [False, True], ids=["made", "claimed"])
async def test_a_task_whose_store_could_not_be_watched_does_not_count_as_driven(claimed: bool) -> None:
    class Deaf(MemoryStore):
        deaf = True

        def watch(self, wake: Any) -> Any:
            if self.deaf:
                raise StoreUnavailable("no notification can be received")
            return super().watch(wake)

    store, agent = Deaf(), booking(Counter())
    if claimed:
        store.deaf = False
        maker = Runner(store, agents=[agent])
        await maker.create_task(agent, "Go.", task_id="t")
        await maker.aclose()
        await store.open()
        store.deaf = True
    runner = Runner(store, agents=[agent])
    with pytest.raises(StoreUnavailable):
        await (runner.resume("t") if claimed else runner.run(agent, "Go.", task_id="t"))
    store.deaf = False
    async with asyncio.timeout(5):
        result = await (runner.resume("t") if claimed else runner.run(agent, "Go.", task_id="t"))
    assert result.state == "completed"
    await runner.aclose()


@pytest.mark.parametrize("n", range(1, 5))
async def test_a_store_that_refuses_to_accept_a_commit_keeps_no_caller_waiting(n: int) -> None:
    class Refusing(Failing):
        def commit(self, commit: Commit, done: CommitDone) -> None:
            self.count += 1
            if self.fails(self.count):
                raise StoreUnavailable("the store is closed")
            self.inner.commit(commit, done)

    inner, starts = MemoryStore(), Counter[str]()
    failing: Any = Refusing(inner, lambda k: k >= n, written=False)
    agent = booking(starts)
    async with asyncio.timeout(10), Runner(failing, agents=[agent]) as runner:
        with pytest.raises(StoreUnavailable, match="is closed"):
            await runner.run(agent, "Go.", task_id="t")
        failing.fails = lambda _: False
        if n == 1:
            with pytest.raises(TaskNotFound):
                await runner.get_task("t")
            return
        assert await goes_on(runner, "t") == "completed"
        assert await audit_store(inner) == []
        assert set(starts.values()) == {1}


async def test_a_caller_that_is_cancelled_during_a_resume_leaves_the_task_as_the_store_has_it() -> None:
    class Held(MemoryStore):
        def commit(self, commit: Commit, done: CommitDone) -> None:
            if holds:
                held.append((commit, done))
            else:
                super().commit(commit, done)

    holds, held = False, list[tuple[Commit, CommitDone]]()
    store = Held()
    agent = Agent(ScriptedModel([fail(400), "done"]), name="agent")
    async with Runner(store, agents=[agent]) as runner:
        await runner.run(agent, "Go.", task_id="t")
        holds = True
        resuming = asyncio.ensure_future(runner.resume("t"))
        await until(lambda: bool(held))
        resuming.cancel()
        await asyncio.sleep(0)
        resuming.cancel()
        await asyncio.sleep(0.01)
        assert not resuming.done(), "what was handed over cannot be taken back: it waits for the verdict"
        holds = False
        for commit, done in held:
            store.commit(commit, done)
        with pytest.raises(asyncio.CancelledError):
            await resuming
        row = await store.row("t")
        assert (row.state, row.driver) == ("running", None)
        assert (await runner.resume("t")).attempt == 2
        assert await audit_store(store) == []


async def test_no_effect_of_a_task_goes_on_after_its_store_failed() -> None:
    """The next driver of the task does not run beside it."""
    gate = Gate(read_only=True)

    @tool(read_only=True)
    async def quick() -> str:
        await gate.entered.wait()
        failing.fails = lambda _: not gate.let_go.is_set()
        return "quick"

    failing: Any = Failing(MemoryStore(), lambda _: False, written=False)
    agent = Agent(
        ScriptedModel([turn(calls=[call("work"), call("quick")]), "done"]), tools=[gate.tool, quick]
    )
    async with asyncio.timeout(5), Runner(failing, agents=[agent]) as runner:
        with pytest.raises(StoreUnavailable):
            await runner.run(agent, "Go.", task_id="t")
        assert gate.cancelled == 1
        failing.fails = lambda _: False
        gate.let_go.set()
        assert (await runner.resume("t")).state == "completed"
        assert gate.starts == 2
