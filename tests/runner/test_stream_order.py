"""In what order a stream tells what happened."""

import pytest

from treadle import Agent, Runner, ScriptedModel, events
from treadle.llm.scripted import text
from treadle.runner.stream import watch


@pytest.mark.anyio
async def test_text_is_told_before_the_answer_it_is_part_of_also_of_a_task_that_ends_at_once():
    agent = Agent(ScriptedModel([text("Hello.")]), name="greeter")
    async with Runner("memory:") as runner, runner.run_stream(agent, "Hi") as stream:
        told = [event.text if isinstance(event, events.Delta) else event.kind async for event in stream]
    assert told.index("Hello.") < told.index("model_returned")


@pytest.mark.anyio
async def test_a_piece_of_an_answer_is_not_told_after_what_came_after_it():
    """It was held back for events that the watcher then read from the journal, with those that followed."""
    async with Runner("memory:") as runner:
        task_id = (await runner.run(Agent(ScriptedModel([text("Hello.")])), "Hi")).task_id
        head = (await runner.get_task(task_id)).head
        watcher = runner.driver.owned.channels.subscribe(task_id)
        for after in (head - 2, head):
            runner.driver.owned.channels.of(task_id).tell_watchers(
                events.Delta("s1", "draft", f"{after}", after)
            )
        watcher.missed = True

        async def over(given_back):
            return True

        told = [
            event.text if isinstance(event, events.Delta) else event.seq
            async for event in watch(runner.driver.owned, task_id, watcher, after=0, deltas=True, over=over)
        ]
    assert told == [*range(1, head + 1), f"{head}"]


@pytest.mark.anyio
async def test_a_piece_of_an_answer_is_not_told_when_the_answer_was_read_from_the_journal_before():
    """The journal may hold events that the driver has not published yet: their deltas are taken after them."""
    async with Runner("memory:") as runner:
        task_id = (await runner.run(Agent(ScriptedModel([text("Hello.")])), "Hi")).task_id
        head = (await runner.get_task(task_id)).head
        watcher = runner.driver.owned.channels.subscribe(task_id)
        watcher.missed = True
        looks = 0

        async def over(given_back):
            nonlocal looks
            looks += 1
            if looks == 2:
                for after in (head - 2, head):
                    runner.driver.owned.channels.of(task_id).tell_watchers(
                        events.Delta("s1", "draft", f"{after}", after)
                    )
            watcher.look = True
            return looks > 2

        told = [
            event.text if isinstance(event, events.Delta) else event.seq
            async for event in watch(runner.driver.owned, task_id, watcher, after=0, deltas=True, over=over)
        ]
    assert told == [*range(1, head + 1), f"{head}"]
