"""`--break` and `--until`: parse the conditions that pause a task."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from treadle.agents.agent import Agent
from treadle.cli.agents import known_specs
from treadle.core.events import EVENTS
from treadle.core.unknown_names import MOST_LISTED, near_name
from treadle.engine.options import NEVER_PAUSE, Breakpoint
from treadle.errors import ConfigurationError

_FORMS: Final = "tool:NAME (or a pattern such as tool:write_*), step:N, cost:DOLLARS or event:KIND"
_TAKES: Final = {"--break": f"{_FORMS}, or none", "--until": f"N (the index of a step), {_FORMS}"}
"""The forms that each option takes."""


def breakpoints(texts: Sequence[str]) -> tuple[Breakpoint, ...]:
    """Return the breakpoints of `--break`, such as `tool:write_*`; raise `ConfigurationError`."""
    return tuple([_breakpoint_of(text, "--break") for text in texts if text != "none"])


def goal_of(until: str | None) -> int | Breakpoint:
    """Return the index of the step to run up to (0 for one step), or the breakpoint.

    Raises:
        ConfigurationError: the value of `--until` has an unknown form.
    """
    if until is None:
        return 0
    number = _whole(until.removeprefix("step:"))
    return number or _breakpoint_of(until, "--until")


def check_tools(agents: Iterable[Agent[Any] | None], breakpoints: Iterable[Breakpoint], option: str) -> None:
    """Raise `ConfigurationError` for a breakpoint at a tool that none of the agents has.

    Args:
        agents: the agents that will run; an agent without known code may have any tool.
        breakpoints: the breakpoints.
        option: the option that names them.
    """
    chosen = [*agents]
    if not chosen or None in chosen:
        return
    specs = known_specs(agent for agent in chosen if agent is not None)
    if specs is None:
        return
    names = sorted(specs)
    for pattern in [each.tools for each in breakpoints if each.tools is not None]:
        if any(fnmatchcase(name, pattern) for name in names):
            continue
        near = near_name(re.sub(r"[*?\[\]!]", "", pattern), names)
        hint = f"; did you mean tool:{near}?" if near else ""
        more = ", ..." if len(names) > MOST_LISTED else ""
        tools = f"the tools are {', '.join(names[:MOST_LISTED])}{more}" if names else "it has no tools"
        owners = " and ".join(sorted({repr(agent.name) for agent in chosen if agent is not None}))
        raise ConfigurationError(
            f"{option} tool:{pattern} would never pause: no tool of agent {owners} has that name{hint} ({tools})"
        )


def _breakpoint_of(text: str, option: str) -> Breakpoint:
    kind, _, value = text.partition(":")
    try:
        match kind:
            case "tool" if value:
                return Breakpoint(tool=value)
            case "step" if (index := _whole(value)) is not None:
                return Breakpoint(after_step=index)
            case "cost":
                return Breakpoint(cost=float(value))
            case "event" if value in EVENTS and value not in NEVER_PAUSE:
                return Breakpoint(event=value)
            case _:
                pass
    except ValueError:
        pass  # not a valid amount of dollars
    raise ConfigurationError(f"{option} takes {_TAKES[option]}, not {text!r}{_advice(kind, value, text)}")


def _advice(kind: str, value: str, text: str) -> str:
    """Return the advice about an invalid breakpoint."""
    match kind:
        case "tool":
            return ": NAME is missing"
        case "step":
            return ": N is the index of a step, a whole number; 0 is each step"
        case "cost":
            return ": DOLLARS is an amount above 0, such as 0.50"
        case "event":
            events = [name for name in EVENTS if name not in NEVER_PAUSE]
            near = near_name(value, events)
            return f": did you mean event:{near}?" if near else f": KIND is one of {', '.join(events)}"
        case _:
            return f": for a tool, write tool:{text}" if re.fullmatch(r"[A-Za-z_][\w*?-]*", text) else ""


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None
