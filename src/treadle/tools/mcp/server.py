"""`MCPServer`: an MCP server whose tools an agent may call.

This module also reads servers from TOML, and from files shared with other programs, such as `.mcp.json`.
"""

from __future__ import annotations

import json
import logging
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from treadle.core.tools import ToolSpec
from treadle.core.unknown_names import explains_names, near_name
from treadle.errors import ConfigurationError, WrongArguments
from treadle.ports import ToolsetConnection
from treadle.tools.mcp.connection import ServerConnection, specs_of
from treadle.tools.mcp.declaration import ServerDeclaration
from treadle.tools.mcp.pins import Change, chosen_differences, pins_of

_log = logging.getLogger("treadle.mcp")

TABLES: Final = ("mcpServers", "servers", "mcp_servers")
"""Keys under which files list servers by name."""

OPTIONS: Final = ("command", "args", "env", "cwd", "url", "headers")
"""Keys of a server that all programs share. Other keys in JSON are ignored."""

ADDRESSES: Final = ("httpUrl", "serverUrl")
"""Keys that some programs use for the URL of a streamable HTTP server."""

PROJECT: Final = "pyproject.toml"

_VARIABLE: Final = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_UNKNOWN: Final = re.compile(r"\$\{[^}]*\}")


def read_servers(path: str | os.PathLike[str]) -> dict[str, dict[str, Any]]:
    """Return the options of the enabled servers in a file, by name.

    `${NAME}`, `${NAME:-default}` and `${env:NAME}` are replaced by environment variables. In `pyproject.toml` the
    servers are under `[tool.treadle]`.

    Raises:
        ConfigurationError: the file cannot be read, or an entry is not valid; the text names file and server.
    """
    path = Path(path)
    is_toml = path.suffix == ".toml"
    try:
        text = path.read_text(encoding="utf-8")
        document: Any = tomllib.loads(text) if is_toml else json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigurationError(f"{path} cannot be read: {reason}") from error
    if path.name == PROJECT:
        document = document.get("tool", {}).get("treadle", {})
    tables = cast("dict[str, Any]", document) if isinstance(document, dict) else {}
    server_tables = [tables[name] for name in TABLES if name in tables]
    if len(server_tables) != 1 or not isinstance(server_tables[0], dict):
        label = "[tool.treadle.mcp_servers]" if path.name == PROJECT else f"one of {', '.join(TABLES)}"
        raise ConfigurationError(f"{path} must list servers by name under {label}")
    servers: dict[str, dict[str, Any]] = {}
    for name, entry in cast("dict[str, Any]", server_tables[0]).items():
        label = f"{path}: server {name!r:.80}"
        if not isinstance(entry, dict):
            raise ConfigurationError(f"{label} must be an object with command or url, got {entry!r:.80}")
        facts = cast("dict[str, Any]", entry)
        if facts.get("disabled") is True or facts.get("enabled") is False:
            continue
        plain = re.sub(r"[^A-Za-z0-9-]+", "-", name).strip("-")
        if plain in servers:
            raise ConfigurationError(f"{label}: another server of the file is named {plain!r}, too")
        if plain != name:
            _log.info("%s: its tools are called %s__...", label, plain)
        options = _from_toml(facts) if is_toml else _from_json(facts, label)
        if not is_toml and not {"command", "url", *ADDRESSES} & {*facts}:
            for key in facts:
                if (near := near_name(key, ("command", "url"))) is not None:
                    raise ConfigurationError(f"{label} has {key!r:.80}; did you mean {near!r}?")
        if not is_toml and (other := next((name for name in ADDRESSES if name in facts), None)):
            facts = {**facts, "url": facts[other]}
        servers[plain] = options | {name: _expanded(facts[name], label) for name in OPTIONS if name in facts}
    return servers


def _from_toml(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if name not in ("disabled", "enabled")}


def _from_json(facts: Mapping[str, Any], label: str) -> dict[str, Any]:
    """Return the transport of a server, from the keys that programs use for it."""
    if "envFile" in facts:
        raise ConfigurationError(f"{label} has envFile, which is not read: list its variables in env")
    kind = facts.get("type", facts.get("transport"))
    if kind == "sse":
        return {"transport": "sse"}
    if kind not in (None, "stdio", "http", "streamable-http", "streamableHttp", "streamable_http"):
        raise ConfigurationError(f"{label} has the type {kind!r:.80}; they are stdio, http and sse")
    return {}


def _expanded(value: Any, label: str, *, inside: bool = False) -> Any:
    """Return a value with the environment variables in its texts expanded."""
    if isinstance(value, list) and not inside:
        return [_expanded(each, label, inside=True) for each in cast("list[Any]", value)]
    if isinstance(value, dict) and not inside:
        items = cast("dict[str, Any]", value).items()
        return {name: _expanded(each, label, inside=True) for name, each in items}
    if not isinstance(value, str):
        return cast("Any", value)

    def variable(match: re.Match[str]) -> str:
        name: str = match.group(1)
        default: str | None = match.group(2)
        expansion = os.environ.get(name) or default
        if expansion is None:
            raise ConfigurationError(f"{label} needs the environment variable {name}, which is not set")
        return expansion

    expanded = _VARIABLE.sub(variable, value)
    if (unknown := _UNKNOWN.search(_VARIABLE.sub("", value))) is not None:
        raise ConfigurationError(f"{label} has {unknown.group()}, which has no meaning here")
    return expanded


@explains_names("MCPServer")
class MCPServer(ServerDeclaration):
    """A server of the Model Context Protocol whose tools an agent may call: `Agent(tools=[MCPServer(...)])`.

    It is started or reached when a task of the agent is first driven, and closed with the runner. Its tools are named
    `name__tool`. Their definitions are pinned at the first listing. If the server changes a tool later, each call of it
    needs a person's approval. New tools are not offered.

    Args:
        name: the prefix of its tools' names: at most 32 letters, digits, `-` and single `_`.
        command: the program of a server over stdio.
        args: its arguments.
        env: its environment variables. Besides these it gets only PATH, HOME, LANG and the like.
        cwd: its working directory.
        url: the URL of a server over streamable HTTP, instead of `command`.
        headers: headers of each request.
        auth: a function, sync or async, that returns the bearer token. It is called again when the server refuses the
            token. Or an `httpx2.Auth`, such as an OAuth provider of the `mcp` package.
        transport: `sse` for a URL that serves HTTP with server-sent events, as before 2025.
        protocol: `legacy` for the protocol with a handshake, before 2026, or `2026-07-28` for the one without. `auto`
            asks the server.
        only: patterns of the server's tool names, such as `read_*`. Other tools are not offered.
        effects: declared effects by patterns of tool names, `{"get_*": ["read_only"]}`. The first match counts.
        trusted: whether the server's own annotations are trusted. Otherwise a tool without declared `effects` may write
            and is never started twice. A request with the server's tools then counts as one that has read untrusted
            content: names, descriptions and schemas may be foreign text.
        trusted_results: patterns of names of tools whose results contain no foreign text, such as a time or a sum. All
            other results are untrusted, even if the server is `trusted`.
        resources: whether models may list and read the server's resources, by read-only tools.
        prompts: whether models may list and read the server's prompts, by read-only tools.
        roots: folders that are announced to the server as its working area; by default none.
        elicitation: whether the server may ask people during a call. Its questions wait as those of `ctx.ask` do. A
            call that may write cannot wait, so its questions are declined: declare its `effects`.
        sampling: an async function of the `mcp` package's request that answers a server's request for a model. By
            default these requests are refused.
        pins: the folder for pinned definitions. The default is `.treadle/mcp` beside the store's file, or in the
            working directory if the store has no file. None pins only for the life of the process.
        start_timeout: seconds in which the server must start and list its tools.
        call_timeout: seconds that a call may take.
        unavailable: the reaction to an unavailable server. `wait` leaves a task as it is, and raises
            `ToolsetUnavailable`. `continue` drives it with the pinned tools, whose calls fail.

    Raises:
        ConfigurationError: an argument is not valid; the text names it.
        MissingExtra: the package `mcp` is not installed.
    """

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], **options: Any) -> list[MCPServer]:
        """Return the servers of a file: `.mcp.json` and the like, or TOML with a table `[mcp_servers.NAME]` for each.

        Args:
            path: the file. `${NAME}` is replaced by an environment variable. Disabled servers are left out. In JSON,
                keys of other programs are ignored, such as those that approve calls. In `pyproject.toml` the tables
                are `[tool.treadle.mcp_servers.NAME]`.
            options: further arguments for each server. The file overrides them.

        Raises:
            ConfigurationError: the file cannot be read, or an entry is not valid.
        """
        servers: list[MCPServer] = []
        for name, configured in read_servers(path).items():
            try:
                servers.append(cls(name, **{**options, **configured}))
            except (ConfigurationError, WrongArguments) as error:
                raise type(error)(f"{os.fspath(path)}: {error}") from None
        return servers

    def known_specs(self, store_file: str | os.PathLike[str] | None = None) -> tuple[ToolSpec, ...] | None:
        """Return the pinned tools without contacting the server; None if it was never listed.

        Args:
            store_file: the store's file, beside which they are pinned; by default the working directory's pins.
        """
        pinned = pins_of(self, store_file).read()
        return None if pinned is None else tuple(specs_of(self, pinned.values()))

    async def changes(self, store_file: str | os.PathLike[str] | None = None) -> Mapping[str, Change]:
        """Return the differences of the current listing from the pins, by the server's tool names: changed, new or
        gone.

        It starts the server and ends it. A first listing is pinned. Raises `ToolsetUnavailable`.

        Args:
            store_file: the store's file, beside which tools are pinned; by default the working directory's pins.
        """
        connection = ServerConnection(self, store_file)
        try:
            return {name: each.change for name, each in (await connection.differences()).items()}
        finally:
            await connection.close()

    async def approve(
        self, *tools: str, store_file: str | os.PathLike[str] | None = None
    ) -> Mapping[str, Change]:
        """Pin the current definitions, and return the settled differences; raises `ToolsetUnavailable`.

        Args:
            tools: the server's names of the tools to pin; by default all that differ from their pins.
            store_file: the store's file, beside which tools are pinned; by default the working directory's pins.

        Raises:
            ConfigurationError: a named tool is unknown, or matches its pin.
        """
        connection = ServerConnection(self, store_file)
        try:
            chosen = chosen_differences(self.name, await connection.differences(), tools)
            connection.approve(chosen)
            return {name: each.change for name, each in chosen.items()}
        finally:
            await connection.close()

    def connect(self) -> ToolsetConnection:
        """Return a new connection. It starts the server when its tools are first listed."""
        return ServerConnection(self)

    def connect_beside(self, store_file: Path | None) -> ToolsetConnection:
        """Return a connection for a runner whose store is this file; None if the store has no file."""
        return ServerConnection(self, store_file)
