"""Workers whose steps are functions, and the checks after each of their tasks."""

from collections.abc import Callable
from typing import Any

from tests.runner.acts import assert_well_formed
from treadle import Agent, NextStep, Runner, RunResult, ScriptedModel, StepContext, StepResult, tool
from treadle.core.model import ModelRequest
from treadle.llm.scripted import Turn, text
from treadle.testing.audit import Evidence, audit_store


def agent_of(worker: Any, *tools: Any, model: Any = None, **more: Any) -> Agent[Any]:
    return Agent(model or ScriptedModel(echo), worker=worker, tools=tools, **more)


async def sound(runner: Runner, result: RunResult, *, ended: bool = True) -> RunResult:
    assert await audit_store(runner.store, Evidence(ended=ended)) == []
    assert_well_formed(result.messages)
    return result


def planned(*steps: NextStep) -> StepResult:
    return StepResult(next_steps=steps)


def planning(*steps: NextStep) -> Callable[[Any], Any]:
    """Make a worker of a function that runs these steps: the first step plans them."""

    def decorate(run: Any) -> Any:
        async def worker(ctx: StepContext) -> StepResult:
            return planned(*steps) if ctx.name == "start" else await run(ctx)

        return worker

    return decorate


def echo(request: ModelRequest) -> Turn:
    return text(f"heard {len(request.messages)}: {request.messages[-1].text}")


@tool
async def double(n: int) -> int:
    """Double."""
    return 2 * n
