"""A verb that cancels, pauses or interrupts a task returns the state that was reached, also beside other commands.

A cancel that reached a driver during the release of a finished step was recorded, and then the task was released all
the same: `running`, at rest, and never cancelled. A pause that was reached, and lifted by another caller before the
first one looked, returned `running` or a much later state.
"""

import asyncio
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Any

import pytest

from tests.cast import Gate, calculator, gate_agent
from tests.runner.acts import journal
from treadle import Agent, Runner, ScriptedModel
from treadle.core import events as e
from treadle.models import text
from treadle.ports import Commit, CommitDone, InboxItem, JournalStore
from treadle.testing.audit import audit_store
from treadle.testing.wrappers import WrappedStore
from treadle.wiring import open_store

pytestmark = pytest.mark.anyio


@pytest.fixture
def inside(store: Any) -> JournalStore:
    return open_store(store)


class Interleaved(WrappedStore):
    """A store in which another caller acts just before a task is given back, or just before its inbox is read."""

    before_release: Callable[[], Awaitable[Any]] | None = None
    before_inbox: Callable[[], Awaitable[Any]] | None = None

    def commit(self, commit: Commit, done: CommitDone) -> None:
        act, self.before_release = (
            (self.before_release, None) if commit.release else (None, self.before_release)
        )
        if act is None:
            self._store.commit(commit, done)
            return

        async def first() -> None:
            await act()
            self._store.commit(commit, done)

        self.releasing = asyncio.ensure_future(first())

    async def inbox(self, task_id: str) -> list[InboxItem]:
        act, self.before_inbox = self.before_inbox, None
        if act is not None:
            await act()
        return await self._store.inbox(task_id)


async def until_posted(store: JournalStore, task_id: str) -> None:
    while not await store.inbox(task_id):  # noqa: ASYNC110  another caller is about to write it
        await asyncio.sleep(0.001)


@pytest.mark.parametrize(
    ("verb", "state"), [("cancel", "cancelled"), ("pause", "paused"), ("interrupt", "interrupted")]
)
async def test_a_stop_that_comes_during_the_release_of_a_step_is_reached(
    inside: JournalStore, verb: str, state: str
) -> None:
    store = Interleaved(inside)
    async with Runner(store) as runner:
        task = await runner.create_task(calculator(), "What is (121 * 3) + 42?")
        stopping: list[asyncio.Future[Any]] = []

        async def stop() -> None:
            stopping.append(asyncio.ensure_future(getattr(runner, verb)(task)))
            await until_posted(inside, task.task_id)

        store.before_release = stop
        output = await runner.run_step(task)
        assert output.step.index == 1
        assert (await stopping[0]).state == state
        row = await inside.row(task.task_id)
        assert (row.state, row.driver, await inside.inbox(task.task_id)) == (state, None, [])
        assert await audit_store(inside) == []


@pytest.mark.parametrize(("verb", "state"), [("pause", "paused"), ("interrupt", "interrupted")])
async def test_a_stop_that_was_reached_and_lifted_tells_how_the_task_stood_in_between(
    inside: JournalStore, verb: str, state: str
) -> None:
    gate = Gate(read_only=True)
    agent = gate_agent(gate)
    store = Interleaved(inside)
    async with Runner(store, agents=[agent]) as runner:
        task = await runner.create_task(agent, "Wait")
        resuming: list[asyncio.Future[Any]] = []

        async def resume() -> None:
            store.before_inbox = stopped  # the first look is that of the request's own driver

        async def stopped() -> None:
            async with asyncio.timeout(10):
                while (await inside.row(task.task_id)).state != state:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
            resuming.append(asyncio.ensure_future(runner.resume(task)))
            await gate.entered.wait()

        store.before_inbox = resume
        async with asyncio.timeout(10):
            result = await getattr(runner, verb)(task)
        assert result.state == state
        assert not resuming[0].done(), "the task runs on"
        gate.let_go.set()
        assert (await resuming[0]).state == "completed"


async def test_the_next_driver_carries_out_a_cancel_that_the_last_driver_left(
    inside: JournalStore,
) -> None:
    """So an earlier release left tasks: the cancel recorded, at rest, `running`."""
    async with Runner(inside) as runner:
        task = await runner.create_task(calculator(), "What is (121 * 3) + 42?")
        await runner.run_step(task)
        owned = await runner._driver.ownership.claim(task.task_id)
        owned.writer.record(e.CancelRequested("ada"))
        await owned.writer.commit_alone(None, "running")
        runner._driver.owned.remove(owned)
        assert [violation.name for violation in await audit_store(inside)] == ["stopped"]
        assert (await runner.cancel(task)).state == "cancelled"
        assert [event.kind for event in await journal(runner, task)].count("task_ended") == 1
        assert await audit_store(inside) == []


async def test_a_driver_that_leaves_reads_the_messages_that_arrive_meanwhile(
    inside: JournalStore,
) -> None:
    """In the store it is given back already, and in its process not yet."""

    class Slow(WrappedStore):
        after_release: Callable[[], Awaitable[Any]] | None = None

        def commit(self, commit: Commit, done: CommitDone) -> None:
            if not commit.release or self.after_release is None:
                self._store.commit(commit, done)
                return
            act, self.after_release = self.after_release, None

            def late(verdict: Any) -> None:
                async def then() -> None:
                    await act()
                    done(verdict)

                self.telling = asyncio.ensure_future(then())

            self._store.commit(commit, late)

    store = Slow(inside)
    async with Runner(store) as runner:
        task = await runner.create_task(calculator(), "What is (121 * 3) + 42?")

        async def send() -> None:
            await runner.send(task, "And hurry")

        store.after_release = send
        await runner.run_step(task)
        assert await inside.inbox(task.task_id) == []
        assert "input_received" in [event.kind for event in await journal(runner, task)]


class Role(StrEnum):
    """A caller's own kind of text."""

    OPERATOR = "operator"


@pytest.mark.parametrize(
    ("verb", "state"), [("pause", "paused"), ("interrupt", "interrupted"), ("cancel", "cancelled")]
)
async def test_a_stop_works_with_any_text_as_the_name_of_the_caller(
    inside: JournalStore, verb: str, state: str
) -> None:
    agent = Agent(ScriptedModel([text("done")]), name="a")
    async with Runner(inside, agents=[agent]) as runner:
        task = await runner.create_task(agent, "go")
        async with asyncio.timeout(10):
            stopped = await getattr(runner, verb)(task, by=Role.OPERATOR, reason=Role.OPERATOR)
        assert stopped.state == state
