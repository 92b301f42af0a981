"""Record journals: `python -m tests.journals.make`, once for a release, and `... make unreleased` for a new story.

Recorded journals are never changed: the folder of a version that is there already is not written again, and into
`unreleased` only what is recorded nowhere. A release records all of its own, and that folder goes.
"""

from __future__ import annotations

import asyncio
import json
import sys
from importlib.metadata import version
from pathlib import Path

from tests.journals.stories import AGENTS, STORIES, Story, goes_on
from treadle import Runner

HERE = Path(__file__).parent


async def record(folder: Path, stories: list[Story]) -> None:
    """Write each story's export, and what is to be expected of it, beside what is expected of those there."""
    file = folder / "expected.json"
    expected: dict[str, dict[str, object]] = json.loads(file.read_text()) if file.exists() else {}
    for history in stories:
        name = history.__name__
        async with Runner("memory:", agents=AGENTS) as runner:
            await history(runner)
            await runner.export_tasks(folder / f"{name}.jsonl", name)
            events = (await runner.verify(name)).events
        async with Runner("memory:", agents=AGENTS) as runner:
            await runner.import_tasks(folder / f"{name}.jsonl")
            task = await runner.get_task(name)
            state, feedback = await goes_on(runner, name)
        expected[name] = {"events": events, "state": task.state, "ends": state, "says": feedback}
        print(f"{name}: {expected[name]}")
    file.write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["unreleased"]:
        folder, stories = (
            HERE / "unreleased",
            [s for s in STORIES if not list(HERE.glob(f"*/{s.__name__}.jsonl"))],
        )
    else:
        folder, stories = HERE / version("treadle"), STORIES
        if folder.exists():
            sys.exit(f"{folder} is there already: recorded journals are kept as they are")
    folder.mkdir(exist_ok=True)
    asyncio.run(record(folder, stories))
