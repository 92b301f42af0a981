"""Build the OpenAPI 3.1 document from the table of operations and the classes that they use."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from treadle.core.messages import Json
from treadle.drivers.arguments import Bounds
from treadle.results.wire_schema import WireSchema
from treadle.server.openai_errors import is_openai
from treadle.server.problems import MEDIA
from treadle.server.reading import DIGITS, LONGEST_LABEL, MAX_KEY, MAX_WAIT, MOST_LABELS, allowed
from treadle.verbs.operation import Operation
from treadle.verbs.table import OPERATIONS, PROTOCOLS

Schema = dict[str, Any]

_PROBLEM: Final[Schema] = {
    "type": "object",
    "description": "A refusal (RFC 9457); it may hold more fields, those of the error that `type` names.",
    "required": ["type", "title", "status", "detail", "instance"],
    "properties": {
        "type": {"type": "string", "examples": ["urn:treadle:error:TaskNotFound"]},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "instance": {
            "type": "string",
            "description": "The id of the request, which the server's log names too.",
        },
    },
}

_OPENAI_ERROR: Final[Schema] = {
    "type": "object",
    "description": "A refusal of the Responses API; it may have further members, such as the `scope` that is missing.",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        },
        "request_id": {"type": "string"},
    },
}

_REFS: Final = "#/components/schemas/"

_PAIRS: Final[Schema] = {
    "type": "array",
    "items": {"type": "string", "pattern": "^[^=]+=.*$", "maxLength": 2 * LONGEST_LABEL + 1},
    "maxItems": MOST_LABELS,
}
"""The schema of an argument in a query that maps text to text."""

REFUSALS: Final = (400, 401, 403, 404, 405, 406, 408, 409, 412, 413, 415, 421, 422, 429, 431, 500, 503)
"""The statuses of problems."""


@cache
def openapi(protocols: tuple[str, ...] = PROTOCOLS) -> dict[str, Json]:
    """Return the document.

    Args:
        protocols: the protocols that the server speaks besides its own.
    """
    import treadle

    schemas = WireSchema(_REFS)
    paths: dict[str, dict[str, Json]] = {}
    for operation in OPERATIONS.values():
        if operation.protocol and operation.protocol not in protocols:
            continue
        described = _operation(operation, schemas)
        paths.setdefault(operation.path, {})[operation.method.lower()] = described
    problem = {"description": "A problem.", "content": {MEDIA: {"schema": {"$ref": f"{_REFS}Problem"}}}}
    error = {"application/json": {"schema": {"$ref": f"{_REFS}OpenAIError"}}}
    openai_error = {"description": "An error of the Responses API.", "content": error}
    document: dict[str, Json] = {
        "openapi": "3.1.0",
        "info": {"title": "Treadle", "version": treadle.__version__},
        "paths": paths,
        "components": {
            "schemas": {"Problem": _PROBLEM, "OpenAIError": _OPENAI_ERROR, **schemas.definitions},
            "responses": {"Problem": problem, "OpenAIError": openai_error},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }
    return document


def _operation(operation: Operation, schemas: WireSchema) -> Json:
    described: dict[str, Json] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": _parameters(operation, schemas),
        "responses": _responses(operation, schemas),
    }
    if operation.access == "open":
        described["security"] = []
    elif operation.access == "operator":
        described["description"] = "Needs the scope `admin`, of a principal without a tenant."
    elif operation.access != "any":
        described["description"] = f"Needs the scope `{operation.access}`."
    if operation.body is not None:
        required = any(operation.is_required(name) for name in operation.body)
        content = {"application/json": {"schema": _body(operation, schemas)}}
        described["requestBody"] = {"required": required, "content": content}
    return described


def _parameters(operation: Operation, schemas: WireSchema) -> list[Json]:
    parameters: list[Json] = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "minLength": 1, **allowed(operation, name).get("string", {})},
        }
        for name in operation.in_path
    ]
    for name in operation.query:
        schema = _query_schema(_argument_schema(operation, name, schemas))
        required = operation.is_required(name)
        parameters.append({"name": name, "in": "query", "required": required, "schema": schema})
    headers: dict[str, Schema] = {}
    if operation.waits is not None:
        headers["Prefer"] = {"type": "string", "description": f"`wait=SECONDS`, at most {MAX_WAIT:g}"}
    if operation.checks_head:
        headers["If-Match"] = {"type": "string", "pattern": '^(W/)?"[0-9]{1,15}"$'}
    if operation.repeats is not None:
        headers["Idempotency-Key"] = {"type": "string", "pattern": f"^[!-~]{{1,{MAX_KEY}}}$"}
    return parameters + [
        {"name": name, "in": "header", "required": False, "schema": schema}
        for name, schema in headers.items()
    ]


def _argument_schema(operation: Operation, name: str, schemas: WireSchema) -> Schema:
    schema, bounds = schemas.of(operation.argument_type(name)), allowed(operation, name)
    return _any_of([_bounded(option, bounds) for option in schema.get("anyOf", [schema])])


def _bounded(option: Schema, bounds: Bounds) -> Schema:
    if "$ref" in option:
        return {**option, **bounds.get("class", {})}
    kind: Any = option.get("type", "")
    bounded: Schema = {**option, **bounds.get(kind if isinstance(kind, str) else kind[0], {})}
    if kind == "array" and "items" in bounds:
        bounded["items"] = {**option["items"], **bounds["items"]}
    return bounded


def _any_of(options: list[Schema]) -> Schema:
    return options[0] if len(options) == 1 else {"anyOf": options}


def _query_schema(schema: Schema) -> Schema:
    """Return the schema of an argument in a query, without null, objects and numbers of many digits."""
    most = 10**DIGITS - 1
    options: list[Schema] = []
    for option in schema.get("anyOf", [schema]):
        if option.get("type") == "object":
            options.append(_PAIRS)
        elif option.get("type") == "integer":
            least, largest = option.get("minimum", -most), option.get("maximum", most)
            options.append({**option, "minimum": max(least, -most), "maximum": min(largest, most)})
        elif option.get("type") != "null":
            options.append(option)
    return _any_of(options)


def _body(operation: Operation, schemas: WireSchema) -> Schema:
    names = operation.body or ()
    return {
        "type": "object",
        "properties": {name: _argument_schema(operation, name, schemas) for name in names},
        "required": [name for name in names if operation.is_required(name)],
        "additionalProperties": bool(operation.protocol),
    }


def _responses(operation: Operation, schemas: WireSchema) -> Json:
    form = "OpenAIError" if is_openai(operation.path) else "Problem"
    refusals = {str(status): {"$ref": f"#/components/responses/{form}"} for status in REFUSALS}
    return {str(status): response for status, response in _successes(operation, schemas).items()} | refusals


def _successes(operation: Operation, schemas: WireSchema) -> dict[int, Json]:
    if operation.status == 204:
        return {204: {"description": "Done."}}
    result = {} if operation.result is None else schemas.of(operation.result)
    content: dict[str, Json] = {"application/json": {"schema": result}}
    if operation.media != "application/json":
        content[operation.media] = {"schema": {}}
    responses: dict[int, Json] = {operation.status: {"description": operation.summary, "content": content}}
    anything = {"application/json": {"schema": {"type": "object"}}}
    if operation.status == 201:
        responses[200] = {"description": "It was there, or is done.", "content": anything}
    if operation.waits is not None and not operation.protocol:
        location = {"Location": {"schema": {"type": "string"}}}
        described = "Not done yet: `Location` names where the result will be."
        responses[202] = {"description": described, "headers": location, "content": anything}
    if operation.name == "call_mcp":
        responses[202] = {"description": "It was a notification, which has no answer."}
    if operation.name == "get_task":
        responses[304] = {"description": "It is as `If-None-Match` says."}
    return responses
