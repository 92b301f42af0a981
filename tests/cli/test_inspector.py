"""`inspect` and `show --web`: the page of a store, in a browser."""

import json
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from treadle.cli import inspector

Begin = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def browser(project: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the links that commands of this process open; a process of its own opens none that is seen."""
    opened: list[str] = []
    monkeypatch.setenv("BROWSER", "true")
    monkeypatch.setattr(inspector.webbrowser, "open", opened.append)
    return opened


def first_line(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate()
    return json.loads(line)


def end(process: subprocess.Popen[str]) -> tuple[str, str]:
    process.send_signal(signal.SIGTERM)
    ended = process.communicate(timeout=20)
    assert process.returncode == 0, ended
    return ended


def test_a_store_is_looked_at_without_any_agent_and_a_task_is_opened_in_the_running_page(
    treadle: Any, begin: Begin, project: Path, browser: list[str]
):
    task = treadle("run", "team:math", "What is (121 * 3) + 42?", "--json").document["task_id"]
    (project / "pyproject.toml").unlink()
    page = begin("inspect", "--port", "0", "--json")
    served = first_line(page)
    assert served["agents"] == []
    treadle("show", "last", "--web")
    treadle("inspect")  # the page is open already
    links = browser
    places = [re.sub("&code=.*", "", link) for link in links]
    assert places == [f"{served['url']}/#/t/{task}", f"{served['url']}/#/"]
    with httpx2.Client(base_url=served["url"], timeout=20) as client:
        code = links[0].partition("&code=")[2]
        entered = client.post("/inspector/enter", json={"code": code})
        assert client.post("/inspector/enter", json={"code": code}).status_code == 403
        client.headers["Authorization"] = f"Bearer {entered.json()['token']}"
        me = client.get("/v1/me").json()
        assert (me["agents"], me["drives"]) == ([], False)
        refused = client.post(f"/v1/tasks/{task}/steps", json={"input": "Go on."})
        assert (refused.status_code, "math" in refused.json()["detail"]) == (404, True), refused.text
    out, _ = end(page)
    assert entered.json()["token"] not in out


def test_with_an_agent_the_page_runs_its_tasks(begin: Begin, project: Path):
    page = begin("inspect", "team:math", "--port", "0", "--no-browser", "--json")
    served = first_line(page)
    token = (project / served["token_file"]).read_text().strip()
    with httpx2.Client(
        base_url=served["url"], headers={"Authorization": f"Bearer {token}"}, timeout=20
    ) as client:
        body = {"agent": "math", "input": "What is (121 * 3) + 42?", "run": True}
        done = client.post("/v1/tasks", json=body, headers={"Prefer": "wait=20"})
        assert done.json()["state"] == "completed"
        assert client.get("/").status_code == 200
    end(page)


def test_a_store_that_is_not_there_is_not_looked_at(treadle: Any, project: Path):
    ended = treadle("inspect", "--store", "missing.db")
    assert (ended.code, "there is no store" in ended.err) == (2, True)


def test_a_task_is_opened_at_the_server_of_a_url(
    treadle: Any, begin: Begin, project: Path, browser: list[str]
):
    task = treadle("run", "team:math", "What is (121 * 3) + 42?", "--json").document["task_id"]
    server = begin("serve", "team:math", "--port", "0", "--json")
    url = first_line(server)["url"]
    ended = treadle("show", task, "--web", "--url", url, "--json")
    assert ended.document == {"kind": "inspector", "url": f"{url}/#/t/{task}"}
    assert browser[0].startswith(f"{url}/#/t/{task}&code=")
    end(server)


def test_without_a_screen_no_browser_is_opened(monkeypatch: pytest.MonkeyPatch):
    for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(inspector.sys, "platform", "linux")
    assert not inspector._has_screen()
    monkeypatch.setenv("DISPLAY", ":0")
    assert inspector._has_screen()
