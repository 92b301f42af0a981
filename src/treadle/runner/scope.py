"""The scope of a runner: its tenant, the principal it acts for, and the ceiling of its options.

A ceiling is a set of options that bounds the caller's options. The smaller of two numbers applies. Every other field
that the ceiling sets comes from the ceiling. Breakpoints and labels of both apply.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from typing import Any, Final

from treadle.agents.agent import Agent
from treadle.core.data import frozen
from treadle.core.messages import Json
from treadle.core.observation import OBSERVATION_CHARS
from treadle.drivers.arguments import shown
from treadle.engine.options import RunOptions, from_json
from treadle.errors import ConfigurationError
from treadle.policy.limits import Limits

_NUMBERS: Final[dict[str, float | None]] = {
    "max_parallel_tools": 64,
    "max_parallel_steps": 64,
    "tool_output_max_chars": OBSERVATION_CHARS,
    "context_tokens": None,
    "approval_expires": 604_800,
}
"""The numeric fields, with their defaults."""


def both(options: RunOptions, ceiling: RunOptions) -> RunOptions:
    """Return the ceiling that combines two ceilings."""
    return _under(options, ceiling, only_set=False)


def new_task_options(options: RunOptions, ceiling: RunOptions, agent: Limits) -> RunOptions:
    """Return the options of a new task under a ceiling.

    A number that only the ceiling sets stays at its default, if that is smaller.

    Args:
        options: the caller's options over the runner's.
        ceiling: the upper bound.
        agent: the limits of the task's agent.
    """
    limited = _within(options, ceiling)
    if limited.limits is None:
        return limited
    requested = agent if options.limits is None else agent.tightest(options.limits)
    return replace(limited, limits=limited.limits.below_defaults(requested))


def changed_options(options: RunOptions, ceiling: RunOptions) -> RunOptions:
    """Return changes of a task's options under a ceiling; options that the caller leaves open stay unset."""
    return _under(options, ceiling, only_set=True)


def fork_options(options: RunOptions | None, stored: RunOptions, ceiling: RunOptions) -> RunOptions:
    """Return the options of a fork under a ceiling.

    Args:
        options: the caller's options.
        stored: the options of the original task. It may have been created without the ceiling. A child has only some
            of the options that it ran under.
        ceiling: the upper bound.
    """
    return _within((options or RunOptions()).over(stored), ceiling)


def _within(options: RunOptions, ceiling: RunOptions) -> RunOptions:
    """Return options under a ceiling; a number that only the ceiling sets stays at its default, if that is smaller."""
    limited = _under(options, ceiling, only_set=False)
    values: dict[str, Any] = {}
    for name, default in _NUMBERS.items():
        value = getattr(limited, name)
        if getattr(options, name) is None and None not in (value, default) and value >= default:
            values[name] = None
    return replace(limited, **values)


def _under(options: RunOptions, ceiling: RunOptions, *, only_set: bool) -> RunOptions:
    values: dict[str, Any] = {}
    for item in fields(RunOptions):
        name, value, most = item.name, getattr(options, item.name), getattr(ceiling, item.name)
        if most is None or (only_set and value is None):
            values[name] = value
        elif value is None:
            values[name] = most
        elif name in _NUMBERS:
            values[name] = min(value, most)
        elif name == "limits":
            values[name] = _smaller_limits(value, most)
        elif name == "model_settings":
            settings = most.over(value)
            if None not in (value.max_tokens, most.max_tokens):
                settings = replace(settings, max_tokens=min(value.max_tokens, most.max_tokens))
            values[name] = settings
        elif name == "break_on":
            values[name] = (*most, *[each for each in value if each not in most])
        elif name == "labels":
            values[name] = {**value, **most}
        else:
            values[name] = most
    return RunOptions(**values)


def _smaller_limits(limits: Limits | None, most: Limits | None) -> Limits | None:
    if limits is None or most is None:
        return most if limits is None else limits
    return limits.tightest(most)


@frozen
class Scope:
    """The common properties of all calls of a scoped runner.

    Args:
        tenant: the tenant whose tasks and threads its verbs see.
        by: the name that commands and decisions record; None leaves it to the caller.
        ceiling: the upper bound of the options of its calls, if any.
        defaults: the options of the runner, for new tasks.
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
            args: the positional arguments; for a verb that creates a task, the first one is the agent.
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
