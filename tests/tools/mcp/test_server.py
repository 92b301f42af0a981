"""The declaration of an MCP server: what it takes, what it refuses, and what it shows."""

import json

import pytest

from treadle import Agent, MCPServer, Runner, ScriptedModel, tool
from treadle.errors import ConfigurationError, MissingExtra, WrongArguments
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


# ----------------------------------------------------------------------- servers from files that users have


@pytest.fixture
def write(tmp_path):
    """Write a file of servers and return its path."""

    def write(content, name=".mcp.json"):
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return write


def test_a_misspelt_key_was_told_as_a_missing_one_and_a_missing_file_was_named_twice(write, tmp_path, caplog):
    with pytest.raises(ConfigurationError, match=r"server 'desk' has 'comand'; did you mean 'command'\?"):
        MCPServer.from_file(write({"mcpServers": {"desk": {"comand": "npx"}}}))
    with pytest.raises(ConfigurationError) as missing:
        MCPServer.from_file(tmp_path / "missing.json")
    assert str(missing.value).count("missing.json") == 1
    caplog.set_level("INFO", logger="treadle.mcp")
    (server,) = MCPServer.from_file(write({"mcpServers": {"my desk": {"command": "npx"}}}))
    assert server.name == "my-desk"
    assert "server 'my desk': its tools are called my-desk__" in caplog.text


def test_the_files_of_other_programs_are_read(write, monkeypatch):
    monkeypatch.setenv("DESK_KEY", "made-up-key")
    path = write(
        {
            "mcpServers": {
                "files": {
                    "type": "stdio",
                    "command": "npx",
                    "args": ["-y", "files", "${HOME_FOLDER:-/tmp}"],
                    "env": {"KEY": "${DESK_KEY}"},
                    "autoApprove": ["write_file"],
                },
                "my docs.v2": {
                    "type": "http",
                    "url": "https://example.com/mcp",
                    "headers": {"X-Key": "${env:DESK_KEY}"},
                },
                "old": {"command": "old", "disabled": True},
            }
        }
    )
    files, docs = MCPServer.from_file(path, pins=None, trusted=True)
    assert (files.name, files.command, files.args) == ("files", "npx", ("-y", "files", "/tmp"))
    assert (files.env, files.trusted) == ({"KEY": "made-up-key"}, True)
    assert (docs.name, docs.url, docs.headers) == (
        "my-docs-v2",
        "https://example.com/mcp",
        {"X-Key": "made-up-key"},
    )
    (same,) = MCPServer.from_file(write({"servers": {"a": {"command": "x"}}}, "mcp.json"))
    assert same.command == "x"


def test_the_type_of_a_file_chooses_the_transport(write):
    url = "https://example.com/sse"
    entries = {name: {"type": name, "url": url} for name in ("sse", "http", "streamable-http")}
    servers = MCPServer.from_file(write({"mcpServers": entries}))
    assert [each.transport for each in servers] == ["sse", "http", "http"]


@pytest.mark.parametrize("name", ["httpUrl", "serverUrl"])
def test_other_names_of_an_address_are_read_and_what_is_not_enabled_is_left_out(write, name):
    entries = {"a": {name: "https://example.com/mcp"}, "b": {"command": "x", "enabled": False}}
    (server,) = MCPServer.from_file(write({"mcpServers": entries}))
    assert server.url == "https://example.com/mcp"


def test_the_project_file_lists_servers_beside_its_other_settings(write, monkeypatch):
    monkeypatch.setenv("DESK_KEY", "made-up-key")
    path = write(
        """
        [tool.treadle]
        agents = ["desk:agent"]

        [tool.treadle.mcp_servers.docs]
        url = "https://example.com/mcp"
        transport = "sse"
        headers = { X-Key = "${DESK_KEY}" }

        [tool.treadle.mcp_servers.old]
        command = "old"
        disabled = true
        """,
        "pyproject.toml",
    )
    (docs,) = MCPServer.from_file(path)
    assert (docs.name, docs.transport, docs.headers) == ("docs", "sse", {"X-Key": "made-up-key"})
    with pytest.raises(ConfigurationError, match=r"under \[tool\.treadle\.mcp_servers\]"):
        MCPServer.from_file(write("[tool.treadle]\nagents = []", "pyproject.toml"))


def test_a_toml_file_takes_all_arguments(write):
    path = write(
        """
        [mcp_servers.files]
        command = "npx"
        args = ["-y", "files"]
        only = ["read_*"]
        effects = { "read_*" = ["read_only"] }
        call_timeout = 5
        """,
        "treadle.toml",
    )
    (files,) = MCPServer.from_file(path)
    assert (files.only, files.effects, files.call_timeout) == (("read_*",), {"read_*": ("read_only",)}, 5.0)
    with pytest.raises(WrongArguments, match=r"treadle\.toml: MCPServer has no argument 'autoApprove'"):
        MCPServer.from_file(write('[mcp_servers.a]\ncommand = "x"\nautoApprove = []', "treadle.toml"))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "cannot be read"),
        ({"mcpServers": {"a": {"command": "x", "envFile": ".env"}}}, "has envFile, which is not read"),
        ("[]", "must list servers by name under one of mcpServers, servers, mcp_servers"),
        ({"mcpServers": []}, "must list servers by name"),
        ({"mcpServers": {"a": "npx"}}, "server 'a' must be an object with command or url"),
        (
            {"mcpServers": {"a": {"type": "ws", "url": "https://example.com"}}},
            "has the type 'ws'; they are stdio",
        ),
        (
            {"mcpServers": {"a": {"command": "x", "env": {"K": "${NOT_SET_ANYWHERE}"}}}},
            "server 'a' needs the environment variable NOT_SET_ANYWHERE",
        ),
        (
            {"mcpServers": {"a": {"command": "${input:key}"}}},
            r"has \$\{input:key\}, which has no meaning",
        ),
        ({"mcpServers": {"a b": {"command": "x"}, "a.b": {"command": "x"}}}, "is named 'a-b', too"),
        ({"mcpServers": {"a": {}}}, "command or url must be given"),
        ({"mcpServers": {"...": {"command": "x"}}}, "name must be at most 32 letters"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(write, content, says):
    with pytest.raises(ConfigurationError, match=says):
        MCPServer.from_file(write(content))


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match=r"missing\.json cannot be read"):
        MCPServer.from_file(tmp_path / "missing.json")
