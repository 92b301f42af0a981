"""`mcp serve`: offer agents and tools to a client of MCP, on standard input and output or over HTTP."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from treadle.agents.agent import Agent
from treadle.cli import agents
from treadle.cli.command import PolicyOption, Session, command, option, store_at
from treadle.cli.serving import (
    AccessOptions,
    DriveOptions,
    ListenOptions,
    application,
    check_extra,
    check_reach,
    runner_of,
    serve_until_signal,
)
from treadle.cli.tracing import TraceOptions
from treadle.errors import ConfigurationError, MissingExtra
from treadle.ports import Tool

if TYPE_CHECKING:
    from treadle.server import Application, Principal

LINE_BYTES: Final = 32 << 20
"""The largest line of standard input, in bytes."""

WAYS: Final = f"write `treadle mcp serve module:agent` or `module:tool`, or {agents.LISTING}"


@command
def serve(
    session: Session,
    *,
    place: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODULE:NAME]...",
            help="The places to import agents and tools from. Default: the agents in the project's list.",
        ),
    ] = None,
    directory: Annotated[
        Path | None,
        option("PATH", "Change to this folder first; clients start programs in folders of their own."),
    ] = None,
    tools: Annotated[
        bool, typer.Option("--tools", help="Also offer each tool of the agents by itself.")
    ] = False,
    no_decisions: Annotated[
        bool,
        typer.Option(
            "--no-decisions",
            help="Show the client no approvals and questions, and leave them to the inspector and the command line.",
        ),
    ] = False,
    http: Annotated[
        bool, typer.Option("--http", help="Serve over HTTP, with a token, instead of standard input.")
    ] = False,
    listen: ListenOptions,
    access: AccessOptions,
    driving: DriveOptions,
    policy: PolicyOption = None,
    tracing: TraceOptions,
    json: Annotated[
        bool, typer.Option("--json", help="With --http, print one JSON document a line for each action.")
    ] = False,
) -> int:
    """Offer agents and tools over MCP, each call a task, until the client leaves or SIGTERM arrives."""
    _check(session, http, listen, access, no_decisions)
    if directory is not None:
        try:
            os.chdir(directory)
        except OSError as error:
            raise ConfigurationError(f"--directory {directory}: {error.strerror}") from None
    served = served_agents(place or [], tools=tools)
    store = store_at(session.screen, session.store, lease=driving.lease)
    names = [agent.name for agent in served]
    if http:
        api, token_file = application(
            store,
            served,
            listen,
            access,
            driving,
            policy=policy,
            observers=tracing.observers(),
            protocols=["mcp"],
        )
        return session.run(serve_until_signal(session.screen, api, listen, driving, token_file, names))
    runner = runner_of(store, served, policy, tracing.observers())
    from treadle.server import ALL, Principal, app

    api = app(runner, auth=lambda connection: None, inspector=False, drive=not driving.no_drive, protocols=[])
    scopes = ALL - {"decide"} if no_decisions else ALL
    principal = Principal("local", session.tenant or "", scopes)
    session.screen.note(
        f"serving {', '.join(names)} on {store.url} to the client at standard input; its end ends this"
    )
    return session.run(over_stdio(api, principal, driving.grace))


def _check(
    session: Session, http: bool, listen: ListenOptions, access: AccessOptions, no_decisions: bool
) -> None:
    """Raise an error for packages that are not installed, and for options that do not fit together."""
    if find_spec("mcp") is None:
        raise MissingExtra("mcp", "`treadle mcp serve`")
    check_extra("`treadle mcp serve`")
    if http:
        check_reach(listen, access)
        if no_decisions or session.tenant is not None:
            raise ConfigurationError(
                "--no-decisions and --tenant are for standard input: with --http, `--auth` gives each client its "
                "tenant and its scopes"
            )
    elif (listen, access) != (ListenOptions(), AccessOptions()):
        raise ConfigurationError("an address and a token are for HTTP: add --http")


# ------------------------------------------------------------------------------------------------ the served


def served_agents(places: Sequence[str], *, tools: bool) -> tuple[Agent[Any], ...]:
    """Return the agents to offer: those at some places, by default the project's; tools become agents.

    Args:
        places: each as `module:name`, of an agent, a tool, or a list of these.
        tools: also offer each tool of the agents.

    Raises:
        ConfigurationError: a place has neither agents nor tools, or two of them have one name.
    """
    found = [each for place in places for each in _at(place)] or [*agents.named_agents([], WAYS)]
    if tools:
        found += [tool for each in found if isinstance(each, Agent) for tool in _own_tools(each)]
    served: dict[str, Any] = {}
    for each in found:
        name = each.name if isinstance(each, Agent) else each.spec.name
        if served.setdefault(name, each) is not each:
            raise ConfigurationError(
                f"two agents or tools to serve have the name {name!r}: rename one of them"
            )
    return tuple(_as_agents(served.values()))


def _at(place: str) -> list[Agent[Any] | Tool[Any]]:
    value = agents.value_at(place, "an agent or a tool", "module:name")
    found: list[Any] = [*value] if isinstance(value, (list, tuple)) else [value]
    if not found or not all(isinstance(each, (Agent, Tool)) for each in found):
        raise ConfigurationError(f"{place} is neither an agent nor a tool, but {value!r:.200}")
    return found


def _own_tools(agent: Agent[Any]) -> list[Tool[Any]]:
    """Return the tools of an agent without those that call subagents or move the conversation."""
    derived = {*agent.subagents_by_tool, *agent.handoffs_by_tool}
    return [tool for tool in agent.tools if tool.spec.name not in derived]


def _as_agents(found: Iterable[Agent[Any] | Tool[Any]]) -> list[Agent[Any]]:
    from treadle.server import tool_agent

    return [each if isinstance(each, Agent) else tool_agent(each) for each in found]


# ------------------------------------------------------------------------------------------------ stdio


async def over_stdio(api: Application, principal: Principal, grace: float) -> int:
    """Serve the client at standard input until it leaves or a signal arrives, then release all tasks.

    While it serves, file descriptor 0 is the null device and 1 is standard error. So neither tools nor their programs
    can read or write the protocol's lines.
    """
    from mcp.server.stdio import stdio_server

    from treadle.server.protocols.mcp_server import McpServer

    server = McpServer(api.service, principal, has_cancel=True).server()
    serving = asyncio.current_task()
    assert serving is not None, "a coroutine runs in a task"
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, serving.cancel)
    lines: Any = await _standard_input()
    try:
        async with stdio_server(stdin=lines) as (read, write), api.lifespan():
            try:
                await server.run(read, write, server.create_initialization_options())
            finally:
                await api.leave(grace)
    except asyncio.CancelledError:  # by a signal
        serving.uncancel()
    return 0


async def _standard_input() -> AsyncIterator[str]:
    """Return the lines of standard input, read in the event loop, so that a signal ends the wait for one."""
    private = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    reader = asyncio.StreamReader(limit=LINE_BYTES)
    try:
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(private, "rb", 0)
        )
    except ValueError:
        raise ConfigurationError(
            "standard input must be a pipe: a client of MCP starts this command"
        ) from None
    return _lines_of(reader)


async def _lines_of(reader: asyncio.StreamReader) -> AsyncIterator[str]:
    while line := await reader.readline():
        yield line.decode("utf-8", "replace")
