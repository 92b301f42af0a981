"""The ASGI application: every verb of a runner over HTTP.

It keeps no state of tasks, so any number of servers may serve one store.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request

from treadle.core.refused_uses import can_be_called
from treadle.core.unknown_names import explains_call, explains_names
from treadle.drivers import arguments
from treadle.drivers.adoption import Adoption, Tell, log
from treadle.engine.options import RunOptions
from treadle.errors import ConfigurationError, MissingExtra
from treadle.runner.runner import TaskRunner
from treadle.runner.views import driver_of
from treadle.server.calls import Service
from treadle.server.driving import DrivingLoop
from treadle.server.entrance import Entrance
from treadle.server.guard import Doors, Guard, Rates
from treadle.server.limits import ServerLimits
from treadle.server.page import Page
from treadle.server.principals import Authenticate, OneToken, token_in
from treadle.server.problems import Problem
from treadle.server.routes import routes
from treadle.stores.private_files import TOKEN_FILE
from treadle.verbs.table import PROTOCOLS

STREAM_SECONDS: Final = 1.0
"""Seconds in which streams must end when the server ends."""

_PACKAGES: Final = {"agui": ("ag_ui", "server", "AG-UI"), "mcp": ("mcp", "mcp", "The MCP server")}
"""The package that a protocol needs, the extra that brings it, and the name of the protocol."""


@explains_names("Application")
class Application(Starlette):
    """The ASGI application of a runner.

    `lifespan` opens the runner, adopts tasks, and releases them at the end. If this application is mounted in another,
    the outer one must run it: `FastAPI(lifespan=api.lifespan)`. Otherwise every operation is served, but no task is
    adopted.
    """

    def __init__(self, service: Service, guard: Mapping[str, Any], *, page: Page | None = None) -> None:
        self.service = service
        self.page = page
        self._ended = False
        self.tell: Tell = log
        """called with each event of the adopter, in the loop that drives tasks"""

        super().__init__(
            routes=[*routes(service), *(page.routes if page is not None else ())],
            middleware=[Middleware(Guard, **guard)],
            exception_handlers={HTTPException: _refuse},
            lifespan=self.lifespan,
        )
        self.router.redirect_slashes = False

    @asynccontextmanager
    async def lifespan(self, app: Any = None) -> AsyncGenerator[None]:
        """Open the runner until the block ends, and drive tasks unless the application has `drive=False`."""
        async with self.service.runner:
            if self.service.adopts:
                await self.service.drives.run(self._adopt)
            try:
                yield
            finally:
                self.begin_leaving()
                await self.end()

    def begin_leaving(self) -> None:
        """Stop taking new work: the server becomes unready, and its streams end."""
        self.service.draining = True
        self.service.stop_waiting()
        self.service.holds.leave()
        self.service.streams.leave()

    async def leave(self, grace: float = 0.0) -> None:
        """Stop taking new work, end the streams, and release the tasks that this process drives.

        A further call with a shorter grace shortens the first.

        Args:
            grace: seconds in which running calls may end.
        """
        self.begin_leaving()
        service = self.service
        drained = service.drives.run(lambda: service.runner.drain(grace))
        await asyncio.gather(drained, service.streams.closed(STREAM_SECONDS))
        service.stop_requests()

    async def end(self, grace: float = 0.0) -> None:
        """Leave, and close the runner; further calls do nothing.

        Args:
            grace: seconds in which running calls may end.
        """
        if self._ended:
            return
        self._ended = True
        await self.leave(grace)
        service = self.service
        service.streams.stop()
        await service.drives.run(service.runner.aclose)
        await service.drives.close()

    async def _adopt(self) -> None:
        limits = self.service.limits
        self.service.runner.begin_adopting(
            at_most=limits.driven, per_tenant=limits.driven_per_tenant, tell=self._tell
        )

    def _tell(self, adoption: Adoption) -> None:
        if adoption.kind == "adopted":
            self.service.metrics.adopted += 1
        self.tell(adoption)


async def _refuse(request: Request, error: Exception) -> Any:
    """Convert a refusal of the router to a problem."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = getattr(error, "headers", None)
    if status == 405:
        raise Problem(405, "MethodRefused", f"{request.method} is no operation of this resource", headers)
    raise Problem(404, "NoSuchOperation", "there is no operation of this path: see /v1/openapi.json")


@explains_call
def app(
    runner: TaskRunner,
    *,
    auth: Authenticate | None = None,
    hosts: Collection[str] = (),
    origins: Collection[str] = (),
    public_url: str | None = None,
    inspector: bool = True,
    drive: bool = True,
    ceiling: RunOptions | None = None,
    models: Sequence[str] = (),
    allow_urls: bool = False,
    protocols: Sequence[str] | None = None,
    limits: ServerLimits | None = None,
) -> Application:
    """Return the ASGI application of a runner.

    Args:
        runner: the runner whose verbs are served; requests may name its agents.
        auth: returns the `Principal` of a request, or None; may be async. By default it accepts the token in
            `.treadle/server-token`, which is created if missing, so no server is open to all. If it has a method
            `secret_values()`, these values are masked in everything that tasks record and the server sends.
        hosts: host names of the server for clients, in addition to loopback.
        origins: origins of other sites whose pages may call the server.
        public_url: the public URL of the server, such as `https://agents.example/api`.
        inspector: whether the server has the inspector at its root, a page that shows tasks. The page has no data of
            its own: it asks for a token, and calls the server with it.
        drive: whether this process drives tasks; otherwise other processes do.
        ceiling: upper bounds for the options in requests; the smaller of two limits counts.
        models: the models that a fork may name, such as `openai:gpt-5.2-mini`.
        allow_urls: whether content in requests may contain URLs, which the model's provider fetches.
        protocols: besides its own: `agui`, `mcp`, `responses`, `a2a`. By default all whose packages are installed.
        limits: the server's limits.

    Raises:
        ConfigurationError: an argument is not valid; the error names it.
    """
    if not isinstance(runner, TaskRunner):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(
            f"app: the runner comes first: app(Runner(agents=[agent]), auth=...), got {runner!r:.80}"
        )
    auth = OneToken(token_in(TOKEN_FILE)) if auth is None else auth
    _check_auth(auth)
    secrets: Any = getattr(auth, "secret_values", frozenset[str])
    driver_of(runner).vault.learn(secrets())
    _check_lists(hosts=hosts, origins=origins, models=models)
    if ceiling is not None:
        arguments.options("app: ceiling", ceiling)
    service = Service(
        runner,
        DrivingLoop(),
        limits or ServerLimits(),
        ceiling,
        tuple(models),
        allow_urls,
        _spoken(protocols),
        drive,
        public_url,
    )
    guard: dict[str, Any] = {
        "auth": auth,
        "doors": Doors(hosts, origins, public_url),
        "hide": service.hide,
        "count": service.metrics.request,
        "refusals": Rates(service.limits.refusals_per_second),
        "unanswered": service.unanswered,
        **({"is_public": Page.owns} if inspector else {}),
    }
    page = Page(entrance=_entrance(auth)) if inspector else None
    return Application(service, guard, page=page)


def _entrance(auth: Authenticate) -> Entrance | None:
    """Return the exchange of one-time codes for the token of the server, if it has a single one."""
    if not isinstance(auth, OneToken):
        return None
    (token,) = auth.secret_values()
    return Entrance(token)


def _check_auth(auth: Authenticate) -> None:
    """Raise `ConfigurationError` for an `auth` that cannot be called."""
    if not can_be_called(auth):
        raise ConfigurationError(
            "app: auth must be a function of a connection that returns a Principal or None; for one token, write "
            "auth=OneToken('...')"
        )


def _check_lists(**lists: Collection[str]) -> None:
    """Raise `ConfigurationError` for a text in place of a list."""
    for name, listed in lists.items():
        if isinstance(listed, str):
            raise ConfigurationError(f"app: {name} must be a list of texts, got {listed!r:.80}")


def _spoken(protocols: Sequence[str] | None) -> tuple[str, ...]:
    """Return the protocols to speak: for None all that are installed; raise an error for one that cannot be spoken."""
    if protocols is None:
        return tuple([each for each in PROTOCOLS if _is_installed(each)])
    _check_lists(protocols=protocols)
    for protocol in protocols:
        if protocol not in PROTOCOLS:
            known = ", ".join(PROTOCOLS)
            raise ConfigurationError(f"app: protocols may contain {known}, got {protocol!r:.80}")
        if not _is_installed(protocol):
            _, extra, name = _PACKAGES[protocol]
            raise MissingExtra(extra, name)
    return tuple(dict.fromkeys(protocols))


def _is_installed(protocol: str) -> bool:
    """Return whether the package that a protocol needs is installed, if it needs any."""
    return protocol not in _PACKAGES or find_spec(_PACKAGES[protocol][0]) is not None
