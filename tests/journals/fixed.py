"""Run every story with a fixed clock and fixed ids, and write its journal: `python -m tests.journals.fixed FOLDER`.

The journals depend on the code alone: two runs of one version write the same bytes.
In the process of this script the machine's clock stands still, ids are counted, and random bytes are zero. The event
loop's time is virtual: a story's wait ends when nothing else can run. Nothing is normalised afterwards.

Without a folder, it records the journals beside this file again: after a change that is meant to write others.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
import uuid
from itertools import count
from pathlib import Path
from types import ModuleType

from tests.journals.stories import AGENTS, STORIES, Story
from treadle import Runner
from treadle.engine import user_errors
from treadle.testing import clock

RECORDED = Path(__file__).parent / "fixed"
SUFFIX = ".journal"


class CountedIds(ModuleType):
    """What takes the place of the library that makes ids."""

    def __init__(self) -> None:
        super().__init__("uuid_utils")
        self._numbers = count(1)

    def begin_again(self) -> None:
        """Begin with the first id."""
        self._numbers = count(1)

    def uuid7(self) -> uuid.UUID:
        """Return the next id, in the form of a version 7 UUID."""
        return uuid.UUID(int=next(self._numbers) | 7 << 76 | 2 << 62)


def fix_time_and_ids() -> CountedIds:
    """Fix the clock, the ids and the random bytes of this process for good, and leave out tracebacks."""
    ids = CountedIds()
    sys.modules["uuid_utils"] = ids
    uuid.uuid7 = ids.uuid7  # pyright: ignore[reportAttributeAccessIssue]  Python 3.14 makes such ids itself
    time.time_ns = lambda: clock.BEGIN * 1000
    os.urandom = bytes
    user_errors.kept = lambda *_, **__: ""  # a traceback names files of this machine
    return ids


async def write(story: Story, file: Path) -> None:
    """Write the export of the task that a story leaves."""
    async with Runner("memory:", agents=AGENTS) as runner:
        await story(runner)
        await runner.export_tasks(file, story.__name__)


def main(folder: Path) -> None:
    """Write the journal of each story into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    ids = fix_time_and_ids()
    for story in STORIES:
        ids.begin_again()
        with asyncio.Runner(loop_factory=clock.VirtualTimeLoop) as loop:
            loop.run(write(story, folder / f"{story.__name__}{SUFFIX}"))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else RECORDED)
