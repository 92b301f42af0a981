"""The files of `deploy/`, read by the programs that they are for."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from tests.deploy.processes import DEPLOY, ROOT, installed, nginx_configuration
from tests.docs.blocks import blocks
from treadle.cli.main import app

PAGE = ROOT / "docs" / "guide" / "deployment.md"
UNITS = ["treadle.service", "treadle-drive.service"]
PROGRAM = "/srv/shop/.venv/bin/treadle"


def run(*command: str, folder: Path, environment: Mapping[str, str] | None = None) -> str:
    completed = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stdout
    return completed.stdout


def test_the_page_shows_the_very_files():
    shown = {block.detail: block.code + "\n" for block in blocks(PAGE) if block.mark == "file"}
    files = {path.name: path.read_text() for path in DEPLOY.iterdir()}
    assert {name: shown.get(name) for name in files} == files


def test_nginx_accepts_its_configuration(tmp_path: Path):
    whole = nginx_configuration(tmp_path, ["127.0.0.1:8700", "127.0.0.1:8701"], 18_080)
    run(installed("nginx"), "-t", "-c", str(whole), "-e", str(tmp_path / "error.log"), folder=tmp_path)


@pytest.mark.parametrize("servers", ["", "server-a:8700 server-b:8700"])
def test_caddy_accepts_its_configuration(servers: str, tmp_path: Path):
    """Where Caddy is not installed this is skipped, and `make deployment` fails."""
    environment = {"XDG_DATA_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    if servers:
        environment["TREADLE_SERVERS"] = servers
    command = [installed("caddy"), "adapt", "--validate", "--adapter", "caddyfile"]
    adapted = run(*command, "--config", str(DEPLOY / "Caddyfile"), folder=tmp_path, environment=environment)
    for server in (servers or "127.0.0.1:8700").split():
        assert f'"dial":"{server}"' in adapted


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_accepts_each_unit_and_finds_little_that_it_may_do(unit: str, tmp_path: Path):
    analyze, here = installed("systemd-analyze"), tmp_path / unit
    text = (DEPLOY / unit).read_text()
    assert text.count(f"ExecStart={PROGRAM} ") == 1
    here.write_text(
        text.replace(PROGRAM, shutil.which("treadle") or f"{Path(sys.executable).parent}/treadle")
    )
    assert run(analyze, "verify", str(here), folder=tmp_path) == ""
    exposure = run(analyze, "security", "--offline=yes", "--no-pager", str(here), folder=tmp_path)
    level = re.search(r"Overall exposure level for \S+: ([\d.]+)", exposure)
    assert level is not None
    assert float(level[1]) < 2.5


def test_docker_compose_accepts_its_file(tmp_path: Path):
    for name in ("compose.yaml", "Containerfile"):
        shutil.copy(DEPLOY / name, tmp_path)
    (tmp_path / "keys.env").touch()
    given = {"POSTGRES_PASSWORD": "made-up", "TREADLE_SITE": "agents.example"}
    command = installed("docker-compose")
    merged = yaml.safe_load(run(command, "-f", "compose.yaml", "config", folder=tmp_path, environment=given))
    services = merged["services"]
    assert set(services) == {"server-a", "server-b", "drive-a", "drive-b", "proxy", "database"}
    assert [name for name, service in services.items() if "ports" in service] == ["proxy"]
    without = subprocess.run([command, "config"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert without.returncode != 0
    assert "the password of the database" in without.stderr


def command_lines() -> list[list[str]]:
    """Return every command of Treadle in the files, as lists of arguments."""
    lines = [
        shlex.split(line.removeprefix(f"ExecStart={PROGRAM} "))
        for unit in UNITS
        for line in (DEPLOY / unit).read_text().splitlines()
        if line.startswith("ExecStart=")
    ]
    (drive,) = re.findall(r"^CMD (.*)$", (DEPLOY / "Containerfile").read_text(), re.MULTILINE)
    server = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["x-server"]["command"]
    return [*lines, yaml.safe_load(drive), server]


@pytest.mark.parametrize("arguments", command_lines(), ids=" ".join)
def test_each_command_is_one_of_treadle_with_options_that_it_has(arguments: list[str]):
    group: Any = typer.main.get_command(app())
    command = group.commands[arguments[0]]
    assert command.make_context(arguments[0], list(arguments[1:])).params  # raises for what it does not know


def test_the_image_was_built_of_packages_without_hashes():
    text = (DEPLOY / "Containerfile").read_text().replace("\\\n", " ")
    commands = [command.strip() for command in re.findall(r"^RUN (.*)$", text, re.MULTILINE)[0].split("&&")]
    installing = [command for command in commands if "install" in command or "uv " in command]
    pinned = next(command for command in installing if command.startswith("pip install"))
    assert "--require-hashes -r /opt/treadle/build-requirements.txt" in pinned
    assert [command for command in installing if command != pinned and " --locked " not in command] == []
    named = set(re.findall(r"--extra (\S+)", text))
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]
    assert named <= project["optional-dependencies"].keys()
    assert named == {"server", "postgres", "openai"}
