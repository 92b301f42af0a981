"""Reflection: the model writes, criticises what it wrote, and writes again, until the critic is content.

    python examples/reflection.py
    python examples/reflection.py --model openai:gpt-5.4-mini "Explain to a child what a lease is."

Each round is a step of a durable task. One that was interrupted (Ctrl-C) or killed goes on where it was, without asking
again for what was answered, when it is started again with the same --task-id. Afterwards try `treadle show last`,
`treadle undo last` and `treadle fork last`. Without --model a script plays the model.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence

from treadle import Agent, ModelRequest, NextStep, Runner, ScriptedModel, StepContext, StepResult

ROUNDS = 3
WRITER = "Write what you are asked for, and nothing around it."
CRITIC = "You are a strict editor. Name the worst fault of a text in one sentence, or say just OK."


async def reflect(ctx: StepContext) -> StepResult:
    """One round: write, and have it criticised; then another one, which is given the draft and the critique.

    Both are asked for on the side, after the conversation; only the last draft becomes part of it, as the answer.
    """
    before = ctx.input or {"round": 0}
    prompt = "Write it."
    if before["round"] > 0:
        prompt = f"Your draft:\n{before['draft']}\n\nThe editor: {before['critique']}\n\nWrite it without that fault."
    draft = (await ctx.call_model(prompt, after_conversation=True)).message.text
    now = {"round": before["round"] + 1, "draft": draft}
    if now["round"] == ROUNDS:
        return StepResult(draft, is_last=True)
    question = f"The text:\n{draft}"
    critique = (await ctx.call_model(question, instructions=CRITIC, after_conversation=True)).message.text
    if critique.strip(" .") == "OK":
        return StepResult(draft, is_last=True)
    now["critique"] = critique
    return StepResult(now, next_steps=[NextStep("improve", now)])


def script(request: ModelRequest) -> str:
    """What a model may say: the critic finds one fault, which the second draft has no more."""
    prompt = request.messages[-1].text
    if request.instructions == CRITIC:
        return "OK" if "renew" in prompt else "It does not say how the holder keeps it."
    if "The editor:" in prompt:
        return "A lease is ownership for a while: who does not renew it in time has lost it."
    return "A lease is ownership for a while."


async def work(model: str | None, task: str, task_id: str | None) -> int:
    """Run the task, print its rounds and its answer, and return the exit code."""
    chosen = model if model is not None else ScriptedModel(script)
    agent = Agent(chosen, name="reflection", instructions=WRITER, worker=reflect)
    async with Runner() as runner:
        result = await runner.run(agent, task, task_id=task_id)
        for step in await runner.get_completed_steps(result.task_id):
            if not step.is_last:
                print(f"draft {step.step.index}: {step.output['draft']}\n critic: {step.output['critique']}")
    print(f"answer : {result}")
    return 0 if result.state == "completed" else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the example as the command line says."""
    parser = argparse.ArgumentParser(description="Write, criticise, write again.")
    parser.add_argument("task", nargs="?", default="Say in one sentence what a lease is.")
    parser.add_argument("--model", help="provider:name, such as openai:gpt-5.4-mini; a script by default")
    parser.add_argument("--task-id", help="an id of your own, with which a task that was cut off goes on")
    parsed = parser.parse_args(arguments)
    return asyncio.run(work(parsed.model, parsed.task, parsed.task_id))


if __name__ == "__main__":
    raise SystemExit(main())
