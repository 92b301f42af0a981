"""Text from tools and models on a terminal: it moves no cursor, sets no title or link, and reorders nothing."""

from __future__ import annotations

import os
import pty
import random
import re
import sys
import threading
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.terminal import Terminal
from tests.core.hostile_text import hostile_texts
from treadle.cli.main import main

NONCE, BEGINNING = "x0123456789a", "Listen:"
AGENTS = '''
import json
from pathlib import Path

from treadle import Agent, ScriptedModel, ToolContext, tool
from treadle.models import call, fail, text, turn

TEXTS = json.loads(Path(__file__).with_name("texts.json").read_text())
ALL = "".join(TEXTS)


@tool(read_only=True)
def fetch(number: int) -> str:
    """Fetch a page."""
    return TEXTS[number]


@tool(read_only=True)
def fetch_json(number: int) -> dict[str, str]:
    """Fetch a document."""
    return {TEXTS[number]: TEXTS[number]}


@tool(read_only=True)
def break_down(number: int) -> str:
    """Fail."""
    raise RuntimeError(TEXTS[number])


@tool(read_only=True)
async def ask(number: int, ctx: ToolContext) -> str:
    """Ask a person."""
    return await ctx.ask(TEXTS[number] if number else ALL)


@tool(read_only=True)
def note(number: int, ctx: ToolContext) -> str:
    """Keep a text in the state of the task."""
    ctx.state[TEXTS[number]] = TEXTS[number]
    return "noted"


@tool(needs_approval=True, preview=lambda text: text)
def send(text: str) -> str:
    """Send a text."""
    return text


numbers = range(len(TEXTS))
reader = Agent(
    ScriptedModel(
        [
            [call("fetch", number=number) for number in numbers],
            [call(("fetch_json", "break_down")[number % 2], number=number) for number in numbers],
            turn(ALL, [*[call("note", number=number) for number in numbers[:20]], call(ALL, **{TEXTS[2]: TEXTS[3]})]),
            text(ALL, chunk=5),
        ]
    ),
    name="reader",
    tools=[fetch, fetch_json, break_down, note],
)
writer = Agent(
    ScriptedModel([[call("send", text=each) for each in [ALL, *TEXTS[:20]]], text("sent")]), name="writer", tools=[send]
)
asker = Agent(
    ScriptedModel([[call("ask", number=number) for number in numbers[:20]], text("asked")]), name="asker", tools=[ask]
)
broken = Agent(ScriptedModel([fail(400, message=ALL)]), name="broken")
chatty = Agent(ScriptedModel([text(ALL, chunk=5), text(ALL)]), name="chatty")
'''

WRITTEN_BY_TREADLE = re.compile(
    r"\x1b\[(?:0|[1-4]|3[0-7]|9[0-7])(?:;(?:[1-4]|3[0-7]|9[0-7]))*m"  # a style
    r"|\r\x1b\[K|\x1b\[\?(?:12l|25[hl])"  # the spinner, and a cursor that is hidden meanwhile
    r"|\r+\n"  # what a pty makes of a line end
)
"""The control sequences that commands write of their own; none of the hostile ones is among them."""


def commanding(written: str) -> list[str]:
    """Return what a terminal would obey in what a command wrote, beside its own sequences."""
    rest = WRITTEN_BY_TREADLE.sub("", written)
    return [
        repr(rest[max(0, at - 30) : at + 20])
        for at, sign in enumerate(rest)
        if sign not in "\n\t\u200d" and unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    ]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config) -> Path:
    import json

    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    texts = [text.replace("\ud800", "") for text in hostile_texts(135, NONCE, seed)]
    hostile = [text for text in texts if commanding(text)]
    assert len(hostile) > 30
    (tmp_path / "texts.json").write_text(json.dumps([f"{BEGINNING}\n", *hostile]))
    (tmp_path / "crew.py").write_text(AGENTS)
    listed = ", ".join(f'"crew:{name}"' for name in ("reader", "writer", "asker", "broken", "chatty"))
    (tmp_path / "pyproject.toml").write_text(f"[tool.treadle]\nagents = [{listed}]\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "crew", raising=False)
    for name in ("NO_COLOR", "FORCE_COLOR", "TREADLE_STORE", "TREADLE_AGENTS", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    return tmp_path


@pytest.fixture
def on_a_terminal(project: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Run a command in this process on a pseudo-terminal, and return what it wrote there."""

    def run(*arguments: str, typed: str = "") -> str:
        master, slave = pty.openpty()
        written: list[bytes] = []

        def read() -> None:
            while data := _read(master):
                written.append(data)

        reader = threading.Thread(target=read)
        with monkeypatch.context() as patch:
            for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
                patch.setattr(sys, name, os.fdopen(os.dup(slave), mode, encoding="utf-8"))
            os.close(slave)
            reader.start()
            os.write(master, typed.encode())
            main(arguments)
            for stream in (sys.stdin, sys.stdout, sys.stderr):
                stream.close()
        reader.join()
        os.close(master)
        return b"".join(written).decode()

    return run


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65_536)
    except OSError:  # the other end is closed
        return b""


def test_nothing_that_tools_and_models_say_commands_the_terminal(on_a_terminal: Any) -> None:
    commands = [
        ("run", "reader", "go", "--task-id", "read"),
        ("run", "reader", "go", "--task-id", "traced", "--trace", "console"),
        ("show", "read"),
        ("show", "read", "--json", "--events"),
        ("run", "writer", "go", "--task-id", "write"),
        ("run", "asker", "go", "--task-id", "ask"),
        ("run", "broken", "go", "--task-id", "broken"),
        ("watch", "read"),
        ("pending",),
        ("show", "write"),
        ("show", "ask"),
        ("tasks",),
        ("tasks", "--tree"),
        ("threads",),
        ("diff", "read", "traced"),
        ("replay", "read"),
        ("export", "read"),
        ("verify",),
        ("undo", "read", "--to", "1"),
        ("show", "read"),
        ("fork", "traced"),
        ("resume", "broken"),
    ]
    said = {}
    for command in commands:
        written = on_a_terminal(*command)
        assert written, command
        assert commanding(written) == [], command
        said[command] = written
    assert "\\x1b" in said["show", "read"]
    assert "\\u202e" in said["export", "read"]


@pytest.mark.parametrize(
    ("agent", "mark"), [("writer", "may it run?"), ("asker", "the answer, Enter: later:")]
)
def test_no_question_to_a_person_commands_the_terminal(project: Path, agent: str, mark: str) -> None:
    with Terminal(project, "run", agent, "go", "--interaction", "interactive") as terminal:
        terminal.wait_for(mark)
        terminal.press("?\n")  # show all of it
        terminal.wait_for(mark, times=2)
        terminal.press("\x04")
        terminal.wait_for(mark, times=3)
        terminal.process.terminate()
        terminal.finished()
    assert "\\u202e" in terminal.written
    assert commanding(terminal.written) == []


def test_no_error_that_names_what_it_got_commands_the_terminal(on_a_terminal: Any) -> None:
    bad = "\x1b]0;title\x07\u202e\x9b2J"
    for command in (
        ("show", bad),
        ("run", bad, "go"),
        (bad,),
        ("show", f"--{bad}"),
        ("threads", "show", bad),
        ("tasks", "--agent", bad),
        ("tasks", "--state", bad),
        ("import", bad),
        ("approve", bad, bad),
        ("send", "last", bad),
        ("run", "chatty", bad, "--thread", bad, "--label", f"a={bad}"),
        ("tasks",),
        ("threads",),
        ("show", "last"),
        ("doctor",),
        ("--store", bad, "tasks"),
        ("tasks", "--store", bad),
    ):
        written = on_a_terminal(*command)
        assert written, command
        assert commanding(written) == [], command


def test_a_chat_shows_what_a_model_says_and_obeys_none_of_it(project: Path) -> None:
    with Terminal(project, "chat", "chatty") as terminal:
        terminal.wait_for_prompt()
        terminal.press("hello\r")
        terminal.wait_for(BEGINNING, times=1)
        terminal.wait_for_prompt()
        terminal.press("/history\r")
        terminal.wait_for(BEGINNING, times=2)
        terminal.wait_for_prompt()
        terminal.press("\x04")
        terminal.finished()
    written = terminal.written
    for command in (
        "\x1b]0;title",
        "\x1b]8;;https",
        "\x1b]52",
        "\x1bP+q",
        "\x1b[2J\x1b[H",
        "\x1b[973A",  # a chat itself moves by fewer lines
        "\x9b",
        "\x1bc",
    ):
        assert command not in written
    assert not [sign for sign in written if unicodedata.category(sign) == "Cf" and sign != "\u200d"]
