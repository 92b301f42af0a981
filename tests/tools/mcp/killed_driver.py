"""A driver that a test kills in the middle of a call.

    python killed_driver.py JOURNAL TOOL ARGUMENTS NAME COMMAND...

It runs one task, `t1`, that calls one tool of one server, and prints the process ids of the server and its group.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

from treadle import Agent, MCPServer, Runner, ScriptedModel
from treadle.models import call, text


def agent(journal: Path, tool: str, arguments: str, name: str, *command: str) -> Agent:
    """Return the agent of the task, as this process and its test make it."""
    environment = {each: os.environ[each] for each in os.environ if each.startswith("UV_")}
    server = MCPServer(
        name,
        command=command[0],
        args=command[1:],
        env=environment,
        pins=journal.parent / "pins",
        start_timeout=120,
    )
    script = [call(f"{name}__{tool}", **json.loads(arguments)), text("done")]
    return Agent(ScriptedModel(script), name="clerk", tools=[server])


async def main(journal: Path, *rest: str) -> None:
    """Run the task, and say when the call has begun."""
    async with Runner(journal) as runner:
        handle = await runner.start(agent(journal, *rest), "go", task_id="t1")
        async for event in handle.events():
            if event.kind == "tool_started":
                await asyncio.sleep(0.5)
                (connection,) = runner._driver.toolsets._connections.values()
                print(connection._live.process.pid, flush=True)
        await handle.result()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:]))
