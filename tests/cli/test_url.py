"""Commands on a server, by `--url`: what they print is what they print of a store."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cast import add, pay, scripted_agent
from tests.cli.terminal import Terminal
from tests.client.served import TOKEN, served
from treadle.cli.remote import client_of
from treadle.errors import ConfigurationError
from treadle.llm.scripted import call

MATH = scripted_agent(call("add", a=1, b=2), "3", "Gladly.", name="math", tools=[add])
TILL = scripted_agent(call("pay", amount=3), "Paid.", name="till", tools=[pay])


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served(MATH, TILL) as url:
        yield url


@pytest.fixture
def remote(treadle: Any, address: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TREADLE_TOKEN", TOKEN)
    return lambda *arguments: treadle(*arguments, "--url", address)


def test_a_task_is_run_listed_shown_undone_and_forked_on_a_server(remote: Any) -> None:
    ran = remote("run", "math", "1 + 2?", "--task-id", "on-server")
    assert (ran.code, "3" in ran.out) == (0, True), ran.err
    assert remote("tasks", "--json").document["items"][0]["task_id"] == "on-server"
    shown = remote("show", "last", "--json", "--events").document
    assert shown["result"]["final_text"] == "3"
    assert shown["events"][-1]["kind"] == "task_ended"
    assert "add(" in remote("show", "server").out
    assert remote("undo", "on-server").code == 0
    forked = remote("fork", "on-server", "--at", "1", "--json")
    assert forked.document["forked_from"] == "on-server"
    resumed = remote("resume", forked.document["task_id"])
    assert (resumed.code, "3" in resumed.out) == (0, True), resumed.err
    assert remote("diff", "on-server", forked.document["task_id"]).code in (0, 1)
    assert remote("run", "math", "1 + 2?", "--task-id", "of-acme", "--tenant", "acme").code == 0
    assert "of-acme" not in remote("tasks").out
    assert "of-acme" in remote("tasks", "--tenant", "acme").out
    missing = remote("show", "nobody", "--json")
    assert (missing.code, missing.document["error"]["type"]) == (2, "urn:treadle:error:TaskNotFound")


def test_a_waiting_task_is_decided_on_and_stopped_on_a_server(remote: Any) -> None:
    waiting = remote("run", "till", "pay", "--task-id", "waits", "--json")
    assert (waiting.code, waiting.document["pending"][0]["kind"]) == (4, "approval")
    assert remote("pending", "--json").document["items"][0]["task_id"] == "waits"
    assert remote("approve", "waits").code in (0, 4)
    assert remote("resume", "waits", "--json").document["final_text"] == "Paid."
    assert remote("step", "math", "2 + 3?", "--json").document["step"]["step_id"] == "s1"
    assert remote("cancel", "last", "--json").document["state"] == "cancelled"
    assert remote("threads", "list", "--json").document["items"]


def test_a_server_has_its_own_store_and_agents(remote: Any, treadle: Any, address: str) -> None:
    both = remote("tasks", "--store", "x.db")
    assert (both.code, "not both" in both.err) == (2, True)
    assert "the name of an agent of the server" in remote("run", "1 + 2?").err
    for command in (["chat", "math"], ["replay", "last"], ["doctor"]):
        refused = treadle(*command, "--url", address)
        assert (refused.code, "this command needs a store" in refused.err) == (2, True)


def test_a_task_is_watched_on_a_server(remote: Any) -> None:
    remote("run", "math", "1 + 2?", "--task-id", "over")
    watched = remote("watch", "over", "--json")
    assert (watched.code, watched.document["final_text"]) == (0, "3")
    remote("run", "till", "pay", "--task-id", "at-the-till")
    watched = remote("watch", "at-the-till")
    assert (watched.code, "pay(" in watched.out) == (4, True)
    refused = remote("watch", "over", "--agent", "shop:math")
    assert (refused.code, "leave them out with --url" in refused.err) == (2, True)


def test_a_person_who_watches_a_task_on_a_server_decides_and_sees_it_go_on(
    treadle: Any, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TREADLE_TOKEN", TOKEN)
    with served(TILL) as url:
        treadle("run", "till", "pay", "--task-id", "asked", "--url", url)
        with Terminal(project, "watch", "asked", "--url", url, columns=100, color=False) as watch:
            watch.wait_for('pay({"amount":3})')
            watch.wait_for_prompt("may it run? [y/n/e, ? lists all")
            watch.press("y\r")
            watch.wait_for("pay: paid")
            assert "completed" in watch.finished()
        assert watch.process.returncode == 0


def test_the_hints_of_a_task_on_a_server_work_as_they_are_printed(remote: Any) -> None:
    remote("run", "till", "pay", "--task-id", "hinted")
    hint = next(line for line in remote("show", "hinted").out.splitlines() if "go on with:" in line)
    assert "--url" in hint
    assert "--agent" not in hint


@pytest.mark.parametrize(
    ("url", "is_sent"),
    [
        ("http://localhost:1", True),
        ("http://127.0.0.1:1", True),
        ("http://localhost.attacker.example", False),
    ],
)
def test_the_token_of_this_machine_is_for_servers_of_this_machine_alone(
    url: str, is_sent: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TREADLE_TOKEN", "")  # as unset
    (tmp_path / ".treadle").mkdir()
    token = tmp_path / ".treadle" / "server-token"
    token.write_text("a" * 40)
    token.chmod(0o600)
    client = client_of(url)
    assert (client._remote.connection._token is not None) is is_sent  # pyright: ignore[reportPrivateUsage]


def test_a_token_that_others_may_read_or_wrote_is_sent_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server refused such a file, and commands sent the token that is in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TREADLE_TOKEN", raising=False)
    (tmp_path / ".treadle").mkdir()
    token = tmp_path / ".treadle" / "server-token"
    token.write_text("a" * 40)
    token.chmod(0o644)
    with pytest.raises(ConfigurationError, match="other users may read the token"):
        client_of("http://localhost:1")
    token.chmod(0o600)
    if os.name == "posix" and os.geteuid() == 0:  # root alone can give a file away
        os.chown(token, 12_345, -1)
        with pytest.raises(
            ConfigurationError, match=r"another user \(uid 12345\): write .* to TREADLE_TOKEN"
        ):
            client_of("http://localhost:1")
    monkeypatch.setenv("TREADLE_TOKEN", TOKEN)
    client_of("http://localhost:1")


def test_a_server_that_knows_another_token_refuses_a_command(
    treadle: Any, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TREADLE_TOKEN", "another")
    refused = treadle("tasks", "--url", address, "--json")
    assert refused.document["error"]["type"] == "urn:treadle:error:RequestRefused"
    assert "another" not in refused.err + refused.out


def test_an_agent_that_the_server_does_not_have_is_refused_before_a_task_is_printed(remote: Any) -> None:
    before = len(remote("tasks", "--limit", "100", "--json").document["items"])
    for command in ("run", "step"):
        refused = remote(command, "shoop", "Order tea.")
        assert (refused.code, refused.out) == (2, "")
        assert "this server was not given an agent 'shoop'" in refused.err
        assert "agent=" not in refused.err
        assert "Runner(" not in refused.err
    assert len(remote("tasks", "--limit", "100", "--json").document["items"]) == before


def test_the_agents_and_the_usage_of_a_server_are_listed(remote: Any) -> None:
    remote("run", "math", "1 + 2?")
    assert [item["name"] for item in remote("agents", "--json").document["items"]] == ["math", "till"]
    (till,) = remote("agents", "till", "--json").document["items"]
    assert [tool["name"] for tool in till["tools"]] == ["pay"]
    assert "the agents are: math, till" in remote("agents", "shop").err
    report = remote("usage", "--by", "agent", "--json").document
    assert "math" in [line["key"] for line in report["lines"]]
    assert report["total"]["tasks"] >= 1


def test_a_task_of_a_server_is_stepped_filtered_and_shown_as_it_stood(remote: Any) -> None:
    made = remote("step", "math", "2 + 3?", "--json", "--by", "ann")
    assert made.code == 0, made.err
    task_id = made.document["task_id"]
    past = remote("show", task_id, "--at", "1", "--json", "--events").document
    assert [event["kind"] for event in past["events"]] == ["task_created"]
    assert (past["events"][0]["by"], past["task"]["head"], past["task"]["steps"]) == ("ann", 1, 0)
    forked = remote("fork", task_id, "--json").document["task_id"]
    forks = remote("tasks", "--forked-from", task_id, "--roots", "--updated-since", "1h", "--json").document
    assert [item["task_id"] for item in forks["items"]] == [forked]
    refused = remote("resume", task_id, "--by", "bob")
    assert (refused.code, "by must be 'ann', the principal of this client's token" in refused.err) == (
        2,
        True,
    )
