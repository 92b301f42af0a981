"""What if: one recorded task, gone on with by several agents from the same point, side by side.

    python examples/what_if.py
    python examples/what_if.py --task 01a2... --at s1 --models openai:gpt-5.4-mini anthropic:claude-sonnet-5-5

A fork shares the past of its task: nothing before the fork point runs again or is paid for again, and the task itself
stays as it is. The table shows where each fork first differs, its answer, what it took and what it cost. With no
--task one is made up; without --models scripts play them.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence

from treadle import Agent, ModelRequest, Runner, ScriptedModel, tool
from treadle.models import Turn, call, text


@tool(read_only=True)
def temperature(city: str) -> float:
    """Tell the temperature of a city, in degrees Celsius."""
    return {"Oslo": -4.0, "Rome": 16.5}[city]


def script(last_words: str) -> ScriptedModel:
    """A model that asks for both temperatures and then says this."""

    def says(request: ModelRequest) -> Turn:
        if request.turn == 0:
            return call("temperature", city="Oslo") + call("temperature", city="Rome")
        return text(last_words)

    return ScriptedModel(says)


def agent_with(model: str | ScriptedModel) -> Agent:
    """Make the agent, with another model each time."""
    return Agent(model, name="weather", instructions="Answer in one sentence.", tools=[temperature])


async def compare(task_id: str | None, at: str, models: Sequence[str]) -> int:
    """Fork the task once for each model, run the forks at the same time, and print the table."""
    agents = [agent_with(model) for model in models]
    if not agents:
        agents = [agent_with(script(words)) for words in ("Rome is warmer.", "Rome, by 20.5 degrees.")]
    first = agent_with(models[0]) if models else agent_with(script("Rome."))
    async with Runner(agents=[first]) as runner:
        if task_id is None:
            original = await runner.run(first, "Which is warmer, Oslo or Rome?")
            task_id = original.task_id
        else:
            original = await runner.result(task_id)
        forks = [await runner.fork(task_id, at=at, agent=agent) for agent in agents]
        results = await asyncio.gather(
            *(runner.resume(fork, agent=agent) for fork, agent in zip(forks, agents, strict=True))
        )
        print(f"was     : {original}")
        for agent, fork, result in zip(agents, forks, results, strict=True):
            difference = await runner.diff(task_id, fork)
            where = "nowhere" if difference.same else f"step {difference.index}, {difference.field}"
            print(f"what if : {result}")
            spent = f"{result.usage.total_tokens} tokens, cost {result.cost}"
            print(f"          {agent.model_name}; differs: {where}; {spent}")
    return 0 if all(result.state == "completed" for result in results) else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the example as the command line says."""
    parser = argparse.ArgumentParser(description="Fork a task for several models, and compare.")
    parser.add_argument("--task", help="the id of a recorded task; one is made up by default")
    parser.add_argument("--at", default="s1", help="the step after which the forks go their own way")
    parser.add_argument("--models", nargs="*", default=[], help="names such as openai:gpt-5.4-mini")
    parsed = parser.parse_args(arguments)
    return asyncio.run(compare(parsed.task, parsed.at, parsed.models))


if __name__ == "__main__":
    raise SystemExit(main())
