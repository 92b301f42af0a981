"""The context of a drive: the caller's, or that of the runner's factory.

It is checked before the drive records or sends anything. So a missing one is an error for the caller, and no
AttributeError in a tool, which only the model would read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from inspect import isawaitable, signature
from typing import Any, TypeAlias

from treadle.agents.agent import Agent
from treadle.agents.context import ContextNeed, fits, type_name
from treadle.core.refused_uses import can_be_called, no_function
from treadle.core.tracebacks import cause
from treadle.drivers.agent_registry import AgentRegistry
from treadle.drivers.owned_tasks import OwnedTask
from treadle.drivers.task_cache import TaskCache
from treadle.engine.user_errors import kept
from treadle.engine.vault import NO_VAULT, Vault
from treadle.errors import ConfigurationError, ContextFailed
from treadle.results.tasks import Task, driven_snapshot

ContextFactory: TypeAlias = Callable[[Task[Any]], Any]
"""Returns the context of a drive, or an awaitable of it, for its task."""

_WAYS = (
    "pass context= to the call, or make the runner with Runner(context_factory=...); on the command line give the "
    'function as `context_factory = "module:function"` under [tool.treadle] in pyproject.toml, or in '
    "TREADLE_CONTEXT_FACTORY"
)


class UserContexts:
    """Builds and checks the contexts of a runner's drives.

    Args:
        factory: builds the context if the caller passes none.
        agents: the registered agents.
        cache: reads the row of a task.
        tenant: the tenant of the tasks.
        vault: masks secrets in errors of the factory.
    """

    def __init__(
        self,
        factory: ContextFactory | None,
        agents: AgentRegistry,
        cache: TaskCache,
        tenant: str = "",
        vault: Vault = NO_VAULT,
    ) -> None:
        self._vault = vault
        self._factory = factory
        self._tenant = tenant
        self._agents = agents
        self._cache = cache

    def check_for_new_task(self, agent: Agent[Any], context: Any) -> None:
        """Raise `ConfigurationError` for a context that does not suit a new task.

        None passes if the factory will build one.
        """
        if context is not None or self._factory is None:
            self._check(agent, context)

    async def of_drive(
        self, owned: OwnedTask, agent: Agent[Any], context: Any, *, needed: bool = True
    ) -> Any:
        """Return the context of a drive.

        Args:
            owned: the task.
            agent: the agent of the drive.
            context: the caller's context, if any.
            needed: whether tools and instructions may be called; otherwise None passes, as for an undo.

        Raises:
            ConfigurationError: it is missing, or is of another type than the agent or one it may call needs.
            ContextFailed: the factory raised.
        """
        if context is None and self._factory is not None:
            context = await self._build(self._factory, owned, agent)
        if needed or context is not None:
            self._check(agent, context, owned)
        return context

    async def _build(self, factory: ContextFactory, owned: OwnedTask, agent: Agent[Any]) -> Any:
        task = await self._snapshot(owned)
        try:
            context = factory(task)
            return await context if isawaitable(context) else context
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001  its error affects this task alone
            name = getattr(factory, "__qualname__", repr(factory))
            trace = kept(error, owned.state, self._vault, function=f"context_factory {name}")
            raise ContextFailed(
                f"task {task.task_id}: context_factory {name} failed for agent {agent.name!r}: "
                f"{self._vault.error_text(error)}; the task was not driven, and can be resumed",
                task_id=task.task_id,
            ) from (cause(trace) if trace else error)

    def _check(self, agent: Agent[Any], context: Any, owned: OwnedTask | None = None) -> None:
        if not agent.context_needs and not agent.subagents and not agent.handoffs:
            return
        where = "" if owned is None else f"task {owned.state.task_id}: "
        checked = [(agent, context)]
        for caller, caller_context in checked:
            for need in caller.context_needs:
                if not fits(caller_context, need.type):
                    raise ConfigurationError(
                        f"{where}agent {caller.name!r}: {_problem(need, caller_context)}"
                    )
            for tool, named in caller.subagents_by_tool.items():
                called, terms = self._agents.found(named), caller.subagent_terms.get(tool)
                if called is None or any(called is each for each, _ in checked):
                    continue
                try:
                    checked.append(
                        (called, caller_context if terms is None else terms.context_of(caller_context))
                    )
                except ConfigurationError as error:
                    if caller_context is not None and terms is not None and can_be_called(terms.context):
                        continue  # the function raised, which will fail the call
                    raise ConfigurationError(f"{where}agent {caller.name!r}: {error}") from error

    async def _snapshot(self, owned: OwnedTask) -> Task[Any]:
        labels = owned.labels
        if labels is None:
            labels = (await self._cache.row(owned.state.task_id)).labels
        return driven_snapshot(owned.state, labels, self._tenant, self._agents.limits_of(owned.state))


def checked_factory(factory: Any) -> ContextFactory | None:
    """Return a factory that takes the task, or None; raise `ConfigurationError` for any other value."""
    if factory is None:
        return None
    if not can_be_called(factory) or isinstance(factory, type):
        got = f"the class {factory.__name__}" if isinstance(factory, type) else no_function(factory)
        raise ConfigurationError(
            f"Runner: context_factory must be a function of the task, got {got}: write `lambda task: ...`"
        )
    try:
        signature(factory).bind(None)
    except TypeError:
        raise ConfigurationError(
            "Runner: context_factory is called with the task alone, and "
            f"{getattr(factory, '__qualname__', repr(factory))} does not take that one argument: "
            "write `def make_context(task)`, or `lambda task: ...`"
        ) from None
    except ValueError:
        pass  # a built-in without a signature
    return factory


def _problem(need: ContextNeed, context: Any) -> str:
    actual = "the call has none" if context is None else f"the context is of type {type_name(type(context))}"
    advice = _WAYS if context is None else _hint(context, need.type)
    return f"{need.source} needs a context of type {type_name(need.type)}, and {actual}: {advice}"


def _hint(context: Any, expected: Any) -> str:
    if getattr(expected, "__qualname__", None) == type(context).__qualname__:
        return (
            "the two classes have the same name but differ, as after a module or a notebook cell ran twice; run "
            "the code that uses the class again too"
        )
    return "pass an object of that type, or name another type where the context is used"
