"""`MCPServer`: a server whose tools an agent may call."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from treadle.core.tools import ToolSpec
from treadle.core.unknown_names import explains_names
from treadle.errors import ConfigurationError, WrongArguments
from treadle.ports import ToolsetConnection
from treadle.tools.mcp.config_file import read_servers
from treadle.tools.mcp.connection import ServerConnection, specs_of
from treadle.tools.mcp.declaration import ServerDeclaration
from treadle.tools.mcp.pins import Change, chosen_differences, pins_of


@explains_names("MCPServer")
class MCPServer(ServerDeclaration):
    """A server of the Model Context Protocol, whose tools an agent may call: `Agent(tools=[MCPServer(...)])`.

    It is started or reached when a task of the agent is first driven, and kept for as long as the runner is open. Its
    tools are called `name__tool`. Their definitions are pinned when the server is first listed: a tool that the server
    defines differently afterwards is not called before a person approves it, and one that is new is not offered.

    Args:
        name: what the names of its tools begin with: at most 32 letters, digits, `-` and single `_`.
        command: the program of a server that speaks over stdio.
        args: its arguments.
        env: environment variables for it, beside PATH, HOME, LANG and the like; it is given no others.
        cwd: its working directory.
        url: the address of a server that speaks streamable HTTP, instead of `command`.
        headers: of each request to it.
        auth: returns the bearer token of requests, sync or async, and is called again when the server refuses one; or
            an `httpx2.Auth`, such as an OAuth provider of the `mcp` package.
        transport: `sse` for a server with a url that speaks HTTP with server-sent events, as before 2025.
        protocol: `legacy` for the handshake of the years before 2026, `2026-07-28` for the protocol without; `auto`
            asks the server.
        only: patterns of the server's names of tools, such as `read_*`; the others are not offered.
        effects: what tools do, by patterns of their names: `{"get_*": ["read_only"]}`. The first that matches counts.
        trusted: whether the server's declarations of its tools are believed. Otherwise a tool for which `effects` says
            nothing may write, and is never started twice; and a request that offers tools of the server counts as one
            that read something untrusted, since a stranger may have written their names, descriptions and schemas.
        trusted_results: patterns of names of tools whose results hold nothing that a stranger may have written, such as
            a time or a sum. All other results of a server are untrusted, also those of one that is `trusted`.
        resources: whether models may list and read the server's resources, by tools that only read.
        prompts: whether models may list and read the server's prompts, likewise.
        roots: folders that the server is told to work in; none are told by default.
        elicitation: whether the server may ask people in the middle of a call: its questions wait for answers as those
            of `ctx.ask` do. Tools that may write cannot wait, so their questions are declined: see `effects`.
        sampling: answers a server that asks for a model: an async function of the request of the `mcp` package. By
            default such requests are refused.
        pins: the folder in which definitions are pinned: by default `.treadle/mcp` beside the file of the runner's
            store, or in the working directory if its store is no file. None pins for the life of the process alone.
        start_timeout: seconds in which the server has to be there, with its tools listed.
        call_timeout: seconds that a call may take.
        unavailable: `wait` leaves a task as it is while the server cannot be had (`ToolsetUnavailable` is raised);
            `continue` drives it with the tools that were pinned, whose calls fail.

    Raises:
        ConfigurationError: an argument is not valid; the text names it.
        MissingExtra: the package `mcp` is not installed.
    """

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], **options: Any) -> list[MCPServer]:
        """Return the servers of a file: `.mcp.json` and the like, or TOML with a table `[mcp_servers.NAME]` for each.

        Args:
            path: of the file. `${NAME}` stands for an environment variable; servers that are disabled are left out,
                and so are, in JSON, keys that other programs alone know, such as those that approve calls. In
                `pyproject.toml` the tables are `[tool.treadle.mcp_servers.NAME]`.
            options: further arguments of each server; what the file says goes before.

        Raises:
            ConfigurationError: the file cannot be read, or an entry is not valid.
        """
        servers: list[MCPServer] = []
        for name, found in read_servers(path).items():
            try:
                servers.append(cls(name, **{**options, **found}))
            except (ConfigurationError, WrongArguments) as error:
                raise type(error)(f"{os.fspath(path)}: {error}") from None
        return servers

    def known_specs(self, store_file: str | os.PathLike[str] | None = None) -> tuple[ToolSpec, ...] | None:
        """Return the tools that are pinned, without a look at the server; None if it was never listed.

        Args:
            store_file: the file of the store beside which they are pinned; by default that of the working directory.
        """
        pinned = pins_of(self, store_file).read()
        return None if pinned is None else tuple(specs_of(self, pinned.values()))

    async def changes(self, store_file: str | os.PathLike[str] | None = None) -> Mapping[str, Change]:
        """Return what the server lists otherwise than it was pinned, by its names of tools: changed, new or gone.

        The server is started for that, and ended. One that was never listed is pinned. Raises `ToolsetUnavailable`.

        Args:
            store_file: the file of the store beside which tools are pinned; by default that of the working directory.
        """
        connection = ServerConnection(self, store_file)
        try:
            return {name: each.change for name, each in (await connection.differences()).items()}
        finally:
            await connection.close()

    async def approve(
        self, *tools: str, store_file: str | os.PathLike[str] | None = None
    ) -> Mapping[str, Change]:
        """Pin what the server lists now, and return what that changes; raises `ToolsetUnavailable`.

        Args:
            tools: the server's names of the tools to pin; all that are not as they were pinned by default.
            store_file: the file of the store beside which tools are pinned; by default that of the working directory.

        Raises:
            ConfigurationError: a tool is listed as it was pinned, or not listed.
        """
        connection = ServerConnection(self, store_file)
        try:
            chosen = chosen_differences(self.name, await connection.differences(), tools)
            connection.approve(chosen)
            return {name: each.change for name, each in chosen.items()}
        finally:
            await connection.close()

    def connect(self) -> ToolsetConnection:
        """Return a new connection; the server is started once its tools are asked for."""
        return ServerConnection(self)

    def connect_beside(self, store_file: Path | None) -> ToolsetConnection:
        """Return what `connect` does, for a runner whose store is this file; None if it is none."""
        return ServerConnection(self, store_file)
