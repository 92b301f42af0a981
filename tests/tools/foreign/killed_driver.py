"""A driver that a test kills in the middle of a call of a LangChain tool.

    python killed_driver.py JOURNAL NOTES EFFECT

It runs one task, `t1`, whose tool writes a line into NOTES and then takes its time, and says when it did.
"""

import asyncio
import sys
import time
from pathlib import Path

from langchain_core.tools import tool

from treadle import Agent, Runner, ScriptedModel
from treadle.models import call, text
from treadle.tools import langchain_tools


def agent(notes: Path, effect: str, seconds: float = 0.0) -> Agent:
    """Return the agent of the task, as this process and its test make it."""

    @tool
    def note(line: str) -> str:
        """Write a line."""
        with notes.open("a") as file:
            file.write(f"{line}\n")
        time.sleep(seconds)
        return f"noted {line}"

    tools = langchain_tools(note, effects={"note": [effect]} if effect else None)
    return Agent(ScriptedModel([call("note", line="milk"), text("Done.")]), name="clerk", tools=tools)


async def main(journal: Path, notes: Path, effect: str) -> None:
    """Run the task, and say when the tool has written."""
    async with Runner(journal) as runner:
        handle = await runner.start(agent(notes, effect, 60.0), "go", task_id="t1")
        while not notes.exists():  # noqa: ASYNC110, ASYNC240  another thread writes it
            await asyncio.sleep(0.01)
        print("written", flush=True)
        await handle.result()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else ""))
