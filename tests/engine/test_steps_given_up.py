"""Steps that are not needed any more, the messages to them, and the round that follows."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.engine.function_workers import planned, planning
from tests.runner.gates import Gates, shown
from treadle import (
    Agent,
    Ask,
    Limits,
    NextStep,
    Node,
    NodeContext,
    Pipeline,
    Runner,
    RunOptions,
    ScriptedModel,
    StepContext,
    StepResult,
    tool,
)
from treadle.core import events as e
from treadle.core.model import ModelRequest
from treadle.llm.scripted import call, text
from treadle.testing.audit import audit_store

pytestmark = pytest.mark.anyio


@tool
async def save(n: int) -> str:
    """Save."""
    return f"saved {n}"


def agent_of(worker: Any, model: Any = "so", **more: Any) -> Agent[Any]:
    reply = model if callable(model) else lambda request: text(model)
    return Agent(ScriptedModel(reply), worker=worker, tools=[save], **more)


@pytest.fixture
async def runner() -> AsyncIterator[Runner]:
    async with Runner("memory:") as runner:
        yield runner
        assert await audit_store(runner.store) == []


def inputs_of(ctx: NodeContext) -> Any:
    return dict(ctx.results)


def texts(messages: Any) -> list[str]:
    return [message.text for message in messages]


async def test_input_of_a_step_that_lost_a_race_is_in_the_thread(runner: Runner) -> None:
    async def slow(ctx: NodeContext) -> None:
        await asyncio.sleep(60)

    nodes = (
        Node("slow", slow),
        Node("quick", lambda ctx: 1),
        Node("end", lambda ctx: 2, after=("slow", "quick"), join="any"),
    )
    result = await runner.run(agent_of(Pipeline(nodes)), "go", thread_id="talk")
    assert (result.state, texts(await runner.get_thread("talk"))) == ("completed", ["go", "2"])


async def test_input_of_a_step_that_another_step_outran_comes_before_the_answer(runner: Runner) -> None:
    gates = Gates()

    @planning(NextStep("slow"), NextStep("quick"))
    async def worker(ctx: StepContext) -> StepResult:
        await gates.pass_(ctx.name)
        return StepResult(ctx.name, is_last=True)

    task = await runner.create_task(agent_of(worker), "go")
    await runner.run_step(task)
    await runner.send(task, "and?")
    handle = asyncio.create_task(runner.resume(task))
    await gates.until("slow begins")
    await gates.let("quick")
    assert texts((await handle).messages) == ["go", "and?", "quick"]


@pytest.mark.parametrize("ends", ["fails", "is at a limit", "is cancelled"])
async def test_messages_of_parallel_steps_are_kept_without_an_answer(runner: Runner, ends: str) -> None:
    @planning(NextStep("a"), NextStep("b"))
    async def worker(ctx: StepContext) -> StepResult:
        if ctx.name == "b":
            raise ValueError("no")
        await ctx.call_model()
        return StepResult(1)

    limits = Limits(steps=2) if ends == "is at a limit" else None
    options = RunOptions(keep_in_thread="always", limits=limits, max_parallel_steps=1)
    task = await runner.create_task(agent_of(worker), "go", thread_id="talk", options=options)
    await runner.run_step(task)
    await runner.send(task, "and?")
    await runner.run_step(task)
    result = await (runner.cancel(task) if ends == "is cancelled" else runner.resume(task))
    assert texts(await runner.get_thread("talk"))[:3] == ["go", "and?", "so"]
    if ends == "fails":
        await runner.skip_step(task)
        assert texts((await runner.result(task)).messages) == ["go"], (
            "taken up again, it has not said them yet"
        )
    assert result.state == {"fails": "failed", "is at a limit": "degraded"}.get(ends, "cancelled")


async def test_an_undo_of_an_answer_runs_the_steps_that_were_given_up_for_it(runner: Runner) -> None:
    @planning(NextStep("a"), NextStep("b"), NextStep("end", after=("a", "b")))
    async def worker(ctx: StepContext) -> StepResult:
        if ctx.name == "b" and "b1" not in ctx.step_id:
            await asyncio.sleep(60)
        is_last = ctx.name == "end" or (ctx.name == "a" and "b1" not in ctx.step_id)
        return StepResult(ctx.name, is_last=is_last)

    first = await runner.run(agent_of(worker), "go")
    assert first.output == "a"
    await runner.undo_step(first.task_id, step="a")
    result = await runner.resume(first.task_id)
    assert (result.state, result.output) == ("completed", "end")


async def test_a_message_starts_a_new_round_without_steps_of_the_first(runner: Runner) -> None:
    @planning(NextStep("a"), NextStep("b"))
    async def worker(ctx: StepContext) -> StepResult:
        return StepResult(ctx.name, is_last=True)

    task = await runner.create_task(agent_of(worker), "go")
    await runner.run_step(task)
    assert (await runner.run_step(task)).is_last
    await runner.send(task, "and?")
    [first] = await runner.get_upcoming_steps(task)
    out = await runner.run_step(task)
    assert (first.step_id, out.step.step_id, out.step.name) == ("s4", "s4", "start")


async def test_a_task_continues_after_an_undo_of_a_step_of_a_withdrawn_answer(runner: Runner) -> None:
    @planning(NextStep("aside"), NextStep("answer"))
    async def worker(ctx: StepContext) -> StepResult:
        return StepResult(ctx.name, is_last=ctx.name == "answer")

    task = await runner.create_task(agent_of(worker), "go")
    for _ in ("start", "aside", "answer"):
        await runner.run_step(task)
    await runner.send(task, "and?")
    await runner.undo_step(task, step="aside")
    [first] = await runner.get_upcoming_steps(task)
    assert first.name != "aside", "it was planned on the way to the answer that was taken back"
    result = await runner.resume(task)
    assert (result.state, result.output) == ("completed", "answer")
    assert texts(result.messages) == ["go", "answer", "and?", "answer"]


class Dependencies:
    def __init__(self, *first: str) -> None:
        self.first = [NextStep(name) for name in first]
        self.begins = True

    async def initialize_step(self, task: Any) -> Any:
        if not self.begins:
            raise ValueError("not again")
        return self.first

    async def run_step(self, ctx: StepContext) -> StepResult:
        return StepResult(ctx.name, is_last=ctx.name == "last")

    async def finalize_task(self, task: Any, output: Any) -> None:
        return None


async def test_a_worker_that_cannot_start_another_round_fails_its_task_only(runner: Runner) -> None:
    worker = Dependencies("last")
    task = await runner.create_task(agent_of(worker), "go")
    await runner.run_step(task)
    worker.begins = False
    out = await runner.run_step(task, input="and?")
    assert (out.state, out.error and out.error.message) == (
        "failed",
        "initialize_step failed: ValueError: not again",
    )
    worker.begins = True
    assert (await runner.run_step(task)).is_last


async def test_of_several_first_steps_one_is_run_at_a_time(runner: Runner) -> None:
    task = await runner.create_task(agent_of(Dependencies("a", "last")), "go")
    await runner.run_step(task)
    steps = await runner.get_upcoming_steps(task)
    assert [(step.name, step.status) for step in steps] == [("last", "next")]


async def test_a_fork_with_another_result_asks_again_what_was_asked_with_the_first(runner: Runner) -> None:
    def model(request: ModelRequest) -> Any:
        results = [part for message in request.messages for part in message.parts if hasattr(part, "call_id")]
        return text(f"so {results[0].parts[0].text}") if results else call("save", n=1)

    agent = agent_of(Pipeline([Node("a", Ask("{input}", tools=["save"]))]), model)
    parent = await runner.run(agent, "go")
    fork = await runner.fork(parent.task_id, replace={parent.tool_executions[0].call_id: "lost"})
    assert (parent.output, (await runner.resume(fork)).output) == ("so saved 1", "so lost")


async def test_calls_that_end_before_they_begin_make_room_for_the_next(runner: Runner) -> None:
    async def worker(ctx: StepContext) -> StepResult:
        made = await ctx.call_tools(await ctx.call_model())
        return StepResult([one.outcome for one in made], is_last=True)

    def model(request: ModelRequest) -> Any:
        return call("save", n=1) + call("missing") + call("missing") + call("missing")

    options = RunOptions(max_parallel_tools=1, max_parallel_steps=1)
    async with asyncio.timeout(5):
        result = await runner.run(agent_of(worker, model), "go", options=options)
    assert result.output == ["ok", *["invalid"] * 3]


@pytest.mark.parametrize("ticks", range(0, 40, 3))
async def test_a_message_sent_just_as_a_task_fails_is_read_once(runner: Runner, ticks: int) -> None:
    async def worker(ctx: StepContext) -> StepResult:
        raise ValueError("no")

    task = await runner.create_task(agent_of(worker), "go")
    running = asyncio.create_task(runner.resume(task))
    for _ in range(ticks):
        await asyncio.sleep(0)
    await runner.send(task, "and?")
    await running
    await runner.resume(task)
    events = [event async for event in runner.handle(task).events(deltas=False)]
    inputs = [event for event in events if isinstance(event, e.InputReceived)]
    assert [event.parts[0].text for event in inputs if event.parts] == ["and?"]


async def test_the_result_of_a_retried_call_precedes_messages_sent_meanwhile(runner: Runner) -> None:
    async def worker(ctx: StepContext) -> StepResult:
        answer = await ctx.call_model()
        if ctx.attempt == 1:
            raise ValueError("not yet")
        await ctx.call_tools(answer)
        return StepResult([message.role for message in ctx.messages], is_last=True)

    first = await runner.run(agent_of(worker, lambda request: call("save", n=1)), "go")
    await runner.send(first.task_id, "and?")
    result = await runner.resume(first.task_id)
    assert result.output == ["user", "assistant", "tool", "user"]


async def test_a_step_that_is_needed_later_in_a_plan_is_not_given_up_for_one_that_hurries(
    runner: Runner,
) -> None:
    @planning(
        NextStep("slow"),
        NextStep("hurries", after=("start", "slow"), join="any"),
        NextStep("end", after=("slow", "hurries")),
    )
    async def worker(ctx: StepContext) -> StepResult:
        return StepResult(sorted(ctx.results), is_last=ctx.name == "end")

    result = await runner.run(agent_of(worker), "go")
    assert (result.state, result.output) == ("completed", ["hurries", "slow", "start"])


async def test_messages_that_an_undo_restores_start_another_round_of_an_answered_worker(
    runner: Runner,
) -> None:
    async def slow(ctx: NodeContext) -> None:
        if ctx.step.step_id == "s1":
            await asyncio.sleep(60)

    nodes = (
        Node("slow", slow),
        Node("quick", lambda ctx: 1),
        Node("end", inputs_of, after=("slow", "quick"), join="any"),
    )
    first = await runner.run(agent_of(Pipeline(nodes)), "go")
    await runner.undo_step(first.task_id, step="slow")
    result = await runner.resume(first.task_id)
    assert (result.state, texts(result.messages)[-2:]) == ("completed", ["go", '{"quick":1}'])


async def test_a_last_node_without_results_leaves_neither_an_answer_nor_a_failure(runner: Runner) -> None:
    def broken(ctx: NodeContext) -> None:
        raise ValueError("broken")

    nodes = (
        Node("n0", broken, optional=True),
        Node("n1", broken),
        Node("n2", inputs_of, after="n0", join="any"),
        Node("n3", inputs_of, after=("n0", "n1", "n2"), join="any"),
    )
    options = RunOptions(max_parallel_steps=1)
    result = await runner.run(agent_of(Pipeline(nodes)), "go", options=options)
    assert (result.state, result.output) == ("degraded", None)


async def test_a_fork_beside_a_step_with_an_open_call_ends_that_call(runner: Runner) -> None:
    begun, over = asyncio.Event(), asyncio.Event()

    @tool
    async def hold() -> None:
        begun.set()
        await over.wait()

    @planning(NextStep("a"), NextStep("b"))
    async def worker(ctx: StepContext) -> StepResult:
        if ctx.name == "b":
            await ctx.call_tool("hold")
            await ctx.call_tool("hold")
        await begun.wait()
        return StepResult(ctx.name)

    options = RunOptions(limits=Limits(tool_calls=1), on_limit="pause")
    agent = Agent(ScriptedModel(["so"]), worker=worker, tools=[hold])
    handle = await runner.start(agent, "go", options=options)
    await shown(runner, handle.task_id, "a")
    over.set()
    assert (await handle.result()).state == "paused"
    fork = await runner.fork(handle.task_id, at="s2")
    assert [step.step.name for step in await runner.get_completed_steps(fork)] == ["start", "a"]


async def test_an_undo_of_an_answer_takes_back_the_round_that_input_after_it_began(runner: Runner) -> None:
    async def work(ctx: StepContext) -> StepResult:
        return planned(NextStep("end")) if ctx.name == "start" else StepResult("Done.", is_last=True)

    task = await runner.create_task(agent_of(work), "go")
    for _ in range(2):
        await runner.run_step(task)
    await runner.send(task, "and this")
    assert (await runner.run_step(task)).step.name == "start"  # of the second round
    await runner.undo_step(task, to=0)
    assert [step.name for step in await runner.get_upcoming_steps(task)] == ["start"]
    result = await runner.resume(task)
    assert (result.state, result.steps) == ("completed", 2)
    assert texts(result.messages) == ["go", "and this", "Done."]
