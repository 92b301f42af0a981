"""Requests read from a journal: as the model saw them, with and without the agent's code."""

from dataclasses import replace
from typing import Any

import pytest

from tests.cast import calculator, sayer
from treadle import (
    Agent,
    Handoff,
    LastMessages,
    ModelRequest,
    ModelSettings,
    React,
    Runner,
    RunOptions,
    ScriptedModel,
    StepContext,
    StepResult,
    tool,
)
from treadle.core.events import ModelStarted
from treadle.core.framing import framed
from treadle.errors import StepNotFound
from treadle.models import call
from treadle.results.read_results import PastRequest

pytestmark = pytest.mark.anyio


class Seen:
    """Keeps the requests that a model got, framed as its provider would be sent them."""

    def __init__(self, *script: Any) -> None:
        self._model, self.requests = ScriptedModel(list(script)), list[ModelRequest]()

    @property
    def name(self) -> str:
        return self._model.name

    def stream(self, request: ModelRequest) -> Any:
        self.requests.append(replace(framed(request), messages=[*framed(request).messages]))
        return self._model.stream(request)


def as_sent(request: ModelRequest) -> tuple[Any, ...]:
    offered = tuple([(tool.name, tool.description, tool.parameters) for tool in request.tools])
    return request.instructions, tuple(request.messages), offered, request.tool_choice, request.settings


def as_read(request: PastRequest) -> tuple[Any, ...]:
    offered = tuple([(tool.name, tool.description, tool.parameters) for tool in request.tools])
    return request.instructions, request.messages, offered, request.tool_choice, request.settings


@pytest.mark.parametrize("tokens", [None, 1_000])
async def test_a_request_is_read_as_its_model_saw_it(runner: Runner, tokens: int | None) -> None:
    model = Seen(*[call("echo", said=f"{number} " + "word " * 100) for number in range(12)], "done")

    @tool(read_only=True)
    async def echo(said: str) -> str:
        """Say it again."""
        return said

    agent = Agent(
        model,
        tools=[echo],
        instructions="Be brief.",
        model_settings=ModelSettings(temperature=0.5, tool_choice="required"),
    )
    result = await runner.run(agent, "?", options=RunOptions(context_tokens=tokens, tell_steps_left=True))
    assert len(model.requests) == 13
    for number, request in enumerate(model.requests, 1):
        past = await runner.get_request(result.task_id, number)
        assert as_read(past) == as_sent(request), number
        assert (past.exact, past.attempt, past.call, past.model) == (True, 1, None, model.name)
    past = await runner.get_request(result.task_id, 13)
    if tokens is not None:
        assert "earlier messages of this conversation are not shown" in str(past.messages)
    assert "<untrusted-" in str(past.messages)
    assert past == await runner.handle(result.task_id).get_request("s13")


async def test_a_request_of_a_step_that_was_undone_can_be_read(runner: Runner) -> None:
    agent = calculator(call("add", a=1, b=2), call("add", a=3, b=4), "7")
    task = await runner.create_task(agent, "?")
    await runner.run_step(task)
    await runner.run_step(task)
    before = await runner.get_request(task, "s2")
    await runner.undo_step(task)
    await runner.resume(task)
    assert await runner.get_request(task, "s2") == before
    assert (await runner.get_request(task, 2)).step_id != "s2"


async def test_a_request_can_be_read_without_the_code_of_the_agent(store: Any) -> None:
    async with Runner(store) as runner:
        result = await runner.run(calculator(instructions="Count."), "How many?")
        known = await runner.get_request(result.task_id, "s2")
    async with Runner(store) as other:
        past = await other.get_request(result.task_id, "s2")
        assert (past.exact, past.settings, past.tools) == (False, None, ())
        assert past.messages == known.messages
        assert past.instructions.startswith("Count.")
        newer = calculator(instructions="Add.")
        await other.run(newer, "?")
        past = await other.get_request(result.task_id, "s2")
        assert (past.exact, [tool.name for tool in past.tools]) == (False, ["add", "multiply"])


async def test_a_request_that_was_not_sent_is_not_found(runner: Runner) -> None:
    task = await runner.create_task(calculator(), "?")
    await runner.run_step(task)
    for step in ("s2", "s", 2):
        with pytest.raises(StepNotFound, match="step"):
            await runner.get_request(task, step)
    with pytest.raises(StepNotFound, match="sent no request 'x'"):
        await runner.get_request(task, "s1", call="x")


async def test_no_header_and_no_key_of_settings_is_shown(runner: Runner) -> None:
    extra = {"extra_headers": {"X-A": "one"}, "api_key": "two-two-two", "top_k": 5}
    result = await runner.run(sayer(model_settings=ModelSettings(extra=extra)), "?")
    past = await runner.get_request(result.task_id, 1)
    assert past.settings == ModelSettings(extra={"top_k": 5})


async def test_requests_of_functions_and_dialects_and_handoffs_can_be_read(runner: Runner) -> None:
    dialect = Seen('Action: add\nAction Input: {"a": 1, "b": 2}', "Answer: 3")
    agent = Agent(dialect, name="react", tools=calculator().tools, worker=React())
    result = await runner.run(agent, "1 + 2?")
    for number, request in enumerate(dialect.requests, 1):
        past = await runner.get_request(result.task_id, number)
        assert (past.instructions, past.messages) == (request.instructions, tuple(request.messages))
        assert [tool.name for tool in past.tools] == ["add", "multiply"]

    later = Seen("done")
    second = Agent(later, name="second", instructions="Second.")
    handoff = Handoff(second, filter=LastMessages(1))
    first = Agent(
        ScriptedModel([call("transfer_to_second", reason="it knows")]), name="first", handoffs=[handoff]
    )
    moved = await runner.run(first, "?")
    past = await runner.get_request(moved.task_id, 2)
    assert as_read(past) == as_sent(later.requests[0])
    assert past.agent == "second"

    own = Seen("red", "blue")

    async def paint(ctx: StepContext[Any]) -> StepResult:
        one = await ctx.call_model()
        two = await ctx.call_model("two?", instructions="Be bold.", tools=["add"])
        return StepResult(f"{one.message.text} {two.message.text}", is_last=True)

    painter = Agent(own, name="painter", worker=paint, tools=calculator().tools)
    painted = await runner.run(painter, "?")
    assert painted.final_text == "red blue"
    asked = [each async for each in await runner.get_events(painted.task_id, kinds="model_started")]
    for request, event in zip(own.requests, asked, strict=True):
        assert isinstance(event, ModelStarted)
        past = await runner.get_request(painted.task_id, 1, call=event.call)
        assert (as_read(past), past.call) == (as_sent(request), event.call)
    assert (await runner.get_request(painted.task_id, 1)).messages[-1].text == "two?"
