"""Typed answers over HTTP: every kind of type, asked for in each mode, right at once, wrong first, and never right."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.runner.typed_cases import CASES, IN_ROME, MODES, ROME, Country, Point, same, written
from treadle import Agent, Runner, tool
from treadle.models import Anthropic, OpenAIChat
from treadle.testing.provider import ProviderServer, call, raw_call, refusal, text, turn

every_mode = pytest.mark.parametrize("mode", MODES)


@tool(read_only=True)
def look(where: str) -> str:
    """Look something up."""
    return f"{where}: found"


class Provider:
    """One server for all tests; each test gives it its own script."""

    def __init__(self) -> None:
        self.script: list[Any] = []
        self.server = ProviderServer(lambda request: self.script[request.turn])
        self.first = 0

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """The requests of this test."""
        return [request.body for request in self.server.requests[self.first :]]


@pytest.fixture(scope="module")
def started() -> Iterator[Provider]:
    provider = Provider()
    with provider.server:
        yield provider


@pytest.fixture
def provider(started: Provider) -> Iterator[Provider]:
    started.first = len(started.server.requests)
    yield started
    assert started.server.problems == []


@pytest.fixture(scope="module")
def model(started: Provider) -> OpenAIChat:
    return OpenAIChat("scripted", base_url=started.server.openai_base_url, api_key="any")


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    runner = Runner("memory:")
    with runner.sync:
        yield runner


def answer_as(agent: Agent[Any], answer: Any) -> Any:
    """Return the turn that gives an answer."""
    if agent.output_mode == "tool":
        return raw_call("final_answer", written(agent, answer))
    return text(written(agent, answer))


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        pytest.param(name, mode, marks=() if number % 6 == 2 * index else pytest.mark.full)
        for number, name in enumerate(CASES)
        for index, mode in enumerate(MODES)
    ],
)
def test_the_request_shows_the_schema_and_a_wrong_answer_is_sent_back(
    runner: Runner, provider: Provider, model: OpenAIChat, name: str, mode: Any
) -> None:
    kind, right, valid, wrong = CASES[name]
    agent = Agent(model, tools=[look], output_type=kind, output_mode=mode)
    provider.script = [answer_as(agent, wrong), answer_as(agent, right)]
    result = runner.sync.run(agent, "Which is it?")
    assert (result.error, result.state, result.steps) == (None, "completed", 2)
    assert same(result.output, valid)
    first, second = provider.bodies
    assert second["messages"][-1]["role"] == ("tool" if mode == "tool" else "user")
    assert "This is not the answer that was asked for" in second["messages"][-1]["content"]
    offered = {entry["function"]["name"]: entry["function"]["parameters"] for entry in first["tools"]}
    assert ("response_format" in first, "final_answer" in offered) == (mode == "native", mode == "tool")
    assert ("JSON object" in first["messages"][0]["content"]) == (mode == "prompt")
    if mode == "native":
        assert first["response_format"]["json_schema"]["schema"]["type"] == "object"
    elif mode == "tool" and agent.typed is not None:
        schema_given, schema = offered["final_answer"], agent.typed.schema
        assert schema_given.get("properties", {}).keys() == schema.get("properties", {}).keys()


@every_mode
def test_a_model_that_is_never_right_fails_its_task_with_the_names_of_wrong_fields(
    runner: Runner, provider: Provider, model: OpenAIChat, mode: Any
) -> None:
    wrong = {"name": "Italy", "capital": {"name": "Rome", "founded": "long ago"}}
    agent = Agent(model, output_type=Country, output_mode=mode)
    provider.script = [answer_as(agent, wrong)] * 3
    result = runner.sync.run(agent, "Which?")
    assert (result.state, result.output, result.final_text) == ("failed", None, "")
    assert result.error is not None
    assert (result.error.source, result.error.kind) == ("model", "invalid_output")
    assert "capital.founded: should be a date" in result.error.message
    assert len(provider.bodies) == 3


@every_mode
def test_no_retry_means_one_request(runner: Runner, provider: Provider, model: OpenAIChat, mode: Any) -> None:
    agent = Agent(model, output_type=int, output_mode=mode, output_retries=0)
    provider.script = [answer_as(agent, "many")]
    result = runner.sync.run(agent, "How many?")
    assert (result.state, len(provider.bodies)) == ("failed", 1)


@every_mode
def test_text_that_is_no_json_and_answers_cut_off_are_no_answers(
    runner: Runner, provider: Provider, model: OpenAIChat, mode: Any
) -> None:
    agent = Agent(model, output_type=int, output_mode=mode)
    cut = turn(answer_as(agent, 1234), finish="length")
    provider.script = [text("I would say five."), cut, answer_as(agent, 5)]
    result = runner.sync.run(agent, "How many?")
    assert (result.state, result.output, result.steps) == ("completed", 5, 3)


@pytest.mark.parametrize("mode", ["native", "prompt"])
def test_a_refusal_is_not_asked_about_again_and_is_no_answer(
    runner: Runner, provider: Provider, model: OpenAIChat, mode: Any
) -> None:
    provider.script = [turn(refusal("I will not."))]
    result = runner.sync.run(Agent(model, output_type=str | None, output_mode=mode), "Say it.")
    assert (result.state, result.output, len(provider.bodies)) == ("degraded", None, 1)


@pytest.mark.parametrize(
    "wrong", ['{"x": 1, "x": 2}', '{"x": NaN}', '{"x": 1} or {"x": 2}', '{"x": {"x": 1}']
)
def test_json_that_is_ambiguous_or_not_closed_is_never_repaired(
    runner: Runner, provider: Provider, model: OpenAIChat, wrong: str
) -> None:
    provider.script = [text(wrong), text('It is {"x": 1.0}.')]
    result = runner.sync.run(Agent(model, output_type=Point, output_mode="prompt"), "Where?")
    assert (result.output, result.steps) == (Point(1.0), 2)


def test_the_answer_tool_takes_no_name_of_the_agents_own(
    runner: Runner, provider: Provider, model: OpenAIChat
) -> None:
    @tool(read_only=True)
    def final_answer(text: str) -> str:
        """Something else entirely."""
        return text

    provider.script = [call("final_answer", text="a"), call("final_answer_2", x=1)]
    result = runner.sync.run(
        Agent(model, tools=[final_answer], output_type=Point, output_mode="tool"), "Where?"
    )
    assert (result.output, [run.output for run in result.tool_executions]) == (Point(1.0), ["a"])


def test_calls_beside_the_answer_run_and_of_two_answers_the_first_right_one_counts(
    runner: Runner, provider: Provider, model: OpenAIChat
) -> None:
    answers = [call("final_answer", x="far"), call("final_answer", x=2), call("final_answer", x=3)]
    provider.script = [turn(call("look", where="map"), *answers), None, text("Welcome.")]
    agent = Agent(model, tools=[look], output_type=Point, output_mode="tool")
    result = runner.sync.run(agent, "Where?", thread_id="two answers")
    assert (result.output, result.steps) == (Point(2.0), 1)
    assert [(run.name, run.outcome) for run in result.tool_executions] == [("look", "ok")]
    # The conversation goes on: every call in it has its result.
    later = runner.sync.run(agent.replace(output_type=str), "Thanks.", thread_id="two answers")
    assert later.final_text == later.output == "Welcome."


@every_mode
def test_the_answer_is_seen_while_it_comes_over_the_wire(
    runner: Runner, provider: Provider, model: OpenAIChat, mode: Any
) -> None:
    agent = Agent(model, tools=[look], output_type=Country, output_mode=mode)
    complete = {"name": "Italy", "capital": IN_ROME}
    provider.script = [
        turn(call("look", where="map"), answer_as(agent, {"name": "Spain"})),
        answer_as(agent, complete),
    ]
    if mode != "tool":
        provider.script[0] = turn(call("look", where="map"))
    with runner.sync.run_stream(agent, "Which?") as stream:
        seen = list(stream.partials())
    assert stream.result.output == Country(name="Italy", capital=ROME)
    assert seen[-1] == complete
    assert {"name": "Italy", "capital": {}} in seen or {"name": "Italy"} in seen
    assert ({"name": "Spain"} in seen) == (mode == "tool")


@pytest.mark.parametrize(("name", "native"), [("claude-sonnet-5-5", True), ("scripted", False)])
def test_structured_output_is_used_where_supported_and_requested_by_text_elsewhere(
    runner: Runner, provider: Provider, name: str, native: bool
) -> None:
    claude = Anthropic(name, base_url=provider.server.anthropic_base_url, api_key="any")
    agent = Agent(claude, output_type=Country, output_mode="native")
    provider.script = [answer_as(agent, {"name": "Italy", "capital": IN_ROME})]
    result = runner.sync.run(agent, "Which?")
    assert (result.error, result.output) == (None, Country(name="Italy", capital=ROME))
    body = provider.bodies[0]
    assert ("founded" in str(body.get("output_config")), "founded" in str(body.get("system"))) == (
        native,
        not native,
    )


@pytest.mark.parametrize("mode", ["tool", "prompt"])
def test_anthropic_is_asked_the_same_way(runner: Runner, provider: Provider, mode: Any) -> None:
    claude = Anthropic("scripted", base_url=provider.server.anthropic_base_url, api_key="any")
    agent = Agent(claude, tools=[look], output_type=Country, output_mode=mode)
    wrong, right = {"name": "Italy"}, {"name": "Italy", "capital": IN_ROME}
    provider.script = [call("look", where="map"), answer_as(agent, wrong), answer_as(agent, right)]
    result = runner.sync.run(agent, "Which?")
    assert result.output == Country(name="Italy", capital=ROME)
    names = [entry["name"] for entry in provider.bodies[0]["tools"]]
    assert names == ["look", "final_answer"] if mode == "tool" else ["look"]
