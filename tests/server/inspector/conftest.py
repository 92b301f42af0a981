"""One Chromium for all tests of the page, which asks no other server than that of the page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.docs.browser import Browser
from tests.server.inspector.chromium import PROGRAM
from tests.server.inspector.outside import Outside, strays


@pytest.fixture(scope="session")
def outside() -> Iterator[Outside]:
    """Yield the server that stands for all others."""
    server = Outside()
    yield server
    server.close()


@pytest.fixture(scope="session")
def chromium_window(outside: Outside) -> Iterator[Browser]:
    """Yield a browser with one window; a module opens the link of its server in it."""
    assert PROGRAM is not None, "Chromium is not installed"
    with Browser(PROGRAM, f"--proxy-server=http://{outside.address}", *QUIET) as opened:
        opened.show(1440, 900)
        opened.call("Log.enable")
        opened.call("Network.enable")
        yield opened


QUIET = (
    "--disable-sync",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--no-default-browser-check",
    "--no-pings",
)
"""Options against the requests that Chromium makes for itself."""


@pytest.fixture(autouse=True)
def asks_no_other_server(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test in which the page asked another server than its own."""
    yield
    if "chromium_window" not in request.fixturenames:
        return
    browser: Browser = request.getfixturevalue("chromium_window")
    browser.run("0")  # its answer follows all that was reported before it
    server: Outside = request.getfixturevalue("outside")
    asked = [*strays(browser.requests), *server.asked]
    browser.requests.clear()
    server.asked.clear()
    assert asked == []
