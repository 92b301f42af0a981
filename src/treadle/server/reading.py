"""Read the arguments of operations from paths, queries, headers and bodies; errors name the argument."""

from __future__ import annotations

import re
import types
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Union, cast, get_args, get_origin
from urllib.parse import unquote

from starlette.datastructures import Headers, QueryParams

from treadle.core.header_text import from_header
from treadle.core.messages import File, Image, Json, Message, ToolResult
from treadle.drivers.arguments import Bounds, bounds_of
from treadle.engine.options import LEAST, RunOptions
from treadle.errors import InvalidField
from treadle.results.wire import from_wire
from treadle.server.frames import CUT_LEAST, CUT_MOST, MOST_STREAMED, PLACE
from treadle.server.problems import Problem
from treadle.verbs.operation import Operation

MAX_WAIT: Final = 60.0
"""Maximum number of seconds that a request waits."""

MAX_KEY: Final = 200
"""Maximum length of an `Idempotency-Key`, in characters."""

MOST_LABELS: Final = 64
"""Maximum number of labels in a request."""

LONGEST_LABEL: Final = 1_000
"""Maximum length of a label and of its value in a request, in characters."""

MOST_OF_OPTIONS: Final = {"break_on": 64, "caller_tools": 256}
"""Maximum number of items of these options in a request; each is checked for every event or every model request."""

DIGITS: Final = 18
"""Maximum number of digits of a number in a query."""

SEQ: Final = "[1-9][0-9]{0,14}"
"""The sequence number of an event in a path."""

WORDS: Final = {"true": True, "1": True, "false": False, "0": False}
"""The values of booleans in a query."""

_TAG: Final = re.compile(r'(?:W/)?"(\d{1,15})"', re.ASCII)
_OPAQUE_TAGS: Final = re.compile(r'"[^"]*"')
_WAIT: Final = re.compile(r'(?i)wait\s*=\s*"?(\d{1,9})"?')
_WHOLE: Final = re.compile(rf"-?\d{{1,{DIGITS}}}")


def path_arguments(operation: Operation, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments in a path; `/` and `%` are still quoted in them."""
    return {name: unquote(str(parameters[name])) for name in operation.in_path}


def query_arguments(operation: Operation, query: QueryParams) -> dict[str, Any]:
    """Return the arguments in a query; raise `InvalidField` for an unknown or missing argument, or a wrong type."""
    texts: dict[str, list[str]] = {}
    for name, value in query.multi_items():
        if name not in operation.query:
            raise InvalidField.unknown([name], operation.query)
        texts.setdefault(name, []).append(value)
    arguments: dict[str, Any] = {}
    for name in operation.query:
        if name in texts:
            arguments[name] = _checked(
                operation, name, _from_texts(operation.argument_type(name), name, texts[name])
            )
        elif operation.is_required(name):
            raise InvalidField("is missing", field=name)
    if operation.most is not None and arguments.get("limit", 0) > operation.most:
        raise InvalidField(f"must be at most {operation.most}", field="limit")
    return arguments


def _from_texts(hint: Any, name: str, texts: list[str]) -> Json:
    """Return a value of a query as JSON, as a body would have it."""
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    if any((get_origin(option) or option) is dict for option in options):
        pairs = [text.partition("=") for text in texts]
        if any(not separator for _, separator, _ in pairs):
            raise InvalidField("should be KEY=VALUE", field=name)
        return {key: value for key, _, value in pairs}
    lists = [option for option in options if get_origin(option) in (tuple, list, Sequence)]
    if lists and (len(texts) > 1 or str not in options):
        return [_from_text(get_args(lists[0])[:1], name, text) for text in texts]
    if len(texts) > 1:
        raise InvalidField("is there more than once", field=name)
    return _from_text(options, name, texts[0])


def _from_text(options: Sequence[Any], name: str, text: str) -> Json:
    if bool in options and text in WORDS:
        return WORDS[text]
    if int in options and _WHOLE.fullmatch(text):
        return int(text)
    if datetime in options:
        return _microseconds(name, text)
    if float in options:
        try:
            return float(text)
        except ValueError:
            return text
    return text


def _microseconds(name: str, text: str) -> Json:
    try:
        moment = datetime.fromisoformat(text)
        return round((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp() * 1e6)
    except (ValueError, OverflowError):
        problem = (
            "should be a time in the form of ISO 8601, such as 2026-11-23T08:00:00Z, where + is written %2B"
        )
        raise InvalidField(problem, field=name) from None


def body_arguments(operation: Operation, document: Json) -> dict[str, Any]:
    """Return the arguments in a body; raise `InvalidField` for an unknown or missing argument, or a wrong type."""
    names = operation.body or ()
    if document is None and not any(operation.is_required(name) for name in names):
        return {}
    if not isinstance(document, dict):
        raise InvalidField("the body should be a JSON object, such as {}")
    fields = cast("dict[str, Json]", document)
    for name in fields:
        if name not in names and not operation.protocol:
            raise InvalidField.unknown([name], names)
    for name in names:
        if name not in fields and operation.is_required(name):
            raise InvalidField("is missing", field=name)
    return {name: _checked(operation, name, value) for name, value in fields.items() if name in names}


def _checked(operation: Operation, name: str, value: Json) -> Any:
    try:
        return from_wire(operation.argument_type(name), value, strict=True)
    except InvalidField as problem:
        raise problem.inside(name) from None


# ----------------------------------------------------------------------------------------------- headers


def seconds_to_wait(operation: Operation, headers: Headers) -> float:
    """Return the seconds of `Prefer: wait=`, at most 60; an invalid preference is ignored."""
    preference = _WAIT.search(",".join(headers.getlist("prefer")))
    if preference is None:
        return operation.waits or 0.0
    return min(float(preference[1]), MAX_WAIT)


def expected_head(operation: Operation, headers: Headers) -> int | None:
    """Return the head that `If-Match` names; None without one.

    Raises a `Problem` for a value that is not a task's `ETag`, and if the operation cannot check it.
    """
    values = headers.getlist("if-match")
    if not values:
        return None
    if not operation.checks_head:
        raise Problem(400, "HeaderRefused", f"{operation.name} takes no `If-Match`")
    # RFC 9110 compares `If-Match` strongly, so a weak tag would never match. But proxies that compress a response
    # weaken its tag. This tag is the head of a journal, equal for every representation, so a weak tag is as good.
    tag = _TAG.fullmatch(",".join(values).strip())
    if tag is None:
        raise Problem(
            400, "HeaderRefused", '`If-Match` must be the ETag of a task, such as "17": no list and no *'
        )
    return int(tag[1])


def is_known(tag: str, headers: Headers) -> bool:
    """Return whether `If-None-Match` contains a tag: in a list, as a weak tag (RFC 9110, 13.1.2), or as `*`."""
    values = ",".join(headers.getlist("if-none-match"))
    return values.strip() == "*" or tag in _OPAQUE_TAGS.findall(values)


def idempotency_key(operation: Operation, headers: Headers) -> str | None:
    """Return the `Idempotency-Key`, None without one; raise a `Problem` if it is not valid."""
    value = headers.get("idempotency-key")
    if value is None:
        return None
    if operation.repeats is None:
        raise Problem(400, "HeaderRefused", f"{operation.name} takes no `Idempotency-Key`")
    key = from_header(value)
    if key is None or not 0 < len(key) <= MAX_KEY:
        detail = (
            f"`Idempotency-Key` must have 1 to {MAX_KEY} characters: printable ASCII as it is, or others in a display "
            'string of RFC 9651, such as %"caf%c3%a9"'
        )
        raise Problem(400, "HeaderRefused", detail)
    return key


def check_accepted(operation: Operation, headers: Headers) -> None:
    """Raise a `Problem` if a client does not accept the media type of the operation."""
    accepted = [
        part.partition(";")[0].strip().lower()
        for value in headers.getlist("accept")
        for part in value.split(",")
    ]
    kind = operation.media.partition("/")[0]
    streamed = {"text/event-stream"} if operation.streams else set[str]()
    fits = {"", "*/*", "application/json", *streamed, operation.media, f"{kind}/*", "application/*"}
    if accepted and fits.isdisjoint(accepted):
        raise Problem(406, "NotAcceptable", f"{operation.name} returns {operation.media}")


# -------------------------------------------------------------------------------- refused arguments


def check_content(name: str, value: Any, *, allow_urls: bool) -> None:
    """Raise `ConfigurationError` for content that refers to a file of the server or a forbidden URL."""
    if isinstance(value, (Image, File)):
        if value.path is not None:
            raise InvalidField(
                "must not name a file of the server: send its bytes as `data`", field=f"{name}.path"
            )
        if value.url is not None and not allow_urls:
            raise InvalidField("must not name an address: send the bytes as `data`", field=f"{name}.url")
    elif isinstance(value, (Message, ToolResult)):
        check_content(f"{name}.parts", value.parts, allow_urls=allow_urls)
    elif isinstance(value, (tuple, list)):
        for number, part in enumerate(cast("Sequence[Any]", value)):
            check_content(f"{name}[{number}]", part, allow_urls=allow_urls)


def check_options(options: RunOptions | None) -> None:
    """Raise `ConfigurationError` for options that only the server's own process may set."""
    if options is None:
        return
    if options.interaction == "interactive":
        raise InvalidField(
            "must not be 'interactive': the server has no terminal", field="options.interaction"
        )
    for name, most in MOST_OF_OPTIONS.items():
        if len(getattr(options, name) or ()) > most:
            raise InvalidField(f"must be at most {most}", field=f"options.{name}")
    check_labels("options.labels", options.labels)
    settings = options.model_settings
    if settings is not None and settings.extra:
        raise InvalidField("is not taken from requests", field="options.model_settings.extra")


def check_labels(name: str, labels: Mapping[str, str]) -> None:
    """Raise `ConfigurationError` for more or longer labels than a store can search."""
    if len(labels) > MOST_LABELS:
        raise InvalidField(f"must be at most {MOST_LABELS}", field=name)
    if any(len(text) > LONGEST_LABEL for label in labels.items() for text in label):
        raise InvalidField(f"must have texts of at most {LONGEST_LABEL:,} characters", field=name)


def check_model(model: Any, allowed: Sequence[str]) -> None:
    """Raise `ConfigurationError` for a model that requests may not name."""
    if model is not None and model not in allowed:
        raise InvalidField(
            f"must be one of those that the server allows: {', '.join(allowed) or 'none'}", field="model"
        )


# ------------------------------------------------------------------- schemas of these checks

_LABELS: Final[dict[str, Json]] = {
    "maxProperties": MOST_LABELS,
    "propertyNames": {"maxLength": LONGEST_LABEL},
    "additionalProperties": {"type": "string", "maxLength": LONGEST_LABEL},
}
_OPTIONS: Final[dict[str, Json]] = {
    "properties": {
        **{name: {"maxItems": most} for name, most in MOST_OF_OPTIONS.items()},
        **{name: {"minimum": least} for name, least in LEAST.items()},
        "labels": _LABELS,
    }
}
_BOUNDS: Final[dict[str, Bounds]] = {
    "labels": {"object": _LABELS},
    "options": {"class": _OPTIONS},
    "cut": {"integer": {"minimum": CUT_LEAST, "maximum": CUT_MOST}},
    "seq": {"string": {"pattern": f"^{SEQ}$"}},
    **dict.fromkeys(("threadId", "runId"), bounds_of("", "thread_id")),
}
"""The server's own schemas of arguments by name; the key `class` names the class of an argument."""


def allowed(operation: Operation, name: str) -> Bounds:
    """Return the schema of an argument: the server's own, else that of the verb."""
    if name == "limit" and operation.most is not None:
        return {"integer": {"minimum": 1, "maximum": operation.most}}
    if name == "task" and operation.name == "get_stream":
        return {"array": {"maxItems": MOST_STREAMED, "uniqueItems": True}, "items": {"pattern": f"^{PLACE}$"}}
    if operation.protocol:
        return _BOUNDS.get(name, {})
    return _BOUNDS.get(name) or bounds_of(operation.verb or operation.name, name)
