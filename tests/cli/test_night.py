"""A night with tasks in all states, looked after from the terminal alone.

The screens are kept in `screens/`, as they were reviewed. After a change that is meant:

    UPDATE_SCREENS=1 pytest -m "full or not full" tests/cli/test_night.py       # and look at the difference
"""

import os
import re
import shlex
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path

import pytest

from tests.cli import night
from tests.cli.terminal import Terminal
from tests.forked import completed
from treadle import Runner
from treadle.wiring import open_store

ROOT, SCREENS = Path(__file__).parents[2], Path(__file__).with_name("screens")
PROGRAM = ("-m", "tests.cli.at_night")
FAILED, LIMITED, WAITING, DEGRADED, SLOW, PAUSED, LED, REFUNDED, STEPPED, DONE = (
    2,
    5,
    8,
    11,
    14,
    23,
    29,
    4,
    20,
    3,
)


def named(number: int) -> str:
    """Return a task's id as the screen shows it."""
    return night.task_id(number)[-7:]


OPERATOR = (
    "tasks --limit 15",
    "tasks --state failed --state waiting --state interrupted --limit 8",
    "tasks --label urgent=yes --search REFUND --limit 5",
    "tasks --since 00:10 --until 00:30",
    "tasks --until 9999999999999999",
    f"show {named(FAILED)}",
    f"show {named(WAITING)}",
    f"settle {named(WAITING)} s2-0 --happened '\"charged 999\"' --by ann",
    f"resume {named(WAITING)}",
    f"show {named(LIMITED)}",
    f"resume {named(LIMITED)} --max-steps 9",
    f"show {named(DEGRADED)}",
    f"show {named(LED)}",
    f"cancel {named(DONE)}",
    f"undo {named(REFUNDED)} --by ann",
    f"step {named(STEPPED)} --until 3",
    "cancel --state paused --yes --reason 'the night is over' --by ann",
    "resume --state interrupted --label team=green --yes",
    "cancel --agent bank --state interrupted --yes",
    f"watch {named(DONE)}",
    "show 01a20275-803b",
    "threads list --limit 3",
    "tasks --limit 6",
)
SAMPLE = OPERATOR[:1] + OPERATOR[4:5] + OPERATOR[6:8] + OPERATOR[10:11] + OPERATOR[-1:]


def keep_night(folder: Path, store: str, tasks: int) -> None:
    """Make the night: tasks at rest, two that a living driver has, and one whose driver is dead."""
    (folder / "shift.py").write_text(night.SHIFT)
    (folder / "pyproject.toml").write_text(
        '[tool.treadle]\nagents = ["shift:support", "shift:lead", "shift:clerk", "shift:bank"]\n'
    )
    for more in (
        [str(tasks)],
        ["0", "night-1", "4242", "86400", str(tasks + 1), str(tasks + 2)],
        ["0", "night-2", "77", "0.5", str(tasks + 3)],
    ):
        completed(
            [sys.executable, "-m", "tests.cli.night", str(folder), store, *more],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            check=True,
            timeout=500,
        )
    # The third driver is dead when its lease is up; a quick machine would list its task as running before.
    treadle, deadline = Runner(open_store(store)).sync, time.monotonic() + 30
    while treadle.get_task(night.task_id(tasks + 3)).state != "interrupted":
        assert time.monotonic() < deadline, "the task of the dead driver still runs"
        time.sleep(0.05)


def transcript(
    folder: Path, store: str, commands: tuple[str, ...], columns: int | None, *, marked: bool
) -> str:
    """Return what an operator sees of some commands: on a terminal so wide, or in a pipe."""
    env = {"TREADLE_STORE": store, "TZ": "UTC", "PYTHONPATH": str(ROOT)}
    pages: list[str] = []
    for command in commands:
        arguments = shlex.split(command)
        if columns is None:
            ended = completed(
                [sys.executable, *PROGRAM, *arguments],
                cwd=folder,
                env={**os.environ, **env},
                stdin=subprocess.DEVNULL,
                stderr=subprocess.STDOUT,
            )
            text, code = ended.stdout, ended.returncode
        else:
            with Terminal(folder, *arguments, columns=columns, program=PROGRAM, **env) as terminal:
                plain = terminal.finished(120)
                text, code = terminal.screen.marked if marked else plain, terminal.process.returncode
                assert terminal.screen.broken == [], "a word is broken inside"
                assert max(map(len, plain.splitlines()), default=0) <= columns
        pages.append(f"$ treadle {command}\n{steady(text).rstrip()}\n" + (f"[exit {code}]\n" if code else ""))
    return "\n".join(pages)


def steady(text: str) -> str:
    """Return a screen without what differs between two runs: how long commands of the operator took, and in which order
    several tasks of one command ended."""
    text = re.sub(r"\b\d+ ms\b|\b\d+\.\d s\b", "0 ms", text)
    text = re.sub(r"(/)[0-9a-f]{8}(/s\d)", r"\1incarnat\2", text)
    lines = text.splitlines()
    ended = sorted(line for line in lines if re.match(r"(<[\d;]+>)?● ", line))
    places = [number for number, line in enumerate(lines) if re.match(r"(<[\d;]+>)?● ", line)]
    for place, line in zip(places, ended, strict=True):
        lines[place] = line
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("name", "tasks", "columns"),
    [
        ("sample-80", 36, 80),
        pytest.param("night-80", 200, 80, marks=pytest.mark.full),
        pytest.param("night-120-colour", 200, 120, marks=pytest.mark.full),
        pytest.param("night-piped", 200, None, marks=pytest.mark.full),
    ],
)
@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.full)])
def test_a_night_is_looked_after_from_the_terminal(
    tmp_path: Path, request: pytest.FixtureRequest, kind: str, name: str, tasks: int, columns: int | None
) -> None:
    store = str(tmp_path / "night.db")
    if kind == "postgresql":
        store = request.getfixturevalue("postgres").in_schema(
            f"t{sha256(str(tmp_path).encode()).hexdigest()[:20]}"
        )
    keep_night(tmp_path, store, tasks)
    commands = SAMPLE if name.startswith("sample") else OPERATOR
    text = transcript(tmp_path, store, commands, columns, marked="colour" in name)
    file = SCREENS / f"{name}.txt"
    if os.environ.get("UPDATE_SCREENS") and kind == "sqlite":
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")
