"""A command may arrive at any moment: also between two looks into the inbox, or while a task asks for its thread."""

import asyncio
from typing import Any

import pytest

from treadle import Agent, Runner, ScriptedModel, Text, tool
from treadle.core.codec import encode_part
from treadle.models import call, text, turn
from treadle.ports import Commit, CommitDone, InboxItem
from treadle.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio


class Listening(MemoryStore):
    """A store in which somebody speaks to a task when the store has been used so many times, and that answers later.

    With `words`, these are said first, and the command comes while they are read.
    """

    uses: int = 0
    command: str = ""
    words: bool = False

    def __init__(self) -> None:
        super().__init__()
        self._turns = asyncio.Lock()

    async def _used(self) -> None:
        self.uses -= 1
        if self.uses == 0:
            data = {"parts": [encode_part(Text("Hello?"))]} if self.words else {}
            await self.post("t", InboxItem("first", "send" if self.words else self.command, data, 0))
        await asyncio.sleep(0)  # so that its driver has heard that there is something to read

    def commit(self, commit: Commit, done: CommitDone) -> None:
        verdicts: list[Any] = []
        super().commit(commit, verdicts.append)

        async def answer() -> None:
            async with self._turns:
                await self._used()
                done(verdicts[0])

        self.answering = asyncio.ensure_future(answer())

    async def claim(self, *task: Any, **how: Any) -> Any:
        found = await super().claim(*task, **how)
        await self._used()
        return found

    async def inbox(self, task_id: str) -> list[InboxItem]:
        found = await super().inbox(task_id)
        if [item.item_id for item in found] == ["first"] and self.words:
            await self.post("t", InboxItem("second", self.command, {}, 0))
        await self._used()
        return found

    async def thread(self, *thread: Any, **how: Any) -> Any:
        found = await super().thread(*thread, **how)
        await self._used()
        return found


class Waits:
    """An agent whose calls take long."""

    def __init__(self, calls: int) -> None:
        self.begun = asyncio.Event()

        @tool(read_only=True)
        async def wait() -> str:
            """Wait."""
            self.begun.set()
            await asyncio.sleep(60)
            return "waited"

        answer = turn("", [call("wait") for _ in range(calls)]) if calls else text("Late.", delay=60)
        self.agent = Agent(ScriptedModel([answer]), name="waits", tools=[wait])


@pytest.mark.parametrize("command", ["cancel", "interrupt"])
@pytest.mark.parametrize("place", ["model", "call", "calls", "line", "end of the line"])
@pytest.mark.parametrize("words", [False, True])
async def test_a_command_is_obeyed_at_once_whenever_it_arrives(place: str, command: str, words: bool) -> None:
    for uses in range(1, 100):
        store, waits = Listening(), Waits({"model": 0, "call": 1}.get(place, 2))
        runner = Runner(store, agents=[waits.agent])
        if "line" in place:
            holder = Waits(1)
            await runner.start(holder.agent, "hold", thread_id="talk")
            await holder.begun.wait()
        if place == "end of the line":
            await runner.start(holder.agent, "wait", thread_id="talk")
        await runner.create_task(waits.agent, "go", task_id="t", thread_id="talk")
        store.uses, store.command, store.words = uses, command, words
        drive = asyncio.ensure_future(runner.resume("t"))
        for _ in range(60):
            await asyncio.sleep(0)
        if store.uses > 0:
            break
        async with asyncio.timeout(3):
            assert (await drive).state == {"cancel": "cancelled", "interrupt": "interrupted"}[command], uses
        await runner.aclose()
    assert uses > 3
    await runner.aclose()
