"""The public API as a user writes it. pyright checks this file in strict mode: nothing in it is run.

Each `assert_type` is a promise: an editor shows that type, and a program that relies on it passes a strict checker.
"""

# pyright: strict

from collections.abc import AsyncIterator, Generator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, assert_type

from pydantic import BaseModel

from treadle import (
    Agent,
    AgentWorker,
    Ask,
    FailurePolicy,
    Happened,
    Limits,
    Message,
    ModelAnswer,
    NextStep,
    Node,
    NodeContext,
    NotHappened,
    Pipeline,
    PlanRefine,
    React,
    RequestContext,
    RunContext,
    RunHandle,
    Runner,
    RunOptions,
    RunResult,
    ScriptedModel,
    StepContext,
    StepResult,
    Task,
    TaskStepOutput,
    TaskUsage,
    ToolCall,
    ToolContext,
    ToolOutput,
    UndoReport,
    tool,
)
from treadle import __version__ as version
from treadle.core.messages import Json
from treadle.engine.results import Difference, TaskPage, ThreadMessages
from treadle.events import Delta, Event
from treadle.models import OpenAI, Retry, Timeout


@dataclass
class Customer:
    name: str


class Invoice(BaseModel):
    number: int


# ---------------------------------------------------------------------------------------------- tools


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(read_only=True, timeout=5)
async def look_up(name: str, ctx: ToolContext[Customer]) -> str:
    assert_type(ctx.context, Customer)
    assert_type(ctx.attempt, int)
    assert_type(ctx.idempotency_key, str)
    return f"{ctx.context.name}: {name}"


def cancel_booking(call: ToolCall, ctx: ToolContext[Any]) -> None:
    print(call.name, ctx.call_id)


async def was_booked(call: ToolCall, ctx: ToolContext[Any]) -> Happened | NotHappened:
    return Happened(call.arguments) if ctx.attempt > 1 else NotHappened()


@tool(undo=cancel_booking, reconcile=was_booked)
def book(room: int) -> ToolOutput:
    return ToolOutput(f"booked {room}", sources=[{"room": room}])


@tool
def count(to: int) -> Generator[int, None, str]:
    yield from range(to)
    return "done"


class Shop:
    @tool
    def price(self, article: str) -> float:
        return float(len(article))


async def tools_stay_the_functions_they_were(ctx: ToolContext[Customer]) -> None:
    assert_type(add(1, 2), int)
    assert_type(add(a=1, b=2), int)
    assert_type(await look_up("x", ctx), str)
    assert_type(book(1), ToolOutput)
    assert_type(count(3), Generator[int, None, str])
    assert_type(add.spec.name, str)


# --------------------------------------------------------------------------------------------- agents


def instructions(ctx: RunContext[Customer]) -> str:
    assert_type(ctx.context, Customer)
    return f"You serve {ctx.context.name}."


def offer(ctx: RequestContext) -> list[str]:
    return ["add"]


plain: Agent[None] = Agent("openai:gpt-5.4-mini", tools=[add, look_up, book, count])
typed: Agent[Customer] = Agent(
    OpenAI("gpt-5.4-mini"), name="typed", instructions=instructions, output_type=Invoice, offer=offer
)
layered: Agent[None] = Agent(
    Retry(Timeout(OpenAI("gpt-5.4-mini"), first_byte=5), attempts=3), subagents=[typed]
)
scripted: Agent[None] = Agent(ScriptedModel(["Hello."]), worker="react", limits=Limits(steps=5, cost=0.5))


# -------------------------------------------------------------------------------------------- workers


async def reflect(ctx: StepContext[Customer]) -> StepResult:
    assert_type(ctx.context, Customer)
    answer = await ctx.call_model("Criticise it.")
    assert_type(answer, ModelAnswer)
    assert_type(answer.message.text, str)
    assert_type(await ctx.once("seed", lambda: 7), int)
    assert_type(await ctx.now(), float)
    return StepResult(answer.message.text, next_steps=[NextStep("again")])


def first(ctx: NodeContext[Customer]) -> str:
    assert_type(ctx.step, StepContext[Customer])
    return ctx.text


class Own:
    def initialize_step(self, task: RunContext[Any]) -> NextStep:
        return NextStep("only")

    async def run_step(self, ctx: StepContext[Any]) -> StepResult:
        return StepResult("done", is_last=True)

    def finalize_task(self, task: RunContext[Any], output: Json) -> Json:
        return output


own: AgentWorker = Own()
of_a_class: Agent[None] = Agent("openai:gpt-5.4-mini", worker=own)
of_a_function: Agent[Customer] = Agent("openai:gpt-5.4-mini", worker=reflect)
of_a_pipeline: Agent[Customer] = Agent(
    "openai:gpt-5.4-mini",
    worker=Pipeline([Node("first", first), Node("second", Ask("Improve: {first}"), after=["first"])]),
)
of_a_plan: Agent[None] = Agent("openai:gpt-5.4-mini", worker=PlanRefine())
of_a_dialect: Agent[None] = Agent("ollama:small", worker=React())


# --------------------------------------------------------------------------------------------- verbs


async def results(runner: Runner) -> None:
    result = await runner.run(typed, "Go.", context=Customer("Ada"), options=RunOptions(break_on=()))
    assert_type(result, RunResult)
    assert_type(result.final_text, str)
    assert_type(result.output, Any)
    assert_type(result.steps, int)
    assert_type(result.cost, Decimal | None)
    assert_type(result.usage, TaskUsage)
    assert_type(result.messages, tuple[Message, ...])
    assert_type(result.raise_for_state(), RunResult)
    if result.error is not None:
        assert_type(result.error.message, str)


async def streams(runner: Runner) -> None:
    async with runner.run_stream(plain, "Go.") as stream:
        async for event in stream:
            if isinstance(event, Delta):
                assert_type(event.text, str)
            elif isinstance(event, Event):
                assert_type(event.seq, int)
    assert_type(stream.result, RunResult)


async def handles(runner: Runner) -> None:
    handle = await runner.start(plain, "Go.")
    assert_type(handle, RunHandle)
    assert_type(handle.task_id, str)
    assert_type(await handle.result(), RunResult)
    assert_type(await handle.pause(reason="lunch"), RunResult)
    assert_type(await handle.cancel(), RunResult)
    assert_type(await handle.undo_step(), UndoReport)
    assert_type(await handle.fork(), Task)
    events: AsyncIterator[object] = handle.events(after=3)
    async for event in events:
        print(event)


async def steps(runner: Runner) -> None:
    task = await runner.create_task(plain, "Go.")
    assert_type(task, Task)
    output = await runner.run_step(task, input="Faster.")
    assert_type(output, TaskStepOutput)
    assert_type(output.step.step_id, str)
    assert_type(await runner.run_ready_steps(task), list[TaskStepOutput])
    assert_type(await runner.undo_step(task), UndoReport)
    assert_type(await runner.fork(task, replace={"s1-0": 5}), Task)
    assert_type(await runner.list_tasks(state="failed"), TaskPage)
    assert_type(await runner.get_thread("t"), ThreadMessages)
    assert_type(await runner.diff(task, task), Difference)
    assert_type(await runner.finalize(task), RunResult)


async def control(runner: Runner) -> None:
    assert_type(await runner.resume("t", context=Customer("Ada")), RunResult)
    assert_type(await runner.send("t", "More.", role="user"), None)
    await runner.settle("t", "request", Happened("sent"), by="ada")
    await runner.settle("t", "request", NotHappened())


def sync_verbs() -> None:
    with Runner("memory:", agents=[plain]).sync as runner:
        assert_type(runner.run(plain, "Go."), RunResult)
        assert_type(runner.create_task(plain, "Go."), Task)
        assert_type(runner.run_step("t"), TaskStepOutput)
        assert_type(runner.start(plain, "Go.").result(), RunResult)
        with runner.run_stream(plain, "Go.") as stream:
            for event in stream:
                print(event)
        assert_type(stream.result, RunResult)
    assert_type(Runner().run_sync(plain, "Go."), RunResult)


async def states_are_literals(result: RunResult) -> None:
    if result.state == "completed":
        assert_type(result.state, Literal["completed"])


policy = FailurePolicy(tool="continue", model="fail")
assert_type(version, str)
