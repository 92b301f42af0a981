"""The auditor finds what is wrong with a thread as a whole: lost members, missing and repeated messages."""

from typing import Any

import pytest

from treadle import Agent, Runner, ScriptedModel
from treadle.core.messages import user
from treadle.drivers.thread_history import ThreadHistory, ThreadMessagesRead
from treadle.stores import rules
from treadle.stores.memory import MemoryStore
from treadle.testing.audit import audit_store

pytestmark = pytest.mark.anyio
AGENT = Agent(ScriptedModel(lambda request: "Hello."), name="greeter")


async def talking(store: MemoryStore) -> None:
    async with Runner(store, agents=[AGENT]) as runner:
        for name in ("one", "two"):
            await runner.run(AGENT, name, thread_id="talk", task_id=name)
        await runner.create_task(AGENT, "three", thread_id="talk", task_id="three")


async def found(store: MemoryStore) -> dict[str, str]:
    await store.open()
    return {v.task: v.text for v in await audit_store(store) if v.name == "threads"}


async def test_nothing_is_found_in_threads_that_were_undone_forked_summarised_and_imported() -> None:
    store = MemoryStore()
    await talking(store)
    async with Runner(store, agents=[AGENT]) as runner:
        fork = await runner.fork("two", input="and?")
        await runner.undo_step("two")
        await runner.import_thread("talk", [user("imported")])
        await runner.resume("two")
        await runner.resume(fork)
        await runner.compact_thread("talk", keep=1, model=ScriptedModel(["Short."]))
        await runner.resume("three")
        await runner.delete_task("one")
    assert await found(store) == {}


async def test_a_deletion_of_messages_that_a_task_began_with_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    await talking(store)
    monkeypatch.setattr(rules, "read_below", lambda first_versions: 0)
    async with Runner(store, agents=[AGENT]) as runner:
        await runner.fork("two", at=1)  # keeps the row of a member whose events are gone
        await runner.undo_step("two")
        await runner.delete_task("two")
        problems = await found(store)
    assert "messages of task two, which cannot be read" in problems["three"]


async def test_a_member_that_is_lost_is_found() -> None:
    store = MemoryStore()
    await talking(store)
    del store._tables.threads["talk"].members[1]
    assert "one is lost" in (await found(store))["talk"]
    async with Runner(store) as runner:
        texts = [finding.text for finding in (await runner.verify()).findings]
    assert any("version 2 of thread 'talk' has 1 member" in text for text in texts)


async def test_messages_that_stand_twice_in_a_thread_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    await talking(store)
    real: Any = ThreadHistory.messages

    async def twice(self: ThreadHistory, thread_id: str, version: int | None = None) -> ThreadMessagesRead:
        thread = await real(self, thread_id, version)
        return ThreadMessagesRead(thread.version, [*thread.messages[:2], *thread.messages])

    monkeypatch.setattr(ThreadHistory, "messages", twice)
    assert "its tasks added" in (await found(store))["two"]
