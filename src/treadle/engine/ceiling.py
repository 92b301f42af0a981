"""Options under a ceiling: what a caller asks for, kept within what another one allows.

Of two numbers the smaller counts. All else that a ceiling sets is as the ceiling says; its breakpoints and labels come
beside those of the caller.
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
"""The fields that are numbers, with their defaults."""


def both(options: RunOptions, ceiling: RunOptions) -> RunOptions:
    """Return the ceiling that two ceilings are together."""
    return _under(options, ceiling, only_set=False)


def new_task_options(options: RunOptions, ceiling: RunOptions, agent: Limits) -> RunOptions:
    """Return the options of a new task under a ceiling.

    A number that nothing but the ceiling sets, and whose default is smaller, stays at its default.

    Args:
        options: those of the caller over those of the runner.
        ceiling: what they are kept under.
        agent: the limits of the task's agent.
    """
    limited = _within(options, ceiling)
    if limited.limits is None:
        return limited
    asked = agent if options.limits is None else agent.tightest(options.limits)
    return replace(limited, limits=limited.limits.below_defaults(asked))


def changed_options(options: RunOptions, ceiling: RunOptions) -> RunOptions:
    """Return options that change those of a task, under a ceiling: what they leave open is left as the task has it."""
    return _under(options, ceiling, only_set=True)


def fork_options(options: RunOptions | None, stored: RunOptions, ceiling: RunOptions) -> RunOptions:
    """Return the options of a fork under a ceiling.

    Args:
        options: those of the caller.
        stored: of the task that the fork begins with, which may have been made without the ceiling, or has less of
            its own than what it went by, as a child has.
        ceiling: what they are kept under.
    """
    return _within((options or RunOptions()).over(stored), ceiling)


def _within(options: RunOptions, ceiling: RunOptions) -> RunOptions:
    """Return options under a ceiling; a number that only the ceiling sets stays at its default if that is smaller."""
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
