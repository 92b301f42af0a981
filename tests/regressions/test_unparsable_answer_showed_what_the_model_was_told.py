"""A task whose worker could not read the model failed with words for the model, such as "you wrote nothing"."""

from typing import Any

import pytest

from treadle import Agent, Planner, PlanRefine, React, Runner, ScriptedModel
from treadle.models import turn

pytestmark = pytest.mark.anyio

WORKERS: dict[str, Any] = {
    "react": React(max_parse_errors=2),
    "planner": Planner(max_parse_errors=2),
    "plan_refine": PlanRefine(max_parse_errors=2),
}
HALF = "Action: f\nAction Input: "
ENDLESS = "the thinking has no end (</think>), and nothing comes after it"
NO_ARGUMENTS = 'the JSON object has no "arguments" that are a JSON object'
CUT = "the answer was cut off at the longest length that is allowed"
CASES: dict[str, tuple[str, Any, str, str]] = {
    "react, an observation": (
        "react",
        "Observation: 5",
        "there is an observation, and only tools write those",
        "",
    ),
    "react, thinking alone": ("react", "<think>hm</think>", "the answer is empty", ""),
    "react, endless thinking": (
        "react",
        "<think>hm",
        "the thinking has no end (</think>), and nothing comes after it",
        "",
    ),
    "react, no input": ("react", "Action: f", '"Action: f" has no "Action Input:" after it', "{}"),
    "react, no object": ("react", HALF, 'after "Action Input:" there is no JSON object', "{}"),
    "react, cut off": ("react", turn(HALF + "{}", finish="length"), f"{CUT}, and nothing of it was used", ""),
    "planner, thinking alone": ("planner", "<think>hm</think>", "the answer is empty", ""),
    "planner, endless thinking": (
        "planner",
        "<think>hm",
        "the thinking has no end (</think>), and nothing comes after it",
        "",
    ),
    "planner, no arguments": (
        "planner",
        '{"name": "f"}',
        'the JSON object has no "arguments" that are a JSON object',
        "{}",
    ),
    "planner, cut off": ("planner", turn("{}", finish="length"), f"{CUT}, and nothing of it was used", ""),
    "plan_refine, thinking alone": ("plan_refine", "<think>hm</think>", "there is no JSON object", ""),
    "plan_refine, cut off": ("plan_refine", turn("{", finish="length"), CUT, "write a shorter one"),
}


@pytest.mark.parametrize("case", CASES)
async def test_people_read_the_reason_and_the_model_reads_the_advice_too(case: str) -> None:
    worker, answer, reason, advice = CASES[case]
    model = ScriptedModel([answer] * 3)
    async with Runner("memory:") as runner:
        result = await runner.run(Agent(model, worker=WORKERS[worker]), "How many?")
    assert result.error is not None
    verb = "used" if worker == "plan_refine" else "read"
    assert result.error.kind == "unparsable"
    assert (
        result.error.message
        == f"2 answers of the model in a row could not be {verb}, at last because {reason}"
    )
    said = model.requests[1].messages[-1].text
    assert reason in said
    assert advice in said
