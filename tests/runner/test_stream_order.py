"""In what order a stream tells what happened."""

import pytest

from treadle import Agent, Runner, ScriptedModel, events
from treadle.llm.scripted import text


@pytest.mark.anyio
async def test_text_is_told_before_the_answer_it_is_part_of_also_of_a_task_that_ends_at_once():
    agent = Agent(ScriptedModel([text("Hello.")]), name="greeter")
    async with Runner("memory:") as runner, runner.run_stream(agent, "Hi") as stream:
        told = [event.text if isinstance(event, events.Delta) else event.kind async for event in stream]
    assert told.index("Hello.") < told.index("model_returned")
