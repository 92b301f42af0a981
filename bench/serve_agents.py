"""What `python -m bench.serve` serves: agents whose models answer by themselves, for principals of any name."""

from __future__ import annotations

from typing import Any

from bench.subjects import Fake
from treadle import Agent, tool
from treadle.server import ADMIN, Principal


@tool(read_only=True)
async def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


def made(name: str, turns: int, delay: float, words: int = 0, pause: float = 0.0) -> Agent[Any]:
    return Agent(Fake(turns, delay=delay, words=words, pause=pause), name=name, tools=[add])


agents = [
    made("load", 40, 0.5, 5, 0.05),  # one of the tasks that are driven beside what is measured
    made("watched", 20, 0.1, 20, 0.02),  # a run of about ten seconds that is watched
    made("slow", 20, 1.0),  # one of the many runs that are watched
    made("quick", 1, 0.0),
]


def who(connection: Any) -> Principal | None:
    """Return a principal of the name that a request brings as its token: limits are for each principal."""
    name = connection.headers.get("authorization", "").removeprefix("Bearer ")
    return Principal(name, scopes=ADMIN) if name else None
