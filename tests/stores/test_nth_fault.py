"""Any call of a store or operation of its disk may fail, in any test of the suite: no acknowledged write is lost.

Here some places are tried; `make faults` tries all.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.stores.every_fault import DISK_FAULTS, SharedServer, at_port, on_disk, on_server
from tests.stores.faulty_disk import Fault
from tests.stores.nth_fault import CASES, PORT_FAULTS, Case, PortFault
from tests.stores.proxy import WIRE_FAULTS, WireFault
from treadle.testing.postgres import PostgresServer

pytestmark = pytest.mark.anyio

MOST = 12
"""trials of one test with one fault; a test of more calls is tried at this many, evenly spread"""

FEW = 2
"""the same on a server"""

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


@pytest.mark.sampled(1)
@pytest.mark.parametrize("fault", some_of(PORT_FAULTS, "before until healed", "after once"))
@pytest.mark.parametrize("kind", some_of(("memory", "sqlite"), "sqlite"))
@pytest.mark.parametrize(("case", "most"), sampled())
async def test_nothing_is_lost_whichever_call_of_a_store_fails(
    case: Case, most: int, kind: str, fault: PortFault, tmp_path: Path
) -> None:
    counts = await at_port(kind, case, tmp_path, fault, most)
    print(f"{kind}, {fault}, {case}: {dict(counts)}")
    assert not counts["findings"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("fault", some_of(DISK_FAULTS, "error once", "error until healed"))
@pytest.mark.parametrize(("case", "most"), sampled())
async def test_nothing_is_lost_whichever_operation_of_the_disk_fails_in_the_suite(
    case: Case, most: int, fault: Fault, tmp_path: Path
) -> None:
    counts = await on_disk(case, tmp_path, fault, most)
    print(f"disk, {fault}, {case}: {dict(counts)}")
    assert not counts["findings"]


@pytest.fixture(scope="module")
def shared(postgres: PostgresServer) -> Iterator[SharedServer]:
    server = SharedServer(postgres)
    yield server
    server.close()


ON_A_SERVER = [(case, fault) for case in CASES for fault in WIRE_FAULTS]
ON_A_SERVER += [(case, fault) for case in CASES if case.name in SAMPLE for fault in PORT_FAULTS]


@pytest.mark.full
@pytest.mark.parametrize(("case", "fault"), ON_A_SERVER, ids=str)
async def test_nothing_is_lost_whichever_call_of_a_postgres_store_or_message_to_its_server_fails(
    case: Case, fault: PortFault | WireFault, shared: SharedServer, tmp_path: Path
) -> None:
    counts = await on_server(shared, case, tmp_path, fault, FEW)
    print(f"postgresql, {fault}, {case}: {dict(counts)}")
    assert not counts["findings"]
