"""What callers give, checked at the door: a wrong value is named there, not where it would break later."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any, Final, cast, get_args

from treadle.agents.agent import Agent
from treadle.core.messages import Content, File, Image, Json, Text, content
from treadle.errors import ConfigurationError
from treadle.runner.options import RunOptions
from treadle.runner.results import StateWord

MOST: Final = 1_000
"""How many tasks a page may hold."""

SHOWN: Final = 80
"""Characters of a wrong value that its error repeats."""


def parts_of(given: Any) -> tuple[Content, ...]:
    """Return a caller's input as content parts; raises `ConfigurationError` for anything else."""
    parts: tuple[Any, ...] = ()
    if isinstance(given, (str, Text, Image, File, list, tuple)):
        parts = content(cast("Any", given))
    if not parts or not all(isinstance(part, (Text, Image, File)) for part in parts):
        raise ConfigurationError(
            f"input must be text or content parts (text, Image, File), got {shown(given)}"
        )
    if all(isinstance(part, Text) and not part.text.strip() for part in parts):
        raise ConfigurationError(f"input must say something, got {shown(given)}")
    return parts


def agent(given: Any) -> Agent[Any]:
    """Return an agent; raises `ConfigurationError` for anything else."""
    if not isinstance(given, Agent):
        raise ConfigurationError(f"agent must be an Agent, got {shown(given)}")
    return cast("Agent[Any]", given)


def options(given: Any) -> RunOptions | None:
    """Return options or None; raises `ConfigurationError` for anything else."""
    if given is not None and not isinstance(given, RunOptions):
        raise ConfigurationError(f"options must be RunOptions(...), got {shown(given)}")
    return given


def json_value(name: str, given: Json) -> Json:
    """Return a JSON value; raises `ConfigurationError` for what would not come back as it was given."""
    if given is None:
        return None  # the usual case, on the way of every run
    try:
        same = json.loads(json.dumps(given, allow_nan=False)) == given
    except (TypeError, ValueError, RecursionError):
        same = False
    if not same:
        raise ConfigurationError(
            f"{name} must be JSON data (dicts with text keys, lists, text, numbers, booleans, None), "
            f"got {shown(given)}"
        )
    return given


def replacements(given: Any) -> dict[str, Json]:
    """Return other results by call id; raises `ConfigurationError` for anything else."""
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise ConfigurationError(f"replace must map a call id to its other result, got {shown(given)}")
    for call_id, value in cast("dict[str, Json]", given).items():
        json_value(f"replace[{call_id!r}]", value)
    return cast("dict[str, Json]", given)


def count(name: str, given: Any) -> None:
    """Raise `ConfigurationError` unless this may say how many."""
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise ConfigurationError(f"{name} must be a whole number from 1 up, got {shown(given)}")


def seconds(name: str, given: Any) -> None:
    """Raise `ConfigurationError` unless this may say how long."""
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 <= given < math.inf:
        raise ConfigurationError(f"{name} must be a number of seconds from 0 up, got {shown(given)}")


def labels(name: str, given: Any) -> None:
    """Raise `ConfigurationError` unless these may be labels to look for: none at all is no empty text or list."""
    if given is not None and not isinstance(given, dict):
        raise ConfigurationError(f"{name} must be a dict of texts, got {shown(given)}")


def path(name: str, given: Any, what: str = "a path") -> Path:
    """Return a path; raises `ConfigurationError` for what cannot be one."""
    where = Path(cast("Any", given)) if isinstance(given, (str, os.PathLike)) and given != "" else None
    try:
        if where is not None and b"\0" not in os.fsencode(where):
            return where
    except UnicodeEncodeError:
        pass
    raise ConfigurationError(f"{name} must be {what}, got {shown(cast('Any', given))}")


def thread(given: Any) -> None:
    """Raise `ConfigurationError` unless this may name a thread."""
    if not isinstance(given, str) or not given:
        raise ConfigurationError(f"thread_id must be text, got {shown(given)}")


def page(state: Any, limit: Any, since: Any, **texts: Any) -> None:
    """Raise `ConfigurationError` unless these may ask for a page of tasks."""
    if state is not None and state not in get_args(StateWord):
        words = ", ".join(get_args(StateWord))
        raise ConfigurationError(f"list_tasks: state must be one of {words}, got {shown(state)}")
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MOST:
        raise ConfigurationError(f"list_tasks: limit must be 1 to {MOST}, got {shown(limit)}")
    if since is not None and (isinstance(since, bool) or not isinstance(since, int)):
        raise ConfigurationError(
            f"list_tasks: since must be a whole number of microseconds since 1970, UTC, got {shown(since)}"
        )
    for name, value in texts.items():
        if value is not None and not isinstance(value, str):
            what = "what the page before gave as its cursor" if name == "cursor" else "text"
            raise ConfigurationError(f"list_tasks: {name} must be {what}, got {shown(value)}")


def shown(value: Any) -> str:
    """Return a value as an error may repeat it."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."
