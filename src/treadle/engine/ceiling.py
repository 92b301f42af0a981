"""Options under a ceiling: a caller's options, bounded by another set of options.

The smaller of two numbers applies. Every other field that the ceiling sets comes from the ceiling. Breakpoints and
labels of both apply.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Final

from treadle.core.observation import OBSERVATION_CHARS
from treadle.engine.options import RunOptions
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
    """Return options that change those of a task, under a ceiling; options that the caller leaves open stay unset."""
    return _under(options, ceiling, only_set=True)


def fork_options(options: RunOptions | None, stored: RunOptions, ceiling: RunOptions) -> RunOptions:
    """Return the options of a fork under a ceiling.

    Args:
        options: the caller's options.
        stored: the options of the original task. It may have been created without the ceiling, or have only some of
            the options it ran under, as a child has.
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
