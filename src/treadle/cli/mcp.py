"""`mcp`: the MCP servers of agents: what of their tools changed since they were pinned, and how to approve it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from treadle.cli import agents
from treadle.cli.command import Session, command
from treadle.cli.screen import some
from treadle.core.display import clean
from treadle.errors import ConfigurationError, ToolsetUnavailable
from treadle.tools.mcp.server import MCPServer

mcp = typer.Typer(
    no_args_is_help=True, help="MCP servers: list their tools, approve changed ones.", add_completion=False
)

AgentOption = Annotated[
    list[str] | None,
    typer.Option(
        "--agent", help="An agent that uses servers, as MODULE:AGENT or by its name in the project."
    ),
]


@mcp.command("list")
@command
async def list_servers(session: Session, agent: AgentOption = None) -> int:
    """Start the servers of agents, and list their tools: which are pinned, and which changed since."""
    code, items = 0, list[dict[str, Any]]()
    for server in _servers(agent or []).values():
        try:
            changes = dict(await server.changes())
        except ToolsetUnavailable as error:
            items.append({"server": server.name, "error": str(error)})
            session.screen.line((f"{server.name}  ", "bold"), (clean(str(error)), "red"))
            code = 1
            continue
        tools = [spec.name for spec in server.known_specs() or ()]
        items.append({"server": server.name, "tools": tools, "changes": changes, "error": None})
        session.screen.line((f"{server.name}  ", "bold"), f"{some(len(tools), 'tool')} pinned")
        for name in tools:
            session.screen.line(f"  {clean(name)}")
        for name, change in sorted(changes.items()):
            session.screen.line((f"  {change}: {clean(name)}", "yellow"))
        if changes:
            session.screen.note(f"`treadle mcp approve {server.name}` pins what it lists now")
    session.screen.document({"items": items})
    return code


@mcp.command()
@command
async def approve(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="SERVER", help="The name of the server.")],
    agent: AgentOption = None,
) -> int:
    """Pin what a server lists now: changed tools are called again, and new ones are offered."""
    servers = _servers(agent or [])
    if name not in servers:
        known = f"; they use {', '.join(sorted(servers))}" if servers else ""
        raise ConfigurationError(f"no agent uses an MCP server named {name!r}{known}")
    changes = dict(await servers[name].approve())
    session.screen.document({"server": name, "changes": changes})
    for tool, change in sorted(changes.items()):
        session.screen.line(f"{change}: {clean(tool)}")
    session.screen.line(f"{name} is pinned as it is now")
    return 0


def _servers(places: list[str]) -> dict[str, MCPServer]:
    """Return the servers of agents at some places; without places, of those that the project lists, and its own."""
    chosen = [each for place in places for each in agents.at_or_named(place)]
    found: dict[str, MCPServer] = {}
    if not places:
        chosen = [*agents.listed_agents().agents.values()]
        if (project := agents.project_with_servers()) is not None:
            found = {server.name: server for server in MCPServer.from_file(project)}
    found |= {
        toolset.name: toolset
        for each in chosen
        for toolset in each.toolsets
        if isinstance(toolset, MCPServer)
    }
    if not chosen and not found:
        raise ConfigurationError(f"no agent is known: {agents.WAYS}")
    return found
