"""The planner: one JSON call in each turn, whose call finish is the answer."""

import json

import pytest

from tests.agents.dialects.readings import check_reading
from tests.agents.dialects.texts import PLANNER, answer, read, request
from tests.agents.dialects.transcripts import PLANNER as TEXTS
from tests.agents.dialects.transcripts import Case
from treadle import Agent, Runner, ScriptedModel


def test_an_answer_of_the_planner_is_text_or_json_where_a_schema_asks_for_it() -> None:
    content = '{"name": "finish", "arguments": {"answer": "5"}}'
    assert read(PLANNER, content).message.text == "5"
    assert PLANNER.read(answer(content), request(schema={"type": "string"})).message.text == '"5"'
    assert read(PLANNER, content.replace('"5"', '{"a": [1]}')).message.text == '{"a": [1]}'


@pytest.mark.anyio
async def test_a_falsy_answer_is_an_answer() -> None:
    async with Runner("memory:") as runner:
        for value, shown in ((0, "0"), (False, "false"), (None, "null"), ("", ""), ([], "[]")):
            content = json.dumps({"name": "finish", "arguments": {"answer": value}})
            result = await runner.run(Agent(ScriptedModel([content]), worker="planner"), "go")
            assert (result.state, result.final_text, result.steps) == ("completed", shown, 1)


def test_the_planner_describes_the_arguments_of_finish() -> None:
    wrapped = {"type": "object", "properties": {"answer": {"type": "integer"}}, "required": ["answer"]}
    assert "The arguments of finish must fit" in PLANNER.ask(request(schema=wrapped)).instructions
    own = {"type": "object", "properties": {"x": {}}, "required": ["x"]}
    assert "The answer given to finish must fit" in PLANNER.ask(request(schema=own)).instructions


# ------------------------------------------------- calls of the planner as JSON in text, and their readings


@pytest.mark.parametrize("case", TEXTS, ids=str)
def test_a_text_is_read_as_it_is_meant(case: Case) -> None:
    check_reading("planner", case)


def test_every_text_of_the_table_has_a_name_of_its_own() -> None:
    assert len({case.name for case in TEXTS}) == len(TEXTS)
