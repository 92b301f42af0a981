"""Whatever a provider does wrong, the task ends as it must: see `fault_matrix` for what that is."""

import asyncio
import zlib

import pytest

from tests.llm import fault_matrix
from treadle.llm import errors
from treadle.llm.errors import PASSING

# What the packages say of what is sent to them here.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.* is not a valid FinishReason"),
    pytest.mark.filterwarnings("ignore:Failed to extract usage"),
]
CASES = fault_matrix.cases()
SAMPLE = 40
"""Cases of the sample that always runs; together they take a few seconds."""
SLOW = ("a date", "5 MB", "nothing arrives", "falls silent", "200 calls", "deep")


def sample():
    """Some cases of every wire and way, the same in each run, none of the slow ones."""
    quick = [case for case in CASES if not any(word in case.name for word in SLOW)]
    return sorted(quick, key=lambda case: zlib.crc32(case.name.encode()))[:SAMPLE]


def test_the_matrix_is_large_and_says_what_is_wanted_for_every_wire_and_way():
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names) >= 500
    assert {(case.wire, case.way) for case in sample()} == {(case.wire, case.way) for case in CASES}


def test_a_sample_of_faults_ends_as_it_must():
    assert asyncio.run(fault_matrix.run(sample())) == {}


@pytest.mark.full
@pytest.mark.parametrize("wire", fault_matrix.WIRES)
def test_every_fault_ends_as_it_must(wire):
    chosen = [case for case in CASES if case.wire == wire]
    assert asyncio.run(fault_matrix.run(chosen)) == {}


TABLES = {
    "status": errors._BY_STATUS,
    "code": errors._BY_CODE,
    "code alone": errors._BY_CODE_ALONE,
    "type": errors._BY_TYPE,
}
ENTRIES = [(name, entry) for name, table in TABLES.items() for entry in table]


def failing(case):
    """Whether a case is about what a failure is told by; once each, in the first turn, without long waits."""
    return case.want.kind is not None and case.place == "first" and not case.forever and not case.fault.wait


@pytest.mark.full
@pytest.mark.parametrize(("table", "entry"), ENTRIES, ids=str)
def test_a_wrong_classification_is_found(table, entry, monkeypatch):
    there = TABLES[table]
    monkeypatch.setitem(there, entry, "unknown" if there[entry] in PASSING else "server")
    assert asyncio.run(fault_matrix.run([case for case in CASES if failing(case)])) != {}


@pytest.mark.full
@pytest.mark.parametrize("kind", sorted(PASSING | {"invalid_request", "unparsable", "authentication"}))
def test_a_failure_that_passes_or_does_not_in_error_is_found(kind, monkeypatch):
    monkeypatch.setattr(fault_matrix, "ON", PASSING ^ {kind})
    assert asyncio.run(fault_matrix.run([case for case in CASES if failing(case)])) != {}
