"""Write what a store of an earlier version holds, as SQL.

    git worktree add --detach /tmp/older COMMIT
    PYTHONPATH=/tmp/older/src .venv/bin/python tests/stores/older/make.py sqlite tests/stores/older/sqlite-7.sql.gz

SOURCES are those of a version that wrote an earlier format, so this script uses only what all versions have. The files
beside it are never changed; a new format adds that of the format before it.
"""

import asyncio
import gzip
import re
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from treadle import Agent, Runner, RunOptions, ScriptedModel, ToolContext, tool
from treadle.llm.scripted import call, text

SCHEMA = "older"
LEFT = """
DELETE FROM {0}drivers;
INSERT INTO {0}drivers(key, host, boot, pid, started, lease) VALUES ('crashed', 'elsewhere', 'one', 1, 1, {1});
UPDATE {0}tasks SET driver = (SELECT id FROM {0}drivers) WHERE key = 'begun';
"""
"""What makes of the process that left the tasks one of another host that crashed while it owned a task."""


@tool(read_only=True)
async def look(place: str) -> str:
    """Look at a place."""
    return f"{place} is free"


@tool(timeout=0.01)
async def book(place: str, ctx: ToolContext[Any]) -> str:
    """Book a place; whether it was booked is not known."""
    await asyncio.sleep(60)
    return f"{place} booked"


@tool(read_only=True)
async def read(words: int) -> str:
    """Read a long text."""
    return "word " * words


TOOLS = [look, book, read]
LOOKER: Agent[Any] = Agent(
    ScriptedModel([call("look", place="oslo"), call("look", place="rome"), text("Both are free.")]),
    name="looker",
    tools=TOOLS,
)
BOOKER: Agent[Any] = Agent(
    ScriptedModel([call("book", place="rome"), text("Rome is booked.")]), name="booker", tools=TOOLS
)
READER: Agent[Any] = Agent(
    ScriptedModel([call("read", words=1_700), text("A long text.")]), name="reader", tools=TOOLS
)
AGENTS = [LOOKER, BOOKER, READER]


async def fill(runner: Any) -> None:
    """Leave tasks of every sort that a store keeps in tables of its own."""
    await runner.run(
        LOOKER, "Look.", task_id="ended", thread_id="talk", options=RunOptions(labels={"team": "paint"})
    )
    await runner.run(LOOKER, "Look again.", task_id="ended too", thread_id="talk")
    await runner.create_task(LOOKER, "Look.", task_id="begun", options=RunOptions(labels={"team": "wood"}))
    await runner.run_step("begun")
    await runner.send("begun", "Be quick.")
    await runner.create_task(LOOKER, "Look.", task_id="paused")
    await runner.pause("paused")
    await runner.run(BOOKER, "Book.", task_id="waiting")
    await runner.run(READER, "Read.", task_id="long")
    await runner.run(LOOKER, "Look.", task_id="gone")
    await runner.fork("gone", at="s1")
    await runner.delete_task("gone")


async def made(store: str) -> None:
    async with Runner(store, agents=AGENTS) as runner:
        await fill(runner)


def sqlite_dump(folder: Path) -> str:
    path = folder / "journal.db"
    asyncio.run(made(f"sqlite:///{path}"))
    with sqlite3.connect(path) as connection:
        connection.executescript(LEFT.format("", 0))
        lines = [*connection.iterdump()]
        for name in ("application_id", "user_version"):
            [(value,)] = connection.execute(f"PRAGMA {name}")
            lines.append(f"PRAGMA {name} = {value};")
    return "\n".join(lines) + "\n"


def postgres_dump() -> str:
    import psycopg

    from treadle.testing.postgres import PostgresServer

    with PostgresServer() as server:
        asyncio.run(made(server.in_schema(SCHEMA)))
        with psycopg.connect(server.url) as connection:
            connection.execute(LEFT.format(f"{SCHEMA}.", "'epoch'").encode())
        command = [server._programs / "pg_dump", "--inserts", "--no-owner", f"--schema={SCHEMA}", server.url]
        dump = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    wanted = [line for line in dump.splitlines() if line and not re.match(r"--|SET |\\", line)]
    return "\n".join(wanted) + "\n"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        dump = sqlite_dump(Path(folder)) if sys.argv[1] == "sqlite" else postgres_dump()
    Path(sys.argv[2]).write_bytes(gzip.compress(dump.encode(), mtime=0))
