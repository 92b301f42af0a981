"""The OpenAPI document, which is made from the table of operations."""

import json
import re
from typing import Any

import pytest

from tests.server.calling import Client, serving
from tests.server.test_authorisation import BODIES
from treadle.engine.options import LEAST
from treadle.server import ServerLimits
from treadle.server.openapi import openapi
from treadle.verbs.table import OPERATIONS


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if "$ref" in value else set[str]()
        return own.union(*map(references, value.values()))
    return set[str]().union(*map(references, value)) if isinstance(value, list) else set()


def test_the_document_describes_every_operation_and_refers_to_what_is_there():
    document = json.loads(json.dumps(openapi()))
    described = {
        operation["operationId"]: (method.upper(), path)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    assert described == {name: (row.method, row.path) for name, row in OPERATIONS.items()}
    for reference in references(document):
        place = document
        for name in reference.removeprefix("#/").split("/"):
            place = place[name]
        assert place


@pytest.mark.anyio
async def test_the_server_returns_the_document():
    async with serving() as api, Client(api) as client:
        assert await client.json("GET", "/v1/openapi.json") == json.loads(json.dumps(openapi()))


def refused_values(schema: Any) -> list[Any]:
    """Return values that are just beyond the limits of a schema."""
    beyond: list[Any] = []
    for option in schema.get("anyOf", [schema]):
        if "maximum" in option:
            beyond.append(option["maximum"] + 1)
        if "minimum" in option:
            beyond.append(option["minimum"] - 1)
        if "maxLength" in option:
            beyond.append("x" * (option["maxLength"] + 1))
        if option.get("minLength"):
            beyond.append("")
        if "enum" in option and option.get("type") == "string":
            beyond.append("no such word")
        if option.get("minItems"):
            beyond.append([])
    return beyond


def limited_arguments() -> list[tuple[str, str, str, Any]]:
    """Return an operation, a place, an argument and a value beyond its limits, for each limit of the document."""
    found: list[tuple[str, str, str, Any]] = []
    for methods in openapi()["paths"].values():  # pyright: ignore[reportAttributeAccessIssue]
        for operation in methods.values():
            name = operation["operationId"]
            for each in operation["parameters"]:
                if each["in"] == "query":
                    found += [
                        (name, "query", each["name"], value) for value in refused_values(each["schema"])
                    ]
            for content in operation.get("requestBody", {"content": {}})["content"].values():
                for argument, schema in content["schema"]["properties"].items():
                    found += [(name, "body", argument, value) for value in refused_values(schema)]
    return found


@pytest.mark.anyio
async def test_a_value_beyond_a_limit_of_the_document_is_refused():
    beyond = limited_arguments()
    assert {("list_tasks", "query", "limit", 201), ("cancel", "body", "reason", "x" * 10_001)} <= {
        each for each in beyond if not isinstance(each[3], list)
    }
    many = ServerLimits(requests_per_second=1_000_000)
    async with serving(limits=many) as api, Client(api, "operator") as client:
        await client.json("POST", "/v1/tasks", {"agent": "shop", "input": "hello", "task_id": "1"}, 201)
        for name, place, argument, value in beyond:
            row = OPERATIONS[name]
            if place == "query":
                others = {"a": "1", "b": "1"} if name == "diff" else {}
                request: dict[str, Any] = {"params": {**others, argument: value}}
            else:
                request = {"json": {**BODIES.get(name, {}), argument: value}}
            response = await client.request(row.method, re.sub(r"{\w+}", "1", row.path), **request)
            assert response.status_code in (400, 422), (name, argument, value, response.text)


def test_the_document_has_the_smallest_values_of_options() -> None:
    """A request as the document describes it was refused: `max_parallel_tools` must be 1 or more."""
    body = openapi()["paths"]["/v1/tasks"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    (bounds,) = [each for each in body["properties"]["options"]["anyOf"] if "$ref" in each]
    least = {name: each["minimum"] for name, each in bounds["properties"].items() if "minimum" in each}
    assert least == LEAST
