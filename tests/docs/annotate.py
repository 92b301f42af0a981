"""Calls `annotate_task` from every face: `python -m tests.docs.annotate JOURNAL`, on a package that has the verb."""

import asyncio
import json
import sys

import treadle
from tests.client.served import client, served
from treadle import Agent, Runner, ScriptedModel
from treadle.cli.main import main
from treadle.errors import TaskFinished
from treadle.events import EVENTS

JOURNAL = sys.argv[1]
AGENT = Agent(ScriptedModel(["Done."]), name="clerk")


def with_code() -> None:
    """Annotate from code, by a handle, and without asyncio; a repeat of a command adds nothing."""

    async def annotate() -> None:
        async with Runner(JOURNAL, agents=[AGENT]) as runner:
            await runner.create_task(AGENT, "Hello", task_id="t")
            await runner.annotate_task("t", "by code", by="ann", command_id="c1")  # type: ignore[attr-defined]
            await runner.annotate_task("t", "by code", by="ann", command_id="c1")  # type: ignore[attr-defined]
            await runner.handle("t").annotate_task("by a handle", by="ann")  # type: ignore[attr-defined]

    asyncio.run(annotate())
    with Runner(JOURNAL, agents=[AGENT]).sync as runner:
        runner.annotate_task("t", "without asyncio", by="ann")  # type: ignore[attr-defined]
        runner.handle("t").annotate_task("by a handle without asyncio", by="ann")  # type: ignore[attr-defined]


def over_http() -> None:
    """Annotate by a client of a server."""

    async def annotate(url: str) -> None:
        async with client(url) as remote:
            await remote.annotate_task("t", "by a client")  # type: ignore[attr-defined]
            await remote.handle("t").annotate_task("by a handle of a client")  # type: ignore[attr-defined]

    with served(AGENT, store=JOURNAL) as url:
        asyncio.run(annotate(url))


def read_back() -> None:
    """Print the notes of the journal, then those that a task that has ended takes."""
    with Runner(JOURNAL, agents=[AGENT]).sync as runner:
        result = runner.resume("t", agent=AGENT)
        page = runner.get_events("t", kinds=["task_annotated"])
        assert all(type(event) is EVENTS["task_annotated"] for event in page.items)
        print(
            json.dumps([[result.state, treadle.__file__], *[[event.text, event.by] for event in page.items]])
        )
        try:
            runner.annotate_task("t", "too late")  # type: ignore[attr-defined]
        except TaskFinished:
            return
        raise AssertionError("a task that has ended takes no note")


if __name__ == "__main__":
    with_code()
    over_http()
    assert main(["annotate", "t", "by the command line", "--by", "ann", "--store", JOURNAL, "--json"]) == 0
    assert main(["show", "t", "--store", JOURNAL]) == 0
    read_back()
