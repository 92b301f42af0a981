"""Playing the demonstration in processes of its own, and checking what came of it without its own code."""

import asyncio
import csv
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests.forked import completed
from treadle import Runner
from treadle.core import events as e

WITHOUT_KEYS = {
    name: value
    for name, value in os.environ.items()
    if not name.endswith("_API_KEY") and name != "TREADLE_STORE"
}


def demo(*options: str) -> list[str]:
    return [sys.executable, "-m", "treadle", "demo", *options]


def run(path: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    return completed(demo(*options), cwd=path, env=WITHOUT_KEYS)


def folder_of(path: Path) -> Path:
    """The scratch folder of the only demonstration at a place."""
    (folder,) = (path / ".treadle").glob("demo-*")
    return folder


def lines_of(folder: Path) -> list[dict[str, Any]]:
    lines = []
    for line in (folder / "effects.log").read_text().splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            continue
    return lines


def check(path: Path, folder: Path | None = None) -> None:
    """Check a demonstration that ended: journal, log and files agree, and nothing ran twice."""
    asyncio.run(_check(path, folder or folder_of(path)))


async def _check(path: Path, folder: Path) -> None:
    log = lines_of(folder)
    async with Runner(path / ".treadle" / "journal.db") as runner:
        tasks = [
            task
            for task in (await runner.list_tasks(agent="treadle-demo")).items
            if task.labels["folder"] == folder.name
        ]
        (root,) = [task.task_id for task in tasks if task.forked_from is None]
        (fork,) = [task.task_id for task in tasks if task.forked_from == root]
        journal = [event async for event in runner.handle(root).events(deltas=False)]
        forked = [event async for event in runner.handle(fork).events(deltas=False)]
        shared = (await runner.get_task(fork)).forked_at
        assert (await runner.result(fork)).state == "completed"
        answer = (await runner.result(fork)).final_text
        difference = await runner.diff(root, fork)
    assert journal[:shared] == forked[:shared]
    _nothing_twice(root, journal, log)
    _nothing_twice(fork, [event for event in forked if event.seq > shared], log)
    assert {line["task"] for line in log if line["kind"] == "start"} == {root, fork}
    _killed_once(root, journal, log)
    _files(root, folder)
    ended = [event for event in journal if isinstance(event, e.TaskEnded)]
    assert ended[-1].output == "The month is closed: 7595 in total. The strongest region is north."
    assert answer == "The strongest region is north with 3320. Nothing was booked."
    assert (difference.same, difference.index, difference.field) == (False, 3, "input")
    (rewound,) = [event for event in journal if isinstance(event, e.Rewound)]
    assert [(call.tool, call.verdict) for call in rewound.calls] == [("archive_file", "compensated")] * 3


def _nothing_twice(task_id: str, events: list[Any], log: list[dict[str, Any]]) -> None:
    started = [line for line in log if line["kind"] == "start" and line["task"] == task_id]
    starts = Counter(line["call"] for line in started)
    ended, written, free, completed = {}, set(), Counter(), set()
    for event in events:
        if isinstance(event, e.ToolStarted):
            assert event.undoes is not None or event.step not in completed
            if event.effect == "write" and event.undoes is None:
                written.add(event.call)
        elif isinstance(event, e.OutcomeSettled) and event.verdict == "not_happened":
            free[event.call] += 1
        elif isinstance(event, e.OutcomeSettled) and event.call.endswith("-undo"):
            ended[event.call] = (
                event.time
            )  # a compensation that a crash cut off after its effect has no other end
        elif isinstance(event, e.ToolEnded):
            assert event.call not in ended, f"{event.call} ended twice"
            assert event.outcome == "ok", event
            ended[event.call] = event.time
        elif isinstance(event, e.StepCompleted):
            assert event.step not in completed, f"{event.step} completed twice"
            completed.add(event.step)
    for call in written:
        assert 1 <= starts[call] <= 1 + free[call], f"{call}: {starts[call]} starts"
    for line in started:
        assert line["time"] <= ended[line["call"]], f"{line['call']} started again after its end"


def _killed_once(task_id: str, events: list[Any], log: list[dict[str, Any]]) -> None:
    (kill,) = [line for line in log if line["tool"] == "kill"]
    assert kill["task"] == task_id
    settled = [
        event for event in events if isinstance(event, e.OutcomeSettled) and event.call == kill["call"]
    ]
    assert settled[-1].verdict == "happened"
    same = [line for line in log if (line["task"], line["call"]) == (task_id, kill["call"])]
    after = [line for line in same if line["time"] > kill["time"]]
    assert all(line["kind"] == "done" for line in after if line["pid"] == kill["pid"])
    assert all(line["tool"] == "looked" for line in after if line["pid"] != kill["pid"])
    assert any(line["pid"] != kill["pid"] for line in after)


def _files(task_id: str, folder: Path) -> None:
    totals = {}
    for file in folder.glob("sales-*.csv"):
        rows = csv.DictReader(file.read_text().splitlines())
        totals[file.stem[6:]] = sum(int(row["units"]) * int(row["price"]) for row in rows)
    assert totals == {"east": 2500, "north": 3320, "west": 1775}
    report = (folder / "report.md").read_text()
    assert all(f"| {region} | {total} |" in report for region, total in totals.items())
    assert f"Grand total: {sum(totals.values())}" in report
    assert (folder / "best.md").read_text() == "# Strongest region\n\nnorth: 3320\n"
    assert (folder / "ledger.csv").read_text() == f"month-end,7595,{task_id}/s4-0\n"
    assert not list((folder / "archive").iterdir())
    assert not list(folder.glob(".*"))
