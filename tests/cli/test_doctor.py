"""`doctor`: what is wrong with an installation, a store or the agents."""

import tomllib
from pathlib import Path

import apsw

from treadle.cli.doctor import EXTRAS

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_doctor_knows_each_extra_and_which_are_installed(treadle):
    declared = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    assert set(EXTRAS) == set(declared)
    extras = treadle("doctor", "--json").document["extras"]
    assert (extras["mcp"], extras["http"], extras["otel"]) == (True, True, True)


def test_doctor_names_keys_without_values_and_hints_at_undeclared_tools(treadle, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    treadle("run", "math", "hi")
    ended = treadle("doctor")
    assert ended.code == 0
    assert "OPENAI_API_KEY" in ended.out
    assert "sk-very-secret" not in ended.out
    assert "agent payer: tool pay does not declare its effects" in ended.out
    assert "tool book does not declare" not in ended.out, "undo= says that it writes"
    assert "read_only=True" in ended.out
    document = treadle("doctor", "--json").document
    assert document["store"]["mode"] == "0600"
    assert document["store"]["journal_mode"] == "wal"
    assert document["store"]["integrity"] == "ok"
    assert document["versions"]["sqlite"] == apsw.sqlite_lib_version()
    assert document["agents"][0]["name"] == "math"


def test_doctor_reports_a_store_of_a_newer_version(treadle, project):
    treadle("run", "math", "hi", "--store", "newer.db")
    connection = apsw.Connection(str(project / "newer.db"))
    connection.set_busy_timeout(30_000)
    connection.pragma("user_version", 999)
    connection.execute("UPDATE compatible SET opens = 999")
    connection.close()
    ended = treadle("doctor", "--store", "newer.db")
    assert (ended.code, "format 999" in ended.out) == (1, True)


def test_doctor_names_a_thread_whose_backup_an_import_would_refuse(treadle, project):
    treadle("run", "math", "hi", "--store", "lost.db")
    assert treadle("doctor", "--store", "lost.db").code == 0
    connection = apsw.Connection(str(project / "lost.db"))
    connection.set_busy_timeout(30_000)
    connection.execute("UPDATE members SET seq = 99")
    connection.close()
    ended = treadle("doctor", "--store", "lost.db")
    assert (ended.code, "at event 99" in ended.out, "treadle verify" in ended.out) == (1, True, True)


def test_doctor_does_not_advise_to_change_the_mode_of_a_device(treadle):
    ended = treadle("doctor", "--store", "/dev/null")
    assert (ended.code, "chmod" in ended.out, "is not a file" in ended.out) == (1, False, True)


def test_doctor_names_agents_with_a_tool_selection(treadle):
    assert "chooser on scripted: add, nap (offered by offer_add)" in treadle("doctor").out
    agents = {agent["name"]: agent["offer"] for agent in treadle("doctor", "--json").document["agents"]}
    assert (agents["chooser"], agents["math"]) == ("offer_add", None)


def test_doctor_reports_a_file_that_is_not_a_store_and_agents_that_cannot_be_imported(treadle, project):
    (project / "no.db").write_text("not a database, but long enough to be looked at as one " * 40)
    (project / "no.db").chmod(0o644)
    (project / "team.py").write_text("raise RuntimeError('broken')")
    ended = treadle("doctor", "--store", "no.db")
    assert ended.code == 1
    assert "chmod 600" in ended.out
    assert "team:math cannot be imported" in ended.out
