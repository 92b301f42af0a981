"""A fork of a failed task copied its closing note, so the model was asked to answer its own message."""

import pytest

from treadle import Agent, Runner, RunOptions, ScriptedModel
from treadle.llm.scripted import call, fail, text
from treadle.testing.audit import Evidence, audit_store

pytestmark = pytest.mark.anyio


async def test_a_fork_of_a_failed_task_goes_on_without_its_closing_note() -> None:
    model = ScriptedModel([call("nothing"), fail(500), text("so")])
    agent = Agent(model)
    async with Runner("memory:", agents=[agent], options=RunOptions(keep_in_thread="always")) as runner:
        parent = await runner.run(agent, "go")
        assert parent.state == "failed"
        fork = await runner.fork(parent.task_id, at=(await runner.store.row(parent.task_id)).head)
        result = await runner.resume(fork)
        if result.state == "failed":
            result = await runner.resume(fork)
        assert result.final_text == "so"
        requests = {
            fork.task_id: [request.messages for request in model.requests if request.task_id == fork.task_id]
        }
        assert await audit_store(runner.store, Evidence(requests=requests, ended=True)) == []
        assert not any("failed" in message.text for message in result.messages)
