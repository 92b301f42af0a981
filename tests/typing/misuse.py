"""What strict type checkers must refuse: `# expected: RULES | CODES` marks each line that pyright and mypy report.

pyright reports the rules before the bar, mypy the codes behind it; `-` stands for none.
"""

# pyright: strict
# fmt: off
# A mark has to stay in the line that it is about.

from dataclasses import dataclass
from typing import Any

import treadle
from treadle import (
    Agent,
    Limits,
    NodeContext,
    RequestContext,
    RunContext,
    Runner,
    RunOptions,
    RunResult,
    StepContext,
    Task,
    ToolContext,
    tool,
)
from treadle.ports import Tool


@dataclass
class Customer:
    name: str


@dataclass
class Invoice:
    number: int


MODEL = "openai:gpt-5.4-mini"


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def look_up(ctx: ToolContext[Customer], name: str) -> str:
    return ctx.context.name + name


@tool(read_only=True)
async def double(ctx: ToolContext[int]) -> int:
    return 2 * ctx.context


# ------------------------------------------------------------------------------------------- tools

add("1", 2)  # expected: reportArgumentType | arg-type
add(1)  # expected: reportCallIssue | call-arg
add(1, 2, c=3)  # expected: reportCallIssue | call-arg


@tool(readonly=True)  # expected: reportCallIssue, reportUntypedFunctionDecorator | call-overload, untyped-decorator
def misspelt() -> None: ...


@tool(retries="3")  # expected: reportArgumentType | call-overload, untyped-decorator
def eager() -> None: ...


async def wrong_use(ctx: ToolContext[int]) -> str:
    return ctx.context  # expected: reportReturnType | return-value


async def wrong_context(ctx: ToolContext[int]) -> None:
    look_up(ctx, "x")  # expected: reportArgumentType | arg-type
    len(ctx.context)  # expected: reportArgumentType | arg-type


wrong_tool: Tool[int] = look_up  # expected: reportAssignmentType | assignment

# ------------------------------------------------------------------------------------------- agents


def for_customers(ctx: RunContext[Customer]) -> str:
    return ctx.context.name


def offer_to_customers(ctx: RequestContext[Customer]) -> list[str]:
    return [ctx.context.name]


def not_a_step(ctx: StepContext[int]) -> str:
    return "done"


def no_text(ctx: RunContext[Any]) -> int:
    return 3


served = Agent(MODEL, context_type=Customer, output_type=Invoice, tools=[add, look_up])
counting = Agent(MODEL, context_type=int, tools=[double])
asking = Agent(MODEL, instructions=for_customers)

Agent(model=3)  # expected: reportArgumentType | call-overload
Agent(MODEL, output_mode="json")  # expected: reportArgumentType | call-overload
Agent(MODEL, worker="reactive")  # expected: reportArgumentType | call-overload
Agent(MODEL, worker=not_a_step)  # expected: reportArgumentType | arg-type
Agent(MODEL, tools=[add, 3])  # expected: reportArgumentType | list-item
Agent(MODEL, tools=[add, len])  # expected: reportArgumentType | list-item
Agent(MODEL, tools=add)  # expected: reportArgumentType | call-overload
Agent(MODEL, context_type=Customer, tools=[add, double])  # expected: reportArgumentType | list-item
Agent(MODEL, context_type=int, instructions=for_customers)  # expected: reportArgumentType | arg-type
Agent(MODEL, context_type=int, offer=offer_to_customers)  # expected: reportArgumentType | arg-type
Agent(MODEL, context_type=int, subagents=[served])  # expected: reportArgumentType | misc
Agent(MODEL, context_type=Customer("Ada"))  # expected: reportArgumentType | call-overload
Agent(MODEL, instructions=no_text)  # expected: reportArgumentType | arg-type
Agent(MODEL, system_prompt="Be precise.")  # expected: reportCallIssue | call-overload
Agent[Customer, Invoice](MODEL)  # expected: reportCallIssue | -
Agent[Customer](MODEL, tools=[double])  # expected: reportArgumentType | -
of_another_answer: Agent[Customer, int] = served  # expected: reportAssignmentType | assignment
of_another_context: Agent[int, Invoice] = served  # expected: reportAssignmentType | assignment
served.replace(tols=[add])  # expected: reportCallIssue | call-overload
Limits(steps="5")  # expected: reportArgumentType | arg-type
RunOptions(step_limit=5)  # expected: reportCallIssue | call-arg

# -------------------------------------------------------------------------------------------- verbs


async def verbs(runner: Runner) -> None:
    result = await runner.run(served, "Go.", context=Customer("Ada"))
    result.final_text = "other"  # expected: reportAttributeAccessIssue | misc
    if result.state == "complete":  # expected: reportUnnecessaryComparison | comparison-overlap
        print(result)
    text: RunResult[str] = result  # expected: reportAssignmentType | assignment
    print(text)
    result.final_answer()  # expected: reportAttributeAccessIssue, reportUnknownMemberType | attr-defined
    print(result.output.number)  # expected: reportOptionalMemberAccess | union-attr
    await runner.settle("t", "request", True)  # expected: reportArgumentType | arg-type
    await runner.run_step()  # expected: reportCallIssue | call-arg
    runner.run(served, "Go.")  # expected: reportUnusedCoroutine | unused-coroutine
    await runner.run(MODEL, "Go.")  # expected: reportArgumentType | arg-type


async def contexts(runner: Runner, task: Task[Invoice]) -> None:
    await runner.run(served, "Go.", context=3)  # expected: reportArgumentType | misc
    await runner.run(counting, "Go.", context=Customer("Ada"))  # expected: reportArgumentType | misc
    await runner.run(asking, "Go.", context="Ada")  # expected: reportArgumentType | misc
    await runner.start(served, "Go.", context=3)  # expected: reportArgumentType | misc
    await runner.create_task(served, "Go.", context=3)  # expected: reportArgumentType | misc
    await runner.resume("t", agent=served, context=3)  # expected: reportArgumentType | misc
    await runner.run_step("t", agent=served, context=3)  # expected: reportArgumentType | misc
    async with runner.run_stream(served, "Go.", context=3):  # expected: reportArgumentType | misc
        pass
    same = await runner.get_task(task)
    other: Task[str] = same  # expected: reportAssignmentType | assignment
    print(other)
    runner.run_sync(served, "Go.", context=3)  # expected: reportArgumentType | misc
    runner.sync.run(served, "Go.", context=3)  # expected: reportArgumentType | misc
    runner.sync.cancel("t", resaon="late")  # expected: reportCallIssue | call-arg
    await runner.handle(task).send()  # expected: reportCallIssue | call-arg
    await runner.handle(task).resume(agent=served, context=3)  # expected: reportArgumentType | misc


def no_context() -> Customer:
    return Customer("Ada")


Runner("memory:", context_factory=no_context)  # expected: reportArgumentType | arg-type


async def of_a_step(ctx: StepContext[Customer]) -> None:
    invoice = await ctx.run_agent(served, "Go.")
    print(len(invoice))  # expected: reportArgumentType | arg-type


def of_a_node(ctx: NodeContext[Customer]) -> int:
    return ctx.step.context.name  # expected: reportReturnType | return-value


def names_of_other_libraries(runner: Runner, result: RunResult[str]) -> None:
    served.chat("Go.")  # expected: reportAttributeAccessIssue, reportUnknownMemberType | attr-defined
    runner.chat("Go.")  # expected: reportAttributeAccessIssue, reportUnknownMemberType | attr-defined
    runner.sync.chat("Go.")  # expected: reportAttributeAccessIssue, reportUnknownMemberType | attr-defined
    runner.sync.run(served, "Go.", max_turns=3)  # expected: reportCallIssue | call-arg
    print(result["output"])  # expected: reportIndexIssue, reportUnknownArgumentType | index
    stream = runner.run_stream(asking, "Go.")
    print(*stream)  # expected: reportGeneralTypeIssues, reportUnknownArgumentType | misc
    treadle.function_tool(print)  # expected: reportAttributeAccessIssue, reportUnknownMemberType | attr-defined
    treadle.models.OpenAIModel("m")  # expected: reportAttributeAccessIssue, reportUnknownMemberType | attr-defined
