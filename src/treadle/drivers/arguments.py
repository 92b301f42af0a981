"""What callers give, checked at the door: a wrong value is named there, not where it would break later.

`ArgumentChecks` checks the arguments of a verb by the names of its parameters, the same way for all; what a name stands
for is in one table, `_CHECKS`. Text with half a character (a lone surrogate) is refused everywhere: no store can hold
it, and what was stored in its place would not be what was given.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from inspect import CO_VARARGS, signature
from pathlib import Path
from typing import Any, Final, cast, get_args

from treadle.agents.agent import Agent
from treadle.core.codec import MAX_CHARACTERS, WHOLE, flaw
from treadle.core.messages import Content, File, Image, Json, Text, content
from treadle.core.tools import Happened, NotHappened
from treadle.engine.options import RunOptions
from treadle.engine.results import StateWord, Task
from treadle.errors import ConfigurationError

MOST: Final = 1_000
"""How many tasks a page may hold."""

MOST_OF_ID: Final = 500
"""How many characters an id may have: more than an index of every store can hold is no id."""

MOST_OF_TASK_ID: Final = 200
"""How many characters the id of a new task may have: those of its children are longer."""

MOST_OF_WORDS: Final = 10_000
"""How many characters a name, a reason or the like may have."""

SHOWN: Final = 80
"""Characters of a wrong value that its error repeats."""


def parts_of(given: Any, name: str = "input") -> tuple[Content, ...]:
    """Return a caller's input as content parts; raises `ConfigurationError` for anything else."""
    parts: tuple[Any, ...] = ()
    if isinstance(given, (str, Text, Image, File, list, tuple)):
        parts = content(cast("Any", given))
    if not parts or not all(isinstance(part, (Text, Image, File)) for part in parts):
        raise ConfigurationError(
            f"{name} must be text or content parts (text, Image, File), got {shown(given)}"
        )
    for part in parts:
        _part(name, part)
    if all(isinstance(part, Text) and not part.text.strip() for part in parts):
        raise ConfigurationError(f"{name} must say something, got {shown(given)}")
    return parts


def _part(name: str, part: Content) -> None:
    """Raise `ConfigurationError` for a content part that no journal can hold."""
    if isinstance(part, Text):
        if (
            part.meta is None
            and type(part.text) is str
            and part.text.isascii()
            and len(part.text) <= MAX_CHARACTERS
        ):
            return
        facts: list[Any] = [part.text]
    else:
        facts = [part.path, part.url, part.media_type, part.name if isinstance(part, File) else None]
        data: Any = part.data
        if data is not None and not isinstance(data, (bytes, bytearray)):
            raise ConfigurationError(f"{name}: the data of a part must be bytes, got {shown(data)}")
        if len(data or b"") > MAX_CHARACTERS:
            raise ConfigurationError(
                f"{name}: a part is larger than {MAX_CHARACTERS:,} bytes; give its url instead"
            )
    for fact in facts:
        if fact is not None and not isinstance(fact, (str, os.PathLike)):
            raise ConfigurationError(f"{name}: a part holds what should be text, got {shown(fact)}")
        if isinstance(fact, str):
            _whole(f"{name}: text", fact)
    json_value(f"{name}: meta", part.meta)


def _whole(name: str, text: str) -> None:
    """Raise `ConfigurationError` for text that no journal can hold."""
    if (beyond := flaw(text)) is not None:
        raise ConfigurationError(f"{name} cannot be stored: it is {beyond}, got {shown(text)}")


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
    except (TypeError, ValueError, RecursionError, MemoryError):
        same = False
    if same and (beyond := flaw(given)) is not None:
        raise ConfigurationError(f"{name} cannot be stored: it is {beyond}")
    if not same:
        raise ConfigurationError(
            f"{name} must be JSON data (dicts with text keys, lists, text, numbers, booleans, None), "
            f"got {shown(given)}"
        )
    return given


def replacements(given: Any, name: str = "replace") -> dict[str, Json]:
    """Return other results by call id; raises `ConfigurationError` for anything else."""
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise ConfigurationError(f"{name} must map a call id to its other result, got {shown(given)}")
    for call_id, value in cast("dict[str, Json]", given).items():
        json_value(f"replace[{shown(call_id)}]", value)
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
    identifier("thread_id", given)


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
    if isinstance(value, (str, bytes)):
        value = value[: SHOWN + 1]  # a large one is not written out first
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  a value whose repr fails is as wrong as any other
        text = f"a {type(value).__name__}"
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


# ---------------------------------------------------------------------------------- arguments by name


class ArgumentChecks:
    """Checks the arguments of one verb before anything is done with them.

    Args:
        verb: the function, whose first parameter is the runner or the handle.
    """

    def __init__(self, verb: Callable[..., Any]) -> None:
        code, name = verb.__code__, verb.__name__
        names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
        own = _CHECKS_OF.get(name, {})
        found = [(each, f"{name}: {each}", own.get(each, _CHECKS.get(each))) for each in names]
        defaults = {each: one.default for each, one in signature(verb).parameters.items()}
        self._places = [
            (label, check, defaults[each]) for each, label, check in found[: code.co_argcount - 1]
        ]
        self._named = {each: (label, check, defaults[each]) for each, label, check in found}
        self._rest = (f"{name}: tasks", task) if code.co_flags & CO_VARARGS else None

    def check(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise `ConfigurationError` for an argument that cannot be what its name says."""
        for value, (label, check, default) in zip(args, self._places, strict=False):
            if check is not None and value is not default:
                check(label, value)
        for name, value in kwargs.items():
            label, check, default = self._named.get(name, _UNKNOWN)
            if check is not None and value is not default:
                check(label, value)
        if self._rest is not None:
            for value in args[len(self._places) :]:
                self._rest[1](self._rest[0], value)


Check = Callable[[str, Any], object]

_UNKNOWN: Final = ("", None, None)  # Python itself says that there is no such parameter


def task(name: str, given: Any) -> None:
    """Raise `ConfigurationError` unless this may be a task or its id; a verb that was not awaited says so itself."""
    task_id: Any = given if isinstance(given, str) else getattr(given, "task_id", None)
    if isinstance(given, (str, Task)):
        identifier(name, task_id, "a Task or its id")
    else:
        got = f"a {type(given).__name__}: give its task_id" if isinstance(task_id, str) else shown(given)
        raise ConfigurationError(f"{name} must be a Task or its id, got {got}")


def identifier(name: str, given: Any, what: str = "text", most: int = MOST_OF_ID) -> None:
    """Raise `ConfigurationError` unless this may be an id."""
    if not isinstance(given, str) or not 0 < len(given) <= most:
        raise ConfigurationError(f"{name} must be {what} of 1 to {most} characters, got {shown(given)}")
    if "\0" in given:
        raise ConfigurationError(f"{name} must not hold a null character, got {shown(given)}")
    _whole(name, given)


def words(name: str, given: Any) -> None:
    """Raise `ConfigurationError` unless this is text that a journal can hold."""
    if not isinstance(given, str) or len(given) > MOST_OF_WORDS:
        raise ConfigurationError(
            f"{name} must be text of at most {MOST_OF_WORDS:,} characters, got {shown(given)}"
        )
    _whole(name, given)


def place(name: str, given: Any) -> None:
    """Raise `ConfigurationError` unless this may name a step by id or number; whether there is one is seen later."""
    whole = isinstance(given, int) and not isinstance(given, bool) and -WHOLE < given < WHOLE
    if not whole and not isinstance(given, str):
        raise ConfigurationError(f"{name} must be an id or a whole number, got {shown(given)}")
    if isinstance(given, str):
        words(name, given)


def position(name: str, given: Any) -> None:
    """Raise `ConfigurationError` unless this may be the number of an event, or 0."""
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given < WHOLE:
        raise ConfigurationError(f"{name} must be a whole number from 0 up, got {shown(given)}")


def flag(name: str, given: Any) -> None:
    """Raise `ConfigurationError` unless this is True or False."""
    if not isinstance(given, bool):
        raise ConfigurationError(f"{name} must be True or False, got {shown(given)}")


def verdict(name: str, given: Any) -> None:
    """Raise `ConfigurationError` unless this settles a call."""
    if not isinstance(given, (Happened, NotHappened)):
        raise ConfigurationError(f"{name} must be Happened(...) or NotHappened(), got {shown(given)}")
    if isinstance(given, Happened):
        json_value(f"{name}.output", given.output)


def json_object(name: str, given: Any) -> None:
    """Raise `ConfigurationError` unless this is a dict of JSON data."""
    if not isinstance(given, dict):
        raise ConfigurationError(f"{name} must be a dict, got {shown(given)}")
    json_value(name, given)


def _new_id(name: str, given: Any) -> None:
    identifier(name, given, most=MOST_OF_TASK_ID)


def _replace(name: str, given: Any) -> None:
    replacements(given, name)


def _input(name: str, given: Any) -> None:
    parts_of(given, name)


def _agent(name: str, given: Any) -> None:
    if not isinstance(given, Agent):
        raise ConfigurationError(f"{name} must be an Agent, got {shown(given)}")


def _options(name: str, given: Any) -> None:
    if not isinstance(given, RunOptions):
        raise ConfigurationError(f"{name} must be RunOptions(...), got {shown(given)}")


_CHECKS: Final[dict[str, Check]] = {
    **dict.fromkeys(("task", "a", "b"), task),
    **dict.fromkeys(("thread_id", "parent", "forked_from"), identifier),
    "task_id": _new_id,
    **dict.fromkeys(("by", "reason", "call_id", "request_id", "artifact_id", "cursor"), words),
    **dict.fromkeys(("input", "message"), _input),
    **dict.fromkeys(("to", "step"), place),
    **dict.fromkeys(("force", "raw", "deltas", "dry_run"), flag),
    "arguments": json_object,
    "replace": _replace,
    "agent": _agent,
    "options": _options,
    "extra_state": json_value,
    "verdict": verdict,
    **dict.fromkeys(("after", "keep"), position),
    "role": words,
}
"""What arguments of these names must be, in any verb; what is their parameter's default may be left out."""

_CHECKS_OF: Final[dict[str, dict[str, Check | None]]] = {
    "list_tasks": {"agent": words},
    "run_step": {"step": words},
    "skip_step": {"step": words},
    "export_tasks": {"to": None},
}
"""Where a name stands for something else."""
