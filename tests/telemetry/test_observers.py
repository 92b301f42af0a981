"""Observers get all events of all tasks, and neither fail nor slow any of them."""

import io
import json
import time

import pytest

from treadle import Agent, Policy, Rule, Runner, RunOptions, ScriptedModel, tool
from treadle.core import events as e
from treadle.core.messages import Message, Text
from treadle.core.model import SideCall
from treadle.errors import ConfigurationError
from treadle.llm.layers.fallback import Fallback
from treadle.llm.scripted import call, fail, text
from treadle.telemetry import Console, JsonLines
from treadle.telemetry.redaction import LONGEST, Redaction

pytestmark = pytest.mark.anyio


@tool(read_only=True)
async def look(n: int) -> str:
    """Look."""
    return f"found {n}"


async def test_an_object_that_is_not_an_observer_is_refused_by_name():
    async def eager(notice): ...

    for wrong in (eager, 5, JsonLines):
        with pytest.raises(ConfigurationError, match="Runner: observers must list"):
            Runner("memory:", observers=[wrong])
    for name in ("verbose", "jsonl:", ""):
        with pytest.raises(ConfigurationError, match="takes console, jsonl:PATH or otel"):
            Runner("memory:", observers=[name])
    with pytest.raises(ConfigurationError, match=r"observers=\['console'\]"):
        Runner("memory:", observers="console")


async def test_observers_could_be_named_on_the_command_line_alone(tmp_path, capfd):
    path = tmp_path / "events.jsonl"
    async with Runner("memory:", observers=["console", f"jsonl:{path}"]) as runner:
        await runner.run(Agent(ScriptedModel(["Hi."]), name="greeter"), "Hello")
    kinds = [json.loads(line)["kind"] for line in path.read_text().splitlines()]
    assert [kinds[0], kinds[-1]] == ["drive_began", "drive_ended"]
    assert "greeter" in capfd.readouterr().err


async def test_json_lines_hold_facts_and_content_only_if_configured(tmp_path):
    model = ScriptedModel([call("look", n=1), text("The answer is violet.")])
    plain, full = tmp_path / "plain.jsonl", tmp_path / "full.jsonl"
    observers = [JsonLines(plain), JsonLines(full, content=True, deltas=True)]
    async with Runner("memory:", observers=observers) as runner:
        result = await runner.run(
            Agent(model, name="looker", tools=[look], instructions="Be mauve."), "Beige?"
        )
    lines = [json.loads(line) for line in plain.read_text().splitlines()]
    assert {line["task_id"] for line in lines} == {result.task_id}
    assert {tuple(line["agent_path"]) for line in lines if "agent_path" in line} == {("looker",)}
    assert next(line for line in lines if line["kind"] == "tool_ended")["tool"] == "look"
    assert all(line["format"] == 2 for line in lines)
    assert [line["kind"] for line in lines][:2] == ["drive_began", "task_created"]
    assert lines[-1] == {**lines[-1], "kind": "drive_ended", "state": "completed"}
    assert all(word not in plain.read_text() for word in ("violet", "mauve", "Beige", "found 1"))
    returned = next(line for line in lines if line["kind"] == "model_returned")
    assert returned["calls"] == [{"id": "s1-0", "name": "look"}]
    assert returned["usage"]["input_tokens"] == 10
    assert all(word in full.read_text() for word in ("violet", "mauve", "Beige", "found 1", '"kind":"delta"'))
    assert plain.stat().st_mode & 0o077 == 0


SECRETS = {
    "in an argument": "sekret-argument-1",
    "in the environment": "sekret-environment-2",
    "given": "sekret-given-3",
    "in a header": "sekret-header-4",
    "in a url": "sekret-url-5",
    "in json as text": "sekret-json-6",
}


async def test_no_observer_exports_secrets_even_with_content(tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", SECRETS["in the environment"])

    @tool(read_only=True)
    async def login(user: str, password: str) -> dict:
        return {
            "text": f"key {SECRETS['in the environment']} and {SECRETS['given']}",
            "header": f"Authorization: Bearer {SECRETS['in a header']}",
            "url": f"postgres://me:{SECRETS['in a url']}@host/db",
            "raw": json.dumps({"access_token": SECRETS["in json as text"], "max_tokens": 512}),
        }

    model = ScriptedModel([call("login", user="ann", password=SECRETS["in an argument"]), text("Done.")])
    given, screen = [SECRETS["given"]], (tmp_path / "screen").open("w+")
    observers = [
        JsonLines(tmp_path / "all.jsonl", content=True, deltas=True, secrets=given),
        Console(screen, content=True, secrets=given),
    ]
    async with Runner("memory:", observers=observers) as runner:
        result = await runner.run(Agent(model, tools=[login]), "Go.")
    assert result.state == "completed"
    screen.seek(0)
    for told in ((tmp_path / "all.jsonl").read_text(), screen.read()):
        assert "Done." in told
        assert [where for where, secret in SECRETS.items() if secret in told] == []
    assert "512" in (tmp_path / "all.jsonl").read_text()
    screen.close()


async def test_the_console_shows_which_agent_did_what_and_what_failed(tmp_path):
    @tool(read_only=True)
    async def broken() -> str:
        raise OSError("no disk \x1b[31m")

    model = ScriptedModel([[call("look", n=1), call("broken")], fail(500), text("Sorry.")])
    with (tmp_path / "screen").open("w+") as screen:
        async with Runner("memory:", observers=[Console(screen, content=True)]) as runner:
            await runner.run(Agent(model, name="looker", tools=[look, broken]), "Go.", options=RunOptions())
        screen.seek(0)
        shown = screen.read()
    for words in (
        "looker",
        "step 1",
        "wants look, broken",
        "look 0 ms" if "look 0 ms" in shown else "look ",
        "Go.",
    ):
        assert words in shown
    assert "broken: error" in shown
    assert "scripted failed: server 500" in shown
    assert "\x1b" not in shown
    assert shown.rstrip().splitlines()[-1].endswith("■ failed")


async def test_the_console_names_the_model_that_is_asked_of_several(tmp_path):
    with (tmp_path / "screen").open("w+") as screen:
        async with Runner("memory:", observers=[Console(screen)]) as runner:
            await runner.run(Agent(several(fail(503), text("Hello.")), name="a"), "Go.")
        screen.seek(0)
        lines = screen.read().splitlines()
    assert any("✗ a:one failed: overloaded 503" in line for line in lines)
    assert any("↻ b:two, attempt 2" in line for line in lines)


def several(first_item, second_item):
    return Fallback([ScriptedModel([first_item], name="a:one"), ScriptedModel([second_item], name="b:two")])


def test_the_text_of_a_side_calls_error_is_content():
    event = e.ModelReturned(
        "s1", Message("assistant", (Text("Hi."),)), also=(SideCall("a:b", error="down: key"),)
    )
    told = Redaction().event(event, content=False)
    assert [(side["model"], side["error"]) for side in told["also"]] == [("a:b", "failed")]
    assert "down: key" in str(Redaction().event(event, content=True))


def test_a_very_long_text_is_cut_without_half_a_secret():
    redaction = Redaction(["sekret-" + "x" * 100])
    told = redaction.text("a" * (LONGEST - 50) + "sekret-" + "x" * 100 + "b" * 500_000)
    assert len(told) < LONGEST + 50
    assert "sekret" not in told
    assert len(redaction.json(list(range(500_000)))) == 1_000
    began = time.process_time()
    redaction.json({"page": "token " * 500_000, "more": [{"x": "password " * 1_000}] * 100})
    assert time.process_time() - began < 2


async def test_the_console_tells_which_rule_decided_and_nothing_where_none_did() -> None:
    policy = Policy(
        Rule("no-look", "deny", tool="look", reason="Not today."),
        Rule("dear", "allow", model="*", when={"model_calls": {"at_least": 1}}),
    )
    agent = Agent(ScriptedModel([call("look", n=1), text("Done.")]), name="desk", tools=[look])
    screen = io.StringIO()
    async with Runner("memory:", observers=[Console(screen)], policy=policy) as runner:
        await runner.run(agent, "Go.")
    judged = [line.partition("! ")[2] for line in screen.getvalue().splitlines() if "judged" in line]
    assert judged == [
        "look was judged (s1-0): deny by rule no-look",
        "a request to scripted was judged: allow by rule dear",
    ]
