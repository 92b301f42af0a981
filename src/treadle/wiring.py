"""The composition root, which builds the public `Runner`. No other module knows the concrete classes."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self, cast

from treadle.agents.agent import checked_model
from treadle.agents.middleware import ToolMiddleware, checked_middleware
from treadle.context.recall import Recall
from treadle.core.messages import Content, File, Json, Message, Text, copied
from treadle.core.redaction import environment_secrets
from treadle.core.refused_uses import can_be_called, no_function
from treadle.core.unknown_names import explains_arguments
from treadle.drivers import arguments
from treadle.drivers.driver import Dependencies, system_time
from treadle.drivers.user_context import ContextFactory, checked_factory
from treadle.engine.options import RunOptions
from treadle.engine.pending_callback import OnPending
from treadle.engine.vault import SecretSource, Vault, checked_sources
from treadle.errors import ConfigurationError
from treadle.llm.default_layers import resolve
from treadle.llm.prices import Price, PriceFunction, pricing
from treadle.llm.sdk_logs import watch_logs
from treadle.model_names import Agent
from treadle.policy.guardrails import Guardrail, checked_guardrails
from treadle.policy.verdicts import Judge, checked_judge
from treadle.ports import (
    JournalStore,
    Model,
    Observer,
    Observers,
    PydanticAIClient,
    TaskStore,
    missing_methods,
)
from treadle.results.pending import Pending
from treadle.runner.handle import RunHandle
from treadle.runner.runner import TaskRunner
from treadle.runner.sync import SyncRunner

DEFAULT_STORE = Path(".treadle") / "journal.db"


@explains_arguments
class Runner(TaskRunner):
    """Runs agents as durable tasks.

    Use it with `async with`. Without it, the store is closed when the process ends. A runner holds no state of a run,
    so any number of concurrent tasks, event loops and threads can share it.

    Args:
        store: the place of the journals: a path, `sqlite:///path`, `postgresql://...`, `memory:`, or a `JournalStore`.
            Default: the value of TREADLE_STORE, else `.treadle/journal.db` in the working directory. `?lease=5` after a
            URL sets the lease: the seconds after a heartbeat for which this process counts as alive. Some verbs do not
            work with a `TaskStore`, which has fewer methods than a `JournalStore`.
        agents: the agents whose tasks this process can resume.
        model: for agents and subagents without a model: `provider:model`, a `Model` object, or an instance of a model
            class of pydantic-ai. The journal records it with each request. A runner that resumes a task uses its own.
        options: defaults for every run.
        policy: judges each tool call before it starts, in every task of this runner.
        middleware: async functions `(call, next)` around each tool call in every task of this runner. The first one is
            the outermost. See `ToolInvocation`.
        secrets: the sources of the secrets for `ctx.secret(name)`, by name. A source is `env:NAME`, `file:PATH`, a
            path, or a function that returns the secret. A secret that a tool received is masked in journals, views and
            logs.
        guardrails: check user input, answers and tool results in every task of this runner.
        on_pending: an async function of a `Pending` and a handle on its task. It is called once for each call of this
            runner that waits for an approval. It may decide with the handle. The task is not released until it returns.
        extra_state: initial JSON data by name for every task, children too. A task's own `extra_state` overrides it.
        observers: receive the events of the tasks that this runner drives. They are functions of a `Notice`, objects
            like those in `treadle.telemetry`, or the names `console`, `jsonl:PATH` and `otel`. They cannot fail or slow
            a run.
        context_factory: builds the context of drives without one from a caller, such as those of adopted tasks. It is a
            sync or async function of the `Task`, whose id, thread, labels and extra state identify it.
        adopt: within `async with` or `with runner.sync`, also drive tasks of these agents that need a driver. They need
            one after their driver crashed, shut down or lost its lease, and after a person's decision.
        clock: returns the time of events, in microseconds since 1970, UTC. It is for tests.
        prices: the prices of answers. A function `(model, usage)` returns US dollars, or None if the price is unknown.
            A table from `provider:model` or `provider:*` to `Price(...)` extends the published prices. Default: the
            published prices.
        count_tokens: counts the tokens of a message, for `RunOptions(context_tokens=)`. Default: an estimate of one
            token for three bytes of text.

    Raises:
        ConfigurationError: an argument is not valid. The message names it.
    """

    def __init__(
        self,
        store: str | os.PathLike[str] | TaskStore | None = None,
        *,
        agents: Sequence[Agent[Any]] = (),
        model: str | Model | PydanticAIClient | None = None,
        options: RunOptions | None = None,
        policy: Judge | None = None,
        middleware: Sequence[ToolMiddleware] = (),
        secrets: Mapping[str, SecretSource] | None = None,
        guardrails: Sequence[Guardrail] = (),
        on_pending: Callable[[Pending, RunHandle[Any]], Awaitable[object]] | None = None,
        extra_state: dict[str, Json] | None = None,
        observers: Observers = (),
        context_factory: ContextFactory | None = None,
        adopt: bool = False,
        clock: Callable[[], int] = system_time,
        prices: PriceFunction | Mapping[str, Price] | None = None,
        count_tokens: Callable[[Message], int] | None = None,
    ) -> None:
        arguments.flag("Runner: adopt", adopt)
        if adopt and not agents:
            raise ConfigurationError("Runner: adopt=True needs agents=[...]: it drives tasks of these agents")
        if options is not None:
            arguments.options("Runner: options", options)
        if extra_state is not None:
            arguments.json_object("Runner: extra_state", extra_state)
        if isinstance(agents, Agent):
            raise ConfigurationError("Runner: agents must be a list: Runner(agents=[agent])")
        names = [agent.name for agent in agents if isinstance(agent, Agent)]  # pyright: ignore[reportUnnecessaryIsInstance]
        for name in names:
            if names.count(name) > 1:
                raise ConfigurationError(
                    f"Runner: two agents are named {name!r}; tasks find their agent by its name"
                )
        if not isinstance(observers, (list, tuple)):
            form = f"[{observers!r}]" if isinstance(observers, str) else "[function]"
            raise ConfigurationError(f"Runner: observers must be a list: Runner(observers={form})")
        from treadle.stores.tenants import Tenants

        opened = open_store(store)
        super().__init__(
            Dependencies(
                opened,
                Tenants(opened),
                resolve,
                load_parts,
                options if options is not None else RunOptions(),
                Recall(count_tokens),
                tuple(agents),
                checked_factory(context_factory),
                clock,
                tuple([as_observer("Runner: observers", each) for each in observers]) if observers else (),
                pricing(prices),
                copied(extra_state),
                checked_judge("Runner: policy", policy),
                checked_middleware("Runner: middleware", middleware),
                _vault(secrets),
                checked_guardrails("Runner: guardrails", guardrails) if guardrails != () else (),
                self._callbacks_for(on_pending),
                lambda tenant: partial(self._ask_at_terminal, tenant),
                None if model is None else checked_model("Runner: model", model),
                observer_of=as_observer,
            )
        )
        self._adopts = adopt
        self.sync = SyncRunner(self)

    def __copy__(self) -> Self:
        made = object.__new__(type(self))
        vars(made).update(vars(self))
        made.sync = SyncRunner(made)
        return made

    def _callbacks_for(self, function: Any) -> Callable[[str], OnPending] | None:
        """Return a factory of callbacks, by tenant, from a user's function. Raises `ConfigurationError`."""
        if function is None:
            return None
        from inspect import iscoroutinefunction

        if not (iscoroutinefunction(function) or iscoroutinefunction(getattr(function, "__call__", None))):  # noqa: B004
            raise ConfigurationError(
                f"Runner: on_pending must be an async function of a Pending and a handle, got {no_function(function)}"
            )
        return lambda tenant: lambda item: function(item, self._in(tenant).handle(item.task_id))

    async def _ask_at_terminal(self, tenant: str, item: Pending) -> None:
        from treadle.runner.terminal import ask_at_terminal

        await ask_at_terminal(self._in(tenant), item)

    def _in(self, tenant: str) -> Runner:
        return self.scoped(tenant=tenant) if tenant else self

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        if self._adopts and self.scope is None:
            self.begin_adopting()
        return self

    def __repr__(self) -> str:
        tenant = f"tenant={self.scope.tenant!r}" if self.scope is not None and self.scope.tenant else "..."
        return f"Runner({self.store.url!r})" + ("" if self.scope is None else f".scoped({tenant})")


def _vault(secrets: Mapping[str, SecretSource] | None) -> Vault:
    """Return the vault of a runner. With secrets for tools, it also masks those of the environment."""
    if secrets is None:
        return Vault(None, watch_logs)
    vault = Vault(checked_sources("Runner: secrets", secrets), watch_logs)
    vault.learn(environment_secrets(os.environ))
    return vault


def as_observer(label: str, listed: Any) -> Observer:
    """Return an entry of `observers=` as an observer. A plain function receives everything but deltas.

    Args:
        label: the name of the list in errors.
        listed: the entry.

    Raises:
        ConfigurationError: it is neither a function, nor an observer, nor the name of one.
        MissingExtra: the observer of this name needs a package that is not installed.
    """
    if isinstance(listed, str):
        from treadle.telemetry.by_name import observer_named

        return observer_named(label, listed)
    from inspect import iscoroutinefunction

    observe = getattr(listed, "observe", None)
    called: Any = listed if observe is None else observe
    if isinstance(listed, type) or not can_be_called(called) or iscoroutinefunction(called):
        raise ConfigurationError(
            f"{label} must list plain functions of a Notice, objects with such an observe(notice), or the "
            f"names console, jsonl:PATH and otel, got {no_function(listed)}"
        )
    if observe is not None:
        return listed
    from treadle.telemetry.callback import Callback

    return Callback(listed)


def open_store(
    store: str | os.PathLike[str] | TaskStore | None, *, lease_seconds: float | None = None
) -> JournalStore:
    """Return the store of a URL, a path, an object, or the default one. It is opened at first use.

    Args:
        store: as `Runner` takes it.
        lease_seconds: the length of its leases, overriding its URL; None uses the URL.
    """
    if store is None:
        store = os.environ.get("TREADLE_STORE") or DEFAULT_STORE
    if not isinstance(store, (str, os.PathLike)):
        if isinstance(store, type) or not (hasattr(store, "commit") or hasattr(store, "claim")):
            advice = ": agents are given by name, Runner(agents=[agent])" if isinstance(store, Agent) else ""
            raise ConfigurationError(f"store must be a path, a URL or a JournalStore, got {store!r}{advice}")
        return _whole_store(store)
    text = os.fspath(store)
    if not text:
        raise ConfigurationError("store must be a path, a URL or a JournalStore, got an empty text")
    if text in ("memory", "memory:", "memory://"):
        from treadle.stores.memory import MemoryStore

        return MemoryStore()
    scheme, separator, rest = text.partition("://")
    if text in (":memory:", "sqlite:///:memory:", "sqlite://"):
        raise ConfigurationError(f"store {text!r}: write memory: for a store in memory")
    if text.startswith("sqlite:") and (not separator or not rest.partition("?")[0].strip("/")):
        raise ConfigurationError(
            f"store {text!r}: write sqlite:///path, with four slashes before an absolute path"
        )
    if text.startswith(("postgresql:", "postgres:")) and not separator:
        raise ConfigurationError(f"store {text!r}: write postgresql://user@host/database")
    if separator and scheme in ("postgresql", "postgres"):
        from treadle.stores.postgres import PostgresStore

        return PostgresStore(text, lease_seconds=lease_seconds)
    if separator and scheme != "sqlite":
        if text.lower().startswith(("http://", "https://")):
            raise ConfigurationError(
                f"store {_without_secrets(text)!r} is a server: write Client(url, token=...) instead of Runner(url), "
                "or --url instead of --store"
            )
        known = "a path, sqlite:///path, postgresql://... and memory:"
        raise ConfigurationError(f"store {_without_secrets(text)!r}: this version knows {known}")
    from treadle.stores.processes import LEASE_SECONDS
    from treadle.stores.sqlite import SQLiteStore

    if not separator:
        return SQLiteStore(text, lease_seconds=LEASE_SECONDS if lease_seconds is None else lease_seconds)
    path, _, query = rest.partition("?")
    # As in SQLAlchemy, three slashes begin a relative path and four an absolute one.
    return SQLiteStore(path.removeprefix("/"), lease_seconds=_lease(text, query, lease_seconds))


def _whole_store(store: TaskStore) -> JournalStore:
    """Return a store as one with all methods. Raises `ConfigurationError` if it lacks a method of `TaskStore`."""
    if not missing_methods(store, JournalStore):
        return cast("JournalStore", store)
    if missing := missing_methods(store, TaskStore):
        raise ConfigurationError(
            f"the store {type(store).__name__} lacks methods that running tasks needs: {', '.join(missing)} "
            "(see treadle.ports.TaskStore)"
        )
    from treadle.stores.run_only import RunOnlyStore

    return cast("JournalStore", RunOnlyStore(store))


def _lease(url: str, query: str, lease_seconds: float | None) -> float:
    """Return the seconds of a lease from the query of a store's URL. Raises `ConfigurationError` for a wrong query."""
    from urllib.parse import parse_qsl

    from treadle.stores.processes import LEASE_SECONDS, checked_lease

    settings = dict(parse_qsl(query, keep_blank_values=True))
    lease = settings.pop("lease", None)
    if settings:
        raise ConfigurationError(f"store {url!r}: it takes ?lease=SECONDS, not {', '.join(settings)}")
    if lease_seconds is not None:
        return lease_seconds
    if lease is None:
        return LEASE_SECONDS
    try:
        seconds = float(lease)
    except ValueError:
        raise ConfigurationError(f"store {url!r}: lease must be a number of seconds, got {lease!r}") from None
    return checked_lease(seconds, f"store {url!r}: lease")


def _without_secrets(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://...@{rest.rpartition('@')[2]}" if "@" in rest else url


def load_parts(parts: tuple[Content, ...]) -> tuple[Content, ...]:
    """Return content parts with local files read, so that the journal does not depend on them.

    Raises:
        ConfigurationError: a part needs exactly one of path, url and data, or its file cannot be read.
    """
    return tuple([part if type(part) is Text else _loaded(part) for part in parts])


def _loaded(part: Content) -> Content:
    if isinstance(part, Text):
        return part
    kind = type(part).__name__
    sources = [name for name in ("path", "url", "data") if getattr(part, name) is not None]
    if len(sources) != 1:
        raise ConfigurationError(
            f"{kind} needs exactly one of path, url and data, got {', '.join(sources) or 'none'}"
        )
    from mimetypes import guess_type

    source = part.path or part.url
    media_type = part.media_type or (guess_type(source)[0] if source else None)
    if media_type is None and part.url is None:
        raise ConfigurationError(f"{kind}: say which media_type it has, such as 'image/png'")
    if part.path is None:
        return replace(part, media_type=media_type)
    try:
        data = Path(part.path).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{kind}: {part.path} cannot be read: {error.strerror}") from error
    if isinstance(part, File):
        return replace(
            part, path=None, data=data, media_type=media_type, name=part.name or Path(part.path).name
        )
    return replace(part, path=None, data=data, media_type=media_type)
