"""Which answers are told to read like calls: those that end a step, of agents that no dialect reads."""

from typing import Any

import pytest

from tests.cast import look
from treadle import Agent, Runner, ScriptedModel
from treadle.models import call

pytestmark = pytest.mark.anyio

CALL = '{"name": "look", "arguments": {}}'


@pytest.mark.parametrize(
    ("answers", "settings", "warnings"),
    [
        ([CALL], {}, 1),
        ([f"  {CALL}\n"], {}, 1),
        ([CALL], {"tools": ()}, 0),
        ([call("look"), "Seen."], {}, 0),
        ([CALL], {"output_type": dict[str, Any], "output_mode": "native"}, 0),
    ],
    ids=[
        "a call",
        "a call between blanks",
        "no such tool",
        "a native call",
        "a typed answer that was accepted",
    ],
)
async def test_an_answer_that_is_a_call_is_told(
    answers: Any, settings: dict[str, Any], warnings: int
) -> None:
    agent = Agent(ScriptedModel(answers), name="looker", **{"tools": [look], **settings})
    async with Runner("memory:") as runner:
        assert len((await runner.run(agent, "Look")).warnings) == warnings
