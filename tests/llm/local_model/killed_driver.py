"""A driver that a test kills in the middle of an answer of a local model.

    python -m tests.llm.local_model.killed_driver JOURNAL NOTES URL

It runs one task, `t1`. Its worker calls a tool, which writes a line into NOTES, and then has the model write a text
without an end. The driver prints a line at the first word of it.
"""

import asyncio
import sys
from pathlib import Path

from tests.llm.local_model.server import KEY, NAME
from treadle import Agent, ModelSettings, Runner, StepContext, StepResult, tool
from treadle.events import Delta
from treadle.models import OpenAIChat


def clerk(url: str, notes: Path, *, max_tokens: int) -> Agent:
    """Return the agent of the task, as this process and its test make it."""

    @tool
    def note(item: str) -> str:
        """Note an item."""
        with notes.open("a") as file:
            file.write(f"{item}\n")
        return f"noted {item}"

    async def note_and_write(ctx: StepContext) -> StepResult:
        noted = await ctx.call_tool("note", {"item": "tea"})
        answer = await ctx.call_model(f"You {noted}. Write a letter about it.")
        return StepResult(answer.message.text, is_last=True)

    return Agent(
        OpenAIChat(NAME, base_url=f"{url}/v1", api_key=KEY),
        name="clerk",
        tools=[note],
        worker=note_and_write,
        model_settings=ModelSettings(
            temperature=0, max_tokens=max_tokens, extra={"extra_body": {"ignore_eos": True}}
        ),
    )


async def main(journal: Path, notes: Path, url: str) -> None:
    """Run the task, and print a line at the first word of its answer."""
    async with Runner(journal) as runner:
        handle = await runner.start(clerk(url, notes, max_tokens=10_000), "Note tea.", task_id="t1")
        async for event in handle.events():
            if isinstance(event, Delta):
                print(event.text, flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
