"""The context of a step: what a step sees and may request, and which results it gets again when it runs again."""

from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest

from tests.cast import last
from tests.engine.function_workers import agent_of, double
from treadle import Agent, NextStep, Quorum, Runner, RunOptions, ScriptedModel, StepContext, StepResult, tool
from treadle.core.messages import user
from treadle.errors import StepHasNoOutput
from treadle.events import ModelRequested
from treadle.llm.scripted import text
from treadle.testing.audit import Evidence, audit_store

pytestmark = pytest.mark.anyio


@pytest.fixture
async def runner() -> AsyncIterator[Runner]:
    async with Runner("memory:", options=RunOptions(on_unknown_outcome="tell_model")) as runner:
        yield runner
        assert await audit_store(runner.store, Evidence(ended=False)) == []


@tool(read_only=True)
def look(n: int) -> str:
    """Look."""
    return f"seen {n}"


async def test_a_step_sees_why_its_optional_dependencies_failed() -> None:
    async def worker(ctx: StepContext[Any]) -> StepResult:
        if ctx.name == "start":
            join = NextStep("join", after=("a", "b"), join="optional")
            return StepResult(next_steps=[NextStep("a"), NextStep("b"), join])
        if ctx.name == "a":
            raise ValueError("no luck")
        if ctx.name == "b":
            return StepResult("luck")
        return StepResult([dict(ctx.results), dict(ctx.failures), dict(ctx.given_up)], is_last=True)

    async with Runner("memory:") as runner:
        result = await runner.run(Agent(ScriptedModel([]), worker=worker), "go")
    assert result.state == "degraded"
    assert result.degraded_reasons == ("step 'a' failed: ValueError: no luck",)
    given_up = {"a": "it failed: ValueError: no luck"}
    assert result.output == [{"start": None, "b": "luck"}, {"a": "ValueError: no luck"}, given_up]


async def test_a_step_that_was_given_up_is_no_output_of_none() -> None:
    seen: dict[str, str] = {}

    async def worker(ctx: StepContext[Any]) -> StepResult:
        if ctx.name == "start":
            join = NextStep("join", after=("none", "failed", "skipped", "itself"), join="optional")
            return StepResult(next_steps=[*[NextStep(name) for name in join.after], join])
        if ctx.name == "failed":
            raise ValueError("no luck")
        if ctx.name == "skipped":
            return StepResult(skipped="nothing to do")
        if ctx.name == "itself":
            return StepResult(skipped=ValueError("gave up"))
        if ctx.name == "none":
            return StepResult(None)
        assert (ctx.results["none"], "none" in ctx.results) == (None, True)
        for name in ("failed", "skipped", "itself", "other"):
            assert (name in ctx.results, ctx.results.get(name, "absent")) == (False, "absent")
            with pytest.raises(StepHasNoOutput) as told:
                ctx.results[name]
            seen[name] = str(told.value)
        return StepResult(ctx.results, is_last=True)

    async with Runner("memory:") as runner:
        result = await runner.run(Agent(ScriptedModel([]), worker=worker), "go")
    assert result.output == {"start": None, "none": None}
    assert {name: text.partition("; ")[0] for name, text in seen.items()} == {
        "failed": "step 'join': the step 'failed' has no output: it failed: ValueError: no luck",
        "skipped": "step 'join': the step 'skipped' has no output: nothing to do",
        "itself": "step 'join': the step 'itself' has no output: it failed: ValueError: gave up",
        "other": "step 'join' does not wait for a step 'other'",
    }
    assert "`'failed' in ctx.results` tells" in seen["failed"]
    assert seen["other"].endswith("it waits for: start, none, failed, skipped, itself")
    assert result.degraded_reasons == (
        "step 'failed' failed: ValueError: no luck",
        "step 'itself' failed: ValueError: gave up",
    ), "a step that skips itself without an error degrades nothing"


async def test_a_failure_that_others_make_up_for_degrades_nothing() -> None:
    async def worker(ctx: StepContext[Any]) -> StepResult:
        if ctx.name == "start":
            sources = ("failed", "itself", "good", "better")
            join = NextStep("join", after=sources, join=Quorum(2))
            return StepResult(next_steps=[*[NextStep(name) for name in sources], join])
        if ctx.name == "failed":
            raise ValueError("no luck")
        if ctx.name == "itself":
            return StepResult(skipped=ValueError("gave up"))
        return StepResult(sorted(ctx.results), is_last=ctx.name == "join")

    async with Runner("memory:") as runner:
        options = RunOptions(max_parallel_steps=1)
        result = await runner.run(Agent(ScriptedModel([]), worker=worker), "go", options=options)
    assert (result.state, result.output) == ("completed", ["better", "good", "start"])


async def test_an_undo_of_a_failed_step_takes_its_reason_back(store: Any) -> None:
    broken = True

    async def worker(ctx: StepContext[Any]) -> StepResult:
        if ctx.name == "start":
            return StepResult(next_steps=[NextStep("a"), NextStep("end", after=("a",), join="optional")])
        if ctx.name == "a" and broken:
            raise ValueError("no luck")
        return StepResult(sorted(ctx.results), is_last=ctx.name == "end")

    async with Runner(store, agents=[Agent(ScriptedModel([]), worker=worker)]) as runner:
        result = await runner.run(runner_agent := Agent(ScriptedModel([]), worker=worker), "go")
        assert (result.state, result.output) == ("degraded", ["start"])
        fork = await runner.fork(result.task_id)
        await runner.undo_step(result.task_id, step="a")
        broken = False
        again = await runner.resume(result.task_id, agent=runner_agent)
        assert (again.state, again.output, again.degraded_reasons) == ("completed", ["a", "start"], ())
        forked = await runner.resume(fork, agent=runner_agent)
        assert (forked.state, forked.degraded_reasons) == ("degraded", result.degraded_reasons)


async def test_a_step_knows_the_tools_and_the_instructions_of_its_agent() -> None:
    async def worker(ctx: StepContext[Any]) -> StepResult:
        return StepResult([ctx.instructions, [spec.name for spec in ctx.tools]], is_last=True)

    async with Runner("memory:") as runner:
        plain = Agent(ScriptedModel([]), worker=worker)
        instructed = plain.replace(tools=[look], instructions=lambda task: f"Do {task.input[0].text}.")  # type: ignore[union-attr]
        assert (await runner.run(plain, "go")).output == ["", []]
        assert (await runner.run(instructed, "go")).output == ["Do go.", ["look"]]


@pytest.mark.parametrize(
    ("output_type", "right", "wrong"),
    [(int, 3, "three"), (list[int], [1, 2], [1, "two"]), (dict[str, int], {"answer": 1}, {"answer": "x"})],
)
async def test_a_step_can_check_an_answer_before_it_gives_it(
    output_type: Any, right: Any, wrong: Any
) -> None:
    async def worker(ctx: StepContext[Any]) -> StepResult:
        ctx.check_answer(right)
        assert isinstance(ctx.answer_schema, dict)
        assert "type" in ctx.answer_schema
        with pytest.raises(ValueError, match=r"integer|whole number|valid"):
            ctx.check_answer(wrong)
        return StepResult(right, is_last=True)

    async with Runner("memory:") as runner:
        result = await runner.run(Agent(ScriptedModel([]), worker=worker, output_type=output_type), "go")
    assert (result.state, result.error, result.output) == ("completed", None, right)


async def test_an_answer_that_is_text_has_no_schema_and_is_never_wrong() -> None:
    async def worker(ctx: StepContext[Any]) -> StepResult:
        ctx.check_answer([1, {"a": None}])
        return StepResult(ctx.answer_schema is None, is_last=True)

    async with Runner("memory:") as runner:
        assert (await runner.run(Agent(ScriptedModel([]), worker=worker), "go")).output is True


async def test_a_talk_on_the_side_is_journalled_once_however_many_turns_it_has() -> None:
    broken = True

    async def worker(ctx: StepContext) -> StepResult:
        talk = [user("x" * 500)]
        for turn in range(24):
            if turn == 20 and broken:
                raise ValueError("not yet")
            answer = await ctx.call_model(talk)
            talk += [answer.message, user(f"and {turn}?")]
        return StepResult(len(talk), is_last=True)

    model = ScriptedModel(lambda request: text(f"{len(request.messages)} messages"))
    async with Runner("memory:") as runner:
        failed = await runner.run(Agent(model, worker=worker), "go")
        broken = False
        result = await runner.resume(failed.task_id)
        events = [event async for event in runner.handle(result.task_id).events(deltas=False)]
    assert (failed.state, result.state, result.output) == ("failed", "completed", 49)
    requests = [list(request.messages) for request in model.requests]
    assert [len(messages) for messages in requests] == list(range(1, 49, 2))
    assert all(later[: len(earlier)] == earlier for earlier, later in pairwise(requests))
    requested = [event for event in events if isinstance(event, ModelRequested)]
    assert [len(event.messages or ()) for event in requested] == [1] * 24
    assert [event.follows for event in requested[:3]] == [None, "s1-m1", "s1-m2"]


@pytest.mark.parametrize(
    "how", [{"instructions": "Be kind."}, {"tools": ["double"]}, {"after_conversation": True}], ids=str
)
async def test_a_key_identifies_a_request_with_all_its_arguments(runner: Runner, how: Any) -> None:
    async def worker(ctx: StepContext) -> StepResult:
        await ctx.call_model("Well?", key="mine")
        return last((await ctx.call_model("Well?", key="mine", **how)).message.text)

    result = await runner.run(agent_of(worker, double), "go")
    assert result.error is not None
    assert "the key 'mine' was used before for something else" in result.error.message


async def test_a_key_cannot_be_used_for_two_requests(runner: Runner) -> None:
    async def worker(ctx: StepContext) -> StepResult:
        await ctx.call_tool("double", {"n": 1}, key="mine")
        return last(await ctx.call_tool("double", {"n": 2}, key="mine"))

    result = await runner.run(agent_of(worker, double), "go")
    assert result.error is not None
    assert "the key 'mine' was used before for something else" in result.error.message


async def test_a_key_gives_the_same_result_once_more(runner: Runner) -> None:
    async def worker(ctx: StepContext) -> StepResult:
        return last([await ctx.call_tool("double", {"n": 1}, key="mine") for _ in range(3)])

    result = await runner.run(agent_of(worker, double), "go")
    assert (result.output, len(result.tool_executions)) == ([2, 2, 2], 1)


@pytest.mark.parametrize("key", [17, ("a",), b"k", "caf\ud800"], ids=ascii)
@pytest.mark.parametrize("verb", ["once", "ask", "call_tool", "call_model"])
async def test_a_key_that_is_no_text_is_refused_before_anything_runs(
    runner: Runner, verb: str, key: Any
) -> None:
    ran: list[str] = []

    async def worker(ctx: StepContext) -> StepResult:
        if verb == "once":
            return last(await ctx.once(key, lambda: ran.append("ran")))
        if verb == "ask":
            return last(await ctx.ask("What?", key=key))
        if verb == "call_tool":
            return last(await ctx.call_tool("double", {"n": 1}, key=key))
        return last((await ctx.call_model("Well?", key=key)).message.text)

    result = await runner.run(agent_of(worker, double), "go")
    assert result.error is not None
    assert "a key is a text" in result.error.message
    assert (ran, result.tool_executions, result.pending) == ([], (), ())


@pytest.mark.parametrize("value", ["caf\ud800", [float("nan")]], ids=ascii)
async def test_a_step_keeps_no_value_that_is_another_one_when_it_runs_again(
    runner: Runner, value: Any
) -> None:
    async def worker(ctx: StepContext) -> StepResult:
        return last(await ctx.once("it", lambda: value))

    result = await runner.run(agent_of(worker), "go")
    assert result.error is not None
    assert "once('it', ...) must return JSON data" in result.error.message


@pytest.mark.parametrize("output", [float("nan"), {"a": ["caf\ud800"]}], ids=ascii)
async def test_a_step_gives_no_output_that_no_export_can_hold(runner: Runner, output: Any) -> None:
    async def worker(ctx: StepContext) -> StepResult:
        return last(output)

    result = await runner.run(agent_of(worker), "go")
    assert result.error is not None
    assert "output must be JSON data" in result.error.message
