"""A server that tests kill: `python -m tests.client.killed_server PORT STORE`."""

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


def answer(request: object) -> object:
    turn = request.turn  # type: ignore[attr-defined]
    return (
        call("look", place=turn, delay=0.08)
        if turn < STEPS
        else text("It is nowhere to be found.", delay=0.08)
    )


AGENT = Agent(ScriptedModel(answer), name="seeker", tools=[look])

if __name__ == "__main__":
    port, store = sys.argv[1:]
    uvicorn.run(app(Runner(store, agents=[AGENT]), auth=ann), port=int(port), log_level="critical")
