"""What is recorded is submitted at once, also while an earlier commit is still in flight."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.runner.acts import Gate, until
from treadle import Agent, Runner, ScriptedModel
from treadle.core.events import ToolEnded
from treadle.llm.scripted import call, text
from treadle.stores.memory import MemoryStore


class HeldStore(MemoryStore):
    """A store whose commits end only when they are let go, once it is told to hold them."""

    def __init__(self) -> None:
        super().__init__()
        self.holds = False
        self.held: list[Callable[[], None]] = []

    def commit(self, commit: Any, done: Any) -> None:
        if self.holds:
            super().commit(commit, lambda verdict: self.held.append(lambda: done(verdict)))
        else:
            super().commit(commit, done)

    def let_go(self) -> None:
        self.holds = False
        for end in self.held:
            end()


@pytest.mark.anyio
async def test_the_end_of_a_call_is_durable_while_its_siblings_still_run() -> None:
    store = HeldStore()
    gates = [Gate(name, read_only=True) for name in ("first", "second", "slow")]
    agent = Agent(
        ScriptedModel([[call(gate.name) for gate in gates], text("done")]),
        tools=[gate.tool for gate in gates],
    )
    async with Runner(store) as runner:
        handle = await runner.start(agent, "go")
        for gate in gates:
            await gate.entered.wait()
        store.holds = True
        gates[0].let_go.set()
        await until(lambda: bool(store.held))
        gates[1].let_go.set()
        await asyncio.sleep(0.01)
        store.let_go()
        ended: set[str] = set()
        async with asyncio.timeout(3):
            async for event in handle.events():
                if isinstance(event, ToolEnded):
                    ended.add(event.call)
                if ended == {"s1-0", "s1-1"}:
                    gates[2].let_go.set()
        assert (await handle.result()).state == "completed"
