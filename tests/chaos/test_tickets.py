"""Two hundred tickets, completed out of order by three processes while the drivers of their tasks are killed."""

import asyncio
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.tickets import agent, read
from treadle import Runner
from treadle.core import events as e
from treadle.testing.audit import Evidence, audit_store

TASKS, CALLS, DRIVERS, SENDERS = 10, 20, 2, 3
LONGEST = 240.0


def process(role: str, store: str, folder: Path, first: int, second: int) -> subprocess.Popen[bytes]:
    arguments = [role, store, str(folder), str(first), str(second)]
    with (folder / f"{role}.log").open("ab") as log:
        return subprocess.Popen([sys.executable, "-m", "tests.chaos.tickets", *arguments], stderr=log)


def storm(store: str, folder: Path, seed: int) -> int:
    """Run drivers and senders until all tickets are completed and all tasks have ended; return how many were killed."""
    chance, kills = random.Random(seed), 0
    senders = [process("sender", store, folder, number, TASKS * CALLS) for number in range(SENDERS)]
    drivers = [process("driver", store, folder, TASKS, CALLS) for _ in range(DRIVERS)]
    deadline = time.monotonic() + LONGEST
    try:
        while any(sender.poll() is None for sender in senders):
            assert time.monotonic() < deadline, "the tickets were not all completed in time"
            time.sleep(chance.uniform(0.6, 1.5))
            victim = chance.randrange(DRIVERS)
            drivers[victim].kill()
            drivers[victim].wait()
            kills += 1
            drivers[victim] = process("driver", store, folder, TASKS, CALLS)
        asyncio.run(all_ended(store, deadline))
    finally:
        for each in (*senders, *drivers):
            each.kill()
            each.wait()
    return kills


async def all_ended(store: str, deadline: float) -> None:
    async with Runner(store) as runner:
        while len((await runner.list_tasks(state="completed")).items) < TASKS:
            assert time.monotonic() < deadline, "the tasks did not all end in time"
            await asyncio.sleep(0.2)


async def check(store: str, folder: Path) -> None:
    """Check that each result was delivered once, and nothing else."""
    handed_out = {key for key, _ in read(folder / "tickets")}
    assert len(handed_out) == TASKS * CALLS
    async with Runner(store, agents=[agent(folder, CALLS)]) as runner:
        assert await audit_store(runner.store, Evidence(ended=True)) == []
        for number in range(TASKS):
            task = f"films-{number}"
            result = await runner.result(task)
            assert result.state == "completed"
            said = "".join(str(message.parts) for message in result.messages)
            for execution in result.tool_executions:
                (key,) = [
                    key
                    for key in handed_out
                    if key.startswith(f"{task}/") and key.endswith(f"/{execution.call_id}")
                ]
                film = f"the film of {key}."
                assert (execution.outcome, execution.output) == ("ok", film)
                assert said.count(film) == 1, f"the model read {film!r} {said.count(film)} times"
            told: Any = [event async for event in runner.handle(task).events(deltas=False)]
            for kind in (e.ToolEnded, e.TicketCompleted):
                ends = [event.call for event in told if isinstance(event, kind)]
                assert len(ends) == len(set(ends)) == CALLS


@pytest.mark.full
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_each_of_200_results_is_delivered_once_while_drivers_are_killed(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    store = str(tmp_path / "journal.db")
    if kind == "postgresql":
        store = request.getfixturevalue("postgres").in_schema("tickets")
    kills = storm(store, tmp_path, seed=7)
    asyncio.run(check(store, tmp_path))
    senders = read(tmp_path / "senders")
    assert len(senders) == SENDERS
    assert all(each["double"] + each["forged"] == each["tried"] > 0 for each in senders)
    print(f"{kind}: {kills} drivers killed, {senders}")
    assert kills >= 3
