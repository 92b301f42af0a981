"""Every fault of a tool, on every host where it can be: one end, siblings and event loop unharmed, nothing left."""

import pytest

from tests.tools.hosts.fault_matrix import CASES, problem_of, report_of

pytestmark = pytest.mark.anyio


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("fault", "host"), CASES)
async def test_a_fault_of_a_tool_harms_its_own_call_alone(fault: str, host: str) -> None:
    assert problem_of(await report_of(fault, host), fault, host) is None


@pytest.mark.full
@pytest.mark.parametrize("host", ["async", "thread"])
async def test_what_ends_after_its_call_is_logged_as_late(
    host: str, caplog: pytest.LogCaptureFixture
) -> None:
    await report_of("returns_after_its_end", host)
    (record,) = [record for record in caplog.records if record.name == "treadle.tools"]
    assert record.getMessage().endswith(": its result is late, and dropped")
