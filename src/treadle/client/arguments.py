"""Check the arguments of a client's verbs, and convert them to bodies of requests."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, cast

from treadle.agents.agent import Agent
from treadle.client.connection import Connection, path_of
from treadle.client.streams import AgentsHere
from treadle.core.messages import Json
from treadle.drivers.arguments import parts_of
from treadle.engine.options import RunOptions
from treadle.errors import ConfigurationError, VersionRefused
from treadle.results.agent_info import AgentInfo
from treadle.results.wire import from_wire, to_wire
from treadle.verbs.operation import Operation
from treadle.verbs.table import OPERATIONS
from treadle.wiring import load_parts

Given = dict[str, Any]
"""The arguments of a verb, by name."""


class RemoteArguments:
    """Checks the arguments of verbs, and converts them to bodies of requests.

    Args:
        connection: a connection to the server, which knows the name of this client and the versions of agents.
        agents: the agents that are known here.
    """

    def __init__(self, connection: Connection, agents: AgentsHere) -> None:
        self._connection = connection
        self._agents = agents
        self._name: str | None = None

    async def check(self, verb: str, given: Given) -> None:
        """Raise `ConfigurationError` for an argument that no request can carry; the error says where it belongs."""
        if given.get("context") is not None:
            raise ConfigurationError(
                f"{verb}: context= belongs to the process that drives: Runner(context_factory=...) of the server"
            )
        if given.get("observers"):
            raise ConfigurationError(
                f"{verb}: observers= belong to the process that drives: Runner(observers=[...]) of the server; from "
                "here, run_stream has the events of the task"
            )
        if given.get("raw"):
            raise ConfigurationError(
                f"{verb}: raw= is not available: a provider's raw chunks stay in the process that drives"
            )
        if isinstance(given.get("agent"), Agent):
            self._agents.add(given["agent"])
        if given.get("by") is None or verb == "usage":
            return
        if given["by"] != (name := await self._own_name()):
            raise ConfigurationError(
                f"{verb}: by must be {name!r}, the principal of this client's token, got {given['by']!r}; leave it out"
            )

    async def _own_name(self) -> str:
        """Return the name of the principal of this client's token, which events have as `by`."""
        if self._name is None:
            reply = await self._connection.request("GET", OPERATIONS["get_me"].path)
            self._name = str(reply.document["name"])
        return self._name

    async def body(self, row: Operation, given: Given) -> dict[str, Json] | None:
        """Return the body of the request for a verb; None if it has none."""
        if row.body is None:
            return None
        names, parameters = row.body, row.parameters
        if row.name == "fork":  # the original order of its members
            names = (*names[:-3], "task_id", "instructions", "model")
        changed = [name for name in names if name in given and given[name] is not parameters[name].default]
        return {name: await self._sent(name, given[name], given) for name in changed}

    async def _sent(self, name: str, value: Any, given: Given) -> Json:
        """Return an argument in the form of a body."""
        if name in ("input", "message"):
            return await content_of(value)
        if name == "agent":
            return await self.name_of(value, given.get("options"))
        if isinstance(value, timedelta):
            return value.total_seconds()
        return set_fields(to_wire(value)) if isinstance(value, RunOptions) else to_wire(value)

    async def name_of(self, agent: Any, options: RunOptions | None) -> str:
        """Return the name of an agent; refuse another version than the server's if the options require that."""
        if isinstance(agent, str):
            return agent
        self._agents.add(agent)
        if options is not None and options.on_version_change == "refuse":
            path = path_of(OPERATIONS["get_agent"], {"name": agent.name})
            reply = await self._connection.request("GET", path)
            server = from_wire(AgentInfo, reply.document)
            if server.fingerprint != agent.fingerprint:
                raise VersionRefused(
                    f"the server has agent {agent.name!r} in version {server.fingerprint}, and here it is "
                    f"{agent.fingerprint}: deploy one of them, or leave out on_version_change='refuse'"
                )
        return agent.name


async def content_of(value: Any) -> Json:
    """Return a message as JSON data, with the contents of local files."""
    return value if isinstance(value, str) else to_wire(await asyncio.to_thread(load_parts, parts_of(value)))


def set_fields(document: Json) -> Json:
    """Return options without unset fields, which a server of another version may not know."""
    if not isinstance(document, dict):
        return document
    fields = {name: set_fields(value) for name, value in cast("dict[str, Json]", document).items()}
    return {name: value for name, value in fields.items() if value is not None and value != {}}
