"""The page stays calm in long and in fast tasks: counts that do not depend on the speed of the machine."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.docs.browser import Browser
from tests.server.inspector.chromium import go, needs_chromium, press, until
from tests.server.inspector.site import Site
from tests.server.inspector.speed import MEASURE, SLIDER, fast
from treadle import Agent, Limits, ModelRequest, Runner, ScriptedModel, tool
from treadle.llm.scripted import Turn, call, text, turn

pytestmark = [needs_chromium, pytest.mark.sampled(1)]

SHORT, LONG = 400, 4_000
"""Events of two tasks; what is seen of them costs the same."""


class Feed:
    """A model that goes on until it is told to end."""

    ends = False

    def says(self, request: ModelRequest) -> Turn:
        """Return a call, or the answer."""
        if self.ends:
            return text("The feed is calm.")
        return turn("", [call("look", minute=request.turn)], delay=0.02)


@tool(read_only=True)
async def look(minute: int) -> dict[str, int]:
    """Look at a feed."""
    await asyncio.sleep(0.02)
    return {"minute": minute}


FEED = Feed()
feed = Agent(ScriptedModel(FEED.says), name="feed", tools=[look], limits=Limits(steps=100_000))


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Yield a site with a short and a long task."""
    opened = Site([fast, feed])

    async def fill(runner: Runner) -> None:
        for size in (SHORT, LONG):
            await runner.run(fast, str(size), task_id=f"of-{size}")

    opened.run(fill)
    yield opened
    opened.close()


@pytest.fixture
def page(chromium_window: Browser, site: Site) -> Browser:
    """Return a browser with the page, signed in."""
    chromium_window.open("about:blank")
    chromium_window.open(site.link())
    until(chromium_window, "document.querySelector('.list .trow')")
    return chromium_window


def shown(browser: Browser, task: str) -> None:
    """Go to a task, and wait until all of it is read."""
    go(browser, f"#/t/{task}")
    until(browser, "document.querySelector('.r.step')")
    until(browser, "document.querySelector('.time .cap.wide')?.textContent === 'now'")


COUNTED = """
(() => {
  const draw = CanvasRenderingContext2D.prototype.fillRect;
  window.rects = 0;
  CanvasRenderingContext2D.prototype.fillRect = function (...where) {
    window.rects += 1;
    return draw.apply(this, where);
  };
})()
"""


@pytest.mark.full
def test_a_position_of_the_slider_costs_the_same_in_a_long_task_and_draws_no_mark_again(
    page: Browser,
) -> None:
    page.run(f"{COUNTED}; 0")
    seen = []
    for size in (SHORT, LONG):
        shown(page, f"of-{size}")
        nodes = page.run("document.querySelectorAll('*').length")
        marks = page.run("new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(rects))))")
        figures = page.run(MEASURE % SLIDER)
        assert marks > 100
        assert page.run("rects") == marks, "the marks are drawn once"
        seen.append((nodes, *figures["changes"]))
        press(page, "0")
    (short_nodes, *short), (long_nodes, *long) = seen
    assert long_nodes < 1.2 * short_nodes < 1200, "only rows in view are in the page"
    assert long[1] < 1.5 * short[1] < 400, "a position changes no more of the page"


def test_rows_in_view_are_the_only_ones_in_the_page_wherever_it_is_scrolled(page: Browser) -> None:
    shown(page, f"of-{LONG}")
    for part in (0, 0.5, 1):
        page.run(
            f"void ((box) => (box.scrollTop = box.scrollHeight * {part}))(document.querySelector('.rows'))"
        )
        row = "document.querySelector('.rows').scrollTop / document.querySelector('.r').offsetHeight"
        until(page, f"document.querySelector(`.r[aria-posinset='${{Math.floor({row}) + 3}}']`)")
        assert page.run("document.querySelectorAll('.r').length") < 80


WATCH = """
(() => {
  const rows = document.querySelector(".rows"), under = () => document.elementFromPoint(400, 400)?.closest(".r")?.id;
  const first = under(), panel = document.querySelector("aside .mono").textContent, { activeElement } = document;
  window.watched = { first, panel, moved: 0, changed: 0, lost: 0, frames: 0 };
  const look = () => {
    watched.frames += 1;
    watched.moved += under() !== first;
    watched.changed += document.querySelector("aside .mono").textContent !== panel;
    watched.lost += document.activeElement !== activeElement;
    window.watching = requestAnimationFrame(look);
  };
  look();
})()
"""


def test_nothing_moves_under_the_pointer_or_the_focus_while_events_come(page: Browser, site: Site) -> None:
    FEED.ends = False
    site.run(lambda runner: runner.submit(feed, "Watch the feed.", task_id="live"))
    go(page, "#/t/live")
    until(page, "document.querySelectorAll('.r').length > 30")
    head = "Number(document.querySelector('.time b').textContent.replace(/\\D/g, ''))"

    def events_come(number: int) -> None:
        until(page, f"{head} > {page.run(head) + number}")

    try:
        last = page.run("document.querySelector('.r:last-of-type').id")
        until(page, f"!document.getElementById({last!r})")  # its end is in view, and goes on
        page.call("Input.dispatchMouseEvent", type="mouseMoved", x=400, y=400)
        page.run(f"{WATCH}; 0")
        events_come(150)
        seen = page.run("(cancelAnimationFrame(watching), watched)")
        assert seen["first"]
        assert seen["frames"] > 10
        assert seen["moved"] == 0, "rows stay under the pointer"
        page.call("Input.dispatchMouseEvent", type="mouseMoved", x=1300, y=400)
        until(
            page, f"!document.getElementById({seen['first']!r})"
        )  # the list goes on when the pointer has left
        page.run("void document.getElementById('tab-messages').focus()")
        page.call("Input.dispatchMouseEvent", type="mouseMoved", x=100, y=400)
        page.run(f"{WATCH}; 0")
        events_come(150)
        seen = page.run("(cancelAnimationFrame(watching), watched)")
        assert (seen["changed"], seen["lost"]) == (0, 0), "the panel stays as it is under the focus"
        page.run("void (document.querySelector('.rows').scrollTop = 26)")
        events_come(60)
        assert page.run("document.querySelector('.rows').scrollTop") == 26, (
            "the list stays where it was scrolled"
        )
        page.run("void document.activeElement.blur()")
        until(page, f"document.querySelector('aside .mono').textContent !== {seen['panel']!r}")
    finally:
        FEED.ends = True
    until(page, "document.querySelector('.st.pill')?.textContent.trim() === 'completed'")
