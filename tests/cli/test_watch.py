"""`watch`: a person follows a task that another process drives, decides what it waits for, steers it and undoes."""

import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import wait_for
from tests.cli.terminal import Terminal

DESK = """
import asyncio
from pathlib import Path
from treadle import Agent, ScriptedModel, ToolContext, tool
from treadle.llm.scripted import call, text

HERE = Path(__file__).parent

def note(line):
    with (HERE / "ledger").open("a") as book:
        book.write(line + "\\n")

def take_back(call, ctx):
    note(f"take back {call.output}")

@tool(needs_approval=True, undo=take_back)
def refund(order: str, cents: int) -> str:
    note(f"refund {order} {cents}")
    return f"{order} {cents}"

@tool(read_only=True)
async def look(order: str, ctx: ToolContext) -> str:
    while not (HERE / "found").exists():
        await asyncio.sleep(0.01)
    return "found " + str(await ctx.ask("Which colour?", schema=str))

def answer(request):
    said = [message.text for message in request.messages if message.role == "user"]
    if not any(message.role == "tool" for message in request.messages):
        return [call("refund", order="17", cents=900), call("refund", order="18", cents=700), call("look", order="1")]
    return text(f"I have read: {' / '.join(said)}.")

desk = Agent(ScriptedModel(answer), name="desk", tools=[refund, look])
above = Agent(ScriptedModel([call("desk", input="refund"), text("All done.")]), name="above", subagents=[desk])
"""
QUESTION = "may it run? [y/n/e, ? lists all"


@pytest.fixture
def desk(project: Path, begin: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a driver process, and a task that waits for two approvals while a call runs."""
    (project / "desk.py").write_text(DESK)
    (project / "pyproject.toml").write_text('[tool.treadle]\nagents = ["desk:desk", "desk:above"]\n')
    monkeypatch.delitem(sys.modules, "desk", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(project / "state"))
    begin("run", "desk", "look", "--task-id", "order")
    wait_for(lambda: has_task(project / ".treadle" / "journal.db", "order"), 30)
    return project


def has_task(journal: Path, task_id: str) -> bool:
    """Return whether another process has created a task."""
    if not journal.exists():
        return False
    with closing(sqlite3.connect(f"file:{journal}?mode=ro", uri=True)) as database:
        try:
            return bool(database.execute("SELECT 1 FROM tasks WHERE key LIKE ?", (f"%{task_id}",)).fetchone())
        except sqlite3.OperationalError:  # its tables are being made
            return False


def test_a_person_decides_answers_steers_and_undoes_what_other_processes_run(
    desk: Path, begin: Callable[..., Any]
) -> None:
    begin("drive")
    with Terminal(desk, "watch", "order", "--by", "ada", columns=100) as watch:
        watch.wait_for('refund({"order":"17","cents":900})')
        watch.wait_for_prompt(QUESTION)
        watch.press('e {"order": "17", "cents": "x"}\r')
        watch.wait_for("should be an integer")
        watch.wait_for_prompt('its arguments, as JSON: {"order": "17", "cents": "x"}')
        watch.press("\x7f" * len('"x"}') + "500}\r")
        watch.wait_for('refund({"order":"18","cents":700})')
        watch.wait_for_prompt(QUESTION)
        watch.press("n too much\r")
        watch.wait_for("refund (s1-1) denied: too much  by ada")
        watch.wait_for("refund: 17 500")
        watch.press("be brief")
        watch.wait_for_prompt("» be brief")
        watch.press("\r")
        watch.wait_for("sent: the model reads it")
        (desk / "found").touch()
        watch.wait_for("Which colour?")
        watch.wait_for_prompt("the answer, Enter: later:")
        watch.press("red\r")
        watch.wait_for("look: found red")
        watch.wait_for("I have read: look / be brief.")
        assert "completed" in watch.finished()
    assert watch.process.returncode == 0
    assert (desk / "ledger").read_text() == "refund 17 500\n"


@pytest.mark.full
def test_a_step_is_undone_from_the_keyboard(desk: Path) -> None:
    with Terminal(desk, "watch", "order", columns=100, color=False) as watch:
        for order in ("17", "18"):
            watch.wait_for(f'refund({{"order":"{order}"')
            watch.wait_for_prompt(QUESTION)
            watch.press("y\r")
        watch.wait_for("refund: 18 700")
        watch.press("/help")
        watch.wait_for_prompt("» /help")
        watch.press("\r")
        watch.wait_for("take back the newest step")
        watch.press("/undo")
        watch.wait_for_prompt("» /undo")
        watch.press("\r")
        (desk / "found").touch()  # a call that runs ends before its step is taken back
        watch.wait_for("steps taken back: s1")
        assert sorted((desk / "ledger").read_text().splitlines()[2:]) == [
            "take back 17 900",
            "take back 18 700",
        ]


@pytest.mark.full
def test_what_is_left_open_stays_open_and_ctrl_c_only_stops_watching(
    desk: Path, treadle: Callable[..., Any]
) -> None:
    with Terminal(desk, "watch", "order") as watch:
        watch.wait_for_prompt(QUESTION)
        watch.press("\x03")
        watch.wait_for('refund({"order":"18"')
        watch.wait_for_prompt(QUESTION)
        watch.press("\x04")
        watch.wait_for("look runs")
        watch.press("\x03")
        watch.finished()
        assert watch.process.returncode == 6
    assert len(treadle("pending", "order", "--json").document["items"]) == 2
    assert treadle("approve", "order", "s1-0-ask1").code == 0


@pytest.mark.full
def test_requests_of_tasks_below_are_asked_about_too(
    desk: Path, treadle: Callable[..., Any], begin: Callable[..., Any]
) -> None:
    (desk / "found").touch()
    begin("drive")
    begin("run", "above", "go", "--task-id", "root")
    wait_for(lambda: treadle("show", "root", "--json").code == 0, 30)
    with Terminal(desk, "watch", "root", columns=100) as watch:
        watch.wait_for('refund({"order":"17","cents":900})')
        watch.wait_for_prompt(QUESTION)
        watch.press("stop enough\r")
        assert "cancelled" in watch.finished()


@pytest.mark.full
def test_without_a_terminal_a_task_is_only_followed(desk: Path, begin: Callable[..., Any]) -> None:
    (desk / "found").touch()
    ended = begin("watch", "order")
    out, _ = ended.communicate(timeout=60)
    assert "may it run" not in out
    assert "refund waits for an approval" in out
    assert ended.returncode == 4
