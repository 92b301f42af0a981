"""Build the request of an operation from a call's arguments, so that no argument escapes its place.

A value in a path is one segment or a part of one. It is encoded, and refused if a server could read another path, even
after decoding. A header value contains no control character. Names come only from the document.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast
from urllib.parse import quote, unquote

from treadle.core.data import frozen
from treadle.core.messages import Json
from treadle.errors import ToolArgumentsInvalid
from treadle.tools.definitions import MOST_PROBLEMS, problems_of
from treadle.tools.foreign.openapi_operations import FORM_TYPE, TEXT_TYPE, Operation, Parameter

_LEAVES_SEGMENT: Final = re.compile(r"[/\\\x00-\x1f\x7f]")
_NO_HEADER: Final = re.compile(r"[^\x20-\x7e\t]")


@frozen
class Prepared:
    """A request without host and secrets.

    Args:
        path: encoded, from `/` on.
        query: encoded pairs.
        headers: headers of the arguments and of the body.
        content: the body; None without one.
    """

    path: str
    query: tuple[str, ...]
    headers: dict[str, str]
    content: bytes | None


def prepared(operation: Operation, arguments: Mapping[str, Json]) -> Prepared:
    """Return the request for a call's arguments; raises `ToolArgumentsInvalid` with all problems."""
    problems = _problems(operation, arguments)
    if problems:
        raise ToolArgumentsInvalid("; ".join(problems[:MOST_PROBLEMS]))
    path = _path(operation, arguments)
    path, _, fixed = path.partition("?")  # a few documents write a query into their paths
    query = [fixed] if fixed else list[str]()
    headers: dict[str, str] = {}
    for parameter in operation.parameters:
        value = arguments.get(parameter.argument)
        if value is None or parameter.place == "path":
            continue
        if parameter.place == "query":
            _check_fields(operation, parameter, value, fixed)
            query += _query(parameter, value)
            continue
        headers[parameter.name] = checked_header(_simple(parameter, value), parameter.argument)
    content: bytes | None = None
    body = operation.body
    if body is not None and body.argument in arguments:
        content = _content(body.media_type, arguments[body.argument], body.argument)
        headers["content-type"] = body.media_type
    return Prepared(path, tuple(query), headers, content)


def _problems(operation: Operation, arguments: Mapping[str, Json]) -> list[str]:
    """Return the problems of arguments with the top level of their schemas, and of the body's."""
    schema = operation.parameters_schema
    definitions: dict[str, Any] = schema.get("$defs", {})
    properties = {
        name: _followed(each, definitions)
        for name, each in cast("dict[str, Any]", schema["properties"]).items()
    }
    problems = problems_of(arguments, {**schema, "properties": properties})
    body = operation.body
    if not problems and body is not None and body.argument in arguments:
        problems = _body_problems(body.argument, arguments[body.argument], body.schema, definitions)
    return problems


def _body_problems(argument: str, value: Json, schema: Any, definitions: Mapping[str, Any]) -> list[str]:
    """Return the problems of a body. If there are alternative schemas, it must match one of them.

    Schemas nested in these are not followed. A foreign document may nest them without end.
    """
    schema = _followed(schema, definitions)
    problems = _top_problems(argument, value, schema, definitions)
    for keyword in ("allOf", "anyOf", "oneOf"):
        subschemas: Any = cast("dict[str, Any]", schema).get(keyword) if isinstance(schema, dict) else None
        if not isinstance(subschemas, list) or not subschemas:
            continue
        alternatives = cast("list[Any]", subschemas)
        problem_lists = [
            _top_problems(argument, value, _followed(each, definitions), definitions) for each in alternatives
        ]
        if keyword == "allOf":
            problems += [problem for each in problem_lists for problem in each]
        elif all(problem_lists):  # best: the problems of an alternative that matches the body's type
            problems += min(
                problem_lists, key=lambda each: each[0].startswith(f"{argument}: must be of type")
            )
    return problems


def _top_problems(argument: str, value: Json, schema: Any, definitions: Mapping[str, Any]) -> list[str]:
    if not isinstance(schema, dict):
        return []
    facts = cast("dict[str, Any]", schema)
    problems = problems_of({argument: value}, {"properties": {argument: facts}})
    if problems or not isinstance(value, dict):
        return problems
    properties: Any = facts.get("properties")
    fields = cast("dict[str, Any]", properties) if isinstance(properties, dict) else {}
    field_schemas = {name: _followed(each, definitions) for name, each in fields.items()}
    inner = problems_of(cast("dict[str, Json]", value), {**facts, "properties": field_schemas})
    return [f"{argument}.{each}" for each in inner]


def _followed(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """Return the target of a schema's reference, or the schema itself if it has none."""
    target: Any = schema
    for _ in range(8):
        reference: Any = cast("dict[str, Any]", target).get("$ref") if isinstance(target, dict) else None
        if reference is None:
            break
        target = definitions[reference.rpartition("/")[2]]
    return cast("Any", target)


def _path(operation: Operation, arguments: Mapping[str, Json]) -> str:
    parameters = {each.name: each for each in operation.parameters if each.place == "path"}

    def written(match: re.Match[str]) -> str:
        parameter = parameters[match.group(1)]
        text = _simple(parameter, arguments[parameter.argument])
        if _LEAVES_SEGMENT.search(text):
            raise ToolArgumentsInvalid(
                f"{parameter.argument}: may not hold '/', a backslash or a control character: it is part of a path"
            )
        return quote(text, safe="")

    segments: list[str] = []
    for template in operation.path.split("/"):
        segment = re.sub(r"\{([^{}]*)\}", written, template)
        if segment != template and unquote(segment) in ("", ".", ".."):
            name = parameters[re.findall(r"\{([^{}]*)\}", template)[0]].argument
            raise ToolArgumentsInvalid(f"{name}: may not be empty, '.' or '..': it is part of a path")
        segments.append(segment)
    return "/".join(segments)


def _check_fields(operation: Operation, parameter: Parameter, value: Json, fixed: str) -> None:
    """Raise `ToolArgumentsInvalid` if a field of an object would set another parameter or a secret."""
    stand_for_themselves = parameter.explode and parameter.style == "form" and not parameter.as_json
    if not stand_for_themselves or not isinstance(value, dict):
        return
    names = [each.name for each in operation.parameters if each.place == "query" and each is not parameter]
    names += [name for place, name in operation.hidden if place == "query"]
    names += [unquote(each.partition("=")[0]) for each in fixed.split("&")]
    other_names = {_as_read(name) for name in names}
    if conflicts := [key for key in cast("dict[str, Json]", value) if _as_read(key) in other_names]:
        raise ToolArgumentsInvalid(
            f"{parameter.argument}: may not hold {', '.join(conflicts)}: it sets another parameter"
        )


def _as_read(name: str) -> str:
    """Return a name as a lenient server reads it. Many read `Key` and `key[]` as `key`, and `a.b` as `a_b`."""
    return re.sub(r"[.\s+]", "_", name.strip().partition("[")[0]).casefold()


def _query(parameter: Parameter, value: Json) -> list[str]:
    name = quote(parameter.name, safe="")
    if parameter.as_json:
        return [f"{name}={quote(_json(value), safe='')}"]
    if isinstance(value, list):
        items = [_scalar(each) for each in cast("list[Json]", value)]
        if parameter.explode:
            return [f"{name}={quote(each, safe='')}" for each in items]
        separator = {"spaceDelimited": "%20", "pipeDelimited": "%7C"}.get(parameter.style, ",")
        return [f"{name}={separator.join(quote(each, safe='') for each in items)}"]
    if isinstance(value, dict):
        fields = cast("dict[str, Json]", value).items()
        pairs = [(quote(key, safe=""), quote(_scalar(each), safe="")) for key, each in fields]
        if parameter.style == "deepObject":
            return [f"{name}%5B{key}%5D={text}" for key, text in pairs]
        if parameter.explode:
            return [f"{key}={text}" for key, text in pairs]
        return [f"{name}={','.join(part for pair in pairs for part in pair)}"]
    return [f"{name}={quote(_scalar(value), safe='')}"]


def _simple(parameter: Parameter, value: Json) -> str:
    """Return a value in OpenAPI's style `simple`, not encoded."""
    if parameter.as_json:
        return _json(value)
    if isinstance(value, list):
        return ",".join(_scalar(each) for each in cast("list[Json]", value))
    if isinstance(value, dict):
        separator = "=" if parameter.explode else ","
        return ",".join(
            f"{key}{separator}{_scalar(each)}" for key, each in cast("dict[str, Json]", value).items()
        )
    return _scalar(value)


def _scalar(value: Json) -> str:
    return value if isinstance(value, str) else "" if value is None else _json(value)


def _json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def checked_header(text: str, name: str) -> str:
    """Return a header's value. Raises `ToolArgumentsInvalid` if it could end the header and begin another."""
    if _NO_HEADER.search(text):
        raise ToolArgumentsInvalid(f"{name}: may hold printable ASCII characters only: it is a header")
    return text


def _content(media_type: str, value: Json, argument: str) -> bytes:
    if media_type == TEXT_TYPE:
        if not isinstance(value, str):
            raise ToolArgumentsInvalid(f"{argument}: must be a text")
        return value.encode()
    if media_type == FORM_TYPE:
        if not isinstance(value, dict):
            raise ToolArgumentsInvalid(f"{argument}: must be an object")
        return "&".join(_form(cast("dict[str, Json]", value))).encode()
    return _json(value).encode()


def _form(fields: Mapping[str, Json]) -> list[str]:
    pairs: list[str] = []
    for key, value in fields.items():
        several: Sequence[Json] = cast("list[Json]", value) if isinstance(value, list) else [value]
        pairs += [f"{quote(str(key), safe='')}={quote(_scalar(each), safe='')}" for each in several]
    return pairs
