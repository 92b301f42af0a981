"""Trees of agents: agents that call agents, and the tasks that come of it."""

from typing import Any

from tests.cast import Gate
from tests.runner.acts import results_seen
from treadle import (
    Agent,
    Runner,
    ScriptedModel,
    Subagent,
)
from treadle.core.model import Usage
from treadle.llm.scripted import call, text, turn


def answering(name: str, answer: str = "a poem", **options: Any) -> Agent[Any]:
    return Agent(ScriptedModel([turn(answer, usage=Usage(10, 5))]), name=name, **options)


def calling(name: str, *below: Agent[Any] | Subagent, times: int = 1, **options: Any) -> Agent[Any]:
    """Return an agent that calls all agents below it at once, and answers with their answers."""

    names = [str((other.agent if isinstance(other, Subagent) else other).name) for other in below]

    def say(request: Any) -> Any:
        if request.turn:
            return turn(" + ".join(results_seen(request.messages)), usage=Usage(20, 5))
        calls = [call(other, input=f"{name} asks {n}") for other in names for n in range(times)]
        return turn("", calls, usage=Usage(20, 5))

    return Agent(ScriptedModel(say), name=name, subagents=below, **options)


def by_task(*scripts: Any) -> ScriptedModel:
    """Return a model that answers the nth task that asks it with the nth script: a list of turns."""
    tasks: list[str] = []

    def say(request: Any) -> Any:
        if request.task_id not in tasks:
            tasks.append(request.task_id)
        script = scripts[min(tasks.index(request.task_id), len(scripts) - 1)]
        return script[min(request.turn, len(script) - 1)]

    return ScriptedModel(say)


def requests(agent: Agent[Any]) -> list[Any]:
    assert isinstance(agent.model, ScriptedModel)
    return agent.model.requests


class Tree:
    """A root above a middle above a leaf whose tool runs until the gate opens."""

    def __init__(self, **declared: Any) -> None:
        self.gate = Gate("work", read_only=True, **declared)
        self.leaf = Agent(ScriptedModel([call("work"), text("done")]), name="leaf", tools=[self.gate.tool])
        self.middle = calling("middle", self.leaf)
        self.root = calling("root", self.middle)

    def ids(self, root: str) -> tuple[str, str, str]:
        return root, f"{root}.s1-0", f"{root}.s1-0.s1-0"

    async def begun(self, runner: Runner) -> str:
        handle = await runner.start(self.root, "go")
        await self.gate.entered.wait()
        self.gate.entered.clear()
        return handle.task_id


async def states(runner: Runner, ids: tuple[str, ...]) -> list[str]:
    return [(await runner.get_task(task_id)).state for task_id in ids]
