"""A process crashes at any write of a command, and the caller repeats the command in the next process."""

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from tests.cast import sayer
from tests.property.mortal import MortalStore, next_life
from tests.runner.acts import only
from tests.runner.test_command_ids import CASES, send_command
from treadle import Runner
from treadle.errors import StoreError
from treadle.ports import InboxItem
from treadle.stores.memory import MemoryStore
from treadle.testing.audit import audit_store

pytestmark = pytest.mark.anyio

WRITES = 7
"""A command takes fewer writes than this."""


class CountingStore(MortalStore):
    """A store whose process crashes at a commit or at a message to an inbox, whichever is the nth write."""

    async def post(self, task_id: str, item: InboxItem) -> bool:
        if self.commits_left is None or self.dead:
            return await super().post(task_id, item)
        self.commits_left -= 1
        if self.commits_left >= 0:
            return await super().post(task_id, item)
        self.dead = True
        if self.dies_after_writing:
            await self.real.post(task_id, item)
        return await super().post(task_id, item)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("after_writing", [False, True], ids=["unwritten", "unanswered"])
@pytest.mark.parametrize("name", CASES)
async def test_a_command_that_is_repeated_after_a_crash_is_carried_out_once(
    name: str, after_writing: bool
) -> None:
    prepare, _, _, kind = CASES[name]
    came_to: Counter[str] = Counter()
    for write in range(WRITES):
        store = CountingStore(MemoryStore())  # pyright: ignore[reportAbstractUsage]  it has what is used here
        runner = Runner(store)
        task_id = (await prepare(runner)).task
        before = len(await only(runner, task_id, kind))
        agents: list[Any] = list(runner._driver.agents._agents.values())  # pyright: ignore[reportPrivateUsage]
        store.commits_left, store.dies_after_writing = write, after_writing
        try:
            await send_command(runner, name, task_id, command_id="c1")
        except StoreError:
            came_to["crashed"] += 1
        else:
            came_to["done"] += 1
        store = await next_life(store, None)
        async with Runner(store, agents=agents) as runner:
            await send_command(runner, name, task_id, command_id="c1")
            assert len(await only(runner, task_id, kind)) == before + 1, f"crashed at write {write}"
            events = [event.kind for event in await only(runner, task_id, kind)]
            await send_command(runner, name, task_id, command_id="c1")
            assert [event.kind for event in await only(runner, task_id, kind)] == events
            assert await audit_store(store.real) == []
    assert came_to["crashed"], "it was crashed in the command"
    assert came_to["done"], "and, with later writes, not any more"


@pytest.mark.parametrize("after_writing", [False, True], ids=["unwritten", "unanswered"])
async def test_a_task_that_is_submitted_again_after_a_crash_is_one_task_that_is_driven(
    after_writing: bool,
) -> None:
    for write in range(4):
        store = CountingStore(MemoryStore())  # pyright: ignore[reportAbstractUsage]  it has what is used here
        agent = sayer()
        store.commits_left, store.dies_after_writing = write, after_writing
        with suppress(StoreError):
            await Runner(store).submit(agent, "Hi", task_id="t")
        store = await next_life(store, None)
        async with Runner(store) as runner:
            await runner.submit(agent, "Hi", task_id="t")
            await runner.submit(agent, "Hi", task_id="t")
        async with Runner(store.real, agents=[agent], adopt=True) as driver, asyncio.timeout(10):
            while (await driver.get_task("t")).state != "completed":  # noqa: ASYNC110  it is not driven by this call
                await asyncio.sleep(0.01)
            assert len(await only(driver, "t", "task_created")) == 1
            assert await audit_store(store.real) == []
