"""What a step costs does not depend on how many came before it: bytes, work and time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import apsw
import pytest

from tests.bench.growth import Talker, bytes_at, long_task
from treadle.agents.decide.function_calling import decide
from treadle.agents.decide.rules import Rules
from treadle.core import codec
from treadle.core import events as e
from treadle.core.messages import Message, Text, ToolCall
from treadle.core.model import Usage
from treadle.core.rules.fold import apply
from treadle.core.state import TaskState, start

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory" else str(tmp_path / "journal.db")


async def test_a_late_step_stores_as_many_bytes_as_an_early_one(store: str) -> None:
    records = await long_task(store, Talker(1_010))
    early = bytes_at(records, 10)
    assert early < 2 * 1_100 + 1_000  # two messages of 1 kB, and less than that again around them
    for step in (100, 1_000):
        assert bytes_at(records, step) <= 1.1 * early, f"step {step}"


async def test_what_surrounds_a_small_step_stays_below_a_thousand_bytes(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    sizes: list[int] = []
    for turns in (1, 501):
        await long_task(str(path), Talker(turns, words="x"))
        sizes.append(bytes_in_pages(path))
    # The tool's answer of 1 kB is content, not surroundings.
    assert (sizes[1] - sizes[0]) / 500 <= 1_000 + 1_000


def bytes_in_pages(path: Path) -> int:
    """Return how many bytes the pages of a database hold.

    The file's size also counts the free space of the pages. That space depends on how many steps share a record, and so
    on the speed of the disk: records of 3.1 kB, of two steps each, leave a quarter of each page of 4 kB free.
    """
    with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as database:
        return database.execute("SELECT sum(pgsize - unused) FROM dbstat").get


async def test_each_message_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[e.Event] = []
    real = codec.encode

    def counting(events: Any) -> Any:
        encoded.extend(events)
        return real(events)

    monkeypatch.setattr(codec, "encode", counting)
    records = await long_task("memory:", Talker(1_000))
    assert len(encoded) == records[-1].seq
    assert len({event.seq for event in encoded}) == len(encoded)


# ------------------------------------------------------------------------------------ the pure part


class Watched(list[Any]):
    """A list that counts how much of it is read: a step may look at its end, never walk over it."""

    reads = 0

    def __iter__(self) -> Iterator[Any]:
        Watched.reads += len(self)
        return super().__iter__()

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        Watched.reads += len(found) if isinstance(index, slice) else 1
        return found

    def __contains__(self, item: object) -> bool:
        Watched.reads += len(self)
        return super().__contains__(item)


def one_step(state: TaskState, index: int, rules: Rules) -> None:
    """Take a task through a step with one call, asking after each event what is to be done."""
    step, call = f"s{index}", f"s{index}-0"
    message = Message("assistant", (Text("a word"), ToolCall(call, "look", {"word": "w"})))
    for event in (
        e.StepStarted(step, index),
        e.ModelStarted(step, "test:m"),
        e.ModelReturned(step, message, "tool_calls", Usage(10, 5)),
        e.ToolStarted(step, call, "read", 1),
        e.ToolEnded(step, call, "ok", "words"),
        e.StepCompleted(step),
    ):
        event.seq, event.time = state.seq + 1, state.seq
        apply(state, event)
        decide(state, rules)


def test_deciding_and_applying_never_walk_over_what_happened_before() -> None:
    state, rules = start("t"), Rules()
    created = e.TaskCreated("a", (Text("go"),), "thread", seq=1)
    apply(state, created)
    reads: list[int] = []
    state.messages, state.steps = Watched(), Watched()
    for index in range(1, 1_001):
        Watched.reads = 0
        one_step(state, index, rules)
        reads.append(Watched.reads)
    assert reads[999] == reads[99] == reads[9]


# --------------------------------------------------------------------------------------------- time


def growth(at: list[float], step: int) -> float:
    """Return how much longer a step takes around a place than around the 30th, in time of this process."""
    took = [after - before for before, after in pairwise(at)]
    return median(took[step - 40 : step]) / median(took[10:50])


async def test_a_step_late_in_a_task_takes_no_longer_than_an_early_one() -> None:
    best = 9.0
    for _ in range(4):
        model = Talker(1_001)
        await long_task("memory:", model)
        best = min(best, growth(model.at, 1_000))
        if best <= 1.5:
            return
    pytest.fail(f"a step takes {best:.2f} times as long after 1,000 steps")


@pytest.mark.full
async def test_neither_time_nor_bytes_of_a_step_grow_within_five_thousand(store: str) -> None:
    best = 9.0
    records = []
    for _ in range(4):
        model = Talker(5_010)
        records = await long_task(store, model)
        best = min(best, growth(model.at, 5_000))
        if best <= 1.3:
            break
    assert best <= 1.3
    for step in (100, 1_000, 5_000):
        assert bytes_at(records, step) <= 1.3 * bytes_at(records, 10)
