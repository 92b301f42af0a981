"""Servers from files that users have."""

import json

import pytest

from treadle import MCPServer
from treadle.errors import ConfigurationError, WrongArguments


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
            r"has \$\{input:key\}, which stands for nothing",
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
