"""Check callers' arguments before any effect, so that errors name a wrong value at once.

`ArgumentChecks` checks the arguments of a verb by the names of its parameters. `_CHECKS` has the check for each name,
the same for all verbs. Text with a lone surrogate is refused everywhere: the stored text would differ from the
argument.
"""

from __future__ import annotations

import math
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from inspect import CO_VARARGS
from pathlib import Path
from typing import Any, Final, cast, get_args
from unicodedata import category

from treadle.agents.agent import Agent
from treadle.core import codec
from treadle.core.codec import MAX_CHARACTERS, WHOLE, flaw
from treadle.core.events import ApprovalScope
from treadle.core.ids import is_name
from treadle.core.labels import Label
from treadle.core.messages import Content, File, Image, Json, Message, Text, ToolCall, ToolResult, content
from treadle.core.tools import Happened, NotHappened
from treadle.engine.options import RunOptions
from treadle.errors import ConfigurationError
from treadle.ports import BETWEEN_STEPS
from treadle.results.run_result import RunResult
from treadle.results.states import StateWord
from treadle.results.tasks import Task, TaskSummary

MAX_PAGE: Final = 1_000
"""Maximum number of tasks in a page."""

MAX_ID: Final = 500
"""Maximum length of an id in characters, which an index of every store can hold."""

MAX_TASK_ID: Final = 200
"""Maximum length of the id of a new task, in characters; the ids of its children are longer."""

MAX_COMMAND_ID: Final = 200
"""Maximum length of the id of a command, in characters."""

MAX_TENANT: Final = 100
"""Maximum length of the name of a tenant, in characters; it precedes each of its ids."""

_QUOTING: Final = frozenset("'\"`\\")

NEWEST: Final = "last"
"""The name of the newest task on the command line."""

_DOT_SEGMENTS: Final = frozenset((".", ".."))
"""Segments that HTTP clients remove from a path, even if quoted, so no URL can end in one (RFC 3986, 5.2.4)."""

_UNTYPED: Final = frozenset(("Cc", "Zl", "Zp"))
"""The categories of control characters and of line ends."""

MAX_TEXT: Final = 10_000
"""Maximum length of a name or a reason, in characters."""

LATEST: Final = 253_402_300_799_999_999
"""The last microsecond of the year 9999, counted from 1970, UTC."""

MAX_SHOWN: Final = 80
"""Maximum number of characters of a wrong value in its error."""


def parts_of(value: Any, name: str = "input") -> tuple[Content, ...]:
    """Return a caller's input as content parts; raise `ConfigurationError` for any other value."""
    parts: tuple[Any, ...] = ()
    if isinstance(value, (str, Text, Image, File, list, tuple)):
        parts = content(cast("Any", value))
    if not parts or [part for part in parts if not isinstance(part, (Text, Image, File))]:
        raise ConfigurationError(
            f"{name} must be text or content parts (text, Image, File), got {shown(value)}{_input_advice(value)}"
        )
    says_something = False
    for part in parts:
        _content_part(name, part)
        says_something = says_something or not isinstance(part, Text) or bool(part.text.strip())
    if not says_something:
        raise ConfigurationError(f"{name} must not be empty, got {shown(value)}")
    return parts


def _input_advice(value: Any) -> str:
    """Return the advice for a value that is not an input, if its type shows the caller's intention."""
    parts = cast("list[Any]", [*value] if isinstance(value, (list, tuple)) else [value])
    first: Any = next(iter(parts), None)
    if isinstance(first, (dict, Message)):
        return (
            "; give the new message as text, and earlier ones by thread_id=: the store keeps them, and "
            "runner.import_thread(thread_id, [Message(...)]) adds others"
        )
    if isinstance(value, Agent):
        return "; the agent comes first, then the input"
    if isinstance(value, (Task, TaskSummary)):
        return "; the task comes first, then the message"
    if isinstance(value, RunResult):
        return "; give its final_text"
    if isinstance(value, Awaitable):
        return "; await it first"
    if value is None:
        return "; to go on with a task, write runner.resume(task)"
    if isinstance(value, os.PathLike):
        return "; for a document give [File(path=...)]"
    return ""


def _content_part(name: str, part: Content) -> None:
    """Raise `ConfigurationError` for a content part that no journal can hold."""
    if part.label is not None and not isinstance(part.label, Label):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(f"{name}: the label of a part must be a Label, got {shown(part.label)}")
    if isinstance(part, Text):
        if (
            part.meta is None
            and type(part.text) is str
            and part.text.isascii()
            and len(part.text) <= MAX_CHARACTERS
        ):
            return
        fields: list[Any] = [part.text]
    else:
        fields = [part.path, part.url, part.media_type, part.name if isinstance(part, File) else None]
        data: Any = part.data
        if data is not None and not isinstance(data, (bytes, bytearray)):
            raise ConfigurationError(f"{name}: the data of a part must be bytes, got {shown(data)}")
        if len(data or b"") > MAX_CHARACTERS:
            raise ConfigurationError(
                f"{name}: a part is larger than {MAX_CHARACTERS:,} bytes; give its url instead"
            )
    for field in fields:
        if field is not None and not isinstance(field, (str, os.PathLike)):
            raise ConfigurationError(f"{name}: the text of a part must be a str, got {shown(field)}")
        if isinstance(field, str):
            _storable(f"{name}: text", field)
    json_value(f"{name}: meta", part.meta)


def _storable(name: str, text: str) -> None:
    """Raise `ConfigurationError` for text that no journal can hold."""
    if (flaw_text := flaw(text)) is not None:
        raise ConfigurationError(f"{name} cannot be stored: it is {flaw_text}, got {shown(text)}")


def json_value(name: str, value: Json) -> None:
    """Raise `ConfigurationError` for a value that a journal would change."""
    if value is None:
        return  # the usual case, in every run
    try:
        codec.exact_copy(value)
    except ValueError as error:
        raise ConfigurationError(f"{name} {error}, got {shown(value)}") from None


def conversation(name: str, messages: Any) -> tuple[Message, ...]:
    """Return messages to import; raise `ConfigurationError` for messages that no model accepts."""
    if not isinstance(messages, (list, tuple)) or not messages:
        raise ConfigurationError(f"{name}: messages must be a list of Message, got {shown(messages)}")
    open_calls: list[str] = []
    call_ids: set[str] = set()
    for number, message in enumerate(cast("list[Any]", messages)):
        where = f"{name}: message {number}"
        if not isinstance(message, Message):
            example = "Message('user', (Text('...'),))"
            raise ConfigurationError(f"{where} is no Message such as {example}, got {shown(message)}")
        if not isinstance(cast("Any", message).parts, (list, tuple)):
            raise ConfigurationError(
                f"{where}: parts must be a tuple such as (Text('...'),), got {shown(message)}"
            )
        answered = [part.call_id for part in message.parts if isinstance(part, ToolResult)]
        if answered != open_calls:
            raise ConfigurationError(
                f"{where} answers {answered} where {open_calls} was asked; each call needs its result next"
            )
        open_calls = [part.id for part in message.parts if isinstance(part, ToolCall)]
        if len({*open_calls}) < len(open_calls) or call_ids & {*open_calls}:
            raise ConfigurationError(f"{where} uses the id of another call")
        call_ids |= {*open_calls}
        if not any(not isinstance(part, Text) or part.text for part in message.parts):
            raise ConfigurationError(f"{where} says nothing")
        try:
            flaw_text = flaw([message.meta, *[codec.encode_part(part) for part in message.parts]])
        except (KeyError, TypeError, AttributeError) as error:
            flaw_text = f"no message as its class says: {error!r:.80}"
        if flaw_text is not None:
            raise ConfigurationError(f"{where} cannot be stored: it is {flaw_text}, got {shown(message)}")
    if open_calls:
        raise ConfigurationError(f"{name}: the calls {open_calls} have no results")
    return tuple(cast("list[Message]", messages))


def path(name: str, value: Any, expected: str = "a path") -> Path:
    """Return a path; raise `ConfigurationError` for any other value."""
    file = Path(cast("Any", value)) if isinstance(value, (str, os.PathLike)) and value != "" else None
    try:
        if file is not None and b"\0" not in os.fsencode(file):
            return file
    except UnicodeEncodeError:
        pass
    raise ConfigurationError(f"{name} must be {expected}, got {shown(cast('Any', value))}")


def count(name: str, value: Any) -> None:
    """Raise `ConfigurationError` unless the value is a whole number from 1 up."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigurationError(f"{name} must be a whole number from 1 up, got {shown(value)}")


def seconds(name: str, value: Any) -> None:
    """Raise `ConfigurationError` unless the value is a number of seconds."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise ConfigurationError(f"{name} must be a number of seconds from 0 up, got {shown(value)}")


def labels(name: str, value: Any) -> None:
    """Raise `ConfigurationError` unless the value is a dict of labels or None; an empty text or list is neither."""
    if value is not None and not isinstance(value, dict):
        raise ConfigurationError(f"{name} must be a dict of texts, got {shown(value)}")


def _error_text(name: str, value: Any) -> None:
    """Raise `ConfigurationError` unless the value is a text that is not empty."""
    if not isinstance(value, str) or not value:
        raise ConfigurationError(f"{name} must be a text that tells the error, got {shown(value)}")


def page(verb: str, limit: Any, cursor: Any) -> None:
    """Raise `ConfigurationError` unless the values ask for a page."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_PAGE:
        raise ConfigurationError(f"{verb}: limit must be 1 to {MAX_PAGE}, got {shown(limit)}")
    if cursor is not None and not isinstance(cursor, str):
        raise ConfigurationError(
            f"{verb}: cursor must be the cursor of the previous page, got {shown(cursor)}"
        )


def task_states(name: str, values: Any) -> None:
    """Raise `ConfigurationError` unless the values are states of tasks."""
    if not isinstance(values, (list, tuple, set, frozenset)):
        raise ConfigurationError(f"{name} must be a list of states, got {shown(values)}")
    for value in cast("list[Any]", values):
        task_state(name, value)


def task_state(name: str, value: Any) -> None:
    """Raise `ConfigurationError` unless the value is a state of a task."""
    states = (*get_args(StateWord), BETWEEN_STEPS)
    if value not in states:
        raise ConfigurationError(f"{name} must be one of {', '.join(states)}, got {shown(value)}")


def shown(value: Any) -> str:
    """Return a value as bounded text for an error."""
    if isinstance(value, (str, bytes)):
        value = value[: MAX_SHOWN + 1]  # a large one is not written out first
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  a value whose repr fails is as wrong as any other
        text = f"a {type(value).__name__}"
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."


# ---------------------------------------------------------------------------------- arguments by name


class ArgumentChecks:
    """Checks the arguments of one verb before it has any effect.

    Args:
        verb: the function, whose first parameter is the runner or the handle.
    """

    def __init__(self, verb: Callable[..., Any]) -> None:
        code, name = verb.__code__, verb.__name__
        parameters = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
        checks = _CHECKS | _CHECKS_OF.get(name, {})
        defaults = verb.__defaults__ or ()  # of the last ones; `signature` would take longer than all checks
        values = dict(
            zip(code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount], defaults, strict=True)
        )
        values |= verb.__kwdefaults__ or {}
        self._by_name = {
            each: (f"{name}: {each}", checks.get(each), values.get(each, _NO_DEFAULT)) for each in parameters
        }
        self._by_position = [self._by_name[each] for each in parameters[: code.co_argcount - 1]]
        self._rest = f"{name}: tasks" if code.co_flags & CO_VARARGS else None

    def check(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise `ConfigurationError` for an invalid argument."""
        for value, (label, check, default) in zip(args, self._by_position, strict=False):
            if check is not None and value is not default:
                check(label, value)
        for name, value in kwargs.items():
            label, check, default = self._by_name.get(name, _UNKNOWN)
            if check is not None and value is not default:
                check(label, value)
        if self._rest is not None:
            for value in args[len(self._by_position) :]:
                task(self._rest, value)


Check = Callable[[str, Any], object]

_NO_DEFAULT: Final = object()
_UNKNOWN: Final = ("", None, None)  # Python itself says that there is no such parameter


def task(name: str, value: Any) -> None:
    """Raise `ConfigurationError` unless the value is a task or an id. The error names a verb that was not awaited."""
    task_id: Any = value if isinstance(value, str) else getattr(value, "task_id", None)
    if isinstance(value, (str, Task, TaskSummary)):
        identifier(name, task_id, "a Task or its id")
    else:
        got = f"a {type(value).__name__}: give its task_id" if isinstance(task_id, str) else shown(value)
        if isinstance(value, Agent):
            got += "; make a task of an agent first: create_task(agent, input)"
        raise ConfigurationError(f"{name} must be a Task or its id, got {got}")


def identifier(name: str, value: Any, expected: str = "text", most: int = MAX_ID) -> None:
    """Raise `ConfigurationError` unless the value may be an id."""
    if not isinstance(value, str) or not 0 < len(value) <= most:
        raise ConfigurationError(f"{name} must be {expected} of 1 to {most} characters, got {shown(value)}")
    if "\0" in value:
        raise ConfigurationError(f"{name} must not hold a null character, got {shown(value)}")
    if not is_name(value):
        raise ConfigurationError(f"{name} must not hold a unit separator (U+001F), got {shown(value)}")
    _storable(name, value)


def tenant(name: str, value: Any) -> None:
    """Raise `ConfigurationError` unless the value may name a tenant."""
    identifier(name, value, most=MAX_TENANT)
    if not value.isprintable() or not _QUOTING.isdisjoint(value):
        raise ConfigurationError(
            f"{name} must hold printable characters, and no quotes or backslashes, got {shown(value)}"
        )


def text(name: str, value: Any) -> None:
    """Raise `ConfigurationError` unless the value is text that a journal can hold."""
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise ConfigurationError(
            f"{name} must be text of at most {MAX_TEXT:,} characters, got {shown(value)}"
        )
    _storable(name, value)


def step_or_index(name: str, value: Any) -> None:
    """Raise `ConfigurationError` unless the value may be the id or the number of a step, existing or not."""
    whole = isinstance(value, int) and not isinstance(value, bool) and -WHOLE < value < WHOLE
    if not whole and not isinstance(value, str):
        raise ConfigurationError(f"{name} must be an id or a whole number, got {shown(value)}")
    if isinstance(value, str):
        text(name, value)


def position(name: str, value: Any) -> None:
    """Raise `ConfigurationError` unless the value is the number of an event, or 0."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < WHOLE:
        raise ConfigurationError(f"{name} must be a whole number from 0 up, got {shown(value)}")


def moment(name: str, value: Any) -> None:
    """Raise `ConfigurationError` unless the value is a time between 1970 and 9999."""
    if isinstance(value, datetime):
        value = round(value.timestamp() * 1e6)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LATEST:
        raise ConfigurationError(
            f"{name} must be a datetime, or a whole number of microseconds since 1970, UTC, up to the year 9999 "
            f"({LATEST}), got {shown(value)}"
        )


def usage_key(name: str, value: Any) -> None:
    """Raise `ConfigurationError` unless the value is a key for sums of usage."""
    text(name, value)
    if value not in ("agent", "day", "model") and not (value.startswith("label:") and value != "label:"):
        raise ConfigurationError(
            f"{name} must be 'agent', 'day', 'model' or 'label:NAME', got {shown(value)}"
        )


def text_by_text(name: str, value: Any) -> None:
    """Raise `ConfigurationError` unless the value maps text to text."""
    if not isinstance(value, dict):
        raise ConfigurationError(f"{name} must map text to text, got {shown(value)}")
    for key, item in cast("dict[Any, Any]", value).items():
        text(name, key)
        text(f"{name}[{shown(key)}]", item)


def _state_or_states(name: str, value: Any) -> None:
    if isinstance(value, (list, tuple, set, frozenset)):
        task_states(name, value)
    else:
        task_state(name, value)


def flag(name: str, value: Any) -> None:
    """Raise `ConfigurationError` unless the value is True or False."""
    if not isinstance(value, bool):
        raise ConfigurationError(f"{name} must be True or False, got {shown(value)}")


def observer_list(name: str, value: Any) -> None:
    """Raise `ConfigurationError` unless the value is a list. Its entries are checked when they become observers."""
    if not isinstance(value, (list, tuple)):
        form = f"[{value!r}]" if isinstance(value, str) else "[function]"
        raise ConfigurationError(f"{name} must be a list: observers={form}, got {shown(value)}")


def role(name: str, value: Any) -> None:
    """Raise `ConfigurationError` unless the value is the role of a message to a task."""
    if value not in ("user", "observation", "system"):
        raise ConfigurationError(f"{name} must be 'user', 'observation' or 'system', got {shown(value)}")


def verdict(name: str, value: Any) -> None:
    """Raise `ConfigurationError` unless the value settles a call."""
    if not isinstance(value, (Happened, NotHappened)):
        raise ConfigurationError(f"{name} must be Happened(...) or NotHappened(), got {shown(value)}")
    if isinstance(value, Happened):
        json_value(f"{name}.output", value.output)


def approval_scope(name: str, value: Any) -> None:
    """Raise `ConfigurationError` unless the value is the scope of an approval."""
    if value not in get_args(ApprovalScope):
        raise ConfigurationError(
            f"{name} must be one of {', '.join(get_args(ApprovalScope))}, got {shown(value)}"
        )


def argument_names(name: str, value: Any) -> None:
    """Raise `ConfigurationError` unless the value lists names of arguments."""
    named = cast("Sequence[Any]", value) if isinstance(value, (list, tuple)) else [None]
    if not all(isinstance(each, str) and each for each in named):
        raise ConfigurationError(f"{name} must list names of arguments, such as ['to'], got {shown(value)}")


def json_object(name: str, value: Any) -> None:
    """Raise `ConfigurationError` unless the value is a dict of JSON data."""
    if not isinstance(value, dict):
        raise ConfigurationError(f"{name} must be a dict of JSON data, got {shown(value)}")
    json_value(name, cast("Json", value))


def replacements(name: str, value: Any) -> None:
    """Raise `ConfigurationError` unless the value maps call ids to JSON data."""
    if not isinstance(value, dict):
        raise ConfigurationError(f"{name} must map a call id to its other result, got {shown(value)}")
    for call_id, result in cast("dict[str, Json]", value).items():
        json_value(f"replace[{shown(call_id)}]", result)


def agent(name: str, value: Any) -> None:
    """Raise `ConfigurationError` unless the value is an agent."""
    if not isinstance(value, Agent):
        advice = "; make one: Agent('provider:model')" if value is Agent else ""
        verb = name.partition(":")[0]
        first = f"; the agent comes first: {verb}(agent, input)" if verb in _NEW_RUNS and not advice else ""
        raise ConfigurationError(f"{name} must be an Agent, got {shown(value)}{advice or first}")


def options(name: str, value: Any) -> None:
    """Raise `ConfigurationError` unless the value is options."""
    if not isinstance(value, RunOptions):
        raise ConfigurationError(f"{name} must be RunOptions(...), got {shown(value)}")


_NEW_RUNS: Final = ("run", "run_sync", "run_stream", "start", "create_task", "submit")
"""The verbs that take an agent and an input."""


def _input(name: str, value: Any) -> None:
    parts_of(value, name)


def _new_task_id(name: str, value: Any) -> None:
    """Raise `ConfigurationError` unless a new task may have this id, which people type and print on one line."""
    identifier(name, value, most=MAX_TASK_ID)
    _path_segment(name, value)
    if value == NEWEST:
        raise ConfigurationError(
            f"{name} must not be {NEWEST!r}: on the command line that means the newest task; take another id"
        )
    if not value.isprintable() and any(category(each) in _UNTYPED for each in value):
        raise ConfigurationError(
            f"{name} must not hold control characters or line ends, got {shown(value)}; take another id"
        )


def _new_thread_id(name: str, value: Any) -> None:
    """Raise `ConfigurationError` unless a new thread may have this id."""
    identifier(name, value)
    _path_segment(name, value)


def _path_segment(name: str, value: str) -> None:
    """Raise `ConfigurationError` unless an id can be a segment in the path of a URL."""
    if value in _DOT_SEGMENTS:
        raise ConfigurationError(
            f"{name} must not be {value!r}: HTTP clients remove that from a path; take another id"
        )


def _instructions(name: str, value: Any) -> None:
    """Raise `ConfigurationError` unless the value is text that a journal can hold, of any length."""
    if not isinstance(value, str):
        raise ConfigurationError(f"{name} must be text, got {shown(value)}; for a function give agent=")
    _storable(name, value)


def _command_id(name: str, value: Any) -> None:
    """Raise `ConfigurationError` unless a command may have this id."""
    identifier(name, value, most=MAX_COMMAND_ID)


_CHECKS: Final[dict[str, Check | None]] = {
    **dict.fromkeys(("task", "a", "b"), task),
    **dict.fromkeys(("thread_id", "parent", "forked_from", "grant_id"), identifier),
    "task_id": _new_task_id,
    **dict.fromkeys(("by", "reason", "call_id", "request_id", "artifact_id", "cursor"), text),
    **dict.fromkeys(("input", "message"), _input),
    **dict.fromkeys(("to", "step"), step_or_index),
    "command_id": _command_id,
    **dict.fromkeys(("force", "raw", "deltas", "dry_run", "roots", "checked", "drive", "follow"), flag),
    "arguments": json_object,
    "replace": replacements,
    "agent": agent,
    "observers": observer_list,
    "options": options,
    "extra_state": json_object,
    "verdict": verdict,
    "scope": approval_scope,
    "same": argument_names,
    **dict.fromkeys(("after", "keep", "expect"), position),
    "role": role,
    **dict.fromkeys(("since", "until", "updated_since"), moment),
}
"""The checks of arguments by name, for any verb. An argument equal to the default is not checked."""

_OF_LISTS: Final[dict[str, Check | None]] = {
    "agent": text,
    "state": _state_or_states,
    "labels": text_by_text,
    "search": text,
}
_OF_NEW_THREADS: Final[dict[str, Check | None]] = {"thread_id": _new_thread_id}
_CHECKS_OF: Final[dict[str, dict[str, Check | None]]] = {
    **dict.fromkeys((*_NEW_RUNS, "import_thread"), _OF_NEW_THREADS),
    "list_tasks": _OF_LISTS,
    "count_tasks": _OF_LISTS,
    "usage": {**_OF_LISTS, "by": usage_key},
    "fail": {"error": _error_text},
    "get_task": {"at": position},
    "result": {"at": position},
    "get_request": {"call": text},
    "run_step": {"step": text},
    "skip_step": {"step": text},
    "export_tasks": {"to": None},
    "fork": {**_OF_NEW_THREADS, "instructions": _instructions, "model": text},
}
"""The checks of verbs in which a parameter of that name has another meaning."""

# ------------------------------------------------------------------------- schemas of the checks

Bounds = Mapping[str, Mapping[str, Json]]
"""The bounds of values by JSON type, in keywords of JSON Schema; `items` has those of a list's items."""

_CHECKED_INSIDE: Final[dict[str, Callable[..., object]]] = {
    "limit": page,
    "older_than": seconds,
    "states": task_states,
    "context_tokens": count,
    "messages": conversation,
}
"""The checks of arguments that a verb converts first, or checks together with others."""

_NAME_PATTERN: Final = "^[^\\u0000\\u001f]*$"
_ONE_LINE: Final = r"^[^\u0000-\u001f\u007f-\u009f\u2028\u2029]*$"
_STATES: Final[Json] = [*get_args(StateWord), BETWEEN_STEPS]
_STATE: Final[Bounds] = {"string": {"enum": _STATES}, "items": {"enum": _STATES}}
_IDENTIFIER: Final[Bounds] = {"string": {"minLength": 1, "maxLength": MAX_ID, "pattern": _NAME_PATTERN}}
_TEXT: Final[Bounds] = {"string": {"maxLength": MAX_TEXT}}
_POSITION: Final[Bounds] = {"integer": {"minimum": 0, "maximum": WHOLE - 1}}

_BOUNDS: Final[dict[Callable[..., object], Bounds]] = {
    **dict.fromkeys((task, identifier, _new_thread_id), _IDENTIFIER),
    _new_task_id: {"string": {**_IDENTIFIER["string"], "maxLength": MAX_TASK_ID, "pattern": _ONE_LINE}},
    _command_id: {"string": {**_IDENTIFIER["string"], "maxLength": MAX_COMMAND_ID}},
    text: _TEXT,
    step_or_index: {**_TEXT, "integer": {"minimum": 1 - WHOLE, "maximum": WHOLE - 1}},
    position: _POSITION,
    moment: {"integer": {"minimum": 0, "maximum": LATEST}},
    count: {"integer": {"minimum": 1}},
    page: {"integer": {"minimum": 1, "maximum": MAX_PAGE}},
    seconds: {"number": {"type": "number", "minimum": 0}},
    usage_key: {"string": {"maxLength": MAX_TEXT, "pattern": "^(agent|day|model|label:[\\s\\S]+)$"}},
    _state_or_states: _STATE,
    task_states: _STATE,
    argument_names: {"items": {"minLength": 1}},
    _input: {"string": {"pattern": "\\S"}, "array": {"minItems": 1}},
    conversation: {"array": {"minItems": 1}},
    _error_text: {"string": {"minLength": 1}},
}
"""The schema of each check, as far as a schema can express it. A check may refuse more."""


def bounds_of(verb: str, name: str) -> Bounds:
    """Return the schema of the check of an argument; empty if a schema cannot express it."""
    check = (_CHECKS | _CHECKED_INSIDE | _CHECKS_OF.get(verb, {})).get(name)
    return {} if check is None else _BOUNDS.get(check, {})
