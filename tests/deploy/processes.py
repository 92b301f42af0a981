"""Servers, drivers and a proxy, each a process of its own, as an installation has them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.forked import Forked

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
SITE = "agents.example"
START_SECONDS = 30

SHOP = '''
import asyncio

from treadle import Agent, ScriptedModel, tool
from treadle.models import call, text


@tool(read_only=True)
async def count(shelf: int) -> int:
    """Count what is on a shelf."""
    await asyncio.sleep(SECONDS)
    return 3


model = ScriptedModel([*[call("count", shelf=n) for n in range(STEPS)], text("Done.")])
agent = Agent(model, name="shop", tools=[count])
'''


def installed(name: str) -> str:
    """Return where a program is; without it the test is skipped, and fails in `make deployment`."""
    found = shutil.which(name, path=os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/usr/local/sbin"]))
    if found is None:
        reason = f"{name} is not installed"
        if os.environ.get("TREADLE_DEPLOYMENT") == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    return found


@dataclass
class Program:
    """A command of Treadle that runs, and what it has printed: one JSON document a line."""

    process: subprocess.Popen[bytes]
    output: Path

    def lines(self) -> list[dict[str, Any]]:
        return [
            json.loads(line)
            for line in self.output.read_text().splitlines(keepends=True)
            if line.endswith("\n")
        ]

    def first(self, kind: str) -> dict[str, Any]:
        """Return the first line of a kind, once it is there."""
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until and self.process.poll() is None:
            for line in self.lines():
                if line["kind"] == kind:
                    return line
            time.sleep(0.02)
        raise AssertionError(
            f"it did not say {kind!r}: {self.output.read_text()!r}, exit {self.process.poll()}"
        )

    @property
    def address(self) -> str:
        """Host and port of a server."""
        return self.first("serving")["url"].removeprefix("http://")

    def kill(self) -> None:
        """End it as a crash would, and wait until it has ended."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@contextmanager
def treadle(folder: Path, *arguments: str, store: object) -> Iterator[Program]:
    """Run a command of Treadle in a folder until the block ends."""
    folder.mkdir(parents=True, exist_ok=True)
    output = folder / f"{arguments[0]}-{time.monotonic_ns()}.jsonl"
    environment = {**os.environ, "TREADLE_STORE": str(store), "TREADLE_SECRETS": ""}
    with output.open("wb") as opened:
        command = [sys.executable, "-m", "treadle", *arguments]
        process = Forked(command, cwd=folder, env=environment, stdout=opened)
    try:
        yield Program(process, output)
    finally:
        process.kill()
        process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def nginx_configuration(folder: Path, servers: Sequence[str], port: int) -> Path:
    """Write what nginx needs around `deploy/nginx.conf`, with these servers and this port in it."""
    listed = "".join(f"    server {server} fail_timeout=5s;\n" for server in servers)
    given = (DEPLOY / "nginx.conf").read_text()
    ours, listen = "    server 127.0.0.1:8700 fail_timeout=5s;\n", "    listen 80;"
    assert given.count(ours) == given.count(listen) == 1
    folder.mkdir(parents=True, exist_ok=True)
    site = folder / "treadle.conf"
    site.write_text(given.replace(ours, listed).replace(listen, f"    listen 127.0.0.1:{port};"))
    kept = "".join(
        f"    {kind}_temp_path {folder / kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    whole = folder / "whole.conf"
    whole.write_text(
        f"daemon off;\nworker_processes 2;\npid {folder / 'nginx.pid'};\nerror_log {folder / 'error.log'};\n"
        + ("user root;\n" if os.geteuid() == 0 else "")
        + f"events {{}}\nhttp {{\n    access_log off;\n{kept}    include {site};\n}}\n"
    )
    return whole


@contextmanager
def nginx(folder: Path, servers: Sequence[str]) -> Iterator[str]:
    """Run nginx before some servers, and yield its address."""
    port = free_port()
    configuration = nginx_configuration(folder, servers, port)
    process = subprocess.Popen(
        [installed("nginx"), "-c", str(configuration), "-e", str(folder / "error.log")]
    )
    try:
        wait_for(port, process)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


@contextmanager
def caddy(folder: Path, servers: Sequence[str]) -> Iterator[str]:
    """Run Caddy before some servers, without TLS, and yield its address."""
    port = free_port()
    environment = {
        **os.environ,
        "TREADLE_SITE": f"http://{SITE}:{port}",
        "TREADLE_SERVERS": " ".join(servers),
        "XDG_DATA_HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder),
    }
    folder.mkdir(parents=True, exist_ok=True)
    command = [installed("caddy"), "run", "--adapter", "caddyfile", "--config", str(DEPLOY / "Caddyfile")]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stderr=log)
    try:
        wait_for(port, process)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()  # it would wait for connections that clients keep
        process.wait()


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until a process listens on a port."""
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise AssertionError(f"{process.args} does not listen on port {port}, exit {process.poll()}")
