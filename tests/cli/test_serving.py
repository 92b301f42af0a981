"""`serve`: a server process on a store."""

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any, cast

import apsw
import httpx2
import pytest

from tests.forked import Forked
from treadle.cli.serving import _protocols, _Telling
from treadle.drivers.adoption import Adoption
from treadle.errors import ConfigurationError

SHOP = """
import asyncio
from treadle import Agent, ScriptedModel, tool
from treadle.models import call, text
from treadle.server import Principal


@tool(read_only=True)
async def rest() -> str:
    await asyncio.sleep(60)
    return "rested"


agent = Agent(ScriptedModel([text("done")] * 20), name="shop")
sleeper = Agent(ScriptedModel([call("rest"), text("done")] * 20), name="sleeper", tools=[rest])


def who(connection):
    return Principal("ada") if connection.headers.get("x-who") == "ada" else None
"""


@contextmanager
def server(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], Any]]:
    """Yield a server process, and what it printed first of all."""
    (folder / "shop.py").write_text(SHOP)
    where = () if "--unix" in options else ("--port", "0")
    command = [sys.executable, "-m", "treadle", "serve", *options, *where, "--json"]
    pipe = subprocess.PIPE
    process = Forked(command, cwd=folder, stdout=pipe, stderr=pipe, text=True, env={**os.environ})
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()
        yield process, json.loads(line)
    finally:
        process.kill()
        process.communicate()


def client_of(first: Any, folder: Path, **settings: Any) -> httpx2.Client:
    token = (folder / first["token_file"]).read_text().strip()
    return httpx2.Client(
        base_url=first["url"], headers={"Authorization": f"Bearer {token}"}, timeout=20, **settings
    )


def test_a_server_drives_what_is_posted_and_ends_at_sigterm_with_exit_code_0(tmp_path: Path):
    with server(tmp_path, "shop:agent", "shop:sleeper", "--grace", "0.2") as (process, first):
        assert first["agents"] == ["shop", "sleeper"]
        file = tmp_path / first["token_file"]
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        with client_of(first, tmp_path) as client:
            done = client.post(
                "/v1/tasks",
                json={"agent": "shop", "input": "Go.", "run": True},
                headers={"Prefer": "wait=20"},
            )
            assert done.json()["state"] == "completed"
            body = {"agent": "sleeper", "input": "Go.", "run": True}
            sleeping = client.post("/v1/tasks", json=body).json()["task_id"]
            waiting = ThreadPoolExecutor(1).submit(
                client.get, f"/v1/tasks/{sleeping}/result", headers={"Prefer": "wait=50"}
            )
            url, accept = f"/v1/tasks/{sleeping}/events", {"Accept": "text/event-stream"}
            text = ""
            with client.stream("GET", url, headers=accept) as stream:
                for piece in stream.iter_text():
                    text += piece
                    if "event: model_returned" in text and process.poll() is None:
                        process.send_signal(signal.SIGTERM)
            assert waiting.result(10).status_code == 202  # the client goes on waiting at another server
        assert text.endswith('event: leaving\ndata: {"reason":"shutdown"}\n\n')
        out, error = process.communicate(timeout=10)
        assert process.returncode == 0, error
        assert json.loads(out.splitlines()[-1])["kind"] == "drained"
        assert "Traceback" not in error
        assert file.read_text().strip() not in out + error


def test_a_server_speaks_all_protocols_unless_some_are_named(tmp_path: Path):
    assert _protocols(None) is None
    assert _protocols(["agui"]) == ["agui"]
    with (
        server(tmp_path, "shop:agent", "--protocol", "none") as (_, first),
        client_of(first, tmp_path) as client,
    ):
        assert client.get("/v1/me").json()["protocols"] == []
        assert client.post("/agui/shop", json={}).status_code == 404


def test_a_server_ends_with_an_error_when_a_newer_version_migrates_its_store(tmp_path: Path):
    store = f"sqlite:///{tmp_path}/journal.db?lease=0.5"
    with server(tmp_path, "shop:sleeper", "--grace", "0.1", "--store", store) as (process, first):
        with client_of(first, tmp_path) as client:
            body = {"agent": "sleeper", "input": "Go.", "run": True}
            url = f"/v1/tasks/{client.post('/v1/tasks', json=body).json()['task_id']}/events"
            text = ""
            with client.stream("GET", url, headers={"Accept": "text/event-stream"}) as stream:
                for piece in stream.iter_text():
                    text += piece
                    if "event: model_returned" in text:
                        break
        newer = apsw.Connection(str(tmp_path / "journal.db"))
        newer.set_busy_timeout(30_000)
        newer.execute("PRAGMA user_version = 99").fetchall()
        newer.execute("UPDATE compatible SET opens = 99").fetchall()
        newer.close()
        _, error = process.communicate(timeout=30)
        assert (process.returncode, "upgrade treadle" in error) == (1, True), error


def test_a_server_asks_the_projects_function_who_calls_and_can_leave_driving_to_others(tmp_path: Path):
    with server(tmp_path, "shop:agent", "--no-drive", "--auth", "shop:who") as (_, first):
        assert first["token_file"] is None
        with httpx2.Client(base_url=first["url"], timeout=20) as client:
            assert client.get("/v1/me").status_code == 401
            client.headers["x-who"] = "ada"
            assert client.get("/v1/me").json()["name"] == "ada"
            body = {"agent": "shop", "input": "Go.", "run": True}
            made = client.post("/v1/tasks", json=body, headers={"Prefer": "wait=1"})
            assert (made.status_code, made.json()["state"]) == (202, "created")


def test_a_server_on_a_unix_socket_takes_it_away_when_it_ends(tmp_path: Path):
    path = tmp_path / "s"
    with server(tmp_path, "shop:agent", "--no-drive", "--unix", str(path)) as (process, first):
        assert first["url"] == f"unix:{path}"
        with httpx2.Client(transport=httpx2.HTTPTransport(uds=str(path)), timeout=20) as client:
            assert client.get("http://localhost/health").json() == {"status": "alive"}
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    assert not path.exists()


UNSAFE = [
    (["--host", "0.0.0.0"], "name the clients"),
    (["--host", "192.0.2.1", "--token-file", "token"], "encrypt it"),
    (["--host", "::", "--auth", "shop:who"], "encrypt it"),
    (["--tls-cert", "cert.pem"], "come together"),
    (["--behind-proxy", "10.0.0.0/99"], "--behind-proxy"),
    (["--behind-proxy", "0.0.0.0/0"], "name the network of the proxy alone"),
    (["--behind-proxy", "::/0"], "name the network of the proxy alone"),
    (["--auth", "shop:who", "--new-token"], "replaces the token"),
    (["--auth", "shop:agent"], "is not a function"),
    (["--port", "70000"], "--port"),
    (["--grace", "-1"], "--grace"),
    (["--at-most", "0"], "--at-most"),
]


def test_a_server_that_is_not_safe_or_makes_no_sense_is_refused(treadle: Any, project: Path):
    (project / "shop.py").write_text(SHOP)
    for options, words in UNSAFE:
        refused = treadle("serve", "shop:agent", *options)
        assert (refused.code, words in refused.err) == (2, True), (options, refused.err)
        assert not (project / ".treadle" / "server-token").exists()


def test_names_of_a_server_are_those_of_its_address_and_those_it_is_given():
    from treadle.cli.serving import ListenOptions

    assert ListenOptions(host="0.0.0.0", allow_host=["agents.example"]).hosts == ["agents.example"]
    assert ListenOptions(host="192.0.2.7").hosts == ["192.0.2.7"]
    assert ListenOptions(host="2001:db8::1").hosts == ["[2001:db8::1]"]
    assert ListenOptions(host="box").hosts == ["box"]
    assert ListenOptions(unix=Path("s")).is_local
    assert not ListenOptions(host="0.0.0.0").is_local
    with pytest.raises(ConfigurationError):
        ListenOptions(tls_key=Path("key.pem"))


@pytest.mark.anyio
async def test_an_output_whose_reader_takes_nothing_held_the_loop_in_which_tasks_are_driven():
    taken, printed = Event(), list[Any]()

    class Screen:
        def entry(self, document: Any) -> None:
            assert taken.wait(10)
            printed.append(document)

        def line(self, *parts: Any) -> None:
            pass

    telling = _Telling(cast("Any", Screen()), cast("Any", None), asyncio.get_running_loop())
    taken.set()
    telling.serving("http://127.0.0.1", "memory:", None, [])
    taken.clear()
    for _ in range(3):
        telling.adoption(Adoption("adopted", "adopted"))  # returns, though nothing can be printed
    assert len(printed) == 1
    taken.set()
    telling.ended(0)
    assert [getattr(each, "kind", None) for each in printed[1:4]] == ["adopted"] * 3
    assert printed[4]["adopted"] == 3


@pytest.mark.parametrize("command", ["serve", "agents"])
def test_advice_named_an_option_that_the_command_does_not_have(
    treadle: Any, project: Path, command: str
) -> None:
    (project / "pyproject.toml").write_text("")
    ended = treadle(command)
    assert "pyproject.toml" in ended.out + ended.err
    assert "--agent" not in ended.out + ended.err
