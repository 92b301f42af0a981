"""Measures the page in Chromium on long journals, and prints the figures.

    python -m tests.server.inspector.speed [--events 10000] [--tasks 10000] [--store FOLDER]

Each figure has two forms: milliseconds as a person waits, which grow on a busy machine, and milliseconds of CPU time
of the page. The tests check counts that do not depend on the machine; this command is for a quiet one.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.docs.browser import Browser
from tests.server.inspector.chromium import PROGRAM, serving, until
from treadle import Agent, Limits, ModelRequest, Runner, RunOptions, ScriptedModel, tool
from treadle.llm.scripted import Turn, call, text, turn

AGENTS = """
from tests.server.inspector.speed import fast, feed
"""


@tool(read_only=True)
async def check_row(row: int) -> dict[str, object]:
    """Check one row of an export."""
    await asyncio.sleep(0)
    if row % 97 == 0:
        raise ValueError(f"row {row}: the postcode has no city")
    return {"row": row, "ok": True}


@tool(read_only=True)
async def watch(minute: int) -> dict[str, object]:
    """Watch a feed for a moment."""
    await asyncio.sleep(0.1)
    return {"minute": minute, "orders": 12 + minute % 5}


STEP = 8
"""Events of a step with two calls."""


def checking(request: ModelRequest) -> Turn:
    """Return two calls, and in the end an answer."""
    row = 2 * request.turn
    if (row + 4) * STEP // 2 > int(request.messages[0].text):
        return text("All rows are checked.")
    return turn("", [call("check_row", row=row + 1), call("check_row", row=row + 2)])


def watching(request: ModelRequest) -> Turn:
    """Return calls for a step of 0.16 seconds: 50 events a second."""
    first = 2 * request.turn
    return turn("", [call("watch", minute=first), call("watch", minute=first + 1)], delay=0.06)


many = Limits(steps=100_000)
fast = Agent(ScriptedModel(checking), name="row-audit", tools=[check_row], limits=many)
feed = Agent(ScriptedModel(watching), name="feed-watch", tools=[watch], limits=many)


async def fill(store: str, events: int, tasks: int) -> None:
    """Make a task of many events, and many tasks of one step."""
    async with Runner(store, agents=[fast]) as runner:
        await runner.run(fast, str(events), task_id="long")
        for first in range(0, tasks, 100):
            numbers = range(first, min(first + 100, tasks))
            await asyncio.gather(
                *[runner.run(fast, "0", task_id=f"task-{number:05}", options=LABELS) for number in numbers]
            )


LABELS = RunOptions(labels={"team": "data"})

MEASURE = """
(async () => {
  const figures = (list) => {
    const sorted = [...list].sort((a, b) => a - b), at = (part) => sorted[Math.floor(sorted.length * part)];
    return [at(0.5), at(0.95), sorted.at(-1)].map((value) => Math.round(value * 10) / 10);
  };
  const drawn = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  let changes = 0;
  const watcher = new MutationObserver((records) => (changes += records.length));
  watcher.observe(document.body, { subtree: true, childList: true, attributes: true, characterData: true });
  const result = await (%s)({ figures, drawn, changes: () => changes });
  watcher.disconnect();
  return result;
})()
"""

MODULES = "performance.getEntriesByType('resource').filter((each) => each.name.endsWith('.js')).length"

SLIDER = """
async ({ figures, drawn, changes }) => {
  const input = document.querySelector(".scrub input"), head = Number(input.max), taken = [], counts = [];
  for (let position = 0; position < 80; position += 1) {
    const before = changes(), began = performance.now();
    input.value = String(1 + Math.round((head - 2) * ((position * 37) % 80) / 80));
    input.dispatchEvent(new Event("input", { bubbles: true }));
    await drawn();
    taken.push(performance.now() - began);
    counts.push(changes() - before);
  }
  return { waited: figures(taken), changes: figures(counts), positions: taken.length };
}
"""

SCROLL = """
async ({ figures }) => {
  const box = document.querySelector("BOX"), taken = [], room = box.scrollHeight - box.clientHeight;
  let last = performance.now();
  for (let frame = 0; frame < 120; frame += 1) {
    box.scrollTop = frame < 60 ? box.scrollTop - 233 : (room * ((frame * 37) % 60)) / 60;
    await new Promise((done) => requestAnimationFrame(done));
    const now = performance.now();
    taken.push(now - last);
    last = now;
  }
  return { waited: figures(taken), positions: taken.length, nodes: document.querySelectorAll("*").length };
}
"""


NEAR = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
FAR = {"latency": 50, "downloadThroughput": 1_250_000, "uploadThroughput": 1_250_000}
"""A network with a latency in milliseconds, and bytes a second."""


LIVE = """
async ({ figures, changes }) => {
  const taken = [], shifts = [];
  const number = () => Number(document.querySelector(".time b").textContent.replace(/\\D/g, ""));
  const under = () => document.elementFromPoint(500, 300)?.closest(".r")?.id;
  const began = performance.now(), from = number(), first = under(), before = changes();
  const seen = new PerformanceObserver((list) => shifts.push(...list.getEntries()));
  seen.observe({ type: "layout-shift" });
  let last = began, moved = 0;
  while (performance.now() - began < 6000) {
    await new Promise((done) => requestAnimationFrame(done));
    const now = performance.now();
    taken.push(now - last);
    last = now;
    if (under() !== first) moved += 1;
  }
  seen.disconnect();
  const seconds = (performance.now() - began) / 1000, events = number() - from;
  return {
    waited: figures(taken), positions: events, rate: Math.round(events / seconds), moved, shifts: shifts.length,
    changes: Math.round((changes() - before) / events),
  };
}
"""

START = """
fetch("v1/tasks", {
  method: "POST",
  headers: { Authorization: `Bearer ${sessionStorage.getItem("treadle-token")}`, "Content-Type": "application/json" },
  body: JSON.stringify({ agent: "feed-watch", input: "Watch.", run: true }),
}).then((answer) => answer.json()).then((task) => (location.hash = `#/t/${task.task_id}`))
"""


class Page:
    """The page in a browser, with the CPU time that it took."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        browser.call("Performance.enable", timeDomain="threadTicks")

    def cpu(self) -> float:
        """Return the CPU time of the page until now, in milliseconds."""
        metrics = {
            each["name"]: each["value"] for each in self.browser.call("Performance.getMetrics")["metrics"]
        }
        return 1000 * metrics["TaskDuration"]

    def measured(self, script: str) -> dict[str, Any]:
        """Run a measurement, and return its figures with the CPU time for each position."""
        before = self.cpu()
        figures = self.browser.run(MEASURE % script)
        figures["cpu"] = round((self.cpu() - before) / figures["positions"], 1)
        return figures

    def timed(self, script: str, *conditions: str) -> list[float]:
        """Run a script, and return the seconds after which each condition was true."""
        began = time.monotonic()
        self.browser.run(script)
        times: list[float] = []
        for condition in conditions:
            until(self.browser, condition, 120)
            times.append(round(time.monotonic() - began, 2))
        return times


def measure(link: str) -> None:
    """Print the figures of a server that `fill` has filled."""
    assert PROGRAM is not None
    with Browser(PROGRAM) as browser:
        browser.show(1440, 900)
        page = Page(browser)
        browser.call("Network.enable")
        for name, network in (("cold", NEAR), ("warm", NEAR), ("cold and far", FAR), ("warm and far", FAR)):
            browser.open("about:blank")
            if name.startswith("cold"):
                browser.call("Network.clearBrowserCache")
            browser.call("Network.emulateNetworkConditions", offline=False, **network)
            before, began = page.cpu(), time.monotonic()
            browser.open(link)
            until(browser, "document.querySelector('.list .trow')")
            seconds = round(time.monotonic() - began, 2)
            say(f"start, {name}", modules=browser.run(MODULES), rows=seconds, cpu=round(page.cpu() - before))
        browser.call("Network.emulateNetworkConditions", offline=False, **NEAR)
        before = page.cpu()
        first, whole = page.timed(
            "void (location.hash = '#/t/long')",
            "document.querySelector('.r.step')",
            "document.querySelector('.time .cap.wide')?.textContent === 'now'",
        )
        say("open the long task", first=first, whole=whole, cpu=round(page.cpu() - before))
        say("scroll the timeline", **page.measured(SCROLL.replace("BOX", ".rows")))
        say("slider", **page.measured(SLIDER))
        browser.run(START)
        until(browser, "document.querySelector('.r.step') && document.querySelectorAll('.r').length > 24", 60)
        say("live, at its end", **page.measured(LIVE))
        browser.run("document.querySelector('.rows').scrollTop = 200")
        say("live, scrolled up", **page.measured(LIVE))
        browser.run("void (location.hash = '#/')")
        until(browser, "document.querySelector('.list .trow')")
        if browser.run("document.querySelector('.list').scrollHeight > 2 * innerHeight"):
            say("scroll the tasks", **page.measured(SCROLL.replace("BOX", ".list")))


def say(name: str, **figures: Any) -> None:
    """Print one measurement."""
    print(f"{name:24}", "  ".join(f"{each} {value}" for each, value in figures.items()), flush=True)


def main() -> None:
    """Measure with a store of its own, or with a store of an earlier run."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=10_000)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--store", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.store or Path(temporary)
        journal = folder / ".treadle" / "journal.db"
        if not journal.exists():
            journal.parent.mkdir(parents=True)
            (folder / "agents.py").write_text(AGENTS)
            asyncio.run(fill(str(journal), given.events, given.tasks))
        with serving(folder, "agents:fast", "agents:feed") as link:
            measure(link)


if __name__ == "__main__":
    sys.exit(main())
