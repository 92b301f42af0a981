"""A task without a typed answer failed with words for its model, such as "write {} where there is nothing to say"."""

from typing import Any

import pytest

from treadle import Agent, Runner, ScriptedModel
from treadle.models import turn

pytestmark = pytest.mark.anyio

OTHER_MODES = (
    'The model was asked to answer by a call (output_mode="tool"). If its answers do not fit the schema, try '
    'output_mode="native"'
)

CASES: dict[str, tuple[Any, Any, str, str]] = {
    "text in place of the call": (
        "tool",
        turn("It is five."),
        "it was text, and no call of final_answer. " + OTHER_MODES,
        "Give the whole answer again, by calling final_answer.",
    ),
    "text without JSON": (
        "prompt",
        turn("It is five."),
        "there is no JSON object",
        "Give the whole answer again.",
    ),
    "an answer that was cut off": (
        "prompt",
        turn('{"answer": 1', finish="length"),
        "it was cut off at the longest length that is allowed",
        "Give the whole answer again, shorter.",
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_people_and_the_model_are_told_each_in_their_words(case: str) -> None:
    mode, answer, for_people, for_model = CASES[case]
    model = ScriptedModel([answer, answer])
    agent: Agent[Any] = Agent(model, output_type=int, output_mode=mode, output_retries=1)
    async with Runner("memory:") as runner:
        result = await runner.run(agent, "How many?")
    assert result.error is not None
    because = "2 answers were not of the agent's output type, at last because of this: "
    assert result.error.message.startswith(because + for_people)
    assert for_model not in result.error.message
    assert model.requests[1].messages[-1].text.endswith(for_model)
