"""After every fault of a provider the task ends as expected; `fault_matrix` has the expectations."""

import asyncio
import zlib
from collections import defaultdict

import pytest

from tests.llm import fault_matrix
from treadle.llm import errors
from treadle.llm.errors import PASSING, model_error

# What the packages say of what is sent to them here.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.* is not a valid FinishReason"),
    pytest.mark.filterwarnings("ignore:Failed to extract usage"),
]
CASES = fault_matrix.cases()
SAMPLE = 24
"""Cases of the sample that always runs; together they take a few seconds."""
SLOW = ("a date", "5 MB", "nothing arrives", "falls silent", "200 calls", "deep")


def sample():
    """Some cases of every wire and way, the same in each run, none of the slow ones."""
    quick = [case for case in CASES if not any(pattern in case.name for pattern in SLOW)]
    return sorted(quick, key=lambda case: zlib.crc32(case.name.encode()))[:SAMPLE]


def test_the_matrix_has_an_expectation_for_every_wire_and_way():
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


@pytest.mark.full
@pytest.mark.anyio
@pytest.mark.parametrize("way", ["streamed", "whole"])
@pytest.mark.parametrize("wire", fault_matrix.WIRES)
@pytest.mark.parametrize(
    ("point", "kind"), fault_matrix.UNREACHABLE.items(), ids=[name for name, _ in fault_matrix.UNREACHABLE]
)
async def test_a_server_that_never_answers_gets_four_attempts(point, kind, wire, way):
    with point[1]() as url:
        assert await fault_matrix.reach(url, wire, way) == ("failed", [kind] * 4)


# ------------------------------------------------------------------------------ what the table would find

TABLES = ("_BY_STATUS", "_BY_CODE", "_BY_PARAMETER", "_BY_CODE_ALONE", "_BY_TYPE")
NEVER_MET = {
    "ModelQuotaExceededError": "permission",
    "ModelRateLimitError": "rate_limit",
    "ModelUnavailableError": "overloaded",
    "ModelServerError": "server",
    "ModelTimeoutError": "timeout",
    "ModelRequestTimeout": "timeout",
    "ModelContextWindowExceededError": "too_large",
    "ModelAuthenticationError": "authentication",
    "ModelNotFoundError": "not_found",
    "ModelRequestRejectedError": "invalid_request",
    "ContentFilterError": "refused",
    "UserError": "invalid_request",
    "APITimeoutError": "timeout",
    "APIConnectionError": "connection",
    "APIResponseValidationError": "unparsable",
    "TimeoutException": "timeout",
    "TransportError": "connection",
    "StreamError": "connection",
    "ValidationError": "unparsable",
    "TimeoutError": "timeout",
    "OSError": "connection",
    "ArithmeticError": "unparsable",
    "AssertionError": "unparsable",
}
"""The kinds of exception names that no fault brings about alone, written by hand."""

NEVER_ALONE = {
    "api_error": "server",
    "authentication_error": "authentication",
    "invalid_request_error": "invalid_request",
    "not_found_error": "not_found",
    "permission_error": "permission",
    "rate_limit_error": "rate_limit",
    "server_error": "server",
    "timeout_error": "timeout",
}
"""The kinds of codes that come with a status here and may come without one elsewhere."""


def by_hand(name, entry):
    """The expected kind and an error of that kind; None for an entry that faults bring about."""
    if name == "_BY_TYPE" and entry in NEVER_MET:
        return NEVER_MET[entry], type(entry, (Exception,), {})("no")
    if name == "_BY_CODE_ALONE" and entry in NEVER_ALONE:
        error = Exception("no")
        error.body = {"error": {"type": entry}}
        return NEVER_ALONE[entry], error
    if name == "_BY_PARAMETER":
        error = Exception("no")
        error.body = {"error": {"code": 400, "type": "BadRequestError", "param": entry}}
        return "too_large", error
    return None


class Watched(dict):
    """A table that records which case looked up which entry."""

    def __init__(self, table, seen, name):
        super().__init__(table)
        self.seen, self.name = seen, name

    def get(self, entry, default=None):
        if entry in self and fault_matrix.CASE.get():
            self.seen[self.name, entry].add(fault_matrix.CASE.get())
        return super().get(entry, default)


def failing(case):
    """Whether a case tests the classification of a failure: in the first turn, once, without waits."""
    return (
        case.want.kind is not None and case.place == "first" and not case.forever and not case.fault.impatient
    )


def other(kind):
    return "unknown" if kind in PASSING else "server"


@pytest.mark.full
def test_each_entry_of_the_classification_is_needed(monkeypatch):
    """A wrong kind in any entry is found by a case, or by the tables above."""
    chosen = {case.name: case for case in CASES if failing(case)}
    seen = defaultdict(set)
    tables = {name: getattr(errors, name) for name in TABLES}
    with monkeypatch.context() as patch:
        for name, table in tables.items():
            patch.setattr(errors, name, Watched(table, seen, name))
        assert asyncio.run(fault_matrix.run(list(chosen.values()))) == {}
    missed = []
    for name, table in tables.items():
        for entry, kind in table.items():
            with monkeypatch.context() as patch:
                patch.setitem(table, entry, other(kind))
                if problem := by_hand(name, entry):
                    is_wrong = model_error(problem[1]).kind != problem[0]
                else:
                    touched = [chosen[case] for case in sorted(seen[name, entry])[:4]]
                    is_wrong = bool(touched and asyncio.run(fault_matrix.run(touched)))
                if not is_wrong:
                    missed.append((name, entry))
    assert missed == []


@pytest.mark.full
@pytest.mark.parametrize("kind", sorted(fault_matrix.ON - {"not_sent"} | {"invalid_request", "unparsable"}))
def test_a_retry_of_the_wrong_kind_is_found(kind, monkeypatch):
    assert fault_matrix.ON == PASSING
    chosen = [case for case in CASES if case.want.kind == kind and case.place == "first"][:6]
    monkeypatch.setattr(fault_matrix, "ON", fault_matrix.ON ^ {kind})
    assert len(asyncio.run(fault_matrix.run(chosen))) == len(chosen)
