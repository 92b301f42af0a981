"""A code fixer: reads and edits the files of a folder and runs its tests, and every edit can be taken back.

    python examples/code_fixer.py
    python examples/code_fixer.py --model openai:gpt-5.4-mini path/to/project

The agent stays inside the folder. An edit is a step with an `undo=`, so `treadle undo` restores the files as they were,
edit by edit. The tests run with `run_process`: they end with their call, and they see no keys of yours. If the tests
still fail at the end, the edits are taken back at once. Without --model a script plays the model, on a made-up project.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from treadle import Agent, Limits, Runner, ScriptedModel, ToolCall, ToolContext, tool
from treadle.models import call, text
from treadle.tools import run_process

PROJECT = {
    "total.py": "def total(prices):\n    return sum(prices[1:])\n",
    "test_total.py": "from total import total\n\nassert total([1, 2, 3]) == 6, total([1, 2, 3])\n",
}


def inside(ctx: ToolContext[Path], name: str) -> Path:
    """The path of a file of the project; a name that leads out of it is an error."""
    path = (ctx.context / name).resolve()
    if not path.is_relative_to(ctx.context.resolve()):
        raise ValueError(f"{name} is not in the project")
    return path


@tool(read_only=True)
def read(ctx: ToolContext[Path], name: str) -> str:
    """Read a file of the project."""
    return inside(ctx, name).read_text(encoding="utf-8")


def restore(call: ToolCall, ctx: ToolContext[Path]) -> None:
    """Put back what a file held before an edit."""
    inside(ctx, str(call.arguments["name"])).write_text(str(call.output), encoding="utf-8")


@tool(undo=restore)
def replace(ctx: ToolContext[Path], name: str, old: str, new: str) -> str:
    """Replace a piece of a file, which has to occur exactly once. Returns the file as it was."""
    path = inside(ctx, name)
    before = path.read_text(encoding="utf-8")
    if before.count(old) != 1:
        raise ValueError(f"the piece occurs {before.count(old)} times in {name}, not once")
    path.write_text(before.replace(old, new), encoding="utf-8")
    return before


@tool(read_only=True, timeout=120)
async def run_tests(ctx: ToolContext[Path]) -> dict[str, object]:
    """Run the tests of the project."""
    command = [sys.executable, "-B", "-c", RUN_ALL]
    done = await run_process(*command, cwd=ctx.context, env={"PATH": os.environ["PATH"]}, check=False)
    return {"passed": done.exit_code == 0, "output": (done.stdout + done.stderr)[-2000:]}


RUN_ALL = """
import glob, runpy, sys
sys.path.insert(0, ".")
for file in sorted(glob.glob("test_*.py")):
    runpy.run_path(file)
"""

SCRIPT = [
    call("run_tests"),
    call("read", name="total.py"),
    call("replace", name="total.py", old="prices[1:]", new="prices"),
    call("run_tests"),
    text("`total` left the first price out."),
]


async def work(model: str | None, folder: Path, files: Sequence[str]) -> int:
    """Let the agent mend the project; take its edits back if the tests do not pass."""
    agent = Agent(
        model if model is not None else ScriptedModel(SCRIPT),
        name="fixer",
        instructions="Make the tests pass with the smallest change. Change no test. Run the tests before you answer.",
        tools=[read, replace, run_tests],
        limits=Limits(steps=30, seconds=900),
    )
    async with Runner(agents=[agent]) as runner:
        result = await runner.run(agent, f"The files are {', '.join(files)}.", context=folder)
        print(result)
        for done in result.tool_executions:
            print(f"  {done.name}: {done.outcome}")
        runs = [
            done.output
            for done in result.tool_executions
            if done.name == "run_tests" and done.outcome == "ok"
        ]
        if runs and runs[-1]["passed"]:
            return 0
        report = await runner.undo_step(result.task_id, to=0, context=folder)
        print(f"the tests do not pass: {len(report.calls)} calls taken back")
    return 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the example as the command line says."""
    parser = argparse.ArgumentParser(description="Make the tests of a project pass.")
    parser.add_argument("folder", nargs="?", type=Path, help="the project; one is made up by default")
    parser.add_argument("--model", help="provider:name, such as openai:gpt-5.4-mini; a script by default")
    parsed = parser.parse_args(arguments)
    folder = parsed.folder
    if folder is None:
        folder = Path(".treadle", "project")
        folder.mkdir(parents=True, exist_ok=True)
        for name, body in PROJECT.items():
            (folder / name).write_text(body, encoding="utf-8")
    files = sorted(path.name for path in folder.glob("*.py"))
    return asyncio.run(work(parsed.model, folder, files))


if __name__ == "__main__":
    raise SystemExit(main())
