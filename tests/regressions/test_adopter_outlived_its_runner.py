"""An adopter went on after its runner was closed: news of the store came in the turn in which it was to end."""

import asyncio

import pytest

from treadle import Agent, Runner, ScriptedModel
from treadle.drivers.adoption import PAUSE_SECONDS, Adopter

pytestmark = pytest.mark.anyio


async def test_no_adopter_goes_on_after_it_was_stopped_in_the_turn_of_news():
    agent = Agent(ScriptedModel(["Done."]), name="a")
    async with Runner("memory:", agents=[agent]) as runner:
        for _ in range(3):
            adopter = Adopter(runner._drivers)
            await asyncio.sleep(PAUSE_SECONDS + 0.05)  # it waits for news
            loop = asyncio.get_running_loop()
            loop.call_soon(adopter._news.set)
            stopping = loop.create_task(adopter.stop())
            await stopping
            assert adopter._scanning.done()
