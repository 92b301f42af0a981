"""What a strict type checker must refuse: `# expected: RULE` marks each line that pyright reports."""

# pyright: strict

from treadle import Agent, Limits, Runner, RunOptions, StepContext, ToolContext, tool


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


add("1", 2)  # expected: reportArgumentType
add(1)  # expected: reportCallIssue


@tool(readonly=True)  # expected: reportCallIssue, reportUntypedFunctionDecorator
def misspelt() -> None: ...


async def look_up(ctx: ToolContext[int]) -> str:
    return ctx.context  # expected: reportReturnType


Agent(model=3)  # expected: reportArgumentType
Agent("openai:gpt-5.4-mini", output_mode="json")  # expected: reportArgumentType
Agent("openai:gpt-5.4-mini", worker="reactive")  # expected: reportArgumentType
Limits(steps="5")  # expected: reportArgumentType
RunOptions(step_limit=5)  # expected: reportCallIssue


def not_a_step(ctx: StepContext[int]) -> str:
    return "done"


Agent("openai:gpt-5.4-mini", worker=not_a_step)  # expected: reportArgumentType


async def verbs(runner: Runner) -> None:
    result = await runner.run(Agent("openai:gpt-5.4-mini"), "Go.")
    result.final_text = "other"  # expected: reportAttributeAccessIssue
    if result.state == "complete":  # expected: reportUnnecessaryComparison
        print(result)
    result.answer()  # expected: reportAttributeAccessIssue, reportUnknownMemberType
    await runner.settle("t", "request", True)  # expected: reportArgumentType
    await runner.run_step()  # expected: reportCallIssue
    runner.run(Agent("openai:gpt-5.4-mini"), "Go.")  # expected: reportUnusedCoroutine
