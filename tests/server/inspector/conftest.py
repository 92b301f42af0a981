"""One Chromium for all tests of the page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.docs.browser import Browser
from tests.server.inspector.chromium import PROGRAM


@pytest.fixture(scope="session")
def chromium_window() -> Iterator[Browser]:
    """Yield a browser with one window; a module opens the link of its server in it."""
    assert PROGRAM is not None, "Chromium is not installed"
    with Browser(PROGRAM) as opened:
        opened.show(1440, 900)
        opened.call("Log.enable")
        yield opened
