"""A server that tests kill: `python -m tests.client.killed_server PORT STORE STEPS`.

Its tasks take so many steps and then wait for a model that never answers: they end only on another server.
"""

import asyncio
import sys

import uvicorn

from tests.client.served import ann
from treadle import Agent, Runner, ScriptedModel, tool
from treadle.models import call, text
from treadle.server import app

STEPS = 16


@tool(read_only=True)
def look(place: int) -> int:
    """Look somewhere."""
    return place


async def answer(request: object) -> object:
    turn = request.turn  # type: ignore[attr-defined]
    if turn > most:
        await asyncio.Event().wait()
    return (
        call("look", place=turn, delay=0.08)
        if turn < STEPS
        else text("It is nowhere to be found.", delay=0.08)
    )


AGENT = Agent(ScriptedModel(answer), name="seeker", tools=[look])

if __name__ == "__main__":
    port, store, most = *sys.argv[1:3], int(sys.argv[3])
    uvicorn.run(app(Runner(store, agents=[AGENT]), auth=ann), port=int(port), log_level="critical")
