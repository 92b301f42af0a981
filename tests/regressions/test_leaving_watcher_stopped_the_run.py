"""A client that disconnected stopped a run that it only watched, or left its own running for ever."""

import asyncio

from treadle import Agent, ScriptedModel
from treadle.llm.scripted import text
from treadle.testing import clock


def test_a_watcher_that_leaves_stops_nothing_and_the_owner_of_a_stream_interrupts() -> None:
    model = ScriptedModel([text("slowly said", delay=5)])
    agent = Agent(model)

    async def story() -> None:
        async with clock.runner() as runner:
            handle = await runner.start(agent, "go")
            watching = asyncio.ensure_future(anext(aiter(handle.events())))
            await watching
            assert (await handle.result()).state == "completed"

            async with runner.run_stream(agent, "go") as stream:
                async for _ in stream:
                    break
            assert stream.task_id is not None
            result = await runner.result(stream.task_id)
            assert result.state == "interrupted"
            request_count = len(model.requests)
            await asyncio.sleep(60)
            assert len(model.requests) == request_count

    clock.run(story())
