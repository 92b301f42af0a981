"""A request that offers tools of a stranger needs a driver that knows the origins of tools."""

import pytest

from treadle.core import events as e
from treadle.core.codec import decode, encode


@pytest.mark.parametrize(("untrusted", "known"), [((), 1), (("mcp:desk",), 5)])
def test_older_drivers_adopt_a_task_unless_its_request_offered_tools_of_a_stranger(untrusted, known):
    started = e.ModelStarted("s1", "scripted", untrusted=untrusted)
    assert started.format == known
    data, blobs = encode([started])
    assert (b"untrusted" in data) is bool(untrusted)
    assert decode(data, blobs, 1)[0].untrusted == untrusted
