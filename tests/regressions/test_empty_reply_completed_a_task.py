"""An empty reply completed its task, and made every later request of its thread invalid."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.llm.wires import WIRES, scripted
from tests.runner.acts import kinds, only
from treadle import Agent, FailurePolicy, Message, Runner, RunOptions, ScriptedModel, StepContext, StepResult
from treadle.core.messages import Reasoning, Text, ToolCall, ToolResult
from treadle.core.model import ModelRequest
from treadle.errors import ModelError
from treadle.llm.scripted import Turn, text, turn
from treadle.models import Cache, Retry
from treadle.testing.audit import audit_store

pytestmark = pytest.mark.anyio

EMPTY = {
    "no text": text(""),
    "white space": text(" \n"),
    "thoughts": turn(reasoning="Hm."),
    "no parts": turn(),
}
empty = pytest.mark.parametrize("nothing", EMPTY.values(), ids=EMPTY)
wires = pytest.mark.parametrize("make_model", WIRES.values(), ids=WIRES)


def silent(nothing: Any, times: int, *then: Any) -> ScriptedModel:
    """A model that says nothing so many times to each request, and then goes by a script."""

    def reply(request: ModelRequest) -> Any:
        return nothing if request.attempt <= times else then[request.turn]

    return ScriptedModel(reply)


@empty
async def test_an_empty_reply_is_asked_for_again(runner: Runner, nothing: Any) -> None:
    model = silent(nothing, 2, "There you are.")
    result = await runner.run(Agent(model, name="a"), "Where?", thread_id="talk")
    assert (result.state, result.final_text, result.usage.model_calls) == ("completed", "There you are.", 3)
    failed = await only(runner, result.task_id, "model_failed")
    assert [(event.error.kind, event.retry_at is not None) for event in failed] == [("empty", True)] * 2
    assert [message.text for message in await runner.get_thread("talk")] == ["Where?", "There you are."]
    assert await audit_store(runner.store) == []


@empty
async def test_a_model_that_says_nothing_fails_its_task_within_a_bound(runner: Runner, nothing: Any) -> None:
    model = silent(nothing, 99)
    result = await runner.run(Agent(model, name="a"), "Where?", thread_id="talk")
    assert (result.state, len(model.requests)) == ("failed", 3)
    assert result.error is not None
    assert (result.error.kind, result.error.source) == ("empty", "model")
    assert "answered with nothing: no text and no call, 3 times" in result.error.message
    assert list(await runner.get_thread("talk")) == []
    degraded = await runner.run(
        Agent(silent(nothing, 99), name="a"),
        "Where?",
        options=RunOptions(on_failure=FailurePolicy(model="degrade")),
    )
    assert degraded.state == "degraded"
    # It is taken up again like any failure of a model.
    again = await runner.resume(result.task_id, agent=Agent(silent(nothing, 0, "Here."), name="a"))
    assert (again.state, again.final_text) == ("completed", "Here.")


async def test_a_layer_that_retries_does_not_multiply_the_bound(runner: Runner) -> None:
    model = silent(text(""), 99)
    result = await runner.run(Agent(Retry(Cache(model), base=0.001), name="a"), "Where?")
    assert (result.state, len(model.requests)) == ("failed", 3)


async def test_a_reply_that_was_cut_off_or_refused_is_not_asked_for_again(runner: Runner) -> None:
    for finish, why in (("length", "cut off"), ("refusal", "refused")):
        model = ScriptedModel([turn(finish=finish)])  # type: ignore[arg-type]
        result = await runner.run(Agent(model, name="a"), "Where?")
        assert (result.state, len(model.requests)) == ("degraded", 1)
        assert why in result.degraded_reasons[0]


async def test_a_typed_answer_keeps_its_own_bound(runner: Runner) -> None:
    model = ScriptedModel(["", "", '{"answer": 3}', "3"])
    agent = Agent(model, name="a", output_type=list[int], output_retries=1, output_mode="prompt")
    result = await runner.run(agent, "Where?")
    assert (result.state, len(model.requests)) == ("failed", 2)


async def test_a_step_function_hears_of_an_empty_reply(runner: Runner) -> None:
    async def worker(ctx: StepContext[Any]) -> StepResult:
        try:
            await ctx.call_model("Where?")
        except ModelError as error:
            return StepResult(error.kind, is_last=True)
        return StepResult("answered", is_last=True)

    model = silent(text(""), 99)
    result = await runner.run(Agent(model, name="a", worker=worker), "go")
    assert (result.output, len(model.requests)) == ("empty", 3)


async def test_the_bound_holds_over_a_crash_between_two_replies(store: Any) -> None:
    crashes = [True]

    def reply(request: ModelRequest) -> Any:
        if request.attempt == 3 and crashes.pop():
            return text("", delay=60)
        return text("")

    model = ScriptedModel(reply)
    agent = Agent(model, name="a")
    async with Runner(store, agents=[agent]) as runner:
        handle = await runner.start(agent, "Where?", task_id="t")
        async for event in handle.events(deltas=False):
            if event.kind == "model_started" and event.attempt == 3:
                break
        await handle.interrupt()
    async with Runner(store, agents=[agent]) as runner:
        crashes.append(False)
        result = await runner.resume("t")
        assert (result.state, len(model.requests)) == ("failed", 4)
        assert (await kinds(runner, "t")).count("model_failed") == 3


# ------------------------------------------------------------------------------- what is sent to providers


def bodies_hold_no_empty_text(body: Any) -> bool:
    """Whether no message of a request is empty: none without content, and no text of white space alone."""
    messages: Any = body.get("messages") or body.get("contents") or body.get("input")
    assert isinstance(messages, list)
    assert messages
    for message in messages:
        content = message.get("parts", message.get("content"))
        calls = message.get("tool_calls") or message.get("type") in ("function_call", "function_call_output")
        texts = [content] if isinstance(content, str) else [part.get("text", "x") for part in content or ()]
        if not calls and (not texts or not all(said.strip() for said in texts)):
            return False
    return True


@wires
@pytest.mark.parametrize("parts", [(), (Reasoning("Hm."), Text(" \n"))], ids=["no parts", "white space"])
async def test_a_stored_empty_message_is_never_sent(
    make_model: Callable[..., Any], parts: tuple[Any, ...]
) -> None:
    with scripted(make_model, "I hear you.", "Still here.") as (server, model):
        async with Runner("memory:") as runner:
            agent = Agent(model, name="a", instructions="Be brief.")
            cut = ScriptedModel([Turn(parts=parts, finish="length")])
            before = await runner.run(Agent(cut, name="b"), "Hello?", thread_id="talk")
            assert (before.state, before.messages[-1].parts) == ("degraded", parts)
            for said in ("I hear you.", "Still here."):
                result = await runner.run(agent, "Again?", thread_id="talk")
                assert (result.state, result.final_text) == ("completed", said), result.error
            assert len(await runner.get_thread("talk")) == 6, "the thread keeps what was said"
    assert server.problems == []
    assert all(bodies_hold_no_empty_text(request.body) for request in server.requests)
    assert "Hello?" in str(server.requests[0].body)


@wires
async def test_white_space_beside_a_call_is_left_out(make_model: Callable[..., Any]) -> None:
    with scripted(make_model, "never", "Done.") as (server, model):
        async with Runner("memory:") as runner:
            asked = Message("assistant", (Text("\n"), ToolCall("c1", "look", {})))
            told = Message("tool", (ToolResult("c1", "look", (Text("seen"),)),))
            await runner.import_thread("talk", [Message("user", (Text("Look."),)), asked, told])
            result = await runner.run(Agent(model, name="a"), "And?", thread_id="talk")
            assert (result.state, result.final_text) == ("completed", "Done."), result.error
    assert server.problems == []
    assert "look" in str(server.requests[0].body)


@wires
async def test_a_provider_that_says_nothing_is_asked_three_times(make_model: Callable[..., Any]) -> None:
    with scripted(make_model, "") as (server, model):
        async with Runner("memory:") as runner:
            result = await runner.run(Agent(model, name="a"), "Hello?")
    assert (result.state, result.error and result.error.kind, len(server.requests)) == ("failed", "empty", 3)
