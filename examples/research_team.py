"""A research team: an editor asks researchers that work at the same time, under one budget, and writes a report.

    python examples/research_team.py
    python examples/research_team.py --model openai:gpt-5.4-mini --folder notes "What do we know about leases?"

The researchers read Markdown files of a folder. Each call of a researcher is a task of its own below the editor's:
kill the program, start it again with the same --task-id, and no finished call is made again. The limits hold for the
whole tree. Afterwards try `treadle show last` and `treadle tasks`. Without --model a script plays the models.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

from treadle import (
    Agent,
    Limits,
    ModelRequest,
    Runner,
    RunOptions,
    ScriptedModel,
    ToolContext,
    ToolOutput,
    ToolResult,
    tool,
)
from treadle.models import Turn, call, text

NOTES = {
    "leases.md": "A lease is ownership for a while. Its holder renews it, or loses it.",
    "journals.md": "A journal is a list of what happened, to which lines are only added.",
}


@tool(read_only=True)
def find(ctx: ToolContext[Path], words: str) -> ToolOutput:
    """Find the notes that contain any of these words, and return their text.

    Args:
        words: what to look for, separated by spaces.
    """
    wanted = words.lower().split()
    notes = {path.name: path.read_text(encoding="utf-8") for path in sorted(ctx.context.glob("*.md"))}
    found = {name: body for name, body in notes.items() if any(word in body.lower() for word in wanted)}
    return ToolOutput(found, sources=list(found))


def editor_says(request: ModelRequest) -> Turn:
    """What an editor may say: two questions at once, then the report."""
    if request.turn == 0:
        return call("researcher", input="What is a lease?") + call("researcher", input="What is a journal?")
    findings = [part.text for part in request.messages[-1].parts if isinstance(part, ToolResult)]
    return text("Report\n" + "\n".join(f"- {finding}" for finding in findings))


def researcher_says(request: ModelRequest) -> Turn:
    """What a researcher may say: a search, then its first finding."""
    if request.turn == 0:
        return call("find", words=request.messages[0].text.rstrip("?").split()[-1])
    found = next(part for part in request.messages[-1].parts if isinstance(part, ToolResult))
    notes = json.loads(found.text)
    return text(next(iter(notes.values()), "The notes say nothing about it."))


def team(model: str | None) -> Agent:
    """Make the editor, who may call the researcher, any number of times at once."""
    researcher = Agent(
        model if model is not None else ScriptedModel(researcher_says),
        name="researcher",
        description="Answers one question from the notes of the folder.",
        instructions="Search the notes, and answer from them alone, in one sentence.",
        tools=[find],
        limits=Limits(steps=5),
    )
    return Agent(
        model if model is not None else ScriptedModel(editor_says),
        name="editor",
        instructions="Split the question, ask the researcher each part at the same time, then write a short report.",
        subagents=[researcher],
    )


async def work(editor: Agent, question: str, folder: Path, task_id: str | None) -> int:
    """Run the team, print its report and what each agent spent, and return the exit code."""
    budget = RunOptions(limits=Limits(steps=10, model_calls=40, seconds=600), max_parallel_tools=4)
    async with Runner(agents=[editor], options=budget) as runner:
        result = await runner.run(editor, question, context=folder, task_id=task_id)
        print(result)
        for child in result.subagent_executions:
            print(f"  asked {child.name}: {child.outcome}")
        for name, spent in result.usage.per_agent.items():
            print(f"  {name}: {spent.total_tokens} tokens, {spent.model_calls} calls of the model")
    return 0 if result.state == "completed" else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the example as the command line says."""
    parser = argparse.ArgumentParser(description="Research notes in parallel.")
    parser.add_argument("question", nargs="?", default="What are leases and journals?")
    parser.add_argument("--model", help="provider:name, such as openai:gpt-5.4-mini; a script by default")
    parser.add_argument("--folder", type=Path, help="Markdown files to read; some are made up by default")
    parser.add_argument("--task-id", help="an id of your own, with which a task that was cut off goes on")
    parsed = parser.parse_args(arguments)
    folder = parsed.folder
    if folder is None:
        folder = Path(".treadle", "notes")
        folder.mkdir(parents=True, exist_ok=True)
        for name, body in NOTES.items():
            (folder / name).write_text(body, encoding="utf-8")
    return asyncio.run(work(team(parsed.model), parsed.question, folder, parsed.task_id))


if __name__ == "__main__":
    raise SystemExit(main())
