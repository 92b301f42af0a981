"""Approvals bound to arguments, for older drivers."""

import pytest

from treadle.core import events as e
from treadle.core.codec import decode, encode


@pytest.mark.parametrize(("same", "known"), [((), 4), (("to",), 5)])
def test_older_drivers_adopt_a_task_unless_an_approval_is_bound_to_arguments(same, known):
    given = e.ApprovalGiven("s1", "s1-0", 1, "task", same=same)
    assert given.format == known
    data, blobs = encode([given])
    assert (b"same" in data) is bool(same)
    assert decode(data, blobs, 1)[0].same == same
