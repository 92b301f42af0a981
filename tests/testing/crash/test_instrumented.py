"""An agent that is watched is the same agent: with its toolsets, whose tools are watched too."""

from pathlib import Path
from typing import Any

import pytest

from treadle import Agent, Runner, ScriptedModel, tool
from treadle.models import call, text
from treadle.testing.crash.instrumented import watched
from treadle.testing.ledger import Ledger

pytestmark = pytest.mark.anyio


@tool(name="shelf__count", read_only=True)
def count() -> int:
    """Count."""
    return 7


class Shelf:
    """A toolset of one tool."""

    name = "shelf"

    def __init__(self) -> None:
        self.listed = (count,)

    def facts(self) -> Any:
        return ["shelf"]

    def known_specs(self) -> None:
        return None

    def connect(self) -> "Shelf":
        return self

    async def tools(self) -> Any:
        return self.listed

    async def close(self) -> None:
        """Nothing is open."""


async def test_the_tools_of_a_toolset_are_watched_and_stay_the_same_objects(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    agent = Agent(ScriptedModel([call("shelf__count"), text("ok")]), tools=[Shelf()])
    seen = watched(agent, ledger)
    assert seen.fingerprint == agent.fingerprint
    connection = seen.toolsets[0].connect()
    assert await connection.tools() is await connection.tools()
    async with Runner("memory:") as runner:
        result = await runner.run(seen, "go")
    assert result.tool_executions[0].output == 7
    assert [(line.tool, line.kind) for line in ledger.entries() if line.kind != "note"] == [
        ("shelf__count", "start"),
        ("shelf__count", "done"),
    ]
