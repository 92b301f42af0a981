"""The plain assistant over HTTP, and the model that a command uses."""

import io
import sys

import pytest

from treadle.testing.provider import ProviderServer, fail, text

SERVED = '''
from dataclasses import dataclass
from pathlib import Path
from treadle import Agent, ScriptedModel, ToolContext, tool
from treadle.llm.scripted import call, text


@dataclass
class Session:
    user: str


def session_of(task):
    return Session("a guest")


def session_by_label(task):
    return Session(task.labels["user"])


def forget(call, ctx):
    Path(__file__).with_name("undone").write_text(ctx.context.user)


@tool(undo=forget)
def whoami(ctx: ToolContext[Session]) -> str:
    """Tell who asks."""
    return ctx.context.user


agent = Agent(ScriptedModel([call("whoami"), text("done")]), name="agent", tools=[whoami])
'''


@pytest.fixture
def provider(monkeypatch):
    """A local provider at the address of OpenAI's models; `say` sets its script."""
    servers: list[ProviderServer] = []

    def say(*turns) -> ProviderServer:
        server = ProviderServer(list(turns)).__enter__()
        servers.append(server)
        monkeypatch.setenv("OPENAI_API_KEY", "a-key")
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_base_url)
        return server

    yield say
    for server in servers:
        server.__exit__(None, None, None)


def test_without_agent_a_plain_assistant_uses_the_model_whose_key_is_set(provider, treadle):
    server = provider(text("Hello there."))
    ended = treadle("run", "hello")
    assert ended.code == 0, ended.err
    assert "Hello there." in ended.out
    assert "a-key" not in ended.out + ended.err
    assert server.requests[0].body["model"] == "gpt-5.4-mini"


def test_the_assistant_keeps_the_model_of_its_task(provider, treadle):
    server = provider(fail(400), text("Here I am."))
    assert treadle("run", "hello", "--model", "openai:gpt-other").code == 1
    assert treadle("resume", "last", "--json").document["final_text"] == "Here I am."
    assert [request.body["model"] for request in server.requests] == ["gpt-other", "gpt-other"]


def test_a_model_on_the_command_line_replaces_the_agents_model(provider, treadle):
    server = provider(text("From over the wire."))
    ended = treadle("run", "math", "hi", "--model", "openai:gpt-x", "--json")
    assert ended.document["final_text"] == "From over the wire."
    assert [tool["function"]["name"] for tool in server.requests[0].body["tools"]] == ["add"]


def test_a_model_of_an_unknown_provider_creates_no_task(treadle):
    ended = treadle("run", "math", "hi", "--model", "opnai:gpt-x")
    assert ended.code == 2
    assert "openai:gpt-x" in ended.err
    assert treadle("tasks").code == 2


def test_input_is_read_from_standard_input_for_a_dash(provider, treadle, monkeypatch):
    server = provider(text("Read."))
    monkeypatch.setattr("sys.stdin", io.StringIO("a long text"))
    assert treadle("run", "-").code == 0
    assert server.requests[0].body["messages"][-1]["content"] == "a long text"


@pytest.mark.parametrize(
    ("setting", "hint"),
    [
        ('agent = ["team:math"]', "did you mean 'agents'?"),
        ('contextfactory = "team:math"', "did you mean 'context_factory'?"),
        (
            "colour = 3",
            "the settings are agents, context_factory, mcp_servers, middleware, policy, sandbox, secrets",
        ),
    ],
)
def test_a_setting_that_does_not_exist_is_named_with_the_nearest_one(treadle, project, setting, hint):
    file = project / "pyproject.toml"
    file.write_text(f"{file.read_text()}{setting}\n")
    for command in (("run", "math", "1 + 2?"), ("drive",), ("chat", "math")):
        ended = treadle(*command)
        assert (ended.code, hint in ended.err, "pyproject.toml" in ended.err) == (2, True, True), command
    assert treadle("tasks").code == 2


def test_settings_that_are_no_table_are_refused(treadle, project):
    (project / "pyproject.toml").write_text("[tool]\ntreadle = 3\n")
    ended = treadle("run", "math", "1 + 2?")
    assert (ended.code, "tool.treadle must be a table, got 3" in ended.err) == (2, True)


def test_a_context_factory_that_cannot_be_imported_is_named_before_a_task_is_made(treadle, project):
    file = project / "pyproject.toml"
    for place, problem in (
        ("team:nobody", "team:nobody cannot be imported"),
        ("team:LEDGER", "context_factory must be a function of the task"),
        ("team:call.__doc__.nothing", "cannot be imported"),
    ):
        file.write_text(f'[tool.treadle]\nagents = ["team:math"]\ncontext_factory = "{place}"\n')
        for command in (("run", "math", "1 + 2?"), ("step", "math", "1 + 2?"), ("chat", "math"), ("drive",)):
            ended = treadle(*command)
            assert (ended.code, problem in ended.err) == (2, True), (command, ended.err)
    assert "there is no store" in treadle("tasks").err


def test_every_command_that_drives_makes_contexts_by_the_projects_function(treadle, project):
    (project / "served.py").write_text(SERVED)
    listed = '[tool.treadle]\nagents = ["served:agent"]\n'
    (project / "pyproject.toml").write_text(f'{listed}context_factory = "served:session_of"\n')
    assert treadle("step", "agent", "Who?").code == 0
    ended = treadle("resume", "last", "--json")
    assert (ended.code, ended.document["tool_executions"][0]["output"]) == (0, "a guest")
    treadle("step", "agent", "Who?")
    assert treadle("step", "last", "--until", "2").code == 0
    assert treadle("resume", "--state", "answered", "--yes").code == 0
    assert treadle("undo", "last", "--to", "0").code == 0
    assert (project / "undone").read_text() == "a guest"


def test_a_context_factory_that_fails_is_named_with_its_line(treadle, project):
    (project / "served.py").write_text(SERVED)
    (project / "pyproject.toml").write_text(
        '[tool.treadle]\nagents = ["served:agent"]\ncontext_factory = "served:session_by_label"\n'
    )
    for command in (("run", "agent", "Who?", "--task-id", "one"), ("resume", "one")):
        ended = treadle(*command)
        assert ended.code == 1
        assert "task one: context_factory session_by_label failed for agent 'agent': KeyError" in ended.err
        assert "(from served.py, line 18)" in ended.err
    assert treadle("show", "one", "--json").document["task"]["state"] == "created"


DESK = """
import os
from treadle import Agent, ScriptedModel, ToolContext, ToolOutput, tool
from treadle.models import call, text

@tool(read_only=True, secrets=("crm", "mail", "vault"))
def look(ctx: ToolContext) -> list[str]:
    '''Look.'''
    return [str(len(ctx.secret(name))) + " " + ctx.secret(name) for name in ("crm", "mail", "vault")]

async def shouts(call, next):
    result = await next(call)
    return ToolOutput([f"{text}!" for text in result.output])

def from_vault():
    return "vault-2345-abcdef"

agent = Agent(ScriptedModel([call("look"), text("Done.")]), name="desk", tools=[look])
"""
SOURCES = """
[tool.treadle]
agents = ["desk:agent"]
middleware = ["desk:shouts"]

[tool.treadle.secrets]
crm = "env:CRM_TOKEN"
mail = "file:mail.txt"
vault = "call:desk:from_vault"
"""
VALUES = ("crm-0123-abcdef", "mail-1234-abcdef", "vault-2345-abcdef")


@pytest.fixture
def desk(project, monkeypatch):
    (project / "desk.py").write_text(DESK)
    (project / "pyproject.toml").write_text(SOURCES)
    (project / "mail.txt").write_text("mail-1234-abcdef\n")
    monkeypatch.setenv("CRM_TOKEN", "crm-0123-abcdef")
    return project


def test_a_project_says_where_secrets_are_and_which_middleware_there_is(treadle, desk):
    ended = treadle("run", "desk", "go", "--json")
    (execution,) = ended.document["tool_executions"]
    assert execution["output"] == ["15 [secret]!", "16 [secret]!", "17 [secret]!"]
    shown = treadle("show", "last").out + treadle("show", "last", "--json").out
    assert not any(value in ended.out + shown for value in VALUES)
    doctor = treadle("doctor")
    assert "crm: the variable CRM_TOKEN\n" in doctor.out
    assert "vault: the function from_vault\n" in doctor.out
    assert "look: shouts (runner) > look" in doctor.out
    assert not any(value in doctor.out for value in VALUES)


def test_doctor_names_secrets_that_are_missing_and_never_their_values(treadle, desk, monkeypatch):
    monkeypatch.delenv("CRM_TOKEN")
    (desk / "pyproject.toml").write_text(SOURCES.replace("mail =", "mial ="))
    ended = treadle("doctor")
    assert "the secret 'crm': the variable CRM_TOKEN is not set" in ended.out
    assert "tool look declares the secret 'mail', which has no source" in ended.out


def test_a_variable_lists_secrets_where_the_project_does_not(treadle, desk, monkeypatch):
    (desk / "pyproject.toml").write_text('[tool.treadle]\nagents = ["desk:agent"]\n')
    monkeypatch.setenv("TREADLE_SECRETS", "crm=env:CRM_TOKEN, mail=file:mail.txt,vault=call:desk:from_vault")
    (execution,) = treadle("run", "desk", "go", "--json").document["tool_executions"]
    assert execution["output"] == ["15 [secret]", "16 [secret]", "17 [secret]"]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ('[tool.treadle.secrets]\ncrm = "crm-0123-abcdef"', "must be 'env:NAME'"),
        ('[tool.treadle.secrets]\ncrm = "call:desk:nothing"', "desk:nothing cannot be imported"),
        ('[tool.treadle]\nsecrets = "crm"', "must be a table of sources"),
        ('[tool.treadle]\nmiddleware = "desk:shouts"', "middleware must be a list of texts"),
        ('[tool.treadle]\nmiddleware = ["desk:from_vault"]', "must hold async functions"),
    ],
)
def test_a_wrong_source_or_middleware_is_named_and_no_secret_is_repeated(treadle, desk, settings, problem):
    (desk / "pyproject.toml").write_text(settings)
    for command in (("run", "desk:agent", "go"), ("drive", "--agent", "desk:agent")):
        ended = treadle(*command)
        assert (ended.code, problem in ended.err) == (2, True), (command, ended.err)
        assert "crm-0123-abcdef" not in ended.err
    assert problem in treadle("doctor").out


SCRIPT = """
import asyncio
from treadle import Agent, Runner, ScriptedModel
agent = Agent(ScriptedModel(["Hi."]), name="script")
{run}
"""


@pytest.mark.parametrize(
    "run",
    [
        "print(Runner().run_sync(agent, 'of the script'))",
        "print(asyncio.run(Runner().run(agent, 'of the script')))",
        "Runner().sync.create_task(agent, 'of the script')",
    ],
    ids=["run_sync", "asyncio", "create_task"],
)
def test_a_script_without_a_main_guard_ran_its_own_task_beside_that_of_the_command(
    treadle, project, monkeypatch, run
):
    monkeypatch.delitem(sys.modules, "script", raising=False)
    (project / "script.py").write_text(SCRIPT.format(run=run))
    ended = treadle("run", "script:agent", "of the command")
    assert ended.code == 2
    assert "script runs a task while it is imported for its agent" in ended.err
    assert 'below `if __name__ == "__main__":`' in ended.err
    assert "(script.py, line 5)" in ended.err
    assert treadle("tasks", "--json").document["items"] == []
    (project / "script.py").write_text(SCRIPT.format(run=f'if __name__ == "__main__":\n    {run}'))
    monkeypatch.delitem(sys.modules, "script", raising=False)
    assert treadle("run", "script:agent", "of the command").code == 0


def test_a_script_named_with_its_suffix_ran_before_it_was_refused(treadle, project):
    (project / "suffixed.py").write_text("open('ran', 'w').close()")
    ended = treadle("run", "suffixed.py:agent", "hi")
    assert ended.code == 2
    assert "write the module without .py: suffixed:agent" in ended.err
    assert not (project / "ran").exists()
