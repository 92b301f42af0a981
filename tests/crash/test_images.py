"""Damaged images of a store: what is harmed is named, everything else is read and driven on, and no error is untyped.

Damaged bytes stay within one task, but for the few by which SQLite finds its rows. Damage to the schema or to whole
pages may take the structure of the file with it: what can still be read is carried into a new store and driven there.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Literal

import apsw
import pytest

from treadle import Agent, Runner, ScriptedModel, tool
from treadle.errors import TreadleError
from treadle.llm.scripted import call, text
from treadle.ports import TaskFilter
from treadle.stores.sqlite import SQLiteStore
from treadle.transfer.verifying import VerifyReport

pytestmark = pytest.mark.anyio

PAGE = 4_096
TASKS = tuple(f"task-{n}" for n in range(8))


@tool(read_only=True)
def look(words: int) -> str:
    """Look."""
    return "seen " * words


AGENT = Agent(
    ScriptedModel([call("look", words=400), call("look", words=3_000), text("ok")]),
    name="looker",
    tools=[look],
)


@pytest.fixture
async def sound(tmp_path: Path) -> Path:
    """Tasks after their first step, in one file without a log."""
    path = tmp_path / "sound.db"
    async with Runner(path) as runner:
        for task_id in TASKS:
            await runner.create_task(AGENT, f"go, {task_id}", task_id=task_id)
            await runner.run_step(task_id)
    return path


def pages(image: bytearray, *, of_schema: bool) -> list[int]:
    """Return where the pages begin that are of the file's schema, or those that are not."""
    rollback = bytearray(image)
    rollback[18:20] = b"\x01\x01"  # a database in memory cannot have a write-ahead log
    with closing(apsw.Connection(":memory:")) as database:
        database.deserialize("main", bytes(rollback))
        found = database.execute("SELECT pageno FROM dbstat WHERE name = 'sqlite_schema'").fetchall()
    schema = {PAGE * (number - 1) for (number,) in found}
    return [at for at in range(0, len(image), PAGE) if (at in schema) == of_schema]


def used_byte(image: bytearray, chance: random.Random) -> int:
    """Return a place where something is written (much of a file is empty), outside the file's schema."""
    others = pages(image, of_schema=False)
    while not image[at := chance.choice(others) + chance.randrange(PAGE - 16)]:
        pass
    return at


def flipped(image: bytearray, chance: random.Random) -> None:
    image[used_byte(image, chance)] ^= 1 << chance.randrange(8)


def zeroed(image: bytearray, chance: random.Random) -> None:
    at = used_byte(image, chance)
    image[at : at + 16] = bytes(16)


def misspelt(image: bytearray, chance: random.Random) -> None:
    """Damage the schema, of which all else hangs."""
    image[chance.choice(pages(image, of_schema=True)) + chance.randrange(100, PAGE)] ^= 1 << chance.randrange(
        8
    )


def swapped(image: bytearray, chance: random.Random) -> None:
    one, other = chance.sample(pages(image, of_schema=False), 2)
    image[one : one + PAGE], image[other : other + PAGE] = (
        image[other : other + PAGE],
        image[one : one + PAGE],
    )


def cut(image: bytearray, chance: random.Random) -> None:
    del image[chance.randrange(PAGE, len(image)) :]


async def driven_on(runner: Runner) -> set[str]:
    """Resume every task; return those that completed. An error that is not one of ours comes through."""
    completed: set[str] = set()
    for task_id in TASKS:
        try:
            if (await runner.resume(task_id)).state == "completed":
                completed.add(task_id)
        except TreadleError:
            continue
    return completed


async def looked_at(runner: Runner) -> VerifyReport | None:
    try:
        return await runner.verify()
    except TreadleError:
        return None


@asynccontextmanager
async def opened(path: Path) -> AsyncGenerator[Runner | None]:
    """Open a store for the length of a block; None if that cannot be done."""
    runner = Runner(SQLiteStore(path), agents=[AGENT])
    try:
        await runner.store.open()
    except TreadleError:
        yield None
        return
    yield runner
    await runner.aclose()


async def confined(
    path: Path,
) -> Literal["whole", "one task", "met by a write", "several tasks", "not opened"]:
    """Look at an image and drive it on: what is not named is driven to its end."""
    async with opened(path) as runner:
        if runner is None:
            return "not opened"
        report = await looked_at(runner)
        if report is None:
            return "several tasks"
        named = {finding.task_id for finding in report.findings}
        completed = await driven_on(runner)
    harmed = set(TASKS) - completed
    if len(harmed | named) > 1:
        return "several tasks"
    if not harmed <= named:
        return "met by a write"  # an index that no read goes by
    assert all(finding.seq >= 1 and finding.text for finding in report.findings)
    return "one task" if named else "whole"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("images", [12, pytest.param(150, marks=pytest.mark.full)])
@pytest.mark.parametrize("damage", [flipped, zeroed], ids=lambda damage: damage.__name__)
async def test_damaged_bytes_harm_one_task_and_it_is_named(
    sound: Path, damage: Callable[[bytearray, random.Random], None], images: int
) -> None:
    outcomes = [await confined(path) for path in made(sound, damage, images)]
    counts = {outcome: outcomes.count(outcome) for outcome in sorted(set(outcomes))}
    print(f"{images} images {damage.__name__}: {counts}")
    assert "one task" in outcomes
    assert outcomes.count("one task") + outcomes.count("whole") >= images - max(3, images // 12)


@pytest.mark.parametrize("images", [4, pytest.param(67, marks=pytest.mark.full)])
@pytest.mark.parametrize("damage", [misspelt, swapped, cut], ids=lambda damage: damage.__name__)
async def test_readable_tasks_of_a_file_with_damaged_pages_go_on_in_a_new_file(
    sound: Path, damage: Callable[[bytearray, random.Random], None], images: int
) -> None:
    inputs_found, rescued, carried_over = await inputs(sound), 0, 0
    for path in made(sound, damage, images):
        carried = await carried_away(path)
        carried_over += carried is not None
        async with Runner("memory:", agents=[AGENT]) as fresh:
            for file in carried or ():
                await fresh.import_tasks(file)
            assert (await fresh.verify()).findings == ()
            for row in await fresh.store.rows(TaskFilter()):
                result = await fresh.resume(row.task_id)
                assert (result.state, result.messages[0].text) == ("completed", inputs_found[row.task_id])
                rescued += 1
    print(
        f"{images} images {damage.__name__}: {carried_over} opened, "
        f"{rescued} of {carried_over * len(TASKS)} tasks rescued"
    )


async def carried_away(path: Path) -> list[Path] | None:
    """Export, each by itself, the tasks in which nothing is found; None if the file cannot be opened."""
    files: list[Path] = []
    async with opened(path) as runner:
        if runner is None:
            return None
        for task_id in TASKS:
            file = path.with_suffix(f".{task_id}")
            try:
                if not (await runner.verify(task_id)).findings:
                    await runner.export_tasks(file, task_id)
                    files.append(file)
            except TreadleError:
                continue
    return files


async def inputs(path: Path) -> dict[str, str]:
    async with Runner(SQLiteStore(path)) as runner:
        return {task_id: (await runner.result(task_id)).messages[0].text for task_id in TASKS}


def made(sound: Path, damage: Callable[[bytearray, random.Random], None], images: int) -> list[Path]:
    """Make the damaged images."""
    paths: list[Path] = []
    for seed in range(images):
        image = bytearray(sound.read_bytes())
        damage(image, random.Random(seed))
        paths.append(sound.with_name(f"{seed}.db"))
        paths[-1].write_bytes(image)
    return paths
