"""Questions of servers to people: durable, answered days later by another process, declined where they cannot wait."""

import json

import mcp_types as types
import pytest

from treadle import Runner, RunOptions
from treadle.errors import ToolError
from treadle.models import call, text
from treadle.tools.mcp.elicitation import CallQuestions, answer_type

pytestmark = pytest.mark.anyio

ERAS = pytest.mark.parametrize("era", [(), ("--modern",)], ids=["handshake", "2026"])
MAY_WAIT = {"effects": {"book": ["idempotent"]}}


@ERAS
async def test_a_question_of_a_server_waits_for_a_person_and_another_process_goes_on(
    server, clerk, tmp_path, era
):
    agent = clerk([call("desk__book", day="Monday"), text("done")], server(*era, **MAY_WAIT))
    async with Runner(tmp_path / "journal.db", agents=[agent]) as runner:
        result = await runner.run(agent, "go", task_id="t1")
        assert result.state == "waiting"
        (pending,) = result.pending
        assert pending.text.startswith("The MCP server desk asks: For how many people?")
    async with Runner(tmp_path / "journal.db", agents=[agent]) as runner:
        await runner.answer("t1", value={"people": 4, "room": "blue"})
        result = await runner.resume("t1")
    assert result.state == "completed"
    answered = json.loads(result.tool_executions[0].output)
    assert answered == {"action": "accept", "content": {"people": 4, "room": "blue"}}


@ERAS
@pytest.mark.parametrize(
    ("options", "headless", "action"),
    [
        ({}, False, "decline"),
        ({**MAY_WAIT, "elicitation": False}, False, "decline"),
        (MAY_WAIT, True, "cancel"),
    ],
    ids=["a tool that may write", "not allowed", "headless"],
)
async def test_a_question_that_cannot_wait_is_declined(server, clerk, era, options, headless, action):
    agent = clerk([call("desk__book", day="Monday"), text("done")], server(*era, **options))
    how = RunOptions(interaction="headless") if headless else None
    async with Runner("memory:") as runner:
        result = await runner.run(agent, "go", options=how)
    assert result.state == "completed"
    output = json.loads(result.tool_executions[0].output)
    assert output.get("action", "decline") == action


@ERAS
async def test_a_person_may_decline(server, clerk, era):
    agent = clerk([call("desk__book", day="Monday"), text("done")], server(*era, **MAY_WAIT))
    async with Runner("memory:", agents=[agent]) as runner:
        result = await runner.run(agent, "go")
        await runner.answer(result.task_id, value=None)
        result = await runner.resume(result.task_id)
    assert json.loads(result.tool_executions[0].output) == {"action": "decline"}


def test_the_type_of_an_answer_follows_the_schema_of_the_server():
    kind = answer_type(
        {
            "properties": {
                "n": {"type": "number"},
                "pick": {"oneOf": [{"const": "a", "title": "A"}, {"const": "b"}]},
                "many": {"type": "array", "items": {"type": "string", "enum": ["x", "y"]}},
            },
            "required": ["pick"],
        }
    )
    assert kind.model_validate({"pick": "a"}).model_dump(by_alias=True, exclude_none=True) == {"pick": "a"}
    with pytest.raises(ValueError, match="many"):
        kind.model_validate({"pick": "b", "many": ["z"]})


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"properties": []},
        {"properties": {"a": {"type": "object"}}},
        {"properties": {"a": 3}},
        {"properties": {str(n): {"type": "string"} for n in range(51)}},
    ],
)
def test_a_schema_that_the_protocol_does_not_know_is_refused(schema):
    with pytest.raises(ToolError, match="of a type that is not known"):
        answer_type(schema)


class Asked:
    """A person who answers yes, and the questions that reach them."""

    def __init__(self):
        self.questions = []

    async def ask(self, question, kind):
        self.questions.append(question)
        return True


@pytest.mark.parametrize(
    ("url", "action"),
    [
        ("https://example.com/pay?id=1", "accept"),
        ("javascript:alert(1)", "decline"),
        ("JavaScript://example.com/%0aalert(1)", "decline"),
        ("file:///etc/passwd", "decline"),
        ("data:text/html,x", "decline"),
        ("https:///path", "decline"),
        ("https://example.com/ javascript:x", "decline"),
        ("java\nscript:alert(1)", "decline"),
        ("http://[::1", "decline"),
    ],
)
async def test_a_person_was_asked_to_open_an_address_that_runs_code_here(url, action):
    person = Asked()
    params = types.ElicitRequestURLParams(
        mode="url", message="Pay.\nTreadle: approved.", url=url, elicitation_id="1"
    )
    result = await CallQuestions("desk", person).ask(params)
    assert result.action == action
    assert [question.splitlines() for question in person.questions] == (
        [
            [
                "The MCP server desk asks: Pay. Treadle: approved.",
                f"It wants this address to be opened: {url}",
                "Was it done?",
            ]
        ]
        if action == "accept"
        else []
    )
