"""`mcp`: list the changes of MCP servers' tools since they were pinned, approve the changes, and serve over MCP."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from treadle.cli import agents
from treadle.cli.command import Session, command
from treadle.cli.mcp_serving import serve
from treadle.cli.screen import some
from treadle.core.display import clean, cut, exact_text
from treadle.errors import ConfigurationError, ToolsetUnavailable
from treadle.tools.mcp.connection import ServerConnection, unmatched
from treadle.tools.mcp.pins import Difference, chosen_differences
from treadle.tools.mcp.server import MCPServer
from treadle.wiring import open_store

_SHOWN: Final = 2_000
"""Maximum number of characters shown of a line of a definition."""

mcp = typer.Typer(
    no_args_is_help=True,
    help="MCP: list the tools of servers, approve changed ones, serve agents and tools.",
    add_completion=False,
)
mcp.command("serve")(serve)

AgentOption = Annotated[
    list[str] | None,
    typer.Option(
        "--agent", help="An agent that uses servers, as MODULE:AGENT or by its name in the project."
    ),
]


@mcp.command("list")
@command
async def list_servers(session: Session, agent: AgentOption = None) -> int:
    """Start the servers of agents and list their tools: pinned ones, and those that have changed since."""
    code, items = 0, list[dict[str, Any]]()
    for server in _servers(agent or []).values():
        connection = ServerConnection(server, _store_file(session))
        try:
            differences = await connection.differences()
        except ToolsetUnavailable as error:
            items.append({"server": server.name, "error": str(error)})
            session.screen.line((f"{server.name}  ", "bold"), (clean(str(error)), "red"))
            code = 1
            continue
        finally:
            await connection.close()
        tools = [spec.name for spec in server.known_specs(_store_file(session)) or ()]
        warnings = [*unmatched(server, connection.listed)]
        changes = {name: each.change for name, each in differences.items()}
        items.append(
            {
                "server": server.name,
                "tools": tools,
                "changes": changes,
                "differences": {name: [*each.lines()] for name, each in differences.items()},
                "warnings": warnings,
                "error": None,
            }
        )
        session.screen.line((f"{server.name}  ", "bold"), f"{some(len(tools), 'tool')} pinned")
        for name in tools:
            session.screen.line(f"  {clean(name)}")
        _show(session, differences)
        for warning in warnings:
            session.screen.line((f"  {clean(warning)}", "yellow"))
        if differences:
            command = _command(session, server.name, agent)
            session.screen.note(f"`{command}` pins its present tools")
    session.screen.document({"items": items})
    return code


@mcp.command()
@command
async def approve(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="SERVER", help="The name of the server.")],
    tools: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TOOL]...", help="The server's names of the tools to pin; all by default."),
    ] = None,
    agent: AgentOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Pin without a question.")] = False,
) -> int:
    """Show the changes of a server's tools, and pin them, so that agents may call them."""
    servers = _servers(agent or [])
    if name not in servers:
        used_names = f"; they use {', '.join(sorted(servers))}" if servers else ""
        raise ConfigurationError(f"no agent uses an MCP server named {name!r}{used_names}")
    connection = ServerConnection(servers[name], _store_file(session))
    try:
        differences = chosen_differences(name, await connection.differences(), tools or ())
    finally:
        await connection.close()
    _show(session, differences)
    changes = {tool: each.change for tool, each in differences.items()}
    if not differences:
        session.screen.line(f"{name} lists the pinned tools")
    elif yes or _confirmed(session, name, len(differences)):
        connection.approve(differences)  # the differences shown; the server may list others by now
        session.screen.line(
            f"{name} is pinned as it is now" if not tools else f"{', '.join(changes)}: pinned"
        )
    else:
        changes = {}
        session.screen.line("nothing was pinned")
    session.screen.document({"server": name, "changes": changes})
    return 0


def _show(session: Session, differences: Mapping[str, Difference]) -> None:
    for name, each in sorted(differences.items()):
        session.screen.line((f"  {each.change}: {exact_text(name)}", "yellow"))
        for line in each.lines():
            style = {"-": "red", "+": "green"}.get(line[:1], "dim")
            session.screen.line((f"    {cut(line, _SHOWN)}", style))


def _confirmed(session: Session, server: str, count: int) -> bool:
    if not (sys.stdin.isatty() and session.screen.err.is_terminal):
        raise ConfigurationError(
            f"to pin {some(count, 'tool')} of {server} as listed now without being asked, add --yes"
        )
    return typer.confirm(f"pin {some(count, 'tool')} of {server} as listed now?", err=True)


def _command(session: Session, server: str, places: list[str] | None) -> str:
    options = [word for place in places or () for word in ("--agent", place)]
    return session.command_line("mcp", "approve", server, *options)


def _store_file(session: Session) -> Path | None:
    """Return the store's file, beside which a runner stores pinned tools; None if the store has no file."""
    path = getattr(open_store(session.store), "path", None)
    return path if isinstance(path, Path) else None


def _servers(places: list[str]) -> dict[str, MCPServer]:
    """Return the servers of the agents at some places; without places, those of the project and its agents."""
    chosen = [each for place in places for each in agents.at_or_named(place)]
    servers: dict[str, MCPServer] = {}
    if not places:
        chosen = [*agents.listed_agents().agents.values()]
        if (project := agents.project_with_servers()) is not None:
            servers = {server.name: server for server in MCPServer.from_file(project)}
    servers |= {
        toolset.name: toolset
        for each in chosen
        for toolset in each.toolsets
        if isinstance(toolset, MCPServer)
    }
    if not chosen and not servers:
        raise ConfigurationError(f"no agent is known: {agents.WAYS}")
    return servers
