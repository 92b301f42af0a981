"""The same work done by Treadle, through its public API and with a model that answers at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from time import perf_counter

from bench.references import ANSWER, INSTRUCTIONS, NAP, QUESTION
from treadle import (
    Agent,
    Limits,
    Message,
    ModelAnswer,
    ModelRequest,
    Runner,
    Text,
    TextDelta,
    ToolCall,
    Usage,
    tool,
)

SPENT = Usage(20, 5)
"""What each answer says it took, as those of providers do."""


class Fake:
    """A model of `turns` turns: each but the last calls `add`; with `fan` the first calls `nap` that many times.

    `at` holds when each turn was asked for; `pause` is the time in seconds before each streamed word. With `consumes`,
    every message is encoded once and kept, as a provider's adapter would have to.
    """

    name = "bench:fake"

    def __init__(
        self,
        turns: int,
        *,
        delay: float = 0.0,
        fan: int = 0,
        words: int = 0,
        pause: float = 0.0,
        called: str = "add",
        consumes: bool = False,
    ) -> None:
        self.turns, self.delay, self.fan, self.words = turns, delay, fan, words
        self.pause, self.called, self.consumes = pause, called, consumes
        self.at: list[float] = []
        self._encoded: list[bytes] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelAnswer]:
        turn = request.turn + 1
        self.at.append(perf_counter())
        if self.consumes:
            self._consume(request)
        if self.delay:
            await asyncio.sleep(self.delay)
        for _ in range(self.words):
            if self.pause:
                await asyncio.sleep(self.pause)
            yield TextDelta("tok ")
        if self.fan and turn == 1:
            calls = tuple([ToolCall(f"c{n}", "nap", {"ms": 20}) for n in range(self.fan)])
        elif turn < self.turns:
            calls = (ToolCall(f"c{turn}", self.called, {"a": turn, "b": 1}),)
        else:
            yield ModelAnswer(Message("assistant", (Text(ANSWER),)), usage=SPENT)
            return
        yield ModelAnswer(Message("assistant", calls), "tool_calls", SPENT)

    def _consume(self, request: ModelRequest) -> bytes:
        if request.turn == 0:
            self._encoded.clear()
        for message in request.messages[len(self._encoded) :]:
            parts = [
                getattr(part, "text", None) or getattr(part, "arguments", None) for part in message.parts
            ]
            self._encoded.append(json.dumps({"role": message.role, "content": parts}).encode())
        return b"[" + b",".join(self._encoded) + b"]"


@tool(read_only=True)
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def write(a: int, b: int) -> int:
    """Add two numbers to the books."""
    return a + b


@tool(read_only=True)
async def nap(ms: int) -> int:
    """Sleep."""
    await asyncio.sleep(NAP)
    return ms


def agent(model: Fake) -> Agent:
    limits = Limits(steps=model.turns + 1)
    return Agent(model, name="bench", instructions=INSTRUCTIONS, tools=[add, nap, write], limits=limits)


async def run(runner: Runner, agent: Agent) -> None:
    result = await runner.run(agent, QUESTION)
    assert result.final_text == ANSWER, result
