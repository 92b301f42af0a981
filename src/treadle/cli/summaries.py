"""`usage` and `agents`: the spending of tasks, and the available agents. Both only read."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from treadle.cli import agents as agent_places
from treadle.cli.command import Session, command, option
from treadle.cli.filters import NameOption, label
from treadle.cli.screen import dollars
from treadle.cli.times import time_of
from treadle.client import Client
from treadle.errors import AgentUnknown
from treadle.results.agent_info import AgentInfo, agent_info
from treadle.results.read_results import UsageLine

_COLUMNS: Final = ("tasks", "tokens", "cost", "without a price")


@command
async def usage(
    session: Session,
    by: Annotated[str, option("agent|day|label:NAME", "What the lines are sums of.")] = "agent",
    since: Annotated[
        str | None, option("TIME", "Created then or later: 2h, 03:15, today, 2026-11-22.")
    ] = None,
    until: Annotated[str | None, option("TIME", "Created before that, written likewise.")] = None,
    agent: NameOption = None,
    labels: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="KEY=TEXT", help="Only tasks with this label; may be repeated."),
    ] = None,
) -> int:
    """Show the spending of tasks, summed by agent, day (of their creation, UTC) or label."""
    screen = session.screen
    async with session.runner() as runner:
        report = await runner.usage(
            since=time_of(since, "--since") if since is not None else None,
            until=time_of(until, "--until") if until is not None else None,
            by=by,
            agent=agent,
            labels=dict(label(item) for item in labels) if labels else None,
        )
    screen.document(report)
    is_table = screen.out.is_terminal
    screen.table((by, *_COLUMNS), [_cells(line, is_table=is_table) for line in (*report.lines, report.total)])
    return 0


def _cells(line: UsageLine, *, is_table: bool) -> tuple[str, ...]:
    """Return the cells of a line: rounded amounts for people, exact ones for programs."""
    if is_table:
        return (
            line.key or "-",
            f"{line.tasks:,}",
            f"{line.tokens:,}",
            dollars(line.cost),
            f"{line.unpriced:,}",
        )
    return line.key or "", str(line.tasks), str(line.tokens), f"{line.cost:f}", str(line.unpriced)


@command
async def agents(
    session: Session,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Only the agent of this name.")] = None,
) -> int:
    """List the agents that this project lists, or that a server has: their models, tools and subagents."""
    screen = session.screen
    infos = await _agents_of(session)
    if name is not None:
        chosen = [agent for agent in infos if agent.name == name]
        if not chosen:
            names = ", ".join([agent.name for agent in infos]) or "none"
            raise AgentUnknown(f"there is no agent {name!r}; the agents are: {names}")
        infos = chosen
    screen.document({"items": infos, "cursor": None})
    screen.table(
        ("agent", "model", "tools", "subagents"),
        [
            (
                agent.name,
                agent.model,
                ", ".join([*[tool.name for tool in agent.tools], *agent.toolsets]),
                ", ".join([*agent.subagents, *agent.handoffs]),
            )
            for agent in infos
        ],
    )
    if not infos:
        screen.note(f"no agents: {agent_places.LISTING}")
    return 0


async def _agents_of(session: Session) -> list[AgentInfo]:
    """Return the agents of the server of `--url`, or else the project's; a note names those that failed to import."""
    if session.url is not None:
        async with session.runner() as runner:
            assert isinstance(runner, Client), "a command with --url has a client"
            return list(await runner.get_agents())
    listed = agent_places.listed_agents()
    for path, problem in listed.problems.items():
        session.screen.note(("note: ", "yellow"), f"{path}: {problem}")
    return [agent_info(agent) for _, agent in sorted(listed.agents.items())]
