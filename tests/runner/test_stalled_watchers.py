"""Watchers that do not read hold nothing that they would never be shown."""

from __future__ import annotations

import pytest

from treadle.core.events import Delta
from treadle.runner.channel import BUFFER, Stopped, Watcher

pytestmark = pytest.mark.anyio


async def test_a_stalled_watcher_kept_thousands_of_pieces_it_would_never_be_shown() -> None:
    watcher = Watcher()
    for _ in range(BUFFER + 500):
        watcher.put([Delta(step="s1", channel="text", text="x", after=3)])
    assert watcher.lagging
    assert len(watcher.items) == 0
    watcher.put([Stopped()])
    assert [type(item) for item in watcher.items] == [Stopped]
