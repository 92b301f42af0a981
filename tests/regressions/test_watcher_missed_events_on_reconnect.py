"""A watcher that reconnected missed events, or got them twice."""

import pytest

from tests.cast import look
from treadle import Agent, Runner, ScriptedModel
from treadle.core import events as e
from treadle.llm.scripted import call, text

pytestmark = pytest.mark.anyio


async def test_a_watcher_that_reconnects_sees_each_later_event_once_in_order() -> None:
    agent = Agent(ScriptedModel([call("look"), call("look"), text("so")]), tools=[look])
    async with Runner("memory:") as runner:
        handle = await runner.start(agent, "go")
        await handle.result()
        journal = [event async for event in handle.events(deltas=False)]
        for drop in range(len(journal) + 1):
            seen: list[e.Event] = []
            async for event in handle.events(deltas=False):
                if len(seen) == drop:
                    break
                assert isinstance(event, e.Event)
                seen.append(event)
            last = seen[-1].seq if seen else 0
            remaining = [event async for event in handle.events(after=last, deltas=False)]
            assert [*seen, *remaining] == journal
