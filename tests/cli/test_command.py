"""The commands that the program suggests."""

import sys
from pathlib import Path
from typing import Any

import pytest

from treadle.cli.command import command_line


@pytest.fixture
def script(tmp_path, monkeypatch):
    """The program of an environment that is not activated."""
    path = tmp_path / ".venv" / "bin" / "treadle"
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(path)])
    monkeypatch.setenv("PATH", str(tmp_path))
    return path


def test_a_program_that_is_not_on_the_path_is_named_by_its_path(script, tmp_path, monkeypatch):
    assert command_line("show", "last") == ".venv/bin/treadle show last"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert command_line("show", "last") == f"{script} show last"


def test_a_program_on_the_path_is_named_by_its_name(script, monkeypatch):
    monkeypatch.setenv("PATH", str(script.parent))
    assert command_line("show", "last") == "treadle show last"


def test_a_module_run_by_python_is_named_treadle(script, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/somewhere/treadle/__main__.py"])
    assert command_line("tasks", store="a b.db") == "treadle tasks --store 'a b.db'"


@pytest.mark.parametrize("command", [("run", "math", "hi"), ("serve", "--port", "0"), ("drive",)])
def test_a_wrong_path_made_its_folders_and_an_empty_store(
    command: tuple[str, ...], project: Path, treadle: Any
) -> None:
    ended = treadle(*command, "--store", "jurnals/shop.db")
    assert ended.code == 2
    assert f"there is no folder {project / 'jurnals'} for a store shop.db" in " ".join(ended.err.split())
    assert "mkdir -p" in ended.err
    assert not (project / "jurnals").exists()
    assert not (project / ".treadle").exists()


def test_the_variable_that_names_a_missing_folder_is_named(
    treadle: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TREADLE_STORE", "sqlite:///jurnals/shop.db")
    assert "correct the path of TREADLE_STORE" in " ".join(treadle("run", "math", "hi").err.split())


def test_a_new_store_in_a_folder_that_is_there_is_made_and_told(project: Path, treadle: Any) -> None:
    first = treadle("run", "math", "hi", "--store", "shop.db", "--json")
    assert (first.code, first.document["state"]) == (0, "completed")
    assert f"there was no store at {project / 'shop.db'}: a new one is made" in " ".join(first.err.split())
    assert "a new one is made" not in treadle("run", "math", "hi", "--store", "shop.db").err


def test_the_store_of_the_project_is_made_without_a_word(project: Path, treadle: Any) -> None:
    for options in ([], ["--store", ".treadle/other.db"]):
        assert treadle("run", "math", "hi", *options).code == 0
    assert (project / ".treadle" / "other.db").exists()
