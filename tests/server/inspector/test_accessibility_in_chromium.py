"""The page for people who use a keyboard, a screen reader, large letters, a phone, or want no motion.

The rules are those of axe, which `make browser` installs outside of the repository; TREADLE_AXE says where.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.docs.browser import Browser
from tests.journals.fixed import SUFFIX
from tests.journals.stories import AGENTS
from tests.server.inspector.chromium import IS_REQUIRED, go, needs_chromium, press, until
from tests.server.inspector.site import Site
from tests.server.inspector.walking import shape, views, walked
from treadle import Agent, Runner, ScriptedModel
from treadle.errors import TaskConflict
from treadle.llm.scripted import text

pytestmark = [needs_chromium, pytest.mark.sampled(1)]

HOME = Path(os.environ.get("TREADLE_AXE") or Path.home() / ".cache" / "treadle-browser")
AXE = HOME / "node_modules" / "axe-core" / "axe.min.js"
JOURNALS = Path(__file__).parents[2] / "journals" / "fixed"

CHOSEN = ("between_steps", "waiting_on_an_unknown_outcome", "undone")
"""The tasks that are looked at in each run; the others with the marker `full`."""

DIALOGS = "fumwbSxo?"
"""The keys that open dialogs and do nothing else."""

SCREENS = {
    "light": (1440, 900, False),
    "dark": (1440, 900, True),
    "light, phone": (390, 844, False),
    "dark, phone": (390, 844, True),
    "light, 200 %": (720, 450, False),
}
"""Screens by width, height and theme. At 200 % a window has half as many pixels of CSS each way."""

CHECK = """
async () => {
  const wrong = [];
  const { scrollWidth } = document.documentElement;
  if (scrollWidth > innerWidth) wrong.push(`${scrollWidth} pixels wide`);
  const moving = document.getAnimations().filter((each) => each.playState === "running");
  if (moving.length) wrong.push(`${moving.length} animations run for a person who wants none`);
  const odd = document.querySelector("[tabindex]:not([tabindex='0'], [tabindex='-1'])");
  if (odd) wrong.push(`an own place in the order of the focus: ${odd.outerHTML.slice(0, 80)}`);
  if (!window.axe) return wrong;
  const { violations } = await axe.run(document, { resultTypes: ["violations"] });
  for (const { id, nodes: [{ html, failureSummary }, ...more] } of violations)
    wrong.push(`${id}, and ${more.length} more, in ${html.slice(0, 160)}: ${failureSummary.slice(0, 300)}`);
  return wrong;
}
"""

WRITER = Agent(
    ScriptedModel(
        [text("One word follows another, and none of them is read aloud. " * 6, chunk=8, pause=0.01)]
    ),
    name="writer",
)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Yield a site with tasks in every state."""
    opened = Site([*AGENTS, WRITER])

    async def fill(runner: Runner) -> None:
        for file in sorted(JOURNALS.glob(f"*{SUFFIX}")):
            with suppress(TaskConflict):  # two of them have the same thread
                await runner.import_tasks(file)

    opened.run(fill)
    yield opened
    opened.close()


def signed_in(browser: Browser, site: Site, screen: str = "light") -> Browser:
    """Open the page on a screen."""
    width, height, dark = SCREENS[screen]
    browser.show(width, height, dark=dark)
    browser.open("about:blank")
    browser.open(site.link())
    until(browser, "document.querySelector('.list .trow')")
    return browser


@pytest.fixture(autouse=True)
def usual_screen(chromium_window: Browser) -> Iterator[None]:
    """Leave the window as other tests expect it."""
    yield
    chromium_window.show(1440, 900)


def test_the_rules_are_installed() -> None:
    if not AXE.exists() and not IS_REQUIRED:
        pytest.skip("the rules of axe are not installed: make browser installs them")
    assert AXE.exists(), AXE


@pytest.mark.full
@pytest.mark.parametrize("screen", ["light", "dark", "light, phone", "dark, phone", "light, 200 %"])
def test_no_view_breaks_a_rule(chromium_window: Browser, site: Site, screen: str) -> None:
    assert faults(signed_in(chromium_window, site, screen), [f"#/t/{task}" for task in CHOSEN]) == []


@pytest.mark.full
@pytest.mark.parametrize("screen", ["light", "dark, phone"])
def test_no_task_breaks_a_rule(chromium_window: Browser, site: Site, screen: str) -> None:
    tasks = [f"#/t/{file.stem}" for file in sorted(JOURNALS.glob(f"*{SUFFIX}"))]
    assert faults(signed_in(chromium_window, site, screen), tasks, options=1) == []


@pytest.mark.full
def test_what_cannot_be_shown_breaks_no_rule(chromium_window: Browser, site: Site) -> None:
    absent = [
        "#/t/absent",
        "#/t/absent/lineage",
        "#/diff",
        "#/diff/absent/undone",
        "#/threads/absent",
        "#/nowhere",
    ]
    assert faults(signed_in(chromium_window, site), absent, options=0) == []


def faults(browser: Browser, tasks: list[str], options: int = 2) -> list[str]:
    """Return what is wrong in all views, and in the views of some tasks."""
    if AXE.exists():
        browser.run(f"{AXE.read_text()}; 0")
    wrong: list[str] = []
    seen: set[str] = set()
    for address in views(browser, "#/", "#/diff/undone/between_steps", *tasks):
        dialogs = DIALOGS if address.removeprefix("#/t/") in CHOSEN else ""
        found: dict[str, Any] = walked(browser, address, CHECK, options=options, dialogs=dialogs)
        wrong += found["wrong"]
        seen.add(shape(address))
    assert {"", "inbox", "threads", "agents", "cost", "t/*", "t/*/lineage"} <= seen, seen
    return wrong


ORDER = """
(() => {
  const element = document.activeElement;
  if (!element || element === document.body) return null;
  window.order ||= new Map();
  if (!order.has(element)) order.set(element, order.size);
  const { width, height } = element.getBoundingClientRect(), style = getComputedStyle(element);
  const before = [...order.keys()].at(-2), wrong = [];
  if (!width || !height || style.visibility === "hidden") wrong.push("it is not seen");
  const isField = element.matches("input, textarea, select"); // the cursor shows it
  if (style.outlineStyle === "none" && !isField) wrong.push("nothing shows the focus");
  if (before?.isConnected && order.get(element) === order.size - 1 && !(before.compareDocumentPosition(element) & 4))
    wrong.push("it comes before the last one in the page");
  return { place: order.get(element), wrong, html: element.outerHTML.slice(0, 100) };
})()
"""
"""Where the focus is, in the order in which it came there; null at the end of the page."""


@pytest.mark.parametrize("address", ["#/", "#/inbox", "#/t/undone"])
def test_tab_goes_through_a_view_in_its_order_and_the_focus_is_seen(
    chromium_window: Browser, site: Site, address: str
) -> None:
    browser = signed_in(chromium_window, site)
    go(browser, address)
    until(browser, "document.querySelector('main [role=listbox]')")
    for _ in range(80):  # wherever the focus was, it goes round from the end of the page
        press(browser, "Tab")
        if browser.run("document.activeElement === document.body"):
            break
    reached: list[Any] = []
    for _ in range(80):
        press(browser, "Tab")
        found = browser.run(ORDER)
        if found is None or found["place"] < len(reached) - 1:
            break
        reached.append(found)
    assert [each for each in reached if each["wrong"]] == []
    assert 4 < len(reached) < 80, "Tab reaches controls, and leaves the page again"
    assert any("listbox" in each["html"] for each in reached), "Tab reaches the list"


LISTEN = """
window.heard = [];
window.loud = 0;
const quiet = "[aria-live=polite], [aria-live=assertive], [role=status], [role=alert], [role=log]";
new MutationObserver((records) => {
  for (const { target, addedNodes } of records) {
    const element = target.nodeType === 1 ? target : target.parentElement;
    const region = element?.closest(quiet) || [...addedNodes].find((node) => node.matches?.(quiet));
    if (region) heard.push(region.textContent.trim());
    if (/One word/.test(region?.textContent)) loud += 1;
  }
}).observe(document.body, { subtree: true, childList: true, characterData: true });
"""


def test_a_screen_reader_hears_states_and_no_words_of_a_model(chromium_window: Browser, site: Site) -> None:
    browser = signed_in(chromium_window, site)
    site.run(lambda runner: runner.create_task(WRITER, "Write.", task_id="written"))
    go(browser, "#/t/written")
    until(browser, "document.querySelector('.st.pill')?.textContent.trim() === 'created'")
    browser.run(f"{LISTEN}; 0")
    press(browser, "r")
    until(browser, "document.querySelector('.st.pill')?.textContent.trim() === 'completed'")
    until(browser, "document.body.innerText.includes('One word follows another')")
    heard: list[str] = browser.run("heard")
    assert "The task is completed." in heard
    assert browser.run("loud") == 0
    assert len(heard) <= 8, heard
