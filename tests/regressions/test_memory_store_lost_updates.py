"""The memory store lost concurrent updates."""

import asyncio
from collections import Counter

import pytest

from tests.stores.test_memory import TestMemoryStore as MemoryConformance
from treadle import Agent, Runner, ScriptedModel
from treadle.core import events as e
from treadle.testing.conformance.store import StoreConformance

pytestmark = pytest.mark.anyio
THREADS, WORDS = 8, 12


def test_the_store_in_memory_passes_the_whole_suite_of_stores() -> None:
    assert issubclass(MemoryConformance, StoreConformance)
    assert all(getattr(MemoryConformance, name) for name in dir(StoreConformance) if name.startswith("test_"))


async def test_messages_from_many_threads_are_all_recorded_once_in_order() -> None:
    agent = Agent(ScriptedModel(lambda request: "so"), name="listener")
    async with Runner("memory:", agents=[agent]) as runner:
        task = await runner.create_task(agent, "go")

        async def speak(thread: int) -> None:
            for n in range(WORDS):
                await runner.send(task, f"{thread} {n}")

        await asyncio.gather(*(asyncio.to_thread(asyncio.run, speak(thread)) for thread in range(THREADS)))
        assert (await runner.resume(task)).state == "completed"
        journal = [event async for event in runner.handle(task.task_id).events(deltas=False)]
    messages = [event.parts[0].text for event in journal if isinstance(event, e.InputReceived)]  # type: ignore[union-attr]
    assert Counter(messages) == Counter(f"{thread} {n}" for thread in range(THREADS) for n in range(WORDS))
    for thread in range(THREADS):
        assert [message for message in messages if message.startswith(f"{thread} ")] == [
            f"{thread} {n}" for n in range(WORDS)
        ]


async def test_tasks_that_end_in_one_thread_at_once_all_leave_their_messages_there() -> None:
    agent = Agent(ScriptedModel(lambda request: "so"), name="talker")
    async with Runner("memory:", agents=[agent]) as runner:

        async def talk(thread: int) -> None:
            await runner.run(agent, f"{thread}", thread_id="talk")

        await asyncio.gather(*(asyncio.to_thread(asyncio.run, talk(thread)) for thread in range(THREADS)))
        version, members = await runner.store.thread("talk")
        assert (version, len(members)) == (THREADS, THREADS)
