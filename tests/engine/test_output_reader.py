"""The tool `read_output`: offered once an output was cut, it reads the rest page by page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from treadle import (
    Agent,
    Guardrail,
    GuardrailRequest,
    Handoff,
    Limits,
    React,
    Rewrite,
    Runner,
    RunOptions,
    ScriptedModel,
    ToolOutput,
    tool,
)
from treadle.core.labels import label_of
from treadle.core.messages import Image, Text, ToolResult
from treadle.models import call
from treadle.replay import record, replay

pytestmark = pytest.mark.anyio

BOOK = "".join([f"line {number}\n" for number in range(2_000)])
OPTIONS = RunOptions(tool_output_max_chars=1_000)


@tool(read_only=True)
def fetch(chars: int) -> str:
    """Fetch the beginning of a book."""
    return BOOK[:chars]


def offered(agent: Agent[Any]) -> list[list[str]]:
    """Return the names of the tools in each request."""
    return [[spec.name for spec in request.tools] for request in agent.model.requests]  # type: ignore[union-attr]


def results_of(result: Any) -> list[ToolResult]:
    """Return the results of all calls, in order."""
    return [part for message in result.messages for part in message.parts if isinstance(part, ToolResult)]


def reader(*turns: Any, **more: Any) -> Agent[Any]:
    return Agent(ScriptedModel([*turns, "Done."]), name="reader", tools=[fetch], **more)


async def test_it_is_offered_once_an_output_was_cut_and_never_before(runner: Runner) -> None:
    agent = reader(call("fetch", chars=1_000), call("fetch", chars=1_001))
    await runner.run(agent, "go", options=OPTIONS)
    assert offered(agent) == [["fetch"], ["fetch"], ["fetch", "read_output"]]


async def test_pages_make_up_the_whole_output_and_have_its_label(runner: Runner) -> None:
    turns: list[Any] = [call("fetch", chars=10_000)]
    text = ""

    def read_on(request: Any) -> Any:
        nonlocal text
        shown = request.messages[-1].parts[0].text
        if not request.turn:
            return turns[0]
        if request.turn == 1:
            assert 'read_output(call_id="s1-0", offset=500) reads on' in shown
            text = shown.partition("\n[...")[0]
            assert len(text) == 500
        else:
            assert len(shown) <= 1_000
            text += shown.partition("\n[... ")[0]
        if len(text) == 10_000:
            return "Done."
        return call("read_output", call_id="s1-0", offset=len(text))

    result = await runner.run(
        Agent(ScriptedModel(read_on), name="reader", tools=[fetch]), "go", options=OPTIONS
    )
    assert text == BOOK[:10_000]
    pages = results_of(result)[1:]
    assert {label_of("tool", each) for each in pages} == {label_of("tool", results_of(result)[0])}
    assert [each.outcome for each in result.tool_executions] == ["ok"] * len(result.tool_executions)


async def test_a_page_has_the_origin_of_what_it_is_a_page_of(runner: Runner) -> None:
    @tool(read_only=True)
    def web() -> ToolOutput:
        """Fetch a page."""
        return ToolOutput(None, BOOK, origin="web:example.org")

    @tool(trusted=True, read_only=True)
    def manual() -> str:
        """Return the manual."""
        return BOOK

    turns = (
        [call("web"), call("manual")],
        [call("read_output", call_id="s1-0"), call("read_output", call_id="s1-1")],
    )
    agent = Agent(ScriptedModel([*turns, "Done."]), name="reader", tools=[web, manual])
    result = await runner.run(agent, "go", options=OPTIONS)
    labels = [label_of("tool", each) for each in results_of(result)]
    assert [(each.origin, each.integrity) for each in labels[2:]] == [
        ("web:example.org", "untrusted"),
        ("tool:read_output", "trusted"),
    ]
    assert labels[1].integrity == "trusted"


async def test_the_whole_of_an_observation_is_read_where_it_is_not_the_output(runner: Runner) -> None:
    @tool(read_only=True)
    def look() -> ToolOutput:
        """Look."""
        parts = [
            Text("a" * 600),
            Image(data=b"\x89PNG", media_type="image/png"),
            Text("b" * 600),
            Text("c" * 600),
        ]
        return ToolOutput({"secret": True}, parts)

    turns = [call("look"), call("read_output", call_id="s1-0", offset=800, limit=900)]
    agent = Agent(ScriptedModel([*turns, "Done."]), name="reader", tools=[look])
    cut, read = results_of(await runner.run(agent, "go", options=OPTIONS))
    assert "offset=800) reads on" in cut.text
    assert read.text == "b" * 400 + "c" * 500 + "\n[... 100 characters follow, from offset=1700 ...]"


async def test_a_tool_of_the_user_of_that_name_stays_and_the_note_names_no_other(runner: Runner) -> None:
    @tool(read_only=True)
    def read_output(path: str) -> str:
        """Read a file."""
        return f"the file {path}"

    agent = Agent(
        ScriptedModel([call("fetch", chars=5_000), call("read_output", path="a"), "Done."]),
        name="reader",
        tools=[fetch, read_output],
    )
    cut, read = results_of(await runner.run(agent, "go", options=OPTIONS))
    assert "full output: call s1-0" in cut.text
    assert "reads on" not in cut.text
    assert read.text == "the file a"
    assert offered(agent) == [["fetch", "read_output"]] * 3


async def test_a_call_before_anything_was_cut_and_one_of_an_unknown_call_are_answered_with_an_error(
    runner: Runner,
) -> None:
    agent = reader(
        call("read_output", call_id="s1-0"),
        call("fetch", chars=5_000),
        [call("read_output", call_id="s9-9"), call("read_output", call_id="s2-0", offset=-1)],
        call("read_output", call_id="s2-0", offset=5_000),
    )
    before, _, unknown, invalid, behind = results_of(await runner.run(agent, "go", options=OPTIONS))
    assert before.text == "There is no tool 'read_output'. Tools: fetch."
    assert "There is no output of a call 's9-9'" in unknown.text
    assert "s2-0" in unknown.text
    assert "read_output takes `call_id`" in invalid.text
    assert (before.is_error, unknown.is_error, invalid.is_error) == (True, True, True)
    assert behind.text == "[there is nothing at 5,000: the output has 5,000 characters]"


async def test_its_calls_count_and_are_offered_by_a_function_that_chooses_tools(runner: Runner) -> None:
    agent = reader(
        call("fetch", chars=5_000),
        call("read_output", call_id="s1-0"),
        call("read_output", call_id="s1-0"),
        offer=lambda ctx: ["fetch"],
    )
    options = RunOptions(tool_output_max_chars=1_000, limits=Limits(tool_calls=2))
    result = await runner.run(agent, "go", options=options)
    assert offered(agent)[:2] == [["fetch"], ["fetch", "read_output"]]
    assert result.state == "degraded"
    assert len([each for each in result.tool_executions if each.outcome == "ok"]) == 2


async def test_an_undo_takes_the_offer_back_and_a_fork_keeps_it(runner: Runner) -> None:
    agent = reader(call("fetch", chars=5_000), call("read_output", call_id="s1-0"))
    task = await runner.create_task(agent, "go", options=OPTIONS)
    await runner.run_step(task)
    fork = await runner.fork(task, agent=agent)
    await runner.resume(fork, agent=agent)
    assert offered(agent)[1:] == [["fetch", "read_output"]] * 2
    await runner.undo_step(task, agent=agent)
    await runner.run_step(task)
    assert offered(agent)[-1] == ["fetch"]


async def test_it_reads_on_in_another_process_life(tmp_path: Path) -> None:
    agent = reader(call("fetch", chars=5_000), call("read_output", call_id="s1-0", limit=100))
    async with Runner(tmp_path / "j.db", agents=[agent]) as runner:
        task = await runner.create_task(agent, "go", options=OPTIONS, task_id="t")
        await runner.run_step(task)
    async with Runner(tmp_path / "j.db", agents=[agent]) as runner:
        result = await runner.resume("t")
        assert (await runner.verify()).findings == ()
    assert results_of(result)[1].text.startswith(BOOK[:100] + "\n[... 4,900 characters follow")
    assert offered(agent)[1:] == [["fetch", "read_output"]] * 2


async def test_a_dialect_describes_it_from_then_on(runner: Runner) -> None:
    turns = [
        'Thought: I fetch.\nAction: fetch\nAction Input: {"chars": 5000}',
        'Thought: I read on.\nAction: read_output\nAction Input: {"call_id": "s1-0", "limit": 50}',
        "Thought: I know.\nAnswer: Done.",
    ]
    agent = Agent(ScriptedModel(turns), name="reader", tools=[fetch], worker=React())
    result = await runner.run(agent, "go", options=OPTIONS)
    instructions = [request.instructions for request in agent.model.requests]  # type: ignore[union-attr]
    assert ["- read_output: " in text for text in instructions] == [False, True, True]
    assert results_of(result)[1].text.startswith(BOOK[:50])


async def test_an_agent_that_a_conversation_moved_to_reads_only_what_it_sees(runner: Runner) -> None:
    for keep in (True, False):
        turns = [call("read_output", call_id="s1-0", limit=10), "Done."]
        other = Agent(ScriptedModel(turns), name="other", tools=[fetch])
        move = Handoff(other, filter=None if keep else (lambda messages: messages[:1]))
        first = Agent(
            ScriptedModel([call("fetch", chars=5_000), call("transfer_to_other")]),
            name="first",
            tools=[fetch],
            handoffs=[move],
        )
        result = await runner.run(first, "go", options=OPTIONS)
        assert result.agent == "other"
        last = results_of(result)[-1]
        assert last.text.startswith(BOOK[:10]) if keep else "no output of a call" in last.text


async def test_what_a_guardrail_replaced_cannot_be_read(runner: Runner) -> None:
    def shorten(request: GuardrailRequest) -> Rewrite:
        return Rewrite("all fine")

    check = Guardrail(shorten, on="result", tools="fetch")
    agent = reader(call("fetch", chars=5_000), call("read_output", call_id="s1-0"), guardrails=[check])
    first, second = results_of(await runner.run(agent, "go", options=OPTIONS))
    assert first.text == "all fine"
    assert second.text == "There is no tool 'read_output'. Tools: fetch."
    assert offered(agent) == [["fetch"]] * 3


async def test_a_guardrail_of_the_tool_checks_each_page_of_its_output(runner: Runner) -> None:
    """It checks what the model is shown: of the first result that is head and tail."""

    def hide(request: GuardrailRequest) -> Rewrite | None:
        return Rewrite("[hidden]") if "line 300\n" in request.text else None

    check = Guardrail(hide, on="result", tools="fetch")
    turns = call("fetch", chars=5_000), call("read_output", call_id="s1-0", offset=2_500, limit=900)
    first, second = results_of(await runner.run(reader(*turns, guardrails=[check]), "go", options=OPTIONS))
    assert first.text.startswith("line 0")
    assert second.text == "[hidden]"


async def test_a_task_that_read_on_replays_as_it_was(runner: Runner) -> None:
    @tool(read_only=True)
    def look() -> ToolOutput:
        """Look."""
        return ToolOutput({"secret": True}, BOOK)

    turns = [
        call("fetch", chars=5_000),
        call("look"),
        call("read_output", call_id="s2-0", offset=400),
        "Done.",
    ]
    agent = Agent(ScriptedModel(turns), name="reader", tools=[fetch, look])
    task = await runner.run(agent, "go", options=OPTIONS)
    report = await replay(await record(runner, task.task_id), agent)
    assert report.drifts == ()
