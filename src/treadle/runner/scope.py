"""The scope of a runner: its tenant, the principal it acts for, and the ceiling of its options."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from treadle.agents.agent import Agent
from treadle.core.data import frozen
from treadle.core.messages import Json
from treadle.drivers.arguments import shown
from treadle.engine.ceiling import both, changed_options, fork_options, new_task_options
from treadle.engine.options import RunOptions, from_json
from treadle.errors import ConfigurationError
from treadle.policy.limits import Limits


@frozen
class Scope:
    """The common properties of all calls of a scoped runner.

    Args:
        tenant: its verbs see the tasks and threads of this tenant.
        by: the name that commands and decisions record; None leaves it to the caller.
        ceiling: the upper bound of the options of its calls, if any.
        defaults: the options of the runner, which a new task begins with.
    """

    tenant: str = ""
    by: str | None = None
    ceiling: RunOptions | None = None
    defaults: RunOptions = RunOptions()

    def narrowed(self, tenant: str, by: str | None, options: RunOptions | None) -> Scope:
        """Return a scope within this one.

        Raises:
            ConfigurationError: it would be of another tenant, or act for another principal.
        """
        if tenant != self.tenant:
            raise ConfigurationError(
                f"scoped: this runner is limited to tenant {self.tenant!r}, so tenant must be that, got {shown(tenant)}"
            )
        if by is not None and self.by not in (None, by):
            raise ConfigurationError(
                f"scoped: this runner acts for {self.by!r}, so by must be that, got {shown(by)}"
            )
        ceiling = self.ceiling
        if options is not None:
            ceiling = options if ceiling is None else both(options, ceiling)
        return Scope(tenant, by if by is not None else self.by, ceiling, self.defaults)

    def stamped(
        self, verb: str, takes: Collection[str], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the keyword arguments of a call with this scope's `by`, and its options under the ceiling.

        Args:
            verb: the name of the verb.
            takes: which of `by` and `options` it takes.
            args: the positional arguments; the first one of a verb that creates a task is the agent.
            kwargs: the caller's keyword arguments.

        Raises:
            ConfigurationError: the caller passes another `by`.
        """
        stamped = dict(kwargs)
        if self.by is not None and "by" in takes:
            if (by := stamped.get("by")) not in (None, self.by):
                raise ConfigurationError(
                    f"{verb}: by must be {self.by!r}, for which this runner acts, got {shown(by)}; leave it out"
                )
            stamped["by"] = self.by
        if self.ceiling is not None and "options" in takes:
            agent: Any = args[0] if args else stamped.get("agent")
            stamped["options"] = self.options_of(verb, agent, stamped.get("options"))
        return stamped

    def options_of(self, verb: str, agent: Any, options: RunOptions | None) -> RunOptions | None:
        """Return the options of a call under the ceiling.

        Args:
            verb: the name of the verb.
            agent: the agent of the task that the call creates, if any.
            options: the caller's options.
        """
        if self.ceiling is None:
            return options
        match verb:
            case "resume":  # without options the task keeps its own
                return None if options is None else changed_options(options, self.ceiling)
            case "fork":
                return options  # `fork_options` considers those of the task too
            case _:
                limits = agent.limits if isinstance(agent, Agent) else Limits()
                return new_task_options((options or RunOptions()).over(self.defaults), self.ceiling, limits)

    def fork_options(self, options: RunOptions | None, stored: Json) -> RunOptions | None:
        """Return the options of a fork under the ceiling.

        Args:
            options: the caller's options.
            stored: the options of the forked task.
        """
        return options if self.ceiling is None else fork_options(options, from_json(stored), self.ceiling)
