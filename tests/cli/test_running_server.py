"""The notes of running servers."""

import os
import stat
from pathlib import Path

import pytest

from treadle.cli.running_server import FOLDER, RunningServer, noted, running_server

SERVER = RunningServer("http://127.0.0.1:8700", "sqlite:///a.db", "/token")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_server_is_found_by_its_store_while_it_runs():
    assert running_server(SERVER.store) is None
    with noted(SERVER):
        (note,) = FOLDER.iterdir()
        assert stat.S_IMODE(note.stat().st_mode) == 0o600
        assert running_server(SERVER.store) == SERVER
        assert running_server("sqlite:///b.db") is None
    assert list(FOLDER.iterdir()) == []


def test_the_note_of_a_server_that_was_killed_is_removed():
    with noted(SERVER):
        (note,) = FOLDER.iterdir()
        left = note.with_name("1.json")
        left.write_text(note.read_text())  # nobody has locked it
        assert running_server(SERVER.store) == SERVER
        assert not left.exists()


def test_a_note_that_is_none_does_no_harm():
    with noted(SERVER):
        (note,) = FOLDER.iterdir()
        note.write_text("{")
        assert running_server(SERVER.store) is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_server_in_a_folder_that_cannot_be_written_leaves_no_note(tmp_path: Path):
    tmp_path.chmod(0o500)
    with noted(SERVER):
        assert running_server(SERVER.store) is None
