"""An answer that its provider reports as failed, or that ended without a reason, was taken for the task's answer."""

import pytest

from treadle import Agent, Runner
from treadle.models import Google, ScriptedModel, turn
from treadle.testing.provider import ProviderServer
from treadle.testing.provider import text as said
from treadle.testing.provider import turn as answer

pytestmark = pytest.mark.anyio
WHY = {
    "error": "the answer ended with an error",
    "unknown": "the model stopped for a reason that is not known",
}


@pytest.mark.parametrize("finish", WHY)
async def test_an_unfinished_answer_does_not_become_the_result(finish):
    async with Runner("memory:") as runner:
        result = await runner.run(Agent(ScriptedModel([turn("Half of wh", finish=finish)])), "Go.")
    assert (result.state, result.final_text) == ("degraded", "Half of wh")
    assert result.degraded_reasons == (WHY[finish],)


async def test_a_call_that_google_could_not_read_is_no_empty_answer_and_is_asked_for_again_by_a_resume():
    answers = [answer(finish="MALFORMED_FUNCTION_CALL"), said("All of it.")]
    with ProviderServer(lambda request: answers[len(server.requests) - 1]) as server:
        agent = Agent(Google("gemini-3-x", base_url=server.google_base_url, api_key="k"))
        async with Runner("memory:") as runner:
            result = await runner.run(agent, "Go.", task_id="t")
            assert (result.state, result.final_text) == ("failed", "")
            assert result.error.kind == "unparsable"
            assert "MALFORMED_FUNCTION_CALL" in result.error.message
            result = await runner.resume("t", agent=agent)
            assert (result.state, result.final_text) == ("completed", "All of it.")
