"""`serve`: the HTTP server of a store; it also drives tasks until a signal arrives."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from importlib import import_module
from ipaddress import ip_address, ip_network
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from treadle.agents.agent import Agent
from treadle.cli import agents
from treadle.cli.command import PolicyOption, Session, command, option, store_at
from treadle.cli.drive import GRACE, GraceOption, LeaseOption, print_adoption, print_drained
from treadle.cli.running_server import RunningServer, noted
from treadle.cli.screen import Screen
from treadle.cli.tracing import TraceOptions
from treadle.core.data import frozen
from treadle.drivers.adoption import AT_MOST, Adoption
from treadle.errors import ConfigurationError, MissingExtra, StoreFormatError
from treadle.llm.registry import default_model
from treadle.ports import JournalStore, Observer
from treadle.wiring import Runner

if TYPE_CHECKING:
    from socket import socket

    from treadle.server import Application, ServerLimits
    from treadle.server.serving import Server

PORT: Final = 8700


@frozen(kw_only=True)
class ListenOptions:
    """The server's address and its names for clients."""

    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1"
    port: Annotated[int, typer.Option("--port", help="The port to listen on; 0 takes a free one.")] = PORT
    unix: Annotated[Path | None, option("PATH", "Listen on a Unix socket instead, for its owner alone.")] = (
        None
    )
    allow_host: Annotated[
        list[str] | None,
        option("NAME", "A host name of the server for clients, in addition to those of loopback."),
    ] = None
    allow_origin: Annotated[
        list[str] | None, option("URL", "The origin of a site whose pages may call the server.")
    ] = None
    public_url: Annotated[str | None, option("URL", "The URL of the server for clients.")] = None
    tls_cert: Annotated[Path | None, option("FILE", "The certificate of the server, to serve HTTPS.")] = None
    tls_key: Annotated[Path | None, option("FILE", "The key of the certificate.")] = None
    behind_proxy: Annotated[
        list[str] | None, option("CIDR", "The network of a reverse proxy in front of the server.")
    ] = None

    def __post_init__(self) -> None:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ConfigurationError("--tls-cert and --tls-key come together")
        if not 0 <= self.port < 65_536:
            raise ConfigurationError(f"--port must be from 0 to 65535, got {self.port}")
        for network in self.behind_proxy or ():
            try:
                wide = ip_network(network).prefixlen < (8 if "." in network else 16)
            except ValueError as error:
                raise ConfigurationError(f"--behind-proxy: {error}") from None
            if wide:  # uvicorn would trust any client's headers, including the one for encryption
                raise ConfigurationError(
                    f"--behind-proxy {network}: name the network of the proxy alone, such as 10.0.0.0/8 or smaller"
                )

    @property
    def is_local(self) -> bool:
        """Whether the server is reachable only from this machine."""
        return self.unix is not None or _is_loopback(self.host)

    @property
    def tls(self) -> tuple[Path, Path] | None:
        """The files of the certificate and of its key."""
        if self.tls_cert is None or self.tls_key is None:
            return None
        for file in (self.tls_cert, self.tls_key):
            if not file.is_file():
                raise ConfigurationError(f"there is no file {file}")
        return self.tls_cert, self.tls_key

    @property
    def hosts(self) -> list[str]:
        """The host names that clients may use for the server."""
        names = list(self.allow_host or ())
        try:
            address = ip_address(self.host)
        except ValueError:
            return [*names, self.host]
        if address.is_unspecified:
            return names
        return [*names, f"[{address}]" if address.version == 6 else str(address)]

    def bind(self) -> AbstractContextManager[socket]:
        """Open the listening socket for the duration of a block."""
        from treadle.server.serving import at_unix_path, tcp_socket

        return at_unix_path(self.unix) if self.unix is not None else tcp_socket(self.host, self.port)

    def url(self, bound: socket) -> str:
        """Return the server's URL from this machine."""
        if self.unix is not None:
            return f"unix:{self.unix}"
        host, port = bound.getsockname()[:2]
        name = f"[{host}]" if ":" in host else host
        return f"{'https' if self.tls is not None else 'http'}://{name}:{port}"


@frozen(kw_only=True)
class AccessOptions:
    """Options for the access of clients."""

    token_file: Annotated[
        Path | None, option("FILE", "The file of the token. Default: .treadle/server-token.")
    ] = None
    new_token: Annotated[
        bool, typer.Option("--new-token", help="Make a new token first; the old one becomes invalid.")
    ] = False
    auth: Annotated[
        str | None,
        option(
            "MODULE:CALLABLE", "The function that returns the principal of a request, instead of a token."
        ),
    ] = None

    def __post_init__(self) -> None:
        if self.auth is not None and (self.token_file is not None or self.new_token):
            raise ConfigurationError("--auth replaces the token: leave out --token-file and --new-token")

    def authenticate(self) -> tuple[Callable[..., Any], Path | None]:
        """Return the function that authenticates a request, and the token's file, if there is one."""
        from treadle.server.principals import OneToken, token_in
        from treadle.stores.private_files import TOKEN_FILE

        if self.auth is not None:
            description = "a function that returns the Principal of a request"
            return agents.callable_at(self.auth, description), None
        file = self.token_file or TOKEN_FILE
        return OneToken(token_in(file, new=self.new_token)), file


@frozen(kw_only=True)
class DriveOptions:
    """How the server drives tasks."""

    no_drive: Annotated[
        bool, typer.Option("--no-drive", help="Drive no task, and leave that to `treadle drive` processes.")
    ] = False
    at_most: Annotated[
        int, option("N", "Maximum number of tasks of one tenant to drive at the same time.")
    ] = AT_MOST
    lease: LeaseOption = None
    grace: GraceOption = GRACE

    def __post_init__(self) -> None:
        if self.grace < 0:
            raise ConfigurationError(f"--grace must be 0 seconds or more, got {self.grace}")
        if self.at_most < 1:
            raise ConfigurationError(f"--at-most must be 1 or more, got {self.at_most}")


@command
def serve(
    session: Session,
    *,
    agent: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODULE:AGENT]...", help="The places to import agents from. Default: the project's list."
        ),
    ] = None,
    listen: ListenOptions,
    access: AccessOptions,
    driving: DriveOptions,
    no_inspector: Annotated[
        bool, typer.Option("--no-inspector", help="Serve no page that shows tasks in the browser.")
    ] = False,
    policy: PolicyOption = None,
    protocol: Annotated[
        list[str] | None,
        option(
            "NAME",
            "A protocol to speak besides the server's own: agui, mcp, responses, a2a, or none. Default: all.",
        ),
    ] = None,
    tracing: TraceOptions,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document a line for each action.")
    ] = False,
) -> int:
    """Serve the store over HTTP and drive its tasks, until SIGTERM or Ctrl-C; then release all tasks."""
    check_reach(listen, access)
    check_extra("The HTTP server")
    ways = f"write `treadle serve module:agent`, or {agents.LISTING}"
    driven = agents.named_agents(agent or [], ways) if agent or not driving.no_drive else _listed()
    store = store_at(session.screen, session.store, lease=driving.lease)
    api, token_file = application(
        store,
        driven,
        listen,
        access,
        driving,
        policy=policy,
        observers=tracing.observers(),
        inspector=not no_inspector,
        protocols=_protocols(protocol),
    )
    names = [each.name for each in driven]
    return session.run(serve_until_signal(session.screen, api, listen, driving, token_file, names))


def check_extra(feature: str) -> None:
    """Raise `MissingExtra` if the packages of the server are not installed.

    Args:
        feature: the feature that needs them, as the subject of the message.
    """
    try:
        import_module("treadle.server.serving")  # needs uvicorn; the application needs Starlette
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in ("starlette", "uvicorn", "h11"):
            raise
        raise MissingExtra("server", feature) from None


def application(
    store: JournalStore,
    driven: tuple[Agent[Any], ...],
    listen: ListenOptions,
    access: AccessOptions,
    driving: DriveOptions,
    *,
    policy: str | None,
    observers: tuple[Observer, ...] = (),
    inspector: bool = True,
    protocols: Sequence[str] | None = None,
    fork_models: bool = False,
) -> tuple[Application, Path | None]:
    """Return the application of a store, and the file of its token, if it has one.

    Args:
        store: the store.
        driven: the agents whose code this process has.
        listen: the server's address and names.
        access: how clients are authenticated.
        driving: how the server drives tasks.
        policy: the policy's file, instead of the project's.
        observers: observers of the tasks that it drives.
        inspector: whether it has the inspector.
        protocols: the protocols that it speaks besides its own; None for the default.
        fork_models: whether a fork may name the models of the agents.
    """
    from treadle.server import app

    authenticate, token_file = access.authenticate()
    runner = runner_of(store, driven, policy, observers)
    models = sorted({each.model for each in driven if isinstance(each.model, str)}) if fork_models else ()
    api = app(
        runner,
        auth=authenticate,
        hosts=listen.hosts,
        origins=listen.allow_origin or (),
        public_url=listen.public_url,
        inspector=inspector,
        drive=not driving.no_drive,
        models=models,
        protocols=protocols,
        limits=_limits(driving),
    )
    return api, token_file


def runner_of(
    store: JournalStore, driven: tuple[Agent[Any], ...], policy: str | None, observers: tuple[Observer, ...]
) -> Runner:
    """Return the runner of a server process, with the project's policy, middleware, secrets and contexts.

    Args:
        store: the store.
        driven: the agents whose code this process has.
        policy: the policy's file, instead of the project's.
        observers: observers of the tasks that it drives.
    """
    return Runner(
        store,
        agents=driven,
        observers=observers,
        context_factory=agents.listed_context_factory(),
        policy=agents.listed_policy(policy),
        middleware=agents.listed_middleware(),
        secrets=agents.listed_secrets() or None,
        model=default_model(),
    )


def _protocols(names: list[str] | None) -> Sequence[str] | None:
    """Return the protocols to speak: the named ones, none for `none`, and None for the default."""
    return () if names == ["none"] else names


MOST_UNTOLD: Final = 10_000
"""Maximum number of lines that wait for a blocked output; later ones are counted and not printed."""

TENANTS: Final = 4
"""Ratio of the limit for all tasks to the limit for one tenant's, so that no tenant blocks the others."""


def _limits(driving: DriveOptions) -> ServerLimits:
    from treadle.server import ServerLimits

    return replace(ServerLimits(), driven_per_tenant=driving.at_most, driven=TENANTS * driving.at_most)


async def serve_until_signal(
    screen: Screen,
    api: Application,
    listen: ListenOptions,
    driving: DriveOptions,
    token_file: Path | None,
    names: Sequence[str],
    *,
    any_port: bool = False,
    listening: Callable[[str], Awaitable[object]] | None = None,
) -> int:
    """Serve until a signal arrives or output fails, then release all tasks; raise `OSError` if output failed.

    Args:
        screen: prints the server's lines.
        api: the application.
        listen: the address.
        driving: how the server drives tasks.
        token_file: the file of the token, if there is one.
        names: the names of the agents.
        any_port: take a free port if that of `listen` is taken.
        listening: called with the server's URL as soon as it can be opened.
    """
    from treadle.server.serving import Server, config

    store = api.service.runner.store
    with ExitStack() as open_things:
        bound = open_things.enter_context(_bound(listen, any_port=any_port))
        limits, proxies = api.service.limits, listen.behind_proxy or ()
        settings = config(api, limits=limits, tls=listen.tls, behind_proxy=proxies)
        server = Server(settings, api.leave, driving.grace)
        telling = _Telling(screen, server, asyncio.get_running_loop())
        api.tell = telling.adoption
        url = listen.url(bound)
        async with api.lifespan():
            has_page = api.page is not None and listen.unix is None
            if has_page and token_file is not None and listen.is_local:
                open_things.enter_context(noted(RunningServer.of(url, store.url, token_file)))
            telling.serving(url, store.url, token_file, names)
            if has_page:
                telling.page(url, token_file)
            opening = None if listening is None else asyncio.ensure_future(listening(url))
            await server.serve([bound])
            if opening is not None:
                await asyncio.gather(opening, return_exceptions=True)
        telling.ended(store.fenced)
    return 0


def _bound(listen: ListenOptions, *, any_port: bool) -> AbstractContextManager[socket]:
    """Open the listening socket; on a free port if `any_port` and that of `listen` is taken."""
    if not any_port:
        return listen.bind()
    try:
        return listen.bind()
    except ConfigurationError:
        return replace(listen, port=0).bind()


class _Telling:
    """The command's output; a failed write or a store of a newer version ends the server.

    Events of the adopter are printed in a thread, so that a blocked output does not block an event loop.

    Args:
        screen: prints the lines.
        server: the server to end.
        loop: the server's event loop.
    """

    def __init__(self, screen: Screen, server: Server, loop: asyncio.AbstractEventLoop) -> None:
        self._screen = screen
        self._server = server
        self._loop = loop
        self._error: OSError | StoreFormatError | None = None
        self._unprinted: SimpleQueue[Adoption | None] = SimpleQueue()
        self._thread = Thread(target=self._print, name="treadle-telling", daemon=True)
        self._counts: Counter[str] = Counter()

    def serving(self, url: str, store: str, token_file: Path | None, names: Sequence[str]) -> None:
        """Print the server's URL."""
        access = (
            f"the token is in {token_file}"
            if token_file is not None
            else "the callable of --auth decides which clients may call it"
        )
        entry = {"kind": "serving", "url": url, "store": store, "agents": list(names)}
        self._screen.entry({**entry, "token_file": None if token_file is None else str(token_file)})
        listed = f" with {', '.join(names)}" if names else ""
        self._screen.line(
            ("serving ", "dim"), url, (f"{listed} on {store}; SIGTERM or Ctrl-C ends it", "dim")
        )
        self._screen.line((access, "dim"))
        self._thread.start()

    def page(self, url: str, token_file: Path | None) -> None:
        """Print the link to the inspector; on a terminal with the token, which logs must not contain."""
        is_read_at_once = self._screen.out.is_terminal and not self._screen.json
        token = (
            f"#token={token_file.read_text().strip()}" if is_read_at_once and token_file is not None else ""
        )
        self._screen.command("inspector ", f"{url}/{token}")

    def adoption(self, adoption: Adoption) -> None:
        """Queue an event of the adopter for printing; called in the event loop that drives tasks."""
        self._counts[adoption.kind] += 1
        if adoption.kind == "outdated":
            self._error = StoreFormatError(adoption.text)
            self._loop.call_soon_threadsafe(self._server.leave)
        if self._unprinted.qsize() < MOST_UNTOLD:
            self._unprinted.put(adoption)

    def _print(self) -> None:
        while (adoption := self._unprinted.get()) is not None:
            try:
                print_adoption(self._screen, adoption)
            except OSError as error:
                self._error = error
                self._loop.call_soon_threadsafe(self._server.leave)
                return

    def ended(self, fenced: int) -> None:
        """Print the counts of finished work; raise the error that ended the server."""
        self._unprinted.put(None)
        self._thread.join()
        if self._error is not None:
            raise self._error
        print_drained(self._screen, self._counts, fenced)


def _listed() -> tuple[Any, ...]:
    return tuple(agents.listed_agents().agents.values())


def check_reach(listen: ListenOptions, access: AccessOptions) -> None:
    """Raise `ConfigurationError` if the server is reachable without a decision on authentication and encryption."""
    if listen.is_local:
        return
    if access.auth is None and access.token_file is None:
        raise ConfigurationError(
            f"--host {listen.host}: other machines can reach it, so name the clients that may call it: "
            "--auth or --token-file"
        )
    if listen.tls_cert is None and not listen.behind_proxy:
        raise ConfigurationError(
            f"--host {listen.host}: other machines can reach it, so encrypt it: --tls-cert and --tls-key, or "
            "--behind-proxy with the network of a proxy that does"
        )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
