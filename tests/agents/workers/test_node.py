"""Nodes of a pipeline: the arguments and the values of tools, prompts and functions."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.agents.workers.nodes import add, agent_of, echo, inputs_of, name_of, run
from tests.runner.acts import assert_well_formed
from treadle import (
    Agent,
    Ask,
    Image,
    Node,
    NodeContext,
    Runner,
    ScriptedModel,
    tool,
)
from treadle.llm.scripted import Turn, call, text, turn
from treadle.testing.audit import Evidence, audit_store

pytestmark = pytest.mark.anyio


@pytest.fixture
async def runner() -> AsyncIterator[Runner]:
    async with Runner("memory:") as runner:
        yield runner
        assert await audit_store(runner.store, Evidence(ended=False)) == []


async def test_a_node_that_is_async_and_one_that_is_not_are_both_functions(runner: Runner) -> None:
    async def later(ctx: NodeContext) -> list[Any]:
        await asyncio.sleep(0)
        return [ctx.input, ctx.step.context]

    def at_once(ctx: NodeContext) -> Any:
        return [*ctx.results["a"], ctx.step.wait(ctx.step.call_tool("add", {"a": 1, "b": 1}))]

    nodes = (Node("a", later, input={"n": 1}), Node("b", at_once, after="a"))
    assert (await runner.run(agent_of(*nodes), "go", context="me")).output == [{"n": 1}, "me", 2]


async def test_tools_get_arguments_by_template_by_function_or_none(runner: Runner) -> None:
    @tool
    async def noted(what: Any = None) -> Any:
        """Note."""
        return what

    result = await run(
        runner,
        Node("sum", add, input={"a": 20, "b": 22}),
        Node("whole", "noted", input={"what": "{sum}"}, after="sum"),
        Node("words", noted, input={"what": ["{{{sum}}} of {input}", 1]}, after="sum"),
        Node("made", "noted", input=lambda ctx: {"what": {"n": ctx.results["sum"]}}, after="sum"),
        Node("bare", "noted"),
        Node("part", "noted", input={"what": "{made[n]}{words[0]}"}, after=["made", "words"]),
        Node("end", inputs_of, after=["whole", "words", "made", "bare", "part"]),
        tools=[add, noted],
    )
    assert result.output == {
        "whole": 42,
        "words": ["{42} of go", 1],
        "made": {"n": 42},
        "bare": None,
        "part": "42{42} of go",
    }


async def test_a_prompt_stays_out_of_the_conversation(runner: Runner) -> None:
    model = ScriptedModel(echo)
    result = await run(
        runner,
        Node("a", Ask("first of {input}")),
        Node("b", Ask(lambda ctx: f"then {ctx.results['a']}", instructions="Be brief."), after="a"),
        model=model,
    )
    assert result.output == "heard then heard first of go"
    assert [(q.instructions, len(q.messages), q.tools) for q in model.requests] == [
        ("", 1, ()),
        ("Be brief.", 1, ()),
    ]
    assert [message.text for message in result.messages] == ["go", "heard then heard first of go"]


async def test_the_model_may_be_shown_the_conversation_before_the_prompt(runner: Runner) -> None:
    model = ScriptedModel(echo)
    picture = Image(data=b"png", media_type="image/png")
    agent = agent_of(Node("a", Ask("What is this?", after_conversation=True)), model=model)
    result = await runner.run(agent, ["look", picture])
    (request_sent,) = model.requests
    assert request_sent.messages[0].parts[1:] == (picture,)
    assert [message.text for message in request_sent.messages] == ["look", "What is this?"]
    assert [message.text for message in result.messages] == ["look", "heard What is this?"]


@pytest.mark.parametrize("as_agent", [False, True], ids=["Ask", "Agent"])
async def test_a_node_with_tools_asks_until_it_has_an_answer(runner: Runner, as_agent: bool) -> None:
    model = ScriptedModel([call("add", a=1, b=2) + call("add", a="x", b=1), "three"])
    sub: Any = Ask("{input}", instructions="Add.", tools=[add])
    if as_agent:
        sub = Agent(model, instructions="Add.", tools=[add])
    result = await run(runner, Node("sub", sub), Node("end", inputs_of, after="sub"), model=model)
    assert result.output == {"sub": "three"}
    assert [(run.name, run.outcome) for run in result.tool_executions] == [("add", "ok"), ("add", "invalid")]
    request_sent = model.requests[1]
    assert (request_sent.instructions, [message.role for message in request_sent.messages]) == (
        "Add.",
        ["user", "assistant", "tool"],
    )
    assert_well_formed(request_sent.messages)


async def test_a_model_that_only_calls_tools_fails_its_node_after_so_many_rounds(runner: Runner) -> None:
    model = ScriptedModel(lambda request: call("add", a=1, b=1))
    result = await run(runner, Node("a", Ask("go", tools=["add"], rounds=2)), model=model)
    assert (result.state, len(model.requests), len(result.tool_executions)) == ("failed", 3, 2)
    assert "called tools in 3 answers in a row" in str(result.error)


async def test_an_answer_that_was_cut_off_is_no_value(runner: Runner) -> None:
    model = ScriptedModel([turn() + text("half an ans") + Turn(finish="length")])
    result = await run(runner, Node("a", Ask("go")), model=model)
    assert result.error is not None
    assert (result.state, result.error.source, result.error.kind) == ("failed", "model", "truncated")


@pytest.mark.parametrize(
    ("node", "why"),
    [
        (Node("a", lambda ctx: object()), "output must be JSON data"),
        (Node("a", lambda ctx: 1, update=True), "its value must be an object, got 1"),
        (Node("a", name_of, when=lambda ctx: 1), "when must return True or False, got 1"),  # type: ignore[arg-type, return-value]
        (Node("a", Ask("{x}")), "{x} is neither a node that it follows nor in the state"),
        (Node("a", Ask("{s[y]}"), optional=True), "{s[y]} is not there: {'x': 1}"),
        (Node("a", add, input=lambda ctx: 3), "input= must return a tool's arguments, got 3"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_node_that_breaks_the_rules_fails_with_the_reason(
    runner: Runner, node: Node, why: str
) -> None:
    result = await run(runner, node, state={"s": {"x": 1}})
    assert (result.state, result.error and result.error.source) == ("failed", "worker")
    assert why in str(result.error)
