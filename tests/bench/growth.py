"""Long runs to measure: a model that always calls a tool, and what its task's journal holds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from time import process_time

from treadle import Agent, Limits, Message, ModelAnswer, ModelRequest, Runner, Text, ToolCall, tool
from treadle.core.journal import unfold
from treadle.ports import JournalStore, Record

WORDS = "x" * 1_000


@tool(read_only=True)
async def look(word: str) -> str:
    """Look a word up."""
    return WORDS


class Talker:
    """A model of many turns: each but the last says 1 kB and calls a tool that answers 1 kB."""

    name = "test:talker"

    def __init__(self, turns: int, *, words: str = WORDS) -> None:
        self.turns, self.words = turns, words
        self.at: list[float] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelAnswer]:
        self.at.append(process_time())
        if request.turn + 1 == self.turns:
            yield ModelAnswer(Message("assistant", (Text("done"),)))
            return
        call = ToolCall("c", "look", {"word": f"w{request.turn:05}"})
        yield ModelAnswer(Message("assistant", (Text(self.words), call)), "tool_calls")


async def long_task(store: str | JournalStore, model: Talker) -> list[Record]:
    """Run a task to its end and return its records."""
    agent = Agent(model, name="talker", tools=[look], limits=Limits(steps=model.turns))
    async with Runner(store) as runner:
        result = await runner.run(agent, "go on")
        assert result.state == "completed"
        assert result.steps == model.turns
        return await runner.store.read(result.task_id)


def bytes_at(records: list[Record], step: int) -> float:
    """Return how many bytes a step takes in the journal around its place: events share records, so ten are averaged."""
    begins: dict[str, int] = {}
    written = 0
    for record, (_, found) in zip(records, unfold("t", records), strict=True):
        for number, event in enumerate(found):
            if event.kind == "step_started":
                # A record's bytes are spread evenly over its events.
                begins[event.step] = written + len(record.data) * number // len(found)  # type: ignore[attr-defined]
        written += len(record.data) + sum(map(len, record.blobs.values()))
    return (begins[f"s{step + 5}"] - begins[f"s{step - 5}"]) / 10
