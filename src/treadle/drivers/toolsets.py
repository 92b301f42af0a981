"""Connect each toolset of a driver process once, and bind agents to its tools."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from treadle.agents.agent import Agent
from treadle.engine.vault import NO_VAULT, Vault
from treadle.errors import ConfigurationError
from treadle.ports import HoldsCredentials, Tool, Toolset, ToolsetConnection

LOOK_SECONDS: Final = 0.2
"""Seconds between two checks whether a task that waits for its toolsets must stop."""

MAX_BOUND: Final = 256
"""Maximum number of cached bound agents."""


class ConnectedToolsets:
    """Connects toolsets for one runner, and binds agents to their tools.

    Args:
        store_file: the file of the runner's store; a toolset may keep persistent data beside it. None if the store is
            not a file.
        vault: receives the credentials of the connections.
    """

    def __init__(self, store_file: Path | None = None, vault: Vault = NO_VAULT) -> None:
        self._store_file, self._vault = store_file, vault
        self._connections: dict[Toolset, ToolsetConnection] = {}
        self._stopping = set[str]()
        self._bound: OrderedDict[Agent[Any], tuple[list[Sequence[Tool]], Agent[Any]]] = OrderedDict()

    async def bind(self, agent: Agent[Any]) -> Agent[Any]:
        """Return an agent with the present tools of its toolsets; the same object while these stay the same.

        Raises:
            ToolsetUnavailable: a toolset is not available.
            ConfigurationError: two of the tools have one name.
        """
        listings = await asyncio.gather(*[self._connection(each).tools() for each in agent.toolsets])
        bound = self._bound.get(agent)
        if bound is not None and all(now is before for now, before in zip(listings, bound[0], strict=True)):
            return bound[1]
        try:
            listed = agent.with_listed([tool for tools in listings for tool in tools])
        except ConfigurationError as error:
            names = ", ".join(each.name for each in agent.toolsets)
            raise ConfigurationError(f"{error} (with the tools of {names})") from error
        self._bound[agent] = list(listings), listed
        if len(self._bound) > MAX_BOUND:
            self._bound.popitem(last=False)
        return listed

    async def bind_unless_stopped(
        self, agent: Agent[Any], task_id: str, is_commanded: Callable[[], Awaitable[bool]]
    ) -> Agent[Any] | Literal["shutdown", "commanded"]:
        """Return the result of `bind`, or the reason that ends the wait for it, since a server may start slowly.

        Args:
            agent: the agent of the task.
            task_id: the task, whose drive has not begun, so that it cannot be stopped.
            is_commanded: returns whether a waiting command stops the task.
        """
        binding = asyncio.ensure_future(self.bind(agent))
        try:
            while not (await asyncio.wait((binding,), timeout=LOOK_SECONDS))[0]:
                if task_id in self._stopping:
                    return "shutdown"
                if await is_commanded():
                    return "commanded"
            return binding.result()
        finally:
            binding.cancel()
            self._stopping.discard(task_id)

    def stop_waiting(self, task_id: str) -> None:
        """End the wait of a task for its toolsets, because its driver shuts down."""
        self._stopping.add(task_id)

    async def close(self) -> None:
        """Close all connections; a later drive connects again."""
        connections = list(self._connections.values())
        self._connections.clear()
        self._bound.clear()
        self._stopping.clear()
        for result in await asyncio.gather(*[each.close() for each in connections], return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    def _connection(self, toolset: Toolset) -> ToolsetConnection:
        connection = self._connections.get(toolset)
        if connection is None:
            connect_beside: Any = getattr(toolset, "connect_beside", None)
            connection = toolset.connect() if connect_beside is None else connect_beside(self._store_file)
            if isinstance(connection, HoldsCredentials):
                self._vault.learn(connection.credentials())
                connection.tell_tokens(lambda token: self._vault.learn(declared=(token,)))
            self._connections[toolset] = connection
        return connection
