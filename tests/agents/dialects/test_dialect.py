"""Dialects: the instructions of a request, the reading of an answer, and when a step fails."""

import json
import time
from dataclasses import dataclass
from typing import Any

import pytest

from tests.agents.dialects.texts import PLANNER, REACT, read, request
from tests.agents.stories import recorded, rules, state_after
from tests.cast import add
from treadle import Agent, Limits, React, Reading, Runner, RunOptions, ScriptedModel
from treadle.agents.dialects.dialect import UNREADABLE, TextDialect
from treadle.agents.dialects.planner import HEADER as PLANNER_HEADER
from treadle.agents.dialects.react import HEADER
from treadle.agents.dialects.transcript import IN_WORDS
from treadle.core import events as e
from treadle.core.framing import FRAME_NOTE
from treadle.core.messages import Message, Reasoning, Text, ToolCall
from treadle.core.model import Finish, ModelAnswer, Usage
from treadle.core.model_answer import with_places
from treadle.core.tools import ToolSpec
from treadle.llm.scripted import text, turn


@dataclass
class Point:
    x: int
    y: int


# ------------------------------------------------------------------------------------------ the request


@pytest.mark.parametrize("dialect", [REACT, PLANNER], ids=repr)
def test_tools_are_described_in_the_instructions(dialect: TextDialect) -> None:
    text_request = dialect.ask(request())
    assert (text_request.tools, text_request.tool_choice, text_request.output_schema) == ((), "auto", None)
    assert "- add: Add two numbers.\n  arguments: {" in text_request.instructions
    assert text_request.instructions.endswith(f"\n\nBe brief.\n\n{FRAME_NOTE}")
    assert (text_request.task_id, text_request.step, text_request.turn, text_request.attempt) == (
        "t",
        "s1",
        0,
        1,
    )


def test_a_tool_choice_is_described_in_the_instructions() -> None:
    assert REACT.ask(request(choice="required")).instructions.endswith("Use a tool in this turn.")
    assert REACT.ask(request(choice="add")).instructions.endswith("Use the tool add in this turn.")


def test_the_request_for_a_last_answer_has_no_tools() -> None:
    state_after = REACT.ask(request(tools=(), choice="none")).instructions
    assert "no tool may be used any more: answer now" in state_after
    assert "Tools:\n(none)" in REACT.ask(request(tools=())).instructions


@pytest.mark.parametrize("dialect", [REACT, PLANNER], ids=repr)
def test_the_schema_of_an_answer_is_described_in_the_instructions(dialect: TextDialect) -> None:
    request_as_text = dialect.ask(request(schema={"type": "integer"}))
    assert '{"type": "integer"}' in request_as_text.instructions
    assert request_as_text.output_schema is None


# ------------------------------------------------------------------------------------------- the answer


def test_an_answer_keeps_what_its_provider_gave_with_it() -> None:
    signed = Reasoning("deep", {"signature": "abc"})
    whole = ModelAnswer(Message("assistant", (signed, Text("Answer: 5")), {"id": "x"}), "stop", Usage(3, 4))
    got = REACT.read(whole, request())
    assert got.message == Message("assistant", (signed, Text("5")), {"id": "x"})
    assert (got.finish, got.usage) == ("stop", Usage(3, 4))


def test_a_call_that_was_read_ends_as_calls_do() -> None:
    got = read(REACT, 'Thought: hm\nAction: add\nAction Input: {"a": 1}')
    assert got.message.parts == (Reasoning("hm", IN_WORDS), ToolCall("", "add", {"a": 1}))
    assert got.finish == "tool_calls"


def test_calls_of_the_providers_own_kind_are_taken_as_they_are() -> None:
    native = ModelAnswer(
        Message("assistant", (Text("Answer: 5"), ToolCall("x", "add", {"a": 1}))), "tool_calls"
    )
    assert REACT.read(native, request()) is native


CALL = 'Action: add\nAction Input: {"a": 1}'


@pytest.mark.parametrize("finish", ["length", "content_filter", "refusal", "error", "unknown"])
@pytest.mark.parametrize("dialect", [REACT, PLANNER], ids=repr)
def test_a_call_in_an_answer_that_ended_early_never_runs(dialect: TextDialect, finish: Finish) -> None:
    content = CALL if dialect is REACT else '{"name": "add", "arguments": {"a": 1}}'
    got = read(dialect, content, finish)
    (call,) = with_places(got.message, "s1", got.finish).tool_calls
    assert call.problem
    assert (call.raw, call.arguments) == (content, {})


def test_an_answer_cut_off_at_its_length_goes_back_but_the_last_one_is_used() -> None:
    (call,) = read(REACT, "Answer: It is 4", "length").message.tool_calls
    assert "cut off" in str(call.problem)
    last = read(REACT, "Thought: hm\nAnswer: It is 4", "length", choice="none", tools=())
    assert (last.message.text, last.message.tool_calls, last.finish) == ("It is 4", (), "length")


@pytest.mark.parametrize("finish", ["content_filter", "refusal"])
def test_the_text_of_a_refusal_is_the_answer(finish: Finish) -> None:
    got = read(PLANNER, "I will not do that.", finish)
    assert (got.message.text, got.finish) == ("I will not do that.", finish)


def test_an_unreadable_last_answer_is_used_as_it_is() -> None:
    assert read(PLANNER, "It is about 4.", choice="none", tools=()).message.text == "It is about 4."
    assert read(REACT, "Thought: about 4", choice="none", tools=()).message.text == "about 4"
    assert read(REACT, "Action: add\nAction Input: {", choice="none", tools=()).message.text == ""


def test_a_name_that_no_provider_accepts_is_not_the_name_of_a_call() -> None:
    got = read(REACT, "Action: add up the numbers\nAction Input: {}")
    (call,) = got.message.tool_calls
    assert call.name == UNREADABLE
    assert str(call.problem).startswith("there is no tool 'add up the numbers'")
    assert read(REACT, "Action: subtract\nAction Input: {}").message.tool_calls[0].problem is None
    spec = ToolSpec(name="найти")
    assert read(REACT, "Action: найти\nAction Input: {}", tools=(spec,)).message.tool_calls[0].name == "найти"


def test_a_text_of_any_kind_is_read_in_time_that_grows_with_its_length() -> None:
    size = 8_000
    pieces = (
        "*",
        "\n",
        " ",
        "Action: a\n",
        "</think>\n",
        "Thought: a\n",
        "```\n",
        ", ",
        "{",
        "'a",
        '{"a":',
        "[1,",
    )
    begins = (
        "",
        "Action: ",
        "Action",
        "Answer: ",
        "<think>",
        "Action: a\nAction Input: {",
        '{"thought": "',
        '{"name":',
    )
    begun = time.process_time()
    for begin in begins:
        for piece in pieces:
            content = begin + piece * (size // len(piece))
            for dialect in (REACT, PLANNER):
                dialect.parser(content)
                reader = dialect.delta_reader(request())
                for place in range(0, size, 200):
                    list(reader.feed(content[place : place + 200]))
    assert time.process_time() - begun < 30  # less than 1 s; what grows with the square takes minutes


# --------------------------------------------------------------------------------------- unreadable answers


def garbled(step: str, index: int, attempt: int = 1) -> list[e.Event]:
    """Return the events of a step whose answer could not be read."""
    call = ToolCall(f"{step}-0", UNREADABLE, {}, "hm", "it was not closed", IN_WORDS)
    failure = e.Failure("tool", "invalid", "Nothing was run", call.id)
    return [
        e.StepStarted(step, index, attempt),
        e.ModelStarted(step, "m"),
        e.ModelReturned(step, Message("assistant", (call,))),
        e.ToolEnded(step, call.id, "invalid", error=failure),
    ]


def completed(step: str, index: int) -> list[e.Event]:
    return [*garbled(step, index), e.StepCompleted(step)]


def test_consecutive_unreadable_answers_fail_the_step() -> None:
    by = rules(max_parse_errors=3)
    assert recorded(state_after(garbled("s1", 1)), by) == e.StepCompleted("s1")
    two = state_after(completed("s1", 1), garbled("s2", 2))
    assert recorded(two, by) == e.StepCompleted("s2")
    three = state_after(completed("s1", 1), completed("s2", 2), garbled("s3", 3))
    failed = recorded(three, by)
    assert isinstance(failed, e.StepFailed)
    assert (failed.error.source, failed.error.kind) == ("worker", "unparsable")
    assert failed.error.message == (
        "3 answers of the model in a row could not be read, at last because it was not closed"
    )
    assert isinstance(recorded(state_after(garbled("s1", 1)), rules(max_parse_errors=1)), e.StepFailed)
    assert recorded(three, rules()) == e.StepCompleted("s3")


def test_a_fork_does_not_count_what_its_parent_could_not_read() -> None:
    fork = e.TaskForked("p", "math", "other")
    state = state_after(completed("s1", 1), completed("s2", 2), fork, garbled("s3", 3))
    assert recorded(state, rules(max_parse_errors=3)) == e.StepCompleted("s3")


def test_a_skipped_or_retried_step_resets_the_count_of_unreadable_answers() -> None:
    by = rules(max_parse_errors=2)
    failure = e.Failure("worker", "unparsable", "so")
    failed = [*garbled("s2", 2), e.StepFailed("s2", failure)]
    again = state_after(completed("s1", 1), failed, e.StepStarted("s2", 2, 2))
    assert recorded(again, by) == e.StepCompleted("s2")
    after = state_after(
        completed("s1", 1), failed, e.StepStarted("s2", 2, 2), e.StepCompleted("s2"), garbled("s3", 3)
    )
    assert recorded(after, by) == e.StepCompleted("s3")
    skipped = state_after(completed("s1", 1), failed, e.StepSkipped("s2"), garbled("s3", 3))
    assert recorded(skipped, by) == e.StepCompleted("s3")


@pytest.mark.anyio
@pytest.mark.parametrize("worker", ["react", "planner"])
async def test_a_model_that_never_writes_the_format_fails_its_task_and_a_resume_gives_it_as_many_tries(
    worker: Any,
) -> None:
    good = {"react": "Answer: 3", "planner": '{"name": "finish", "arguments": {"answer": 3}}'}[worker]
    model = ScriptedModel(lambda sent: good if sent.turn == 5 else "Thought: {")
    async with Runner("memory:") as runner:
        result = await runner.run(Agent(model, tools=[add], worker=worker), "go")
        assert (result.state, result.error.source if result.error else "") == ("failed", "worker")
        assert [run.outcome for run in result.tool_executions] == ["invalid"] * 3
        assert "Nothing was run" in model.requests[-1].messages[-1].text
        result = await runner.resume(result.task_id)
        assert (result.state, result.final_text, len(model.requests)) == ("completed", "3", 6)


@pytest.mark.anyio
async def test_a_readable_answer_resets_the_count_of_unreadable_answers() -> None:
    good = 'Action: add\nAction Input: {"a": 1, "b": 2}'
    script = ["Thought: x", "Thought: x", good, "Thought: x", "Thought: x", "Answer: 3"]
    async with Runner("memory:") as runner:
        result = await runner.run(Agent(ScriptedModel(script), tools=[add], worker="react"), "go")
    assert (result.state, result.final_text) == ("completed", "3")


# --------------------------------------------------------------------------------------------- the agent


def test_a_dialect_is_part_of_an_agents_version() -> None:
    def other(content: str) -> Reading:
        return Reading(answer=content)

    agents = [
        Agent("openai:x"),
        Agent("openai:x", worker="react"),
        Agent("openai:x", worker="planner"),
        Agent("openai:x", worker=React(header="{tools}")),
        Agent("openai:x", worker=React(parser=other)),
        Agent("openai:x", worker=React(max_parse_errors=5)),
    ]
    assert len({agent.fingerprint for agent in agents}) == len(agents)
    assert Agent("openai:x", worker=React()).fingerprint == agents[1].fingerprint
    assert agents[4].replace(name="b").dialect is agents[4].dialect
    assert agents[1].replace(worker="function_calling").fingerprint == agents[0].fingerprint


def test_headers_are_whole_programs_of_their_own() -> None:
    for header in (HEADER, PLANNER_HEADER):
        assert "{tools}" in header
        assert "{names}" not in React(header="{tools} {names}").ask(request()).instructions
    assert React(header="{names}|{tools}").ask(request()).instructions.startswith("add|- add")


@pytest.mark.anyio
@pytest.mark.parametrize("worker", ["react", "planner"])
@pytest.mark.parametrize(
    ("type_", "wrong", "right", "is_"),
    [
        (int, "five", 5, 5),
        (bool, "five", False, False),
        (int | None, "five", None, None),
        (list[int], ["a"], [], []),
        (str | int, [1], "5", "5"),
        (Point, {"x": "far"}, {"x": 1, "y": 2}, Point(1, 2)),
    ],
)
async def test_a_typed_answer_is_read_sent_back_when_it_is_wrong_and_seen_as_it_comes(
    worker: Any, type_: Any, wrong: Any, right: Any, is_: Any
) -> None:
    def written(value: Any) -> Any:
        content = json.dumps(value)
        finish = json.dumps({"thought": "hm", "name": "finish", "arguments": {"answer": value}})
        return text(f"Thought: hm\nAnswer: {content}" if worker == "react" else finish, chunk=3)

    model = ScriptedModel(["Thought: {", written(wrong), written(right)])
    async with Runner("memory:") as runner:
        agent = Agent(model, worker=worker, output_type=type_)
        async with runner.run_stream(agent, "go") as stream:
            seen = [partial async for partial in stream.partials()]
    result = stream.result
    assert (result.state, result.output, result.steps) == ("completed", is_, 3)
    assert "not the answer that was asked for" in model.requests[-1].messages[-1].text
    assert all(sent.output_schema is None for sent in model.requests)
    if right is not None:
        assert seen[-1] == right


@pytest.mark.anyio
async def test_a_window_counts_the_header_too() -> None:
    model = ScriptedModel(["Answer: 3"])
    async with Runner("memory:") as runner:
        small = RunOptions(context_tokens=1_000)
        result = await runner.run(
            Agent(model, tools=[add], worker="react", instructions="x" * 900), "go", options=small
        )
        assert result.error is not None
        assert result.error.kind == "too_large"
        native = await runner.run(
            Agent(ScriptedModel(["3"]), tools=[add], name="n", instructions="x" * 900), "go", options=small
        )
        assert native.final_text == "3"


@pytest.mark.anyio
async def test_a_cut_off_answer_is_not_acted_on_and_the_next_one_is() -> None:
    script = [turn(CALL, finish="length"), 'Action: add\nAction Input: {"a": 1, "b": 2}', "Answer: 3"]
    async with Runner("memory:") as runner:
        result = await runner.run(
            Agent(ScriptedModel(script), tools=[add], worker="react", limits=Limits(steps=3)), "go"
        )
    assert [run.outcome for run in result.tool_executions] == ["invalid", "ok"]
    assert (result.state, result.final_text) == ("completed", "3")
