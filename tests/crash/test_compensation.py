"""Compensations that raise, hang or are killed half way: the next undo repeats none and says what is left."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.crash import golden
from tests.crash.trials import COMPLETED, KILLED, WAITING, Trial, Trials
from treadle import Happened, NotHappened, Runner
from treadle.errors import UndoUnfinished
from treadle.testing.ledger import Ledger


class TaskCache:
    """A task whose first step holds two calls that can be taken back, and what went on outside of it."""

    def __init__(self, path: Path) -> None:
        self.store = path / "journal.db"
        self.path = path / "ledger"

    def trouble(self, **kinds: str) -> None:
        Path(f"{self.path}.trouble").write_text(json.dumps(kinds))

    def starts(self) -> Counter[str]:
        return Counter(entry.tool for entry in Ledger(self.path).entries() if entry.kind == "start")

    def effects(self) -> Counter[str]:
        return Counter(entry.tool for entry in Ledger(self.path).entries() if entry.kind == "done")

    def runner(self) -> Runner:
        return Runner(self.store, agents=[golden.inline])


@pytest.fixture
async def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TaskCache]:
    desk = TaskCache(tmp_path)
    monkeypatch.setenv("GOLDEN_LEDGER", str(desk.path))
    async with desk.runner() as runner:
        await runner.create_task(golden.inline, "go", task_id=golden.TASK)
        await runner.run_step(golden.TASK)
        yield desk


@pytest.mark.anyio
async def test_a_failed_compensation_stops_the_undo_and_the_next_undo_repeats_only_it(
    desk: TaskCache,
) -> None:
    desk.trouble(book="raises")
    async with desk.runner() as runner:
        report = await runner.undo_step(golden.TASK)
        assert not report.complete
        verdicts = {call.tool: call.verdict for call in report.calls}
        assert verdicts == {
            "pay": "compensated",
            "book": "not_compensated",
            "look": "nothing_to_compensate",
        }
        assert report.left == ("s1-1",)
        assert "the line is busy" in (report.problem or "")
        for verb in (runner.resume, runner.run_step):
            with pytest.raises(UndoUnfinished):
                await verb(golden.TASK)
    desk.trouble()
    async with desk.runner() as runner:
        report = await runner.undo_step(golden.TASK)
        assert report.complete
        assert report.left == ()
        assert desk.starts() == {"look": 1, "book": 1, "pay": 1, "undo pay": 1, "undo book": 2}
        assert (await runner.resume(golden.TASK)).state == "completed"


@pytest.mark.anyio
async def test_force_skips_a_failed_compensation_and_the_report_names_it(desk: TaskCache) -> None:
    desk.trouble(pay="raises")
    async with desk.runner() as runner:
        assert not (await runner.undo_step(golden.TASK)).complete
        report = await runner.undo_step(golden.TASK, force=True)
        assert report.complete
        assert report.left == ("s1-2",)
        assert [call.why for call in report.calls if call.call == "s1-2"] != [None]
        assert desk.starts()["undo pay"] == 1
        assert desk.effects()["undo book"] == 1


def killed_while_hanging(trial: Trial) -> None:
    """Undo in a process whose second compensation never ends; kill it from outside."""
    assert trial.job("script", trial.store, trial.variant, at="before claim #2") == KILLED
    (trial.path / "ledger.trouble").write_text(json.dumps({"book": "hangs"}))
    ended: list[int] = []
    process = threading.Thread(
        target=lambda: ended.append(trial.job("undo", trial.store, trial.variant)), daemon=True
    )
    process.start()
    pid = 0
    for _ in range(1000):
        pid = next((entry.pid for entry in trial.ledger.entries() if entry.tool == "undo book"), 0)
        if pid:
            break
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    process.join(timeout=10)
    assert ended == [KILLED]
    (trial.path / "ledger.trouble").unlink()


def killed_half_way(trial: Trial) -> None:
    trial.kill_at("script", "start undo book s1-1-undo")


@pytest.mark.parametrize("die", [killed_while_hanging, killed_half_way])
@pytest.mark.parametrize("verdict", [Happened, NotHappened])
def test_a_compensation_that_was_killed_is_settled_by_a_person_and_finished_ones_stay(
    trials: Trials, die: object, verdict: type
) -> None:
    trial = trials.new()
    die(trial)  # type: ignore[operator]

    def compensations() -> Counter[str]:
        return Counter(entry.call for entry in trial.ledger.entries() if entry.kind == "start")

    for _ in range(2):  # asking again changes nothing
        assert trial.with_agent("undo") == WAITING, trial.trouble
        report = json.loads(trial.output)
        assert {call["call"]: call["verdict"] for call in report["calls"]} == {
            "s1-0": "nothing_to_compensate",
            "s1-1": "unknown",
            "s1-2": "compensated",
        }
        assert "its outcome is not known" in report["problem"]
        assert compensations()["s1-1-undo"] == compensations()["s1-2-undo"] == 1
    option = ["--happened"] if verdict is Happened else ["--not-happened"]
    assert trial.command("settle", "s1-1-undo", *option) == COMPLETED, trial.trouble
    if verdict is NotHappened:
        assert trial.with_agent("resume") not in (COMPLETED, WAITING)
        assert json.loads(trial.output)["error"]["type"] == "urn:treadle:error:UndoUnfinished"
        assert trial.with_agent("undo") == COMPLETED, trial.trouble
        assert json.loads(trial.output)["complete"]
    assert compensations()["s1-1-undo"] == (1 if verdict is Happened else 2)
    assert compensations()["s1-2-undo"] == 1
    assert trial.with_agent("resume") == COMPLETED, trial.trouble


def test_an_unread_settlement_ends_an_undo_before_it_is_reported_as_unfinished(
    trials: Trials,
) -> None:
    trial = trials.new()
    trial.kill_at("script", "start undo book s1-1-undo")
    # This process settles the last compensation as happened, and crashes before it reads its own verdict.
    with (trial.path / "ledger").open("a") as ledger:
        key = next(line.key for line in trial.ledger.entries() if line.call == "s1-1-undo" and line.key)
        done = {"kind": "done", "tool": "undo book", "call": "s1-1-undo", "key": key}
        ledger.write(json.dumps(done) + "\n")
    trial.kill_at("carry_on", "after post settle")
    assert trial.with_agent("resume") == COMPLETED, trial.trouble
