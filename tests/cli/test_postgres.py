"""The command line on PostgreSQL."""

from hashlib import sha256
from pathlib import Path

import pytest

from treadle.cli.command import command_line
from treadle.testing.postgres import PostgresServer


@pytest.fixture
def url(postgres: PostgresServer, tmp_path: Path) -> str:
    return postgres.in_schema(f"c{sha256(str(tmp_path).encode()).hexdigest()[:20]}")


def test_run_show_step_and_resume_work_on_a_server(treadle, url):
    assert treadle("run", "math", "1 + 2?", "--store", url).code == 0
    shown = treadle("show", "last", "--store", url)
    assert shown.code == 0
    assert "completed" in shown.out
    stepped = treadle("step", "math", "1 + 2?", "--store", url, "--json")
    assert stepped.code == 0
    resumed = treadle("resume", "last", "--store", url, "--json")
    assert (resumed.code, resumed.document["final_text"]) == (0, "It is 3.")
    listed = treadle("tasks", "--store", url, "--json")
    assert len(listed.document["items"]) == 2


def test_a_suggested_command_names_the_store_without_its_password():
    typed = command_line(
        "resume", "t", store="postgresql://me:tr0ub4dor@host:5/db?password=x&sslmode=require"
    )
    assert typed.endswith("resume t --store 'postgresql://me@host:5/db?sslmode=require'")
    assert command_line("show", store="postgresql://me@host/db").endswith("--store postgresql://me@host/db")
    assert command_line("show", store="a:b@c.db").endswith("--store a:b@c.db")


def test_the_doctor_reports_on_the_server_without_creating_anything(treadle, url):
    before = treadle("doctor", "--store", url, "--json").document["store"]
    assert (before["exists"], before["fsync"], before["synchronous_commit"]) == (False, "off", "on")
    assert treadle("run", "math", "1 + 2?", "--store", url).code == 0
    after = treadle("doctor", "--store", url, "--json").document["store"]
    assert (after["exists"], after["tasks"]) == (True, 1)
    assert after["server_version"][:2].isdigit()


def test_the_doctor_names_a_server_that_cannot_be_reached_without_its_password(treadle):
    ended = treadle("doctor", "--store", "postgresql://me:tr0ub4dor@127.0.0.1:1/db")
    assert ended.code == 1
    assert "postgresql://me@127.0.0.1:1/db" in ended.out
    assert "tr0ub4dor" not in ended.out + ended.err
