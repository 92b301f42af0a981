"""`Client`: the verbs of `Runner`, carried out by a server.

A client has the verbs of a runner, each as a request. A verb has the signature of the runner's verb of the same name,
so the two cannot differ. It refuses an argument that no request can carry, and says where the argument belongs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from copy import copy
from functools import update_wrapper
from types import TracebackType
from typing import Any, Final, Self, cast

from treadle.agents.agent import Agent
from treadle.client.connection import Connection
from treadle.client.handle import RemoteHandle
from treadle.client.streams import AgentsHere, RemoteRun
from treadle.client.verbs import Given, RemoteVerbs
from treadle.core.unknown_names import explains_arguments, explains_names, misfit
from treadle.drivers import arguments
from treadle.engine.options import RunOptions
from treadle.errors import ConfigurationError
from treadle.runner.bridge import BRIDGE
from treadle.runner.runner import TaskRunner
from treadle.runner.sync import SyncRunner
from treadle.runner.verbs import called_on
from treadle.runner.views import id_of
from treadle.verbs.operation import function_of
from treadle.verbs.table import ELSEWHERE, OPERATIONS


def _is_sent_as_it_is(token: str) -> bool:
    return token != "" and token == token.strip() and token.isascii() and token.isprintable()


@explains_arguments
@explains_names("Client")
class Client(TaskRunner):
    """Runs agents on a server, with the verbs of `Runner`: the same arguments, results, events and errors.

    Pass an agent as an object or by its name; the server has its code. Runs, handles and streams continue after lost
    connections and killed servers, as long as a server of the store answers. Leaving `run_stream` early, or cancelling
    `run`, interrupts the task. A lost connection does not.

    Args:
        url: the URL of the server, with the path at which it is mounted.
        token: sent with each request, as a bearer token.
        agents: agents whose code this process has, so that their answers have their output types.
        patience: seconds for which requests and streams are tried again while no server answers.

    Raises:
        ConfigurationError: an argument is not valid; the error names it.
        MissingExtra: at the first request, the optional package for HTTP is not installed.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        agents: Sequence[Agent[Any]] = (),
        patience: float = 300.0,
    ) -> None:
        unchecked: tuple[Any, Any] = token, patience
        if token is not None and not (isinstance(unchecked[0], str) and _is_sent_as_it_is(token)):
            raise ConfigurationError(
                "Client: token must be printable ASCII text, with no blank or line end around it, and not empty"
            )
        if isinstance(patience, bool) or not isinstance(unchecked[1], (int, float)) or not patience >= 0:
            raise ConfigurationError(f"Client: patience must be a number of seconds, got {patience!r}")
        if isinstance(agents, Agent):
            raise ConfigurationError("Client: agents must be a list: Client(url, agents=[agent])")
        self.scope = None
        self._here = AgentsHere()
        for agent in agents:
            self._here.add(agent)
        self._remote = RemoteVerbs(Connection(url, token, patience), self._here)
        self.sync = SyncRunner(self)

    def _in(self, connection: Connection) -> Client:
        """Return a client with another connection and the same agents."""
        made = copy(self)
        made._remote = RemoteVerbs(connection, self._here)  # noqa: SLF001  it is of this class
        made.sync = SyncRunner(made)
        return made

    def __repr__(self) -> str:
        return f"Client({self._remote.connection.url!r})"

    async def __aenter__(self) -> Self:
        self._remote.connection.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections of this event loop. Tasks continue, and a later verb raises `ServerUnavailable`."""
        await self._remote.connection.close()


def resume_stream(
    client: Client, task_id: str, options: RunOptions | None, by: str | None = None
) -> RemoteRun[Any]:
    """Resume a task and stream its events from now on."""
    return client._remote.resume_stream({"task": task_id, "options": options, "by": by})  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001  its own


# ------------------------------------------------------------------------------------------------ the verbs


def _scoped(client: Client, remote: RemoteVerbs, given: Given) -> Client:
    if given["by"] is not None or given["options"] is not None:
        raise ConfigurationError(
            "client.scoped: a client acts for the principal of its token, under the ceiling that the server sets: "
            "pass only tenant="
        )
    if given["tenant"] == "":
        return client
    arguments.tenant("scoped: tenant", given["tenant"])
    return client._in(remote.connection.in_tenant(given["tenant"]))  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001  its own


async def _start(client: Client, remote: RemoteVerbs, given: Given) -> RemoteHandle[Any]:
    return RemoteHandle(client, remote, (await remote.submit(given)).task_id)


_OWN: Final[dict[str, Callable[[Client, RemoteVerbs, Given], Any]]] = {
    "start": _start,
    "handle": lambda client, remote, given: RemoteHandle(client, remote, given["task"]),
    "scoped": _scoped,
    "run_sync": lambda _, remote, given: BRIDGE.run(remote.run(given)),
}
"""The verbs that need the client itself, or no event loop."""

COMPOSED: Final = tuple(
    name for name in vars(RemoteVerbs) if not name.startswith("_") and hasattr(TaskRunner, name)
)
"""The verbs that need several requests, which are methods of `RemoteVerbs` of the same names."""


def _carried_out(verb: str) -> Callable[[Client, RemoteVerbs, Given], Any]:
    if verb in _OWN:
        return _OWN[verb]
    if verb in COMPOSED:
        return lambda _, remote, given: getattr(remote, verb)(given)
    return lambda _, remote, given: remote.call(verb, given)


def _method(verb: str) -> Callable[..., Any]:
    """Return the method of a verb, with the arguments of the runner's."""
    original = function_of(verb)
    signature, carry_out = inspect.signature(original), _carried_out(verb)

    def begun(client: Client, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            bound = signature.bind(client, *args, **kwargs)
        except TypeError:
            if (problem := misfit(verb, original, args, kwargs, f"client.{verb}")) is not None:
                raise problem from None
            raise
        bound.apply_defaults()
        given = {name: value for name, value in bound.arguments.items() if name != "self"}
        given |= {name: id_of(given[name]) for name in ("task", "a", "b") if given.get(name) is not None}
        return carry_out(client, client._remote, given)  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001  its own

    async def awaited(self: Client, *args: Any, **kwargs: Any) -> Any:
        return await begun(self, args, kwargs)

    def called(self: Client, *args: Any, **kwargs: Any) -> Any:
        return begun(self, args, kwargs)

    method = awaited if inspect.iscoroutinefunction(original) else called
    return update_wrapper(cast("Callable[..., Any]", method), original)


def _refusing(name: str, why: str) -> Any:
    def refuse(self: Client, *_: Any, **__: Any) -> Any:
        raise ConfigurationError(f"a client has no {name}: {why}")

    member = inspect.getattr_static(TaskRunner, name)
    return (
        property(refuse, doc=why)
        if isinstance(member, property)
        else update_wrapper(refuse, function_of(name))
    )


for _verb in (*[row.verb for row in OPERATIONS.values() if row.verb], *COMPOSED, *_OWN):
    setattr(Client, _verb, _method(_verb))
for _verb, _why in ELSEWHERE.items():
    setattr(Client, _verb, _refusing(_verb, _why))
called_on("client")(Client)
