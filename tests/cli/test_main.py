"""What a command imports; standard streams that are closed or full, and input that is not text."""

import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command

from treadle.cli.main import app, main


@pytest.mark.parametrize(("closed", "code"), [("stdout", 0), ("stderr", 0), ("stdin", 2)])
def test_a_command_with_a_closed_standard_stream_ends_as_usual(closed, code, treadle, monkeypatch, capfd):
    treadle("run", "math", "hi")
    monkeypatch.setattr(sys, closed, None)
    assert main(["run", "math", "-"] if closed == "stdin" else ["tasks"]) == code
    getattr(sys, closed).close()


@pytest.mark.parametrize("command", [["tasks"], ["tasks", "--json"], ["show", "last"]])
def test_output_to_a_full_disk_is_reported_as_a_system_error(command, treadle, monkeypatch, capfd):
    treadle("run", "math", "hi")
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main(command) == 1
        monkeypatch.undo()
    assert capfd.readouterr().err.splitlines() == ["error: No space left on device"]


def test_input_that_is_not_text_is_a_usage_error(treadle, project, monkeypatch):
    (project / "input").write_bytes(b"caf\xe9")
    assert treadle("threads", "import", "t", "input").code == 2
    assert treadle("threads", "import", "t", "nowhere").code == 1
    with (project / "input").open(encoding="utf-8") as input_file:
        monkeypatch.setattr(sys, "stdin", input_file)
        assert treadle("run", "math", "-").code == 2


def commands(made: typer.Typer) -> set[str]:
    group: Any = typer.main.get_command(made)
    return set(group.commands)


def test_each_command_is_made_alone_and_all_of_them_for_help_and_for_an_unknown_one():
    everything = commands(app())
    assert {"run", "tasks", "threads", "import", "demo"} < everything
    assert [name for name in everything if commands(app(name)) != {name}] == []
    assert commands(app("--help")) == commands(app("taks")) == everything


def test_the_installed_program_is_this_command_line():
    (program,) = entry_points(group="console_scripts", name="treadle")
    assert program.load() is main


IMPORTS = """
import os, sys

def check(*names):
    print(*sorted({*names} & set(sys.modules)), file=sys.stderr, flush=True)

if os.fork() == 0:
    import treadle.cli.demo_agent
    check("rich", "typer")
    os._exit(0)
os.wait()
from treadle.cli.main import main
main(["tasks"])
check("treadle.cli.chat", "treadle.cli.run", "treadle.cli.doctor", "treadle.testing", "pydantic_ai")
main(["--help"])
check("pydantic_ai", "starlette", "openai", "anthropic", "uvicorn")
"""


def test_the_agent_of_the_demonstration_a_command_and_the_help_import_nothing_that_they_do_not_use(tmp_path):
    command = [sys.executable, "-c", IMPORTS]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert [line for line in done.stderr.splitlines() if not line.startswith("error: ")] == [""] * 3


def test_no_help_text_holds_what_is_read_as_markup():
    texts = [text for text in _help_texts(get_command(app())) if "[" in text]
    assert texts == [], "rich takes [words in brackets] for styles, and leaves them out"


def _help_texts(command: Any) -> Iterator[str]:
    yield command.help or ""
    yield from [getattr(each, "help", None) or "" for each in command.params]
    for each in getattr(command, "commands", {}).values():
        yield from _help_texts(each)


def test_a_process_of_the_command_ends_at_once_and_loses_nothing_that_was_written(tmp_path):
    program = (
        "import atexit, gc, sys\n"
        "atexit.register(lambda: print(gc.get_freeze_count() > 10_000))\n"
        "from treadle.cli.main import main\n"
        "kept = open('kept', 'w')\n"
        "kept.write('all of it')\n"
        "sys.argv[1:] = ['--version']\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.endswith("\nTrue\n"), "each object is freed on its own"
    assert (tmp_path / "kept").read_text() == "all of it"
