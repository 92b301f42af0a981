"""Whole tasks against a provider over HTTP that refuses every history it would be right to refuse."""

import asyncio
import time
from typing import Any

import pytest

from tests.cast import add, multiply
from treadle import Agent, Reasoning, Runner, RunOptions, ToolContext, tool
from treadle.core.events import Delta
from treadle.testing.provider import call, fail, hang_up, reasoning, text, turn

pytestmark = pytest.mark.sampled(12)

QUESTION = "What is (121 * 3) + 42?"


@pytest.fixture(params=["openai:scripted", "anthropic:scripted"], ids=["openai", "anthropic"])
def model(request: pytest.FixtureRequest) -> str:
    return request.param


def calculator(model: str, **more: Any) -> Agent[Any]:
    return Agent(model, name="math", instructions="Be precise.", tools=[add, multiply], **more)


def test_the_first_example_of_the_readme(serve: Any, model: str, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    server = serve(text("405"))
    runner = Runner()
    result = runner.run_sync(Agent(model), QUESTION)
    runner.sync.close()
    assert (result.final_text, result.state) == ("405", "completed")
    assert (tmp_path / ".treadle" / "journal.db").exists()
    assert (tmp_path / ".treadle" / ".gitignore").exists()
    assert len(server.requests) == 1


@pytest.mark.anyio
async def test_the_second_example_of_the_readme(
    serve: Any, model: str, tmp_path: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    server = serve(call("multiply", a=121, b=3), call("add", a=363, b=42), text("It is 405."))
    async with Runner() as runner:
        result = await runner.run(calculator(model), QUESTION)
    assert (result.final_text, result.state, result.steps) == ("It is 405.", "completed", 3)
    assert [(run.name, run.output) for run in result.tool_executions] == [("multiply", 363.0), ("add", 405.0)]
    assert result.usage.input_tokens > 0
    assert result.usage.output_tokens > 0
    assert result.usage.model_calls == len(server.requests) == 3


@pytest.mark.anyio
async def test_a_stream_has_the_text_as_it_comes_and_the_same_result(serve: Any, model: str) -> None:
    serve(turn(text("Let me see."), call("multiply", a=121, b=3)), text("It is 363, I am sure."))
    async with Runner("memory:") as runner:
        async with runner.run_stream(calculator(model), QUESTION) as stream:
            seen = [event async for event in stream]
        messages: dict[str, list[str]] = {}
        for event in seen:
            if isinstance(event, Delta) and event.is_text:
                messages.setdefault(event.step, []).append(event.text)
        assert {step: "".join(pieces) for step, pieces in messages.items()} == {
            "s1": "Let me see.",
            "s2": "It is 363, I am sure.",
        }
        assert len(messages["s2"]) > 1
        plain = await runner.run(calculator(model), QUESTION)
        assert stream.result.final_text == plain.final_text
        assert [m.text for m in stream.result.messages] == [m.text for m in plain.messages]


@pytest.mark.anyio
async def test_parallel_calls_are_answered_in_call_order(serve: Any, model: str) -> None:
    server = serve([call("add", a=1, b=1), call("multiply", a=2, b=3), call("add", a=3, b=3)], text("Done."))
    async with Runner("memory:") as runner:
        result = await runner.run(calculator(model), "go")
    assert [run.output for run in result.tool_executions] == [2.0, 6.0, 6.0]
    sent = str(server.requests[1].messages)
    assert sent.rindex("s1-0") < sent.rindex("s1-1") < sent.rindex("s1-2")


@pytest.mark.anyio
async def test_a_thinking_signature_goes_back_untouched_also_after_a_restart(
    serve: Any, tmp_path: Any
) -> None:
    server = serve(
        turn(reasoning("hmm", signature="sig-1"), call("add", a=1, b=1)),
        turn(reasoning("aha", signature="sig-2"), text("Two.")),
        text("Still two."),
    )
    agent = calculator("anthropic:scripted")
    async with Runner(tmp_path / "journal.db") as runner:
        first = await runner.run(agent, "1 + 1?", thread_id="t")
    assert any(isinstance(part, Reasoning) for message in first.messages for part in message.parts)
    async with Runner(tmp_path / "journal.db") as runner:
        second = await runner.run(agent, "sure?", thread_id="t")
    assert second.final_text == "Still two."
    assert "sig-1" in str(server.requests[1].messages)
    assert "sig-1" in str(server.requests[2].messages)
    assert "sig-2" in str(server.requests[2].messages)


@pytest.mark.anyio
async def test_the_second_turn_of_a_thread_holds_calls_and_results_of_the_first(
    serve: Any, model: str
) -> None:
    server = serve(call("add", a=1, b=1), text("Two."), call("add", a=2, b=2), text("Four."))
    async with Runner("memory:") as runner:
        await runner.run(calculator(model), "1 + 1?", thread_id="t")
        result = await runner.run(calculator(model), "doubled?", thread_id="t")
    assert result.final_text == "Four."
    sent = str(server.requests[-1].messages)
    assert [sent.count(message) for message in ("1 + 1?", "Two.", "doubled?")] == [1, 1, 1]
    assert "t1-s1-0" in sent


REFUSED = [
    (fail(401), "authentication", 401),
    (fail(400, "bad"), "invalid_request", 400),
    (fail(404), "not_found", 404),
]


@pytest.mark.anyio
@pytest.mark.parametrize(("fault", "kind", "status"), REFUSED, ids=["401", "400", "404"])
async def test_a_refused_request_fails_the_task_with_its_kind_and_is_not_repeated(
    serve: Any, model: str, fault: Any, kind: str, status: int
) -> None:
    server = serve(fault, text("Hi."))
    async with Runner("memory:") as runner:
        result = await runner.run(calculator(model), "go")
        assert result.state == "failed"
        assert result.error is not None
        assert (result.error.kind, result.error.status) == (kind, status)
        assert len(server.requests) == 1
        assert "sk-secret" not in str(result)


PASSING = [fail(429, retry_after=0.05), fail(500), hang_up(), turn(text("Half of it"), cut="reset")]


@pytest.mark.anyio
@pytest.mark.parametrize("fault", PASSING, ids=["429", "500", "hang up", "reset in the middle"])
async def test_a_passing_fault_is_retried_or_fails_and_a_resume_goes_on(
    serve: Any, model: str, fault: Any
) -> None:
    server = serve(call("add", a=1, b=1), fault, text("Two."))
    async with Runner("memory:") as runner:
        result = await runner.run(calculator(model), "go")
        if result.state == "failed":
            assert result.error is not None
            assert result.error.kind in ("rate_limit", "server", "connection")
            result = await runner.resume(result.task_id)
        assert (result.state, result.final_text) == ("completed", "Two.")
        assert len(result.tool_executions) == 1
    assert 3 <= len(server.requests) <= 4


@pytest.mark.anyio
async def test_cancel_in_the_middle_of_a_stream_is_prompt_and_ends_the_connection(
    serve: Any, model: str
) -> None:
    server = serve(turn(text("word " * 400), chunk_delay=0.05), text("never"))
    async with Runner("memory:") as runner:
        handle = await runner.start(calculator(model), "go")
        async for event in handle.events():
            if isinstance(event, Delta):
                break
        began = time.monotonic()
        result = await handle.cancel()
        assert time.monotonic() - began < 10  # its answer takes 20 s
        assert (result.state, result.final_text) == ("cancelled", "")
    assert len(server.requests) == 1


# ------------------------------------------------------------------- histories after a rough time


@pytest.mark.anyio
async def test_histories_stay_well_formed_after_interrupt_cancel_undo_and_fork(
    serve: Any, model: str, tmp_path: Any
) -> None:
    """The server refuses any history in which a call lacks its result, ids repeat or roles do not fit."""

    def answer(request: Any) -> Any:
        if request.turn % 2 == 0:
            return turn(text("Working."), call("slow", n=1), call("slow", n=2), call("nobody"))
        return turn(text("Done."))

    server = serve(answer)
    entered, let_go = asyncio.Event(), asyncio.Event()

    @tool
    async def slow(n: int, ctx: ToolContext[Any]) -> int:
        """Work for a while."""
        if n == 2:
            entered.set()
            await let_go.wait()
        return n

    agent = Agent(model, name="rough", tools=[slow])
    options = RunOptions(on_unknown_outcome="tell_model", keep_in_thread="always")
    async with Runner(tmp_path / "journal.db", agents=[agent], options=options) as runner:
        handle = await runner.start(agent, "first", thread_id="t")
        await entered.wait()
        await asyncio.sleep(0.05)
        await handle.interrupt()
        let_go.set()
        first = await handle.resume()
        assert first.state == "completed"
        assert [run.outcome for run in first.tool_executions] == ["ok", "unknown", "invalid"]

        entered.clear()
        let_go.clear()
        handle = await runner.start(agent, "second", thread_id="t")
        await entered.wait()
        cancelled = await handle.cancel()
        assert cancelled.state == "cancelled"
        let_go.set()

        third = await runner.run(agent, "third", thread_id="t")
        assert third.state == "completed"
        await runner.undo_step(third.task_id, to=0, force=True)
        resumed = await runner.resume(third.task_id)
        assert resumed.state == "completed"
        fork = await runner.fork(third.task_id, at="s1b1", input="in the fork")
        assert (await runner.resume(fork)).state == "completed"
        other = await runner.fork(first.task_id, replace={"s1-0": "replaced"})
        assert (await runner.resume(other)).state == "completed"
        assert "replaced" in str(server.requests[-1].messages)
    assert len(server.requests) >= 8
