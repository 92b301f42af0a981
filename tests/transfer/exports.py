"""Tasks, forks and threads that exports are made of."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from treadle import Agent, Image, Runner, ScriptedModel, tool
from treadle.errors import ImportRefused
from treadle.llm.scripted import call, text
from treadle.ports import InboxItem, JournalStore, TaskFilter, TaskRow
from treadle.stores.memory import MemoryStore
from treadle.stores.sqlite import SQLiteStore
from treadle.testing.conformance.owner import dump


@tool(read_only=True)
def note(length: int) -> str:
    """Write down a long text."""
    return "wörd " * length


AGENT = Agent(
    ScriptedModel([call("note", length=3_000), call("note", length=1), text("noted")]),
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
    """Open a runner on a thread of two turns, a fork of a fork with a deleted base, and a task with a message."""
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
        await store.post("half", InboxItem("message", "send", {"parts": ["ü\u2028"], "role": "user"}, 5))
        yield runner


def content(path: Path) -> bytes:
    return path.read_bytes()


def put(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def shown(store: JournalStore) -> dict[str, Any]:
    """Return all of a store but the figures of lists: they follow from the journals, and a fork's are not known yet."""
    content = await dump(store, THREADS)
    for value in content.values():
        if isinstance(value[0], TaskRow):
            value[0].figures = None
    return content


async def refused(path: Path) -> ImportRefused:
    """Import a file that is to be refused, into a store that is to stay empty."""
    async with Runner(MemoryStore()) as runner:
        with pytest.raises(ImportRefused, match=r"line \d+: ") as raised:
            await runner.import_tasks(path)
        assert await runner.store.rows(TaskFilter()) == []
        return raised.value
