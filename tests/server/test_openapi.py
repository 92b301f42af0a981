"""The OpenAPI document, which is made from the table of operations."""

import json
from typing import Any

import pytest

from tests.server.calling import Client, serving
from treadle.server.openapi import openapi
from treadle.server.operations import OPERATIONS


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
