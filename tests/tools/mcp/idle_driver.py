"""A driver that has started a server and is killed: python idle_driver.py COMMAND..."""

import asyncio
import sys

from treadle import Agent, MCPServer, Runner, ScriptedModel


async def main(*command: str) -> None:
    """Start the server, say so, and wait."""
    server = MCPServer("idle", command=command[0], args=command[1:], pins=None)
    async with Runner("memory:") as runner:
        await runner.run(Agent(ScriptedModel(["ok"]), tools=[server]), "go")
        print("started", flush=True)
        await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
