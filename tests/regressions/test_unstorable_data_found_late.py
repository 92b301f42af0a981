"""Data that no journal can hold was refused only when it was written, not where it came in."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from treadle import Agent, NextStep, Runner, ScriptedModel, StepContext, StepResult, ToolOutput, tool
from treadle.errors import ConfigurationError
from treadle.llm.scripted import call, call_raw, text

pytestmark = pytest.mark.anyio

HALF = "caf\ud83d"
"""Text that ends in the first half of an emoji, as a client makes it that cuts text by UTF-16 units."""


def deep(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = [value]
    return value


@tool(read_only=True)
def keep(value: Any = None) -> str:
    """Keep a value."""
    return "kept"


@pytest.mark.parametrize("levels", [120, 230, 280])
async def test_the_model_sees_that_its_arguments_are_nested_too_deep_and_the_task_goes_on(
    tmp_path: Path, levels: int
) -> None:
    agent = Agent(ScriptedModel([call("keep", value=deep(levels)), text("I see.")]), name="a", tools=[keep])
    async with Runner(tmp_path / "journal.db", agents=[agent]) as runner:
        result = await runner.run(agent, "go", task_id="task")
        assert (result.state, result.final_text) == ("completed", "I see.")
        assert [(execution.outcome, execution.arguments) for execution in result.tool_executions] == [
            ("invalid", {})
        ]
        assert "nested deeper than 100 levels" in str(result.messages)
        assert (await runner.verify()).findings == ()


@pytest.mark.parametrize("levels", [150, 600, 900])
async def test_the_model_sees_that_an_adapter_could_not_encode_its_arguments(levels: int) -> None:
    written = '{"value": ' + '{"a":' * levels + "1" + "}" * levels + "}"
    agent = Agent(ScriptedModel([call_raw("keep", written), text("I see.")]), name="a", tools=[keep])
    async with Runner("memory:", agents=[agent]) as runner:
        result = await runner.run(agent, "go")
    assert (result.state, result.final_text) == ("completed", "I see.")
    assert "nested deeper than 100 levels" in str(result.messages)


@pytest.mark.parametrize("levels", [120, 230, 280, 2_000])
async def test_extra_state_nested_too_deep_is_refused_and_no_task_is_made(levels: int) -> None:
    agent = Agent(ScriptedModel([text("fine")]), name="a")
    async with Runner("memory:") as runner:
        with pytest.raises(ConfigurationError, match="extra_state"):
            await runner.create_task(agent, "go", extra_state=deep(levels))
        assert (await runner.list_tasks()).items == ()


async def test_an_output_too_large_to_be_stored_is_an_error_that_names_the_bound() -> None:
    @tool(read_only=True)
    def dump(how: str) -> Any:
        """Dump a lot."""
        big = "x" * 40_000_000
        return {"text": big, "list": [big[:20_000_000], big[20_000_000:]], "bytes": big.encode()}[how]

    turns = [call("dump", how="text"), call("dump", how="list"), call("dump", how="bytes"), text("Too much.")]
    agent = Agent(ScriptedModel(turns), name="a", tools=[dump])
    async with Runner("memory:") as runner:
        result = await runner.run(agent, "go")
    assert result.final_text == "Too much."
    assert [execution.outcome for execution in result.tool_executions] == ["error"] * 3
    for one in result.tool_executions:
        assert one.error is not None
        assert "larger than 32,000,000 characters" in one.error.message


async def test_an_answer_is_the_same_live_and_stored(tmp_path: Path) -> None:
    agent = Agent(ScriptedModel([call("keep", value=HALF), text(HALF)]), name="a", tools=[keep])
    async with Runner(tmp_path / "journal.db", agents=[agent]) as runner:
        live = await runner.run(agent, "go", task_id="task")
    async with Runner(tmp_path / "journal.db", agents=[agent]) as runner:
        stored = await runner.result("task")
    assert live.final_text == stored.final_text == "caf?"
    assert live.messages == stored.messages
    assert [execution.outcome for execution in live.tool_executions] == ["invalid"]


@pytest.mark.parametrize("place", ["input", "thread_id", "task_id"])
async def test_half_a_character_in_an_argument_of_a_verb_is_refused(place: str) -> None:
    agent = Agent(ScriptedModel([text("fine")]), name="a")
    async with Runner("memory:") as runner:
        with pytest.raises(ConfigurationError, match=f"run: {place}.*half a character"):
            await runner.run(agent, **{"input": "go", place: HALF})
        assert (await runner.list_tasks()).items == ()


async def test_half_a_character_in_instructions_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"instructions.*half a character"):
        Agent(ScriptedModel([text("fine")]), name="a", instructions=HALF)
    late = Agent(ScriptedModel([text("fine")]), name="a", instructions=lambda _: HALF)
    async with Runner("memory:") as runner:
        result = await runner.run(late, "go")
    assert result.error is not None
    assert (result.state, result.error.kind) == ("failed", "instructions")
    assert "half a character" in result.error.message


async def test_the_caller_and_the_reason_of_a_command_have_to_be_text(store: Any) -> None:
    agent = Agent(ScriptedModel([text("fine")]), name="a")
    async with Runner(store, agents=[agent]) as runner:
        await runner.create_task(agent, "go", task_id="task")
        for wrong in (object(), 5, HALF, b"ada"):
            with pytest.raises(ConfigurationError, match="pause: by"):
                await runner.pause("task", by=wrong)
            with pytest.raises(ConfigurationError, match="cancel: reason"):
                await runner.cancel("task", reason=wrong)
        assert (await runner.resume("task")).state == "completed"


async def test_an_observation_of_texts_is_seen_by_the_model() -> None:
    @tool(read_only=True)
    def two() -> ToolOutput:
        """Say two things."""
        return ToolOutput(1, observation=["one", "two"])

    agent = Agent(ScriptedModel([call("two"), text("fine")]), name="a", tools=[two])
    async with Runner("memory:") as runner:
        result = await runner.run(agent, "go")
    assert [part.text for part in result.messages[2].parts[0].parts] == ["one", "two"]


async def test_a_step_undone_while_ready_steps_run_is_left_out_of_their_outputs() -> None:
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def work(ctx: StepContext[Any]) -> StepResult:
        if ctx.name == "start":
            return StepResult(next_steps=[NextStep("a"), NextStep("b"), NextStep("end", after=["a", "b"])])
        if ctx.name == "b":
            reached.set()
            await go_on.wait()
        return StepResult(ctx.name, is_last=ctx.name == "end")

    agent = Agent(ScriptedModel([text("fine")]), name="a", worker=work)
    async with Runner("memory:", agents=[agent]) as runner:
        await runner.create_task(agent, "go", task_id="task")
        await runner.run_step("task")
        ready = [info.step_id for info in await runner.get_upcoming_steps("task") if info.status == "next"]
        running = asyncio.ensure_future(runner.run_ready_steps("task"))
        await reached.wait()
        undoing = asyncio.ensure_future(runner.undo_step("task", step=ready[0]))
        await asyncio.sleep(0.05)
        go_on.set()
        done = await running
        await undoing
    assert {output.step.step_id for output in done} <= set(ready)
