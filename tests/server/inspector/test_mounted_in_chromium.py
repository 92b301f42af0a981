"""The page below a path of another application: its policy holds, and it reads and follows below that path alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.docs.browser import Browser
from tests.server.inspector.chromium import go, needs_chromium, press, until
from tests.server.inspector.outside import Outside
from tests.server.inspector.site import Site
from treadle import Agent, ScriptedModel
from treadle.llm.scripted import text

pytestmark = [needs_chromium, pytest.mark.sampled(1)]

DESK = Agent(ScriptedModel([text("It is answered.")] * 4), name="desk")

ON_GUARD = """
window.refused = [];
addEventListener("securitypolicyviolation", (event) => refused.push(`${event.violatedDirective} ${event.blockedURI}`));
"""


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    opened = Site([DESK], prefix="/tools/agents")
    yield opened
    opened.close()


def test_a_mounted_page_runs_a_task_and_asks_for_nothing_above_its_path(
    chromium_window: Browser, site: Site
) -> None:
    browser = chromium_window
    guard = browser.call("Page.addScriptToEvaluateOnNewDocument", source=ON_GUARD)["identifier"]
    browser.open("about:blank")
    browser.requests.clear()
    site.run(lambda runner: runner.create_task(DESK, "A question", task_id="asked"))
    browser.open(site.link())
    until(browser, "document.querySelectorAll('.list .trow').length === 1")
    until(browser, "document.querySelector('nav [role=status]').textContent === 'live'")
    go(browser, "#/t/asked")
    until(browser, "document.querySelector('.st.pill')?.textContent.trim() === 'created'")
    press(browser, "r")
    until(browser, "document.querySelector('.st.pill')?.textContent.trim() === 'completed'")
    assert browser.run("refused") == []
    asked = [each["request"]["url"] for each in browser.requests]
    assert [url for url in asked if not url.startswith(f"{site.url}/")] == []
    assert any("/tools/agents/v1/stream" in url for url in asked)
    browser.call("Page.removeScriptToEvaluateOnNewDocument", identifier=guard)


def test_the_policy_refuses_what_a_text_would_load_or_run(
    chromium_window: Browser, site: Site, outside: Outside
) -> None:
    browser = chromium_window
    guard = browser.call("Page.addScriptToEvaluateOnNewDocument", source=ON_GUARD)["identifier"]
    browser.open("about:blank")
    browser.open(site.link())
    until(browser, "document.querySelector('nav [role=status]')?.textContent === 'live'")
    for markup, directive in (
        ("<img src='http://OUTSIDE/x'>", "img-src"),
        ("<img src=x onerror='1'>", "script-src-attr"),
        ("<p style='color: red'>", "style-src-attr"),
        ("<iframe src='data:text/html,x'></iframe>", "frame-src"),
        ("<object data='/x'></object>", "object-src"),
    ):
        shown = f"document.querySelector('main').insertAdjacentHTML('beforeend', `{markup}`)"
        browser.run(f"refused.length = 0; void {shown}".replace("OUTSIDE", outside.address))
        until(browser, f"refused.some((each) => each.startsWith('{directive}'))")
    browser.run(f"refused.length = 0; void fetch('http://{outside.address}/x').catch(() => 0)")
    until(browser, "refused.some((each) => each.startsWith('connect-src'))")
    browser.call("Page.removeScriptToEvaluateOnNewDocument", identifier=guard)
    browser.open("about:blank")
    assert outside.asked == []
    browser.requests.clear()  # those that were refused are reported, too
