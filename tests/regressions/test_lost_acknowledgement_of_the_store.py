"""A lost acknowledgement, or a row that was read too early, made a runner believe an outdated state."""

from collections.abc import Awaitable, Callable

import pytest

from treadle import Agent, Runner, ScriptedModel
from treadle.core import events as e
from treadle.errors import StoreUnavailable
from treadle.llm.scripted import call, fail, text
from treadle.ports import Commit, CommitDone, Committed, TaskRow
from treadle.stores.memory import MemoryStore
from treadle.testing.audit import Evidence, audit_store
from treadle.testing.crash import names_of
from treadle.testing.wrappers import WrappedStore

pytestmark = pytest.mark.anyio


class Forgetful(WrappedStore):
    """Writes a record and says that the connection was lost."""

    def __init__(self, event: str) -> None:
        super().__init__(MemoryStore())
        self.event = event

    def commit(self, commit: Commit, done: CommitDone) -> None:
        def done_late(verdict: Committed | Exception) -> None:
            lost = commit.record is not None and self.event in names_of(commit)
            if lost:
                self.event = ""
            done(StoreUnavailable("the connection was lost") if lost else verdict)

        self._store.commit(commit, done_late)


@pytest.mark.parametrize("event", ["task_reopened", "task_ended"])
async def test_a_reopened_task_is_not_reported_as_ended_after_a_lost_acknowledgement(
    event: str,
) -> None:
    agent = Agent(ScriptedModel(["one", "two"]))
    store = Forgetful("")

    async def reopen_and_end(task: str) -> None:
        await runner.undo_step(task)
        await runner.resume(task)

    async with Runner(store, agents=[agent]) as runner:
        task = (await runner.run(agent, "go")).task_id
        store.event = event
        verb = runner.undo_step if event == "task_reopened" else reopen_and_end
        with pytest.raises(StoreUnavailable, match="lost"):
            await verb(task)
        for _ in range(3):
            result = await runner.resume(task)
        assert result.state == "completed"
        assert (await store.row(task)).driver is None
        assert await audit_store(runner.store, Evidence(ended=True)) == []


class Stale(WrappedStore):
    """Answers what a row says only after something else has happened."""

    meanwhile: Callable[[], Awaitable[object]] | None = None

    async def row(self, task_id: str, *, deleted: bool = False) -> TaskRow:
        row = await self._store.row(task_id, deleted=deleted)
        if self.meanwhile is not None:
            work, self.meanwhile = self.meanwhile, None
            await work()
        return row


async def test_messages_to_a_failed_task_that_was_resumed_elsewhere_do_not_reopen_it_again() -> None:
    agent = Agent(ScriptedModel([fail(500), call("nothing"), text("so")]))
    store = Stale(MemoryStore())
    async with Runner(store, agents=[agent]) as runner:
        task = (await runner.run(agent, "go")).task_id
        other = Runner(store._store, agents=[agent])
        store.meanwhile = lambda: other.run_step(task)
        await runner.send(task, "words")
        result = await runner.resume(task)
        assert (result.state, result.steps) == ("completed", result.steps)
        events = [event async for event in runner.handle(task).events(deltas=False)]
        assert [event.attempt for event in events if isinstance(event, e.TaskReopened)] == [2]
        assert await audit_store(runner.store, Evidence(ended=True)) == []
