"""An approval that is bound to arguments needs a driver that knows of the bound: an older one would widen it."""

import pytest

from treadle.core import events as e
from treadle.core.codec import decode, encode


@pytest.mark.parametrize(("same", "known"), [((), 4), (("to", "cc"), 5)])
def test_an_older_driver_would_let_a_bound_approval_hold_for_any_arguments(same, known):
    requested = e.ApprovalRequested("s1", "s1-0", 1, "definition", "digest", 1, same=same)
    given = e.ApprovalGiven("s1", "s1-0", 1, "task", same=same)
    assert (requested.format, given.format) == (known, known)
    data, blobs = encode([requested, given])
    assert (b"same" in data) is bool(same)
    assert [event.same for event in decode(data, blobs, 2)] == [same, same]
