"""The commands that the program suggests."""

import sys

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
