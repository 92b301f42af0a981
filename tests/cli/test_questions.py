"""`answer`, and what `pending`, `show` and `tasks` tell of a task whose tool asked a person."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from treadle.cli.approvals import read_answer

AGENTS = """
from typing import Literal

from treadle import Agent, ScriptedModel, ToolContext, tool
from treadle.models import call, text


@tool(idempotent=True)
async def book(city: str, ctx: ToolContext) -> str:
    \"\"\"Book a room.\"\"\"
    kind = await ctx.ask(f"Which room in {city}?", Literal["single", "double"], expires=86_400, default="single")
    return f"{kind} room in {city}: {await ctx.ask('Anything else?')}"


calls = [call("book", city="Rome"), call("book", city="Oslo")]
one = Agent(ScriptedModel([calls[0], text("Done.")]), name="one", tools=[book])
two = Agent(ScriptedModel([calls, text("Done.")]), name="two", tools=[book])
"""


@pytest.fixture
def hotel(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "hotel.py").write_text(AGENTS)
    (project / "pyproject.toml").write_text('[tool.treadle]\nagents = ["hotel:one", "hotel:two"]\n')
    monkeypatch.delitem(sys.modules, "hotel", raising=False)


@pytest.mark.usefixtures("hotel")
def test_a_question_is_shown_with_its_schema_and_the_command_that_answers(treadle: Any) -> None:
    assert treadle("run", "one", "go", "--task-id", "trip").code == 4
    for command in (("show", "trip"), ("pending",), ("pending", "trip")):
        out = treadle(*command).out
        assert "Which room in Rome?" in out
        assert '"enum":["single","double"]' in out
        assert "treadle answer trip s1-0-q1 '<answer>'" in out
    assert treadle("tasks").out.rstrip().endswith("question of book")
    (item,) = treadle("pending", "--json").document["items"]
    assert (item["kind"], item["request_id"], item["default"]) == ("question", "s1-0-q1", "single")


@pytest.mark.usefixtures("hotel")
def test_answers_are_recorded_as_json_or_as_the_text_itself(treadle: Any) -> None:
    treadle("run", "one", "go", "--task-id", "trip")
    wrong = treadle("answer", "trip", "triple")
    assert (wrong.code, "must be one of 'single', 'double', got 'triple'" in wrong.err) == (2, True)
    assert treadle("answer", "trip", "s1-0-q1", "double", "--by", "ada").code == 0
    assert treadle("answer", "trip", "s1-0-q1", '"double"').code == 0
    again = treadle("answer", "trip", "s1-0-q1", "single")
    assert (again.code != 0, "was answered by ada already" in again.err) == (True, True)
    treadle("resume", "trip")
    answered = treadle("answer", "trip", "42", "--json")
    assert (answered.code, answered.document["task_id"]) == (0, "trip")
    ended = treadle("resume", "trip", "--json")
    assert ended.document["tool_executions"][0]["output"] == "double room in Rome: 42"
    shown = treadle("show", "trip").out
    assert "book (s1-0) asks: Which room in Rome?" in shown
    assert "answer to book (s1-0): double" in shown


@pytest.mark.usefixtures("hotel")
def test_one_of_several_questions_is_to_be_named(treadle: Any) -> None:
    treadle("run", "two", "go", "--task-id", "trip")
    unnamed = treadle("answer", "trip", "single")
    assert unnamed.code == 2
    assert "name one of the requests that are pending: s1-0-q1 (book)" in unnamed.err
    assert treadle("answer", "trip", "s1-1-q1", "single").code == 0
    assert "put an answer of several words in quotes" in treadle("answer", "trip", "a", "b", "c").err


@pytest.mark.parametrize(
    ("written", "schema", "read"),
    [
        ("42", {"type": "integer"}, 42),
        ("42", {"type": "string"}, "42"),
        ('"42"', {"type": "string"}, "42"),
        ("true", {"type": "boolean"}, True),
        ("yes", {"type": "boolean"}, True),
        ("as soon as possible", {"type": "string"}, "as soon as possible"),
        ('{"a": 1}', {"type": "object"}, {"a": 1}),
        ('{"a": 1}', {"type": "string"}, '{"a": 1}'),
        ("null", {"anyOf": [{"type": "string"}, {"type": "null"}]}, None),
    ],
)
def test_an_answer_is_read_as_the_schema_wants_it(written: str, schema: Any, read: Any) -> None:
    assert json.dumps(read_answer(written, schema)) == json.dumps(read)


@pytest.mark.usefixtures("hotel")
def test_one_command_answers_all_questions_of_a_tool(treadle: Any) -> None:
    treadle("run", "two", "go", "--task-id", "trip")
    treadle("run", "one", "go", "--task-id", "other")
    ended = treadle("answer", "--tool", "book", "double", "--yes", "--json")
    assert [item["state"] for item in ended.document["items"]] == ["answered"] * 3
    assert treadle("answer", "trip", "s1-0-q1", "double").code == 0, "the same answer changes nothing"
