"""The public API as a user writes it. pyright and mypy check this file in strict mode: nothing in it is run.

Each `assert_type` is a promise: an editor shows that type, and a program that relies on it passes a strict checker.
"""

# pyright: strict

from collections.abc import AsyncGenerator, AsyncIterator, Generator
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
    NextLayer,
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
    ToolInvocation,
    ToolMiddleware,
    ToolOutput,
    UndoReport,
    tool,
)
from treadle import __version__ as version
from treadle.core.messages import Json
from treadle.events import Delta, Event
from treadle.models import OpenAI, Retry, Timeout
from treadle.ports import Tool
from treadle.results.pages import PendingPage, TaskPage
from treadle.results.read_results import StepPage
from treadle.results.reports import Difference
from treadle.results.step_outputs import StepOutputs
from treadle.results.tasks import TaskSummary
from treadle.results.threads import ThreadMessages
from treadle.tools import cached, redacted, timed


@dataclass
class Customer:
    name: str


@dataclass
class Regular(Customer):
    since: int = 2020


class Invoice(BaseModel):
    number: int


# ---------------------------------------------------------------------------------------------- tools


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(read_only=True, timeout=5)
async def look_up(ctx: ToolContext[Customer], name: str) -> str:
    assert_type(ctx.context, Customer)
    assert_type(ctx.attempt, int)
    assert_type(ctx.idempotency_key, str)
    assert_type(await ctx.ask("Who?"), str)
    assert_type(await ctx.ask("How many?", int, expires=60, default=3), int)
    assert_type(await ctx.ask("Which?", Invoice), Invoice)
    assert_type(await ctx.ask("Which?", list[int]), list[int])
    chosen: Literal["a", "b"] = await ctx.ask("Which?", Literal["a", "b"])
    assert_type(await ctx.once("number", lambda: 7), int)
    assert_type(await ctx.once("text", read_later), str)
    return f"{ctx.context.name}: {name} {chosen}"


async def measured(call: ToolInvocation[Customer], next: NextLayer) -> ToolOutput:
    assert_type(call.arguments, dict[str, Json])
    assert_type(call.context, ToolContext[Customer])
    assert_type(call.context.secret("crm"), str)
    assert_type(call.attempt, int)
    result = await next(call.with_arguments({"name": "Ann"}))
    assert_type(result, ToolOutput)
    return result


wrapped = tool(look_up, middleware=[measured, cached(ttl=60), timed(), redacted("email")], secrets=("crm",))
wrapping: list[ToolMiddleware] = [measured]
wrapping_runner = Runner("memory:", middleware=wrapping, secrets={"crm": "env:CRM", "mail": lambda: "x"})
assert_type(wrapping_runner.middleware_of(Agent("openai:gpt-x", tools=[add])), dict[str, tuple[str, ...]])


@tool
def greet(name: str, ctx: ToolContext[Customer]) -> str:
    return f"{name} and {ctx.context.name}"


async def read_later() -> str:
    return "later"


@tool(read_only=True)
def ask_in_a_thread(ctx: ToolContext[int]) -> bool:
    assert_type(ctx.wait(ctx.ask("Go?", bool)), bool)
    return True


@tool
def double(ctx: ToolContext[int]) -> int:
    return 2 * ctx.context


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
    assert_type(await look_up(ctx, "x"), str)
    assert_type(await look_up(ctx, name="x"), str)
    assert_type(greet("x", ctx=ctx), str)
    assert_type(book(1), ToolOutput)
    assert_type(count(3), Generator[int, None, str])
    assert_type(add.spec.name, str)


def a_tool_asks_for_its_context() -> None:
    for_customers: Tool[Customer] = look_up
    for_regulars: Tool[Regular] = look_up
    for_anybody: Tool[object] = add
    for_numbers: Tool[int] = double
    print(for_customers, for_regulars, for_anybody, for_numbers)


# --------------------------------------------------------------------------------------------- agents


def instructions(ctx: RunContext[Customer]) -> str:
    assert_type(ctx.context, Customer)
    assert_type(ctx.thread_id, str)
    return f"You serve {ctx.context.name}."


def offer(ctx: RequestContext[Customer]) -> list[str]:
    assert_type(ctx.context, Customer)
    assert_type(ctx.step, int)
    return ["add"]


plain = Agent("openai:gpt-5.4-mini")
typed = Agent(
    OpenAI("gpt-5.4-mini"),
    name="typed",
    instructions=instructions,
    context_type=Customer,
    output_type=Invoice,
    tools=[add, look_up, greet, book, count],
    offer=offer,
)
served = Agent("openai:gpt-5.4-mini", context_type=Customer, tools=[look_up, book])
asking = Agent("openai:gpt-5.4-mini", tools=[look_up], instructions=instructions)
listing = Agent("openai:gpt-5.4-mini", output_type=list[int])
choosing: Agent[Any, int | Invoice] = Agent("openai:gpt-5.4-mini", output_type=int | Invoice)
layered = Agent(
    Retry(Timeout(OpenAI("gpt-5.4-mini"), first_byte=5), attempts=3),
    context_type=Customer,
    subagents=[typed, plain, "other"],
)
scripted = Agent(ScriptedModel(["Hello."]), worker="react", limits=Limits(steps=5, cost=0.5))
explicit = Agent[Customer, Invoice]("openai:gpt-5.4-mini", output_type=Invoice, tools=[look_up])
of_one_type: Agent[Customer] = Agent("openai:gpt-5.4-mini", output_type=Invoice, tools=[look_up])


def agents_are_typed_by_context_and_output() -> None:
    assert_type(plain, Agent[Any, str])
    assert_type(typed, Agent[Customer, Invoice])
    assert_type(served, Agent[Customer, str])
    assert_type(asking, Agent[Customer, str])
    assert_type(listing, Agent[Any, list[int]])
    assert_type(layered, Agent[Customer, str])
    assert_type(scripted, Agent[Any, str])
    assert_type(explicit, Agent[Customer, Invoice])
    assert_type(typed.replace(name="other"), Agent[Customer, Invoice])
    assert_type(typed.replace(output_type=int, limits=Limits(steps=3)), Agent[Customer, int])
    assert_type(plain.replace(context_type=int), Agent[int, str])
    assert_type(plain.replace(context_type=int, output_type=Invoice), Agent[int, Invoice])
    assert_type(typed.name, str)
    assert_type(typed.fingerprint, str)
    for_regulars: Agent[Regular, BaseModel] = typed
    print(for_regulars)


# -------------------------------------------------------------------------------------------- workers


async def reflect(ctx: StepContext[Customer]) -> StepResult:
    assert_type(await ctx.ask("Who?", key="who"), str)
    assert_type(await ctx.ask("Which?", Invoice), Invoice)
    assert_type(ctx.context, Customer)
    answer = await ctx.call_model("Criticise it.")
    assert_type(answer, ModelAnswer)
    assert_type(answer.message.text, str)
    assert_type(await ctx.once("seed", lambda: 7), int)
    assert_type(await ctx.now(), float)
    assert_type(await ctx.run_agent(typed, "Write it."), Invoice)
    assert_type(await ctx.run_agent(listing, "Count."), list[int])
    assert_type(await ctx.run_agent("typed", "Write it."), Any)
    return StepResult(answer.message.text, next_steps=[NextStep("again")])


def first(ctx: NodeContext[Customer]) -> str:
    assert_type(ctx.step, StepContext[Customer])
    assert_type(ctx.step.context, Customer)
    return ctx.text


class Own:
    def initialize_step(self, task: RunContext[Any]) -> NextStep:
        return NextStep("only")

    async def run_step(self, ctx: StepContext[Any]) -> StepResult:
        return StepResult("done", is_last=True)

    def finalize_task(self, task: RunContext[Any], output: Json) -> Json:
        return output


own: AgentWorker = Own()
of_a_class = Agent("openai:gpt-5.4-mini", worker=own)
of_a_function = Agent("openai:gpt-5.4-mini", worker=reflect, context_type=Customer)
of_a_pipeline = Agent(
    "openai:gpt-5.4-mini",
    context_type=Customer,
    output_type=Invoice,
    worker=Pipeline([Node("first", first), Node("second", Ask("Improve: {first}"), after=["first"])]),
)
of_a_plan = Agent("openai:gpt-5.4-mini", worker=PlanRefine())
of_a_dialect = Agent("ollama:small", worker=React())


def workers_carry_the_types_of_their_agents() -> None:
    assert_type(of_a_function, Agent[Customer, str])
    assert_type(of_a_pipeline, Agent[Customer, Invoice])
    assert_type(of_a_plan, Agent[Any, str])


# --------------------------------------------------------------------------------------------- verbs


async def results(runner: Runner) -> None:
    result = await runner.run(typed, "Go.", context=Customer("Ada"), options=RunOptions(break_on=()))
    assert_type(result, RunResult[Invoice])
    assert_type(result.final_text, str)
    assert_type(result.answer, Invoice)
    assert_type(result.output, Invoice | None)
    if result.output is not None:
        assert_type(result.output.number, int)
    assert_type(result.steps, int)
    assert_type(result.cost, Decimal | None)
    assert_type(result.usage, TaskUsage)
    assert_type(result.messages, tuple[Message, ...])
    assert_type(result.raise_for_state(), RunResult[Invoice])
    if result.error is not None:
        assert_type(result.error.message, str)
    assert_type((await runner.run(plain, "Go.")).output, str | None)
    assert_type((await runner.run(listing, "Go.")).output, list[int] | None)
    assert_type((await runner.run(choosing, "Go.")).output, int | Invoice | None)
    assert_type(await runner.run(typed, "Go.", context=Regular("Ada")), RunResult[Invoice])
    assert_type(await runner.run(of_a_pipeline, "Go.", context=Customer("Ada")), RunResult[Invoice])


async def streams(runner: Runner) -> None:
    async with runner.run_stream(typed, "Go.", context=Customer("Ada")) as stream:
        async for event in stream:
            if isinstance(event, Delta):
                assert_type(event.text, str)
            elif isinstance(event, Event):
                assert_type(event.seq, int)
    assert_type(stream.result, RunResult[Invoice])
    async with runner.run_stream(listing, "Go.") as counting:
        assert_type(counting.partials(), AsyncGenerator[Any, None])
        async for numbers in counting.partials(checked=True):
            assert_type(numbers, list[int])
    async with runner.stream_step("t", agent=typed) as step:
        async for event in step:
            print(event)
    assert_type(step.output, TaskStepOutput[Invoice])


async def handles(runner: Runner) -> None:
    handle = await runner.start(typed, "Go.", context=Customer("Ada"))
    assert_type(handle, RunHandle[Invoice])
    assert_type(handle.task_id, str)
    assert_type(await handle.result(), RunResult[Invoice])
    assert_type(handle.partials(checked=True), AsyncGenerator[Invoice, None])
    assert_type(await handle.pause(reason="lunch"), RunResult[Invoice])
    assert_type(await handle.resume(context=Customer("Ada")), RunResult[Invoice])
    assert_type(await handle.resume(agent=plain), RunResult[Invoice])
    assert_type(await handle.get_steps(), StepPage[Invoice])
    assert_type(await handle.cancel(), RunResult[Invoice])
    assert_type(await handle.undo_step(), UndoReport)
    assert_type(await handle.fork(), Task[Invoice])
    assert_type(await handle.fork(agent=listing), Task[list[int]])
    assert_type(runner.handle("t"), RunHandle[Any])
    events: AsyncIterator[object] = handle.events(after=3)
    async for event in events:
        print(event)


async def steps(runner: Runner) -> None:
    task = await runner.create_task(typed, "Go.")
    assert_type(task, Task[Invoice])
    output = await runner.run_step(task, input="Faster.")
    assert_type(output, TaskStepOutput[Invoice])
    assert_type(output.step.step_id, str)
    assert_type(await runner.run_step("t", agent=listing), TaskStepOutput[list[int]])
    assert_type(await runner.run_step("t"), TaskStepOutput[Any])
    assert_type(await runner.run_ready_steps(task), StepOutputs[Invoice])
    assert_type(await runner.get_step(task, 1), TaskStepOutput[Invoice])
    assert_type(await runner.get_task(task), Task[Invoice])
    assert_type(await runner.undo_step(task), UndoReport)
    assert_type(await runner.fork(task, replace={"s1-0": 5}), Task[Invoice])
    assert_type(await runner.fork(task, agent=plain), Task[str])
    assert_type(runner.handle(task), RunHandle[Invoice])
    assert_type(await runner.list_tasks(state="failed"), TaskPage)
    assert_type(await runner.list_pending(), PendingPage)
    assert_type(await runner.get_thread("t"), ThreadMessages)
    assert_type(await runner.diff(task, task), Difference)
    assert_type(await runner.finalize(task), RunResult[Invoice])


async def control(runner: Runner, task: Task[Invoice]) -> None:
    assert_type(await runner.resume("t", context=Customer("Ada")), RunResult[Any])
    assert_type(await runner.resume("t", agent=typed, context=Customer("Ada")), RunResult[Invoice])
    assert_type(await runner.resume(task), RunResult[Invoice])
    assert_type(await runner.result(task), RunResult[Invoice])
    assert_type(await runner.pause(task), RunResult[Invoice])
    assert_type(await runner.send("t", "More.", role="user"), None)
    await runner.settle("t", "request", Happened("sent"), by="ada")
    await runner.settle("t", "request", NotHappened())


def sync_verbs() -> None:
    with Runner("memory:", agents=[plain, typed]).sync as runner:
        assert_type(runner.run(typed, "Go.", context=Customer("Ada")), RunResult[Invoice])
        assert_type(runner.create_task(typed, "Go."), Task[Invoice])
        assert_type(runner.run_step("t"), TaskStepOutput[Any])
        assert_type(runner.run_step("t", agent=typed), TaskStepOutput[Invoice])
        assert_type(runner.start(typed, "Go.").result(), RunResult[Invoice])
        assert_type(runner.resume("t", agent=plain), RunResult[str])
        assert_type(runner.fork("t"), Task[Any])
        assert_type(runner.fork("t", agent=typed), Task[Invoice])
        for task in runner.list_tasks(state="failed"):
            assert_type(task, TaskSummary)
        handle = runner.start(typed, "Go.")
        assert_type(handle.cancel(), RunResult[Invoice])
        assert_type(handle.resume(agent=plain), RunResult[Invoice])
        assert_type(handle.fork(), Task[Invoice])
        assert_type(handle.fork(agent=listing), Task[list[int]])
        for step in handle.get_steps():
            assert_type(step, TaskStepOutput[Invoice])
        with runner.run_stream(typed, "Go.") as stream:
            for event in stream:
                print(event)
            for invoice in stream.partials(checked=True):
                assert_type(invoice, Invoice)
        assert_type(stream.result, RunResult[Invoice])
    assert_type(Runner().run_sync(typed, "Go.", context=Customer("Ada")), RunResult[Invoice])


async def run_all(runner: Runner, agent: Agent) -> RunResult:
    """An agent and a result of any type, as in functions that do not care."""
    return await runner.run(agent, "Go.")


async def states_are_literals(result: RunResult[str]) -> None:
    if result.state == "completed":
        assert_type(result.state, Literal["completed"])


def context_of(task: Task) -> Customer:
    assert_type(task.labels, dict[str, str])
    return Customer(task.labels["user"])


adopting = Runner("memory:", agents=[typed], context_factory=context_of, adopt=True)
policy = FailurePolicy(tool="continue", model="fail")
assert_type(version, str)
