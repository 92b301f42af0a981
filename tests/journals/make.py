"""Record the journals of this version: `python -m tests.journals.make`, once for a release.

Recorded journals are never changed: the folder of a version that is there already is not written again.
"""

from __future__ import annotations

import asyncio
import json
import sys
from importlib.metadata import version
from pathlib import Path

from tests.journals.stories import AGENTS, STORIES, goes_on
from treadle import Runner

HERE = Path(__file__).parent


async def record(folder: Path) -> None:
    """Write each story's export, and what is to be expected of it."""
    expected: dict[str, dict[str, object]] = {}
    for story in STORIES:
        name = story.__name__
        async with Runner("memory:", agents=AGENTS) as runner:
            await story(runner)
            await runner.export_tasks(folder / f"{name}.jsonl", name)
            events = (await runner.verify(name)).events
        async with Runner("memory:", agents=AGENTS) as runner:
            await runner.import_tasks(folder / f"{name}.jsonl")
            task = await runner.get_task(name)
            state, words = await goes_on(runner, name)
        expected[name] = {"events": events, "state": task.state, "ends": state, "says": words}
        print(f"{name}: {expected[name]}")
    (folder / "expected.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    folder = HERE / version("treadle")
    if folder.exists():
        sys.exit(f"{folder} is there already: recorded journals are kept as they are")
    folder.mkdir()
    asyncio.run(record(folder))
