"""What a command imports; standard streams that are closed or full, and input that is not text."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command

from treadle.cli.main import COMMANDS, OPTIONS, app, main


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


# ---- Mistakes on the command line, and what they are told: what is wrong, what was meant, and how the command is used


MISTAKES = [
    # command line, exit code, what the message has to say; " | " is between the words of different versions of typer
    ("run math.py hello", 2, "'math.py'", "agents = "),
    ("run team.py hello", 2, "write team:AGENT"),
    ("run team hello", 2, "write team:AGENT"),
    ("run team.math hello", 2, "write team:math"),
    ("run team.py:math hello", 2, "team.py:math", "without .py: team:math"),
    ("run mat hello", 2, "no agent is called 'mat'", "did you mean 'math'?"),
    ("run team:maths hello", 2, "team:maths cannot be imported", "the agents of the module", "team:math"),
    ("run team:City hello", 2, "team:City is not an Agent", "City()"),
    ("run team:LEDGER hello", 2, "team:LEDGER is not an Agent", "team:math"),
    ("run empty:AGENT hello", 2, "empty:AGENT", "empty holds no agent"),
    ("run nomodule:AGENT hello", 2, "No module named 'nomodule'", "Python searches"),
    ("run broken:AGENT hello", 2, "broken:AGENT cannot be imported: RuntimeError: boom", "broken.py, line 2"),
    ("run lacking:AGENT hello", 2, "No module named 'nothing_there'", "lacking.py, line 1"),
    ("run team:math", 2, "INPUT is missing", "treadle run team:math INPUT"),
    ("run math", 2, "INPUT is missing", "treadle run math INPUT"),
    ("run math hello world", 2, "put an input of several words in quotes"),
    ("run", 2, "Missing argument", "usage: treadle run"),
    ("run hello", 2, "there is no model to use", "OPENAI_API_KEY", "--model"),
    ("run math hello --max-turns 3", 2, "--max-turns", "write --max-steps"),
    ("run math hello --max-steps many", 2, "--max-steps", "valid int"),
    ("run math hello --thread-id talk", 2, "write --thread"),
    ("run math hello --session talk", 2, "write --thread"),
    ("run math hello --db x.db", 2, "write --store"),
    ("run math hello --model gpt-5", 2, "'gpt-5'", "openai:gpt-5"),
    ("run math ''", 2, "input must not be empty"),
    ("run math hello --trace verbose", 2, "--trace takes console", "'verbose'"),
    ("list", 2, "No such command 'list'", "`treadle tasks`"),
    ("logs", 2, "`treadle show TASK`"),
    ("status", 2, "`treadle show TASK`"),
    ("start math hello", 2, "`treadle run AGENT INPUT`"),
    ("stop last", 2, "`treadle interrupt TASK`", "`treadle cancel TASK`"),
    ("delete last", 2, "`treadle prune AGE`"),
    ("terminate last", 2, "`treadle cancel TASK`"),
    ("signal last hi", 2, "`treadle send TASK TEXT`", "`treadle answer TASK VALUE`"),
    ("describe last", 2, "`treadle show TASK`"),
    ("workflow list", 2, "`treadle tasks`"),
    ("reset last", 2, "`treadle fork TASK --at STEP`"),
    ("version", 2, "`treadle --version`"),
    ("help", 2, "`treadle --help`"),
    ("team:math hello", 2, "`treadle run team:math INPUT`"),
    ("frobnicate", 2, "No such command 'frobnicate'", "usage: treadle", "treadle --help"),
    ("taks", 2, "No such command 'taks'", "'tasks'"),
    ("--store x.db tasks", 2, "--store before the command", "treadle tasks --store"),
    ("show", 2, "Missing argument 'TASK'", "usage: treadle show", "TASK"),
    ("show ffffff", 2, "no task 'ffffff'", "`treadle tasks` lists"),
    ("show Last", 2, "no task 'Last'", "`last` is the newest"),
    ("show last --jsn", 2, "--jsn", "--json"),
    ("tasks --status failed", 2, "write --state"),
    ("tasks --state done", 2, "state must be one of", "completed", "'done'"),
    ("tasks --label env", 2, "--label takes KEY=TEXT"),
    ("tasks --limit 0", 2, "--limit", "greater than or equal to 1 | not in the range 1<=x"),
    (
        "tasks --store gone.db",
        2,
        "there is no store at",
        "gone.db",
        "`treadle run` and `treadle serve` create one",
    ),
    ("tasks --store redis://x", 2, "redis://x", "postgresql://"),
    ("tasks --store team.py", 1, "team.py is not a SQLite database", "choose another file"),
    ("undo last --to s9", 2, "has no step 's9'"),
    ("undo last --to 99", 2, "has no step 99"),
    ("fork last --at 999", 2, "has events 1 to", "not 999"),
    ("settle last s1-0 maybe", 2, "settle takes one of --happened [JSON] and --not-happened"),
    ("send last", 2, "Missing argument 'TEXT'", "usage: treadle send"),
    ("send last hello", 2, "is completed", "fork it"),
    ("resume last --agent nomodule", 2, "no agent is called 'nomodule'"),
    ("diff last", 2, "Missing argument 'B'", "usage: treadle diff"),
    ("threads show nothing", 2, "'nothing'"),
    ("import gone.jsonl", 1, "gone.jsonl", "No such file"),
    ("prune --older-than 3", 2, "write AGE"),
    ("drive --agent nomodule", 2, "'nomodule' does not say where an agent is", "module:agent"),
]


@pytest.fixture
def stored(treadle: Any, project: Path) -> Any:
    (project / "empty.py").write_text("")
    (project / "broken.py").write_text('x = 1\nraise RuntimeError("boom")\n')
    (project / "lacking.py").write_text("import nothing_there\n")
    assert treadle("run", "math", "hello").code == 0
    return treadle


def test_a_mistake_on_the_command_line_is_told_what_is_wrong_and_what_to_write(stored: Any) -> None:
    for line, code, *says in MISTAKES:
        ended = stored(*shlex.split(line))
        message = " ".join(ended.err.split())
        for phrase in says:
            assert any(words in message for words in phrase.split(" | ")), (line, message)
        assert ended.code == code, (line, message)
        assert "Traceback" not in message


def test_a_beginning_that_several_tasks_share_is_answered_with_these_tasks(stored: Any) -> None:
    ids = sorted(stored("run", "math", "hello", "--json", "--task-id", f"batch-{n}").code for n in (1, 2))
    assert ids == [0, 0]
    ended = stored("show", "batch-")
    assert ended.code == 2
    for phrase in ("'batch-' fits 2 tasks", "batch-1", "batch-2", "give more of the end of the id"):
        assert phrase in " ".join(ended.err.split())


def test_text_that_looks_like_an_agent_is_an_input_where_the_agent_is_named(stored: Any) -> None:
    assert stored("run", "--agent", "team:math", "note:this").code == 0


def test_what_is_advised_in_place_of_a_command_is_a_command() -> None:
    commands = set(typer.main.get_command(app()).commands)  # type: ignore[attr-defined]
    assert commands.isdisjoint(COMMANDS), "it exists now: take it out of the table"
    for advice in COMMANDS.values():
        for first in re.findall(r"^([\w-]+)|treadle ([\w-]+)", advice):
            name = "".join(first)
            assert name in commands or name in ("--version", "--help"), advice


def test_what_is_advised_in_place_of_an_option_is_an_option_of_some_command() -> None:
    commands = typer.main.get_command(app()).commands.values()  # type: ignore[attr-defined]
    options = {name for each in commands for parameter in each.params for name in parameter.opts}
    arguments = " ".join(str(parameter.metavar) for each in commands for parameter in each.params)
    for advice in OPTIONS.values():
        assert advice.split()[0] in options or advice.split(",")[0] in arguments, advice


def test_a_document_of_an_error_has_the_same_message(stored: Any, capfd: pytest.CaptureFixture[str]) -> None:
    capfd.readouterr()
    assert main(["show", "--json"]) == 2
    assert "Missing argument 'TASK'" in capfd.readouterr().out
