"""The declaration of an MCP server: what it takes, what it refuses, and what it shows."""

import pytest

from treadle import Agent, MCPServer, Runner, ScriptedModel, tool
from treadle.errors import ConfigurationError, MissingExtra
from treadle.models import call, text

SECRET = "sk-4f9a8b7c6d5e4f3a2b1c"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"name": "a b", "command": "x"}, "name must be at most 32 letters"),
        ({"name": "a__b", "command": "x"}, "name must be at most 32 letters"),
        ({"name": "a" * 33, "command": "x"}, "name must be at most 32 letters"),
        ({}, "command or url must be given, and not both"),
        ({"command": "x", "url": "https://example.com"}, "command or url must be given, and not both"),
        ({"command": ["npx", "x"]}, r"its arguments are args=\[...\]"),
        ({"command": "x", "args": "y"}, "args must be a list of texts"),
        ({"command": "x", "args": [1]}, "args must be a list of texts"),
        ({"command": "x", "env": {"A": 1}}, "env must map names to texts"),
        ({"command": "x", "headers": {"A": "b"}}, "headers is for servers with a url"),
        ({"command": "x", "auth": lambda: "t"}, "auth is for servers with a url"),
        ({"url": "example.com"}, "url must be like 'https://example.com/mcp'"),
        ({"url": "file:///etc/passwd"}, "url must be like"),
        ({"url": "https://example.com", "args": ["x"]}, "args is for servers with a command"),
        ({"command": "x", "protocol": "2019"}, "protocol must be auto or legacy or 2026-07-28"),
        ({"command": "x", "unavailable": "fail"}, "unavailable must be wait or continue"),
        ({"command": "x", "effects": {"*": ["readonly"]}}, "has 'readonly'; they are read_only, idempotent"),
        ({"command": "x", "effects": ["read_only"]}, "effects must map patterns"),
        ({"command": "x", "call_timeout": 0}, "call_timeout must be seconds, more than 0"),
        ({"command": "x", "start_timeout": None}, "start_timeout must be seconds, more than 0"),
    ],
)
def test_a_wrong_argument_is_named(options, says):
    with pytest.raises(ConfigurationError, match=says):
        MCPServer(**{"name": "desk", **options})


def test_values_of_the_environment_and_of_headers_are_shown_nowhere():
    program = MCPServer("desk", command="npx", args=["-y", "desk"], env={"API_KEY": SECRET})
    remote = MCPServer(
        "desk", url=f"https://me:{SECRET}@example.com/mcp?key={SECRET}", headers={"X-Key": SECRET}
    )
    assert repr(program) == "MCPServer('desk', 'npx -y desk')"
    assert repr(remote) == "MCPServer('desk', 'https://example.com/mcp')"
    assert SECRET not in f"{program.facts()} {remote.facts()}"


def test_an_agent_shows_its_servers_and_is_another_version_with_another_declaration():
    def agent(**options):
        return Agent(ScriptedModel(["ok"]), tools=[MCPServer("desk", **{"command": "npx", **options})])

    assert repr(agent()) == "Agent('scripted', name='agent', tools=[desk__*])"
    assert agent().fingerprint == agent(env={"API_KEY": SECRET}, call_timeout=5).fingerprint
    versions = [
        agent(),
        agent(args=["x"]),
        agent(only=["read_*"]),
        agent(trusted=True),
        agent(effects={"*": ["read_only"]}),
        Agent(ScriptedModel(["ok"])),
    ]
    assert len({version.fingerprint for version in versions}) == len(versions)


def test_equal_declarations_are_one_server_to_a_runner():
    desk = MCPServer("desk", command="npx", env={"A": "1"})
    assert desk == MCPServer("desk", command="npx", env={"A": "1"})
    assert hash(desk) == hash(MCPServer("desk", command="npx", env={"A": "1"}))
    assert desk != MCPServer("desk", command="npx", env={"A": "2"})
    assert desk != "desk"


def test_two_servers_of_one_name_are_refused_by_their_agent():
    desk = MCPServer("desk", command="npx")
    with pytest.raises(ConfigurationError, match="two toolsets are named 'desk'; rename one"):
        Agent(ScriptedModel(["ok"]), tools=[desk, MCPServer("desk", command="other")])


def test_an_agent_keeps_tools_and_servers_apart_when_it_is_changed():
    @tool
    def look() -> str:
        return "seen"

    agent = Agent(ScriptedModel(["ok"]), tools=[MCPServer("desk", command="npx"), look])
    changed = agent.replace(instructions="Be kind.")
    assert [each.spec.name for each in changed.tools] == ["look"]
    assert [each.name for each in changed.toolsets] == ["desk"]


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install '/path/to/treadle\[mcp\]'"):
        MCPServer("desk", command="npx")


@pytest.mark.anyio
async def test_a_credential_in_the_environment_of_a_server_reached_the_journal_when_it_said_it(
    server, clerk, tmp_path
):
    secret = "tok-4f9a8b7c6d5e4f3a2b1c"
    desk = server(env={"CRM_KEY": secret, "PROJECT": "apollo-launch-7"})
    script = [
        call("desk__environment", name="CRM_KEY"),
        call("desk__environment", name="PROJECT"),
        text("done"),
    ]
    agent = clerk(script, desk)
    async with Runner(tmp_path / "journal.db") as runner:
        result = await runner.run(agent, "go")
    assert "[secret]" in str(result.tool_executions[0].output)
    assert secret not in f"{result} {agent.model.requests[1].messages}"
    assert secret.encode() not in b"".join(file.read_bytes() for file in tmp_path.glob("journal*"))
    assert "apollo-launch-7" in str(result.tool_executions[1].output), "a variable of another name is none"
