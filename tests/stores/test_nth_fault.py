"""Whichever call of a store or operation of its disk fails, in whichever test of the suite: nothing is lost."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.stores.faulty_disk import Fault, OneConnectionStore, faulty_disk
from tests.stores.nth_fault import CASES, PORT_FAULTS, Case, FaultyPort, Port, PortFault, trial
from treadle.stores.memory import MemoryStore
from treadle.stores.sqlite import SQLiteStore

pytestmark = pytest.mark.anyio

DISK_FAULTS: tuple[Fault, ...] = ("error once", "error until healed", "full until healed")
MOST = 12
"""trials of one test with one fault; a test of more calls is tried at this many, evenly spread"""

SAMPLE = (
    "test_a_refused_commit_has_written_nothing",
    "test_a_thread_is_deleted_with_all_its_tasks",
)


def sampled() -> list[Any]:
    """All cases for `make full`; some for every run, at fewer calls."""
    every = [pytest.param(case, MOST, id=str(case), marks=pytest.mark.full) for case in CASES]
    return [pytest.param(case, 2, id=f"some-{case}") for case in CASES if case.name in SAMPLE] + every


def some_of(values: tuple[str, ...], *always: str) -> list[Any]:
    """All values for `make full`, and which of them for every run."""
    return [value if value in always else pytest.param(value, marks=pytest.mark.full) for value in values]


async def every_fault(
    case: Case,
    place: Path,
    made: Callable[[Path], Any],
    again: Callable[[Any, Path], Any],
    plan: Any,
    fault: str,
    most: int,
) -> Counter[str]:
    """Run a test with each fault in turn; return how many trials there were and what was found."""
    (place / "0").mkdir()
    whole = await trial(case, place / "0", made, again, plan, 1_000_000_000, fault)
    assert whole.findings == [], "without a fault"
    found, at = Counter[str](), 1
    if whole.skipped:
        return found
    found["calls"] = whole.calls
    while True:
        (place / str(at)).mkdir()
        tried = await trial(case, place / str(at), made, again, plan, at, fault)
        shutil.rmtree(place / str(at))
        for finding in tried.findings:
            print(f"{case} {fault} at {at}: {finding[:600]}")
            found["findings"] += 1
        if not tried.met:
            return found
        found["trials"] += 1
        at += max(1, whole.calls // most)


def of_kind(kind: str, port: Port) -> tuple[Callable[[Path], Any], Callable[[Any, Path], Any]]:
    if kind == "memory":
        return (lambda _: FaultyPort(MemoryStore(), port)), (lambda store, _: store)
    return (
        lambda place: FaultyPort(SQLiteStore(place / "journal.db"), port),
        lambda _, place: SQLiteStore(place / "journal.db"),
    )


@pytest.mark.parametrize("fault", some_of(PORT_FAULTS, "before until healed", "after once"))
@pytest.mark.parametrize("kind", some_of(("memory", "sqlite"), "sqlite"))
@pytest.mark.parametrize(("case", "most"), sampled())
async def test_nothing_is_lost_whichever_call_of_a_store_fails(
    case: Case, most: int, kind: str, fault: PortFault, tmp_path: Path
) -> None:
    port = Port()
    found = await every_fault(case, tmp_path, *of_kind(kind, port), port, fault, most)
    print(f"{kind}, {fault}, {case}: {dict(found)}")
    assert not found["findings"]


@pytest.mark.parametrize("fault", some_of(DISK_FAULTS, "error once", "error until healed"))
@pytest.mark.parametrize(("case", "most"), sampled())
async def test_nothing_is_lost_whichever_operation_of_the_disk_fails_in_the_suite(
    case: Case, most: int, fault: Fault, tmp_path: Path
) -> None:
    made = tmp_path / "made.db"
    store = SQLiteStore(made)
    await store.open()
    await store.close()

    def copied(place: Path) -> OneConnectionStore:
        shutil.copy(made, place / "journal.db")
        return OneConnectionStore(place / "journal.db")

    def again(_: Any, place: Path) -> SQLiteStore:
        return SQLiteStore(place / "journal.db")

    with faulty_disk() as disk:
        found = await every_fault(case, tmp_path, copied, again, disk, fault, most)
    print(f"disk, {fault}, {case}: {dict(found)}")
    assert not found["findings"]
