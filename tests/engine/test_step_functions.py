"""Step functions: what they may do, and which results they get from the journal when they run again."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import date
from typing import Any

import pytest
from pydantic import BaseModel

from tests.cast import last
from tests.engine.function_workers import agent_of, double
from tests.property.mortal import MortalStore, next_life
from tests.runner.acts import assert_well_formed
from treadle import (
    Agent,
    Decider,
    FailurePolicy,
    Happened,
    Limits,
    Message,
    NextStep,
    Quorum,
    RunContext,
    Runner,
    RunOptions,
    RunResult,
    ScriptedModel,
    StepContext,
    StepResult,
    Text,
    tool,
)
from treadle.agents.decide import function_calling
from treadle.core.events import Delta, Event, ModelReturned
from treadle.core.model import ModelRequest
from treadle.errors import ConfigurationError, ModelError, StoreError, ToolCallFailed
from treadle.llm.scripted import Turn, call, fail, text
from treadle.stores.memory import MemoryStore
from treadle.testing import clock
from treadle.testing.audit import Evidence, audit_store

pytestmark = pytest.mark.anyio


@pytest.fixture
async def runner() -> AsyncIterator[Runner]:
    async with Runner("memory:", options=RunOptions(on_unknown_outcome="tell_model")) as runner:
        yield runner
        assert await audit_store(runner.store, Evidence(ended=False)) == []


async def test_a_plain_function_is_a_worker(runner: Runner) -> None:
    async def worker(ctx: StepContext) -> StepResult:
        return last((await ctx.call_model()).message.text)

    result = await runner.run(agent_of(worker), "go")
    assert (result.state, result.final_text, result.steps) == ("completed", "heard 1: go", 1)
    assert [(message.role, message.text) for message in result.messages] == [
        ("user", "go"),
        ("assistant", "heard 1: go"),
    ]


async def test_a_function_that_is_not_async_runs_beside_the_loop_and_waits_with_its_context(
    runner: Runner,
) -> None:
    def worker(ctx: StepContext) -> StepResult:
        seen = ctx.wait(ctx.call_tool("double", {"n": 21}))
        return last([seen, ctx.wait(ctx.call_model("and?")).message.text])

    result = await runner.run(agent_of(worker, double), "go")
    assert result.output == [42, "heard 1: and?"]


async def test_a_worker_in_three_parts_plans_the_first_step_and_finalizes_the_answer(runner: Runner) -> None:
    class Counting:
        def initialize_step(self, task: RunContext[str]) -> NextStep:
            return NextStep("count", {"n": 0, "for": task.context})

        async def run_step(self, ctx: StepContext[str]) -> StepResult:
            n = ctx.input["n"] + 1
            return StepResult(n, n == 3, () if n == 3 else [NextStep("count", {**ctx.input, "n": n})])

        async def finalize_task(self, task: RunContext[str], output: Any) -> Any:
            return {"counted": output, "for": task.context}

    agent = agent_of(Counting())
    result = await runner.run(agent, "go", context="me")
    assert (result.state, result.output, result.steps) == ("completed", {"counted": 3, "for": "me"}, 3)
    await runner.undo_step(result.task_id)
    assert (await runner.resume(result.task_id, context="you")).output == {"counted": 3, "for": "you"}
    task = await runner.create_task(agent, "go")
    while not (await runner.run_step(task, context="me")).is_last:
        pass
    assert (await runner.finalize(task)).output == {"counted": 3, "for": None}


@pytest.mark.parametrize("part", ["initialize_step", "finalize_task"])
async def test_a_part_that_raises_fails_the_task_and_is_asked_again(runner: Runner, part: str) -> None:
    broken = True

    def perhaps(name: str) -> None:
        if broken and part == name:
            raise ValueError("not today")

    class Worker:
        def initialize_step(self, task: RunContext[Any]) -> NextStep:
            perhaps("initialize_step")
            return NextStep("only")

        async def run_step(self, ctx: StepContext) -> StepResult:
            return last("done")

        async def finalize_task(self, task: RunContext[Any], output: Any) -> None:
            perhaps("finalize_task")

    result = await runner.run(agent_of(Worker()), "go")
    assert (result.state, result.error and result.error.source) == ("failed", "worker")
    assert result.error is not None
    assert f"{part} failed: ValueError: not today" in result.error.message
    broken = False
    assert (await runner.resume(result.task_id)).output == "done"


async def test_a_pure_decide_is_a_worker(runner: Runner) -> None:
    model = ScriptedModel([call("double", n=2), text("four")])
    result = await runner.run(agent_of(Decider(function_calling.decide), double, model=model), "go")
    assert (result.state, result.final_text, result.steps) == ("completed", "four", 2)


# ------------------------------------------------------------------------------------------ once more


async def lived_twice(
    worker: Any, *tools: Any, commits: int, model: Any = None, after: bool = True
) -> RunResult:
    """Begin a task in a process that crashes at a commit, and end it in another process."""
    life = MortalStore(MemoryStore())
    await life.real.open()
    life.commits_left, life.dies_after_writing = commits, after
    agent = agent_of(worker, *tools, model=model)
    options = RunOptions(on_unknown_outcome="tell_model")
    with pytest.raises(StoreError):
        async with Runner(life, options=options, agents=[agent]) as runner:
            await runner.run(agent, "go", task_id="t1")
    second = await next_life(life, None)
    async with Runner(second, options=options, agents=[agent]) as runner:
        result = await runner.run(agent, "go", task_id="t1")
    async with Runner(second.real) as reader:
        assert await audit_store(reader.store, Evidence()) == []
    return result


async def test_two_gathered_calls_that_are_swapped_after_a_crash_each_get_their_own_result() -> None:
    done: list[int] = []
    entered = 0

    @tool
    async def work(n: int) -> int:
        """Work."""
        done.append(n)
        return n

    async def worker(ctx: StepContext) -> StepResult:
        nonlocal entered
        entered += 1
        numbers = [1, 2] if entered == 1 else [2, 1]
        results = await asyncio.gather(*[ctx.call_tool("work", {"n": n}) for n in numbers])
        results += [await ctx.call_tool("work", {"n": 3})]
        return last(dict(zip(["one", "two"] if entered == 1 else ["two", "one"], results[:2], strict=True)))

    for commits in range(1, 6):
        done.clear()
        entered = 0
        result = await lived_twice(worker, work, commits=commits)
        assert entered <= 2
        if result.state == "completed":
            assert result.output == {"one": 1, "two": 2}
        assert len(done) == len(set(done)), (commits, done)


async def test_requests_that_ended_are_served_from_the_journal(runner: Runner) -> None:
    prompts: list[str] = []
    entered: list[int] = []
    broken = True

    def model(request: ModelRequest) -> Turn:
        prompts.append(request.messages[-1].text)
        return text(f"heard {prompts[-1]}")

    async def worker(ctx: StepContext) -> StepResult:
        entered.append(ctx.attempt)
        values = [await ctx.once("dice", lambda: len(entered)), await ctx.now(), await ctx.random()]
        first = (await ctx.call_model("one")).message.text
        second = await ctx.call_tool("double", {"n": 4})
        third = (await ctx.call_model("one")).message.text
        if broken:
            raise RuntimeError("after all that")
        return last([values, first, second, third])

    agent = agent_of(worker, double, model=ScriptedModel(model))
    failed = await runner.run(agent, "go")
    assert (failed.state, prompts) == ("failed", ["one", "one"])
    broken = False
    result = await runner.resume(failed.task_id)
    assert (entered, prompts) == ([1, 2], ["one", "one"])
    values, *rest = result.output
    assert (values[0], rest) == (1, ["heard one", 8, "heard one"])
    assert 0 <= values[2] < 1 < values[1]
    assert result.usage.model_calls == 2


@pytest.mark.parametrize("with_message", [False, True])
async def test_a_call_that_failed_is_made_again_when_its_step_is_tried_again(
    runner: Runner, with_message: bool
) -> None:
    works = False
    keys: list[str] = []

    @tool(idempotent=True)
    async def work() -> str:
        """Work."""
        keys.append("x")
        if not works:
            raise OSError("no")
        return "yes"

    def model(request: ModelRequest) -> Turn:
        return (
            call("work") if request.messages[-1].role == "user" else text(f"so: {request.messages[-1].parts}")
        )

    async def worker(ctx: StepContext) -> StepResult:
        answer = await ctx.call_model()
        result_ = await ctx.call_tool(answer.message.tool_calls[0])
        return last([result_, (await ctx.call_model()).message.text])

    agent = agent_of(worker, work, model=ScriptedModel(model))
    failed = await runner.run(agent, "go")
    assert (failed.state, failed.error and failed.error.source) == ("failed", "tool")
    assert_well_formed(failed.messages)
    works = True
    if with_message:
        await runner.send(failed.task_id, "and?")
    result = await runner.resume(failed.task_id)
    assert result.state == "completed"
    again = (
        1 if with_message else 0
    )  # no message may stand between calls and their results: it is read after the step
    assert (result.output[0], "yes" in result.output[1], len(keys)) == ("yes", True, 2 + again)
    assert [message.text for message in result.messages].count("and?") == again
    assert_well_formed(result.messages)
    assert [message.role for message in result.messages][:4] == ["user", "assistant", "tool", "assistant"]


async def test_a_failed_call_is_not_retried_after_the_model_has_answered_it(runner: Runner) -> None:
    tried: list[int] = []

    @tool(idempotent=True)
    async def work(n: int) -> str:
        """Work."""
        tried.append(n)
        if n == 1:
            raise OSError("no")
        return "yes"

    async def worker(ctx: StepContext) -> StepResult:
        for _ in range(2):
            await ctx.call_tools(await ctx.call_model())
        if ctx.attempt == 1:
            raise ValueError("later")
        return last("done")

    agent = agent_of(worker, work, model=ScriptedModel([call("work", n=1), call("work", n=2)]))
    failed = await runner.run(agent, "go")
    assert (await runner.resume(failed.task_id)).state == "completed"
    assert tried == [1, 2]


def test_calls_of_a_step_function_refused_at_a_limit_are_recorded_once() -> None:
    async def story() -> None:
        slow = True

        async def worker(ctx: StepContext) -> StepResult:
            answer = await ctx.call_model()
            if slow:
                await asyncio.sleep(60)
            await ctx.call_tools(answer)
            return last((await ctx.call_model()).message.text)

        async with clock.runner() as runner:
            model = ScriptedModel([call("double", n=2), text("Four.")])
            cut = await runner.run(agent_of(worker, double, model=model, limits=Limits(seconds=5)), "go")
            assert cut.state == "degraded"
            assert_well_formed(await runner.get_thread(cut.thread_id))
            slow = False
            more = RunOptions(limits=Limits(seconds=500))
            result = await runner.resume(cut.task_id, options=more)
            assert (result.state, result.output) == ("completed", "Four.")
            assert_well_formed(model.requests[-1].messages)
            assert model.requests[-1].messages[-1].parts[0].parts[0].text == "4"  # type: ignore[union-attr]

    clock.run(story())


async def test_a_failure_of_an_abandoned_step_is_not_the_error_of_the_task(runner: Runner) -> None:
    async def worker(ctx: StepContext) -> StepResult:
        return last(await ctx.call_tool("nothing"))

    patient = RunOptions(on_failure=FailurePolicy(tool="pause"))
    paused = await runner.run(agent_of(worker), "go", options=patient)
    assert (paused.state, paused.error is not None) == ("paused", True)
    await runner.skip_step(paused.task_id)
    assert (await runner.result(paused.task_id)).error is None


async def test_a_writing_call_that_was_cut_off_raises_into_the_function() -> None:
    errors: list[str] = []

    @tool
    async def write() -> None:
        """Write."""

    async def worker(ctx: StepContext) -> StepResult:
        try:
            await ctx.call_tool("write")
        except ToolCallFailed as error:
            errors.append(error.outcome)
            return last("unknown")
        return last("known")

    outcomes = {(await lived_twice(worker, write, commits=commits)).output for commits in range(3)}
    assert outcomes >= {"unknown"}
    assert set(errors) == {"unknown"}


async def test_a_call_of_a_step_function_can_be_settled(runner: Runner) -> None:
    life = MortalStore(MemoryStore())
    await life.real.open()

    @tool
    async def write() -> str:
        """Write."""
        life.die()
        await asyncio.sleep(0)
        return "never"

    async def worker(ctx: StepContext) -> StepResult:
        return last(await ctx.call_tool("write"))

    agent = agent_of(worker, write)
    with pytest.raises(StoreError):
        async with Runner(life, agents=[agent]) as first:
            await first.run(agent, "go", task_id="t1")
    second = await next_life(life, None)
    async with Runner(second, agents=[agent]) as again:
        waiting = await again.resume("t1")
        assert (waiting.state, [pending.tool for pending in waiting.pending]) == ("waiting", ["write"])
        await again.settle("t1", waiting.pending[0].request_id, Happened("it was"))
        result = await again.resume("t1")
        assert (result.state, result.output) == ("completed", "it was")


# -------------------------------------------------------------------------------------- conversation


async def test_a_side_request_adds_nothing_to_the_conversation(runner: Runner) -> None:
    async def worker(ctx: StepContext) -> StepResult:
        side = await ctx.call_model([Message("user", (Text("psst"),))], instructions="Whisper.")
        assert [message.text for message in ctx.messages] == ["go"]
        return last(side.message.text)

    agent = agent_of(worker, double, instructions="Speak.")
    result = await runner.run(agent, "go")
    assert [message.text for message in result.messages] == ["go", "heard 1: psst"]
    [request] = agent.model.requests  # type: ignore[union-attr]
    assert (request.instructions, request.tools) == ("Whisper.", ())


async def test_calls_that_a_function_does_not_want_are_answered_all_the_same(runner: Runner) -> None:
    def model(request: ModelRequest) -> Turn:
        return call("double", n=1) + call("double", n=2) if request.turn == 0 else text("well")

    async def worker(ctx: StepContext) -> StepResult:
        answer = await ctx.call_model()
        await ctx.call_tool(answer.message.tool_calls[1])
        return last((await ctx.call_model()).message.text)

    result = await runner.run(agent_of(worker, double, model=ScriptedModel(model)), "go")
    assert_well_formed(result.messages)
    assert "double was not run." in str(result.messages[2])
    assert [run.output for run in result.tool_executions] == [4]


async def test_the_conversation_goes_on_one_request_at_a_time(runner: Runner) -> None:
    async def worker(ctx: StepContext) -> StepResult:
        await asyncio.gather(ctx.call_model(), ctx.call_model())
        return last(None)

    result = await runner.run(agent_of(worker), "go")
    assert result.error is not None
    assert "pass messages= for one on the side" in result.error.message


async def test_deltas_of_a_request_of_a_step_function_are_streamed_and_change_nothing(runner: Runner) -> None:
    async def worker(ctx: StepContext) -> StepResult:
        return last((await ctx.call_model()).message.text)

    model = ScriptedModel([text("one two three", chunk=3)])
    free = await runner.run(agent_of(worker, model=model), "go")
    async with runner.run_stream(agent_of(worker, model=model), "go") as stream:
        seen = [event async for event in stream]
    assert "".join(item.text for item in seen if isinstance(item, Delta)) == "one two three"
    assert stream.result.messages == free.messages
    assert [event.call for event in seen if isinstance(event, ModelReturned)] == ["s1-m1"]
    assert all(isinstance(event, (Event, Delta)) for event in seen)


@pytest.mark.parametrize(
    ("catches", "ends"), [(True, ("completed", "rate_limit")), (False, ("failed", None))]
)
async def test_a_model_that_fails_raises_into_the_function_and_fails_a_step_that_lets_it_pass(
    runner: Runner, catches: bool, ends: tuple[str, Any]
) -> None:
    async def worker(ctx: StepContext) -> StepResult:
        try:
            return last((await ctx.call_model("one")).message.text)
        except ModelError as error:
            if not catches:
                raise
            return last(error.kind)

    result = await runner.run(agent_of(worker, model=ScriptedModel([fail(429), text("two")])), "go")
    assert ((result.state, result.output), result.error and result.error.source) == (
        ends,
        None if catches else "model",
    )


async def test_no_call_is_left_behind_when_a_function_returns(runner: Runner) -> None:
    ended: list[int] = []

    @tool
    async def slow(n: int) -> int:
        """Slow."""
        await asyncio.sleep(0.01)
        ended.append(n)
        return n

    async def worker(ctx: StepContext) -> StepResult:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(ctx.call_tool("slow", {"n": 1}), 0.001)
        return last("enough")

    result = await runner.run(agent_of(worker, slow), "go")
    assert (result.output, ended, [run.outcome for run in result.tool_executions]) == ("enough", [1], ["ok"])


# ------------------------------------------------------------------------------------- typed answers


class Trip(BaseModel):
    to: str
    on: date


async def test_the_answer_of_a_custom_worker_has_the_output_type_of_the_agent(runner: Runner) -> None:
    trip = Trip(to="Rome", on=date(2026, 5, 1))
    result = await runner.run(agent_of(returns(last(trip)), output_type=Trip), "go")
    assert (result.state, result.output) == ("completed", trip)
    result = await runner.run(agent_of(returns(last({"to": 1})), output_type=Trip), "go")
    assert (result.state, "not of the agent's output type" in str(result.error)) == ("failed", True)


# -------------------------------------------------------------------------------------------- misuse


def returns(result: Any) -> Callable[[StepContext], Any]:
    async def worker(ctx: StepContext) -> Any:
        return result

    return worker


@pytest.mark.parametrize("output", [False, "", 0, None, []], ids=str)
async def test_an_answer_may_be_falsy(runner: Runner, output: Any) -> None:
    result = await runner.run(agent_of(returns(last(output))), "go")
    assert (result.state, result.output) == ("completed", output)


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (None, "must return a StepResult, got None"),
        ("done", "must return a StepResult, got 'done'"),
        (StepResult("x"), "neither the last step nor followed by one"),
        (StepResult(object(), is_last=True), "output must be JSON data"),
        (StepResult(next_steps=["a"]), "a next step must be a NextStep, got 'a'"),  # type: ignore[list-item]
        (StepResult(next_steps=NextStep("a")), "next_steps must be a list of NextStep, got NextStep"),  # type: ignore[arg-type]
        (StepResult(next_steps=[NextStep("")]), "a step's name must be text"),
        (StepResult(next_steps=[NextStep("a"), NextStep("a")]), "two steps of one plan are named 'a'"),
        (StepResult(next_steps=[NextStep("a", after=("b",))]), "waits for 'b', and there is no such step"),
        (StepResult(next_steps=[NextStep("a", after="b")]), "must have a sequence of names as after="),  # type: ignore[arg-type]
        (StepResult(next_steps=[NextStep("a", join="most")]), "got () and 'most'"),  # type: ignore[arg-type]
        (StepResult(next_steps=[NextStep("a", join=Quorum(2))]), "of which 2 cannot end well"),
        (StepResult(next_steps=[NextStep("a", object())]), "input of step 'a' must be JSON data"),  # type: ignore[arg-type]
        (
            StepResult(next_steps=[NextStep("a", after=("b",)), NextStep("b", after=("a",))]),
            "the steps a, b wait for each other",
        ),
        (StepResult(next_steps=[NextStep("a", after=("a",))]), "the steps a wait for each other"),
    ],
)
async def test_a_step_that_leads_nowhere_fails_with_the_reason(runner: Runner, result: Any, why: str) -> None:
    failed = await runner.run(agent_of(returns(result)), "go")
    assert failed.state == "failed"
    assert failed.error is not None
    assert why in failed.error.message
    assert "'start' (s1)" in failed.error.message


def test_a_quorum_is_of_at_least_one() -> None:
    with pytest.raises(ConfigurationError, match="whole number from 1 up"):
        Quorum(0)


@pytest.mark.parametrize("source", ["model", "tool"])
async def test_each_failure_of_a_step_function_pauses_under_the_policy_pause(
    runner: Runner, source: str
) -> None:
    tries: list[str] = []

    @tool(read_only=True)
    async def look() -> str:
        tries.append("look")
        if len(tries) < 3:
            raise ConnectionError("down")
        return "seen"

    def answer(request: Any) -> Any:
        tries.append("asked")
        return fail(500) if len(tries) < 3 else text("seen")

    async def work(ctx: StepContext) -> StepResult:
        if source == "tool":
            return StepResult(await ctx.call_tool("look"), is_last=True)
        return StepResult((await ctx.call_model()).message.text, is_last=True)

    agent = Agent(ScriptedModel(answer), worker=work, tools=[look])
    options = RunOptions(on_failure=FailurePolicy(model="pause", tool="pause"))
    assert (await runner.run(agent, "Go", options=options, task_id="t")).state == "paused"
    states = [(await runner.resume("t", agent=agent)).state for _ in range(2)]
    assert (states, len(tries)) == (["paused", "completed"], 3)
