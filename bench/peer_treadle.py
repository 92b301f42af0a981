"""Treadle beside other agent runners: an adapter for a harness that drives them all the same way.

The harness gives `common` (the adapter's contract and the script its fake model follows) and expands TREADLE_SRC, the
folder or requirement to install. Only public API is used.
"""

import asyncio
from collections.abc import AsyncIterator

from common import FINAL_TEXT, NAP_S, RUN, SYSTEM_TEXT, USER_TEXT, BaseAdapter

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
    tool,
)

META = {
    "requirements": ["$TREADLE_SRC"],
    "min_requirements": ["$TREADLE_SRC"],
    "import": "import treadle",
    "variants": ["mem", "sqlite"],
    "w3_variants": ["sqlite"],
    "package": "treadle",
    "notes": "mem: Runner('memory:'); sqlite: the default store, WAL, synchronous=FULL; the tool is read-only",
}


@tool(read_only=True)
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(read_only=True)
async def nap(ms: int) -> int:
    """Sleep."""
    await asyncio.sleep(NAP_S)
    return ms


class FakeModel:
    name = "fake:model"

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelAnswer]:
        script = RUN.get()
        if script.delay:
            await asyncio.sleep(script.delay)
        kind = script.next()
        if kind == "call":
            calls = (ToolCall(f"c{script.i}", "add", {"a": script.i, "b": 1}),)
            yield ModelAnswer(Message("assistant", calls), "tool_calls")
        elif kind == "fan":
            calls = tuple([ToolCall(f"c{n}", "nap", {"ms": 20}) for n in range(script.fan)])
            yield ModelAnswer(Message("assistant", calls), "tool_calls")
        else:
            for _ in range(script.tokens):
                yield TextDelta("tok ")
            yield ModelAnswer(Message("assistant", (Text(FINAL_TEXT),)))


class Adapter(BaseAdapter):
    async def open(self) -> None:
        self.agent = Agent(
            FakeModel(),
            name="bench",
            instructions=SYSTEM_TEXT,
            tools=[add, nap],
            limits=Limits(steps=100_000),
        )
        self.runner = Runner("memory:" if self.variant == "mem" else self.db_path)
        if self.variant == "sqlite":
            self.stored_bytes = self._stored_bytes

    async def close(self) -> None:
        await self.runner.aclose()

    async def run(self, thread: str) -> object:
        result = await self.runner.run(self.agent, USER_TEXT, thread_id=thread)
        return result.raise_for_state().final_text

    async def stream(self, thread: str) -> int:
        seen = 0
        async with self.runner.run_stream(self.agent, USER_TEXT, thread_id=thread) as stream:
            async for event in stream:
                seen += getattr(event, "channel", None) == "text"
        return seen

    async def resume(self, thread: str) -> object:
        async with Runner(self.db_path) as runner:
            result = await runner.run(self.agent, USER_TEXT, thread_id=thread)
        return result.raise_for_state().final_text

    async def _stored_bytes(self) -> int:
        return self.sqlite_bytes()

    def sqlite_bytes(self) -> int:
        # A second SQLite library in this process would drop the locks of the one the store uses.
        import apsw

        connection = apsw.Connection(self.db_path, flags=apsw.SQLITE_OPEN_READONLY)
        try:
            pages, free, size = (
                connection.execute(f"PRAGMA {name}").fetchall()[0][0]
                for name in ("page_count", "freelist_count", "page_size")
            )
        finally:
            connection.close()
        return (pages - free) * size
