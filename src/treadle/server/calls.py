"""One call of an operation: its principal, its arguments, its wait, and its answer."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from treadle.agents.agent import Agent
from treadle.core.data import mutable
from treadle.engine.options import RunOptions
from treadle.errors import AgentUnknown, TaskNotFound, TreadleError
from treadle.results.tasks import Task
from treadle.runner.runner import TaskRunner
from treadle.runner.scope import both
from treadle.runner.views import driver_of
from treadle.server.driving import DrivingLoop
from treadle.server.feed import FeedSettings, rests
from treadle.server.holding import Holds
from treadle.server.limits import ServerLimits, TaskQuota, WaitQuota
from treadle.server.metrics import Metrics
from treadle.server.principals import Principal
from treadle.server.problems import AGENTS_LISTED, Problem, log
from treadle.server.streams import Streams
from treadle.verbs.operation import Operation, Scope

if TYPE_CHECKING:
    from treadle.core.redaction import Secrets

R = TypeVar("R")

LEAST_WAIT = 0.1
"""Seconds for which a request that does not wait still waits for a refusal."""


READY_SECONDS = 1.0
"""Seconds that a check of the store's readiness is cached, since requests for it need no credentials."""


class Readiness:
    """Caches whether a store is readable, so that many requests cause few checks."""

    def __init__(self) -> None:
        self._asking: asyncio.Task[bool] | None = None
        self._cached_until = 0.0

    async def of(self, runner: TaskRunner) -> bool:
        """Return whether the runner's store was readable at the last check."""
        if self._asking is None or (self._asking.done() and self._cached_until < time.monotonic()):
            self._asking = asyncio.get_running_loop().create_task(self._ask(runner))
        return await asyncio.shield(self._asking)

    async def _ask(self, runner: TaskRunner) -> bool:
        try:
            await runner.list_tasks(limit=1)
        except TreadleError:
            return False
        finally:
            self._cached_until = time.monotonic() + READY_SECONDS
        return True


@mutable
class Service:
    """The state that all calls of one application share.

    Args:
        runner: the runner whose verbs the operations call.
        drives: the loop for work that drives tasks.
        limits: the server's limits.
        ceiling: upper bounds for the options in requests.
        models: models that a fork may name.
        allow_urls: whether content may contain URLs, which the model's provider fetches.
        protocols: the protocols that the server speaks besides its own.
        adopts: whether this process adopts and drives tasks.
        public_url: the public URL of the server, if it is known.
    """

    runner: TaskRunner
    drives: DrivingLoop
    limits: ServerLimits
    ceiling: RunOptions | None = None
    models: Sequence[str] = ()
    allow_urls: bool = False
    protocols: Sequence[str] = ()
    adopts: bool = True
    public_url: str | None = None
    draining: bool = False
    running: set[asyncio.Future[Any]] = field(default_factory=set[asyncio.Future[Any]])
    """work that no request waits for"""

    waits: set[asyncio.Timeout] = field(default_factory=set[asyncio.Timeout])
    """the timeouts of requests that wait for a result"""

    metrics: Metrics = field(default_factory=Metrics)
    streams: Streams = field(default_factory=Streams)
    """the open event streams"""

    holds: Holds = field(default_factory=Holds)
    """the tasks that streams hold"""

    quota: TaskQuota = field(default_factory=lambda: TaskQuota(0))
    """the limit of a tenant's unfinished tasks"""

    waiters: WaitQuota = field(default_factory=lambda: WaitQuota(0))
    """the limit of a principal's waiting requests"""

    unanswered: set[asyncio.Timeout] = field(default_factory=set[asyncio.Timeout])
    """the timeouts of requests without a response"""

    readiness: Readiness = field(default_factory=Readiness)

    def __post_init__(self) -> None:
        self.streams = Streams(self.limits, FeedSettings(self.metrics.lag, self.mask))
        self.holds = Holds(self.limits.hold_seconds)
        self.quota = TaskQuota(self.limits.unfinished_tasks)
        self.waiters = WaitQuota(self.limits.waits_per_principal)

    @asynccontextmanager
    async def waiting(self, seconds: float) -> AsyncGenerator[None]:
        """Raise `TimeoutError` if a block takes longer than `seconds` or the server is about to end."""
        async with asyncio.timeout(0 if self.draining else seconds) as wait:
            self.waits.add(wait)
            try:
                yield
            finally:
                self.waits.discard(wait)

    def stop_waiting(self) -> None:
        """End all waits of requests, since the server is about to end."""
        _expire(self.waits)

    def stop_requests(self) -> None:
        """Let the timeouts of all unanswered requests expire, since the server ends."""
        _expire(self.unanswered)

    def ended(self, work: asyncio.Future[Any]) -> None:
        """Remove ended work, and log its error unless it is one of Treadle, which the journal has."""
        self.running.discard(work)
        error = None if work.cancelled() else work.exception()
        if error is not None and not isinstance(error, TreadleError):
            log.error("work for which no request waited any more failed: %s", error, exc_info=error)

    def scoped(self, principal: Principal) -> TaskRunner:
        """Return the runner scoped to a principal: its tenant, its name, and the ceiling."""
        options = principal.options or self.ceiling
        if principal.options is not None and self.ceiling is not None:
            options = both(principal.options, self.ceiling)
        return self.runner.scoped(tenant=principal.tenant, by=principal.name, options=options)

    def secrets(self) -> Secrets | None:
        """Return the secrets to mask in responses; None if there are none."""
        vault = driver_of(self.runner).vault
        return vault.known if vault.hide_in is not None else None

    def mask(self) -> Callable[[Any], Any] | None:
        """Return a function that masks secrets in JSON data; None if there are none."""
        secrets = self.secrets()
        return None if secrets is None else secrets.hide_data

    def hide(self, message: str) -> str:
        """Return a message without secrets and the store's location."""
        secrets = self.secrets()
        message = message.replace(self.runner.store.url, "this store")
        return message if secrets is None else secrets.hide(message, deep=True)


def _expire(timeouts: Collection[asyncio.Timeout]) -> None:
    now = asyncio.get_running_loop().time()
    for timeout in timeouts:
        if not timeout.expired():
            timeout.reschedule(now)


@mutable
class Answer:
    """The answer of an operation: a value in the wire form, or a whole response."""

    value: Any = None
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict[str, str])
    response: Response | None = None


@mutable
class Call:
    """One call of an operation.

    Args:
        service: the application's service.
        operation: the row of the table.
        request: the request.
        principal: the author of the request; None for an open operation.
        arguments: the arguments in its path, query and body.
        wait: seconds to wait for a result.
        expect: the required head of the task.
        key: the key under which the request may be repeated.
    """

    service: Service
    operation: Operation
    request: Request
    principal: Principal | None
    arguments: dict[str, Any]
    wait: float = 0.0
    expect: int | None = None
    key: str | None = None
    _runner: TaskRunner | None = None

    @property
    def tenant(self) -> str:
        """The tenant of the request's principal."""
        return self.principal.tenant if self.principal is not None else ""

    @property
    def scopes(self) -> Collection[Scope]:
        """The scopes of the request's principal."""
        return self.principal.scopes if self.principal is not None else ()

    @property
    def runner(self) -> TaskRunner:
        """The runner scoped to the request's principal."""
        if self._runner is None:
            assert self.principal is not None, "the operation needs a principal"
            self._runner = self.service.scoped(self.principal)
        return self._runner

    def url(self, path: str) -> str:
        """Return the path of a resource, for `Location`."""
        return f"{self.request.scope.get('root_path', '')}/v1/{path}"

    def task_url(self, task_id: str, suffix: str = "") -> str:
        """Return the path of a task, or of a resource below it."""
        return self.url(f"tasks/{quote(task_id, safe='')}{suffix}")

    def extras(self) -> dict[str, Any]:
        """Return the arguments of a verb that come from headers."""
        extras: dict[str, Any] = {}
        if self.expect is not None:
            extras["expect"] = self.expect
        if self.key is not None and self.operation.repeats == "command":
            extras["command_id"] = self.key  # the same key through `Runner` is the same command
        return extras

    def new_task_id(self) -> str | None:
        """Return the id of the new task: the `task_id` in the body, else an id that follows from the request's key."""
        if self.arguments.get("task_id") is not None or self.key is None:
            return self.arguments.get("task_id")
        digest = hashlib.sha256(f"{self.operation.name}\x1f{self.tenant}\x1f{self.key}".encode())
        return f"k{digest.hexdigest()[:40]}"

    async def done(self, work: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Run a verb and return its result. A verb that may run code of agents runs in the loop that drives tasks."""
        if self.operation.drives:
            return await self.service.drives.run(work)
        return await work()

    async def in_time(self, work: Callable[[], Coroutine[Any, Any, R]]) -> tuple[bool, R | None]:
        """Run a verb; return whether it ended in time, and its result.

        A verb that takes longer continues without the request.
        """
        running = asyncio.ensure_future(self.done(work))
        with suppress(TimeoutError):
            async with self.service.waiting(max(self.wait, LEAST_WAIT)):
                await asyncio.wait([running])
        if running.done():
            return True, running.result()
        self.service.running.add(running)
        running.add_done_callback(self.service.ended)
        return False, None

    async def accepted(self, task_id: str, suffix: str = "/result") -> Answer:
        """Return the answer to a call that has not ended: the task, and the URL of its later result."""
        task = await self.runner.get_task(task_id)
        return Answer(task, 202, {"Location": self.task_url(task_id, suffix)})


def agent_of(runner: TaskRunner, name: str) -> Agent[Any]:
    """Return the runner's agent of a name; raise `AgentUnknown` if there is none."""
    agents = driver_of(runner).agents
    if not agents.has(name):
        raise no_agent(name)
    return agents.of(name, None, "-")


def no_agent(name: str) -> AgentUnknown:
    """Return the error for a name that no agent of the server has."""
    return AgentUnknown(f"this server was not given an agent {name!r:.80}: {AGENTS_LISTED}")


def check_scope(call: Call, scope: Scope, why: str) -> None:
    """Raise a `Problem` unless the principal of a call has a scope; `why` names the act that needs it."""
    if scope not in call.scopes:
        raise Problem(403, "ScopeMissing", f"{why}: that needs `{scope}`", scope=scope)


async def find_task(runner: TaskRunner, task_id: str) -> Task[Any] | None:
    """Return a task; None if the runner's tenant has no such task."""
    try:
        return await runner.get_task(task_id)
    except TaskNotFound:
        return None


async def at_rest(call: Call, task_id: str, *, until: Callable[[], Awaitable[bool]]) -> bool:
    """Return whether a task stopped, or `until` became true, within the wait of the request.

    A task that is due for adoption, or whose driver crashed, has not stopped. A server that is about to end stops
    waiting, and the client continues at another server.
    """
    driver = driver_of(call.runner)
    try:
        async with call.service.waiting(call.wait):
            with driver.owned.watching(task_id) as watch:
                while True:
                    watch.skip()
                    row = await driver.cache.row(task_id)
                    if rests(row, driver.clock()) and not driver.owned.is_owned(task_id):
                        return True
                    if await until():
                        return True
                    await watch.changed()
    except TimeoutError:
        return False


async def never() -> bool:
    """Return False, so that only a stop ends the wait."""
    return False


def page_link(call: Call, **after: Any) -> str:
    """Return the `Link` to the next page of a list."""
    query = QueryParams(
        [(name, value) for name, value in call.request.query_params.multi_items() if name not in after]
    )
    quoted = "&".join(filter(None, [str(query), urlencode(after)]))
    return f'<{quote(call.request.scope["path"], safe="/%")}?{quoted}>; rel="next"'
