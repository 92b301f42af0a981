"""Operations of OpenAPI documents as tools: a real server, the document that FastAPI makes of it, and hostile ones."""

import asyncio
import base64
import dataclasses
import json
import re
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qsl, unquote

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tools.foreign.conftest import Shop
from treadle import Agent, Runner, ScriptedModel, tool
from treadle.core.messages import Image, ToolResult
from treadle.errors import (
    ConfigurationError,
    ToolArgumentsInvalid,
    ToolDefinitionError,
    ToolError,
    ToolOutcomeUnknown,
    WrongArguments,
)
from treadle.models import call, text
from treadle.ports import ToolContext
from treadle.tools import langchain_tools, llamaindex_tools, openapi_tools

pytestmark = pytest.mark.anyio
Ctx = ToolContext[Any]
LOCAL = {"networks": ["127.0.0.0/8"]}
SECURED = ["who*"]
REFUSED = "refusedWho"


REFERENCE = {"$ref": "#/components/schemas/Pet"}


def tools_of(shop: Shop, document: Any = None, **options: Any) -> dict[str, Any]:
    options = {"name": "shop", "base_url": shop.url, "exclude": [*SECURED, REFUSED], **LOCAL, **options}
    made = openapi_tools(shop.app.openapi() if document is None else document, **options)
    return {each.spec.name.removeprefix("shop__"): each for each in made}


def document(paths: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"openapi": "3.0.3", "info": {"title": "t", "version": "1"}, "paths": paths, **more}


def made(paths: dict[str, Any], options: dict[str, Any] | None = None, **more: Any) -> list[Any]:
    options = {"name": "x", "base_url": "https://api.example.org", **(options or {})}
    return openapi_tools(document(paths, **more), **options)


def get(**facts: Any) -> dict[str, Any]:
    return {"/a": {"get": {"operationId": "a", **facts}}}


async def run(tool: Any, ctx: Ctx, **arguments: Any) -> Any:
    return await tool.call(tool.validate(arguments), ctx)


# ------------------------------------------------------------------------------------------ definition


def test_get_and_head_only_read_and_all_others_may_write(shop: Shop) -> None:
    specs = {name: tool.spec for name, tool in tools_of(shop).items()}
    for name in ("getPet", "listPets", "countPets", "readFault"):
        assert (specs[name].effect, specs[name].open_world, specs[name].declared) == ("read", True, True)
    for name in ("addPet", "dropPet", "login", "note", "writeFault"):
        assert (specs[name].effect, specs[name].declared) == ("write", False)
    assert specs["getPet"].name == "shop__getPet"
    assert specs["getPet"].description.startswith("Return a pet.")
    assert specs["getPet"].timeout == 60


def test_the_caller_says_what_operations_do_by_name_or_by_method_and_path(shop: Shop) -> None:
    effects = {"POST /log*": ["read_only"], "addPet": ["idempotent", "sends"], "GET *": []}
    specs = {name: tool.spec for name, tool in tools_of(shop, effects=effects, retries=2).items()}
    assert (specs["login"].effect, specs["login"].retries) == ("read", 2)
    assert (specs["addPet"].effect, specs["addPet"].sends) == ("idempotent", True)
    assert (specs["listPets"].effect, specs["listPets"].retries) == ("write", 0)
    with pytest.raises(ConfigurationError, match="effects names 'addPets', and no tool is called so"):
        tools_of(shop, effects={"addPets": ["read_only"]})


def test_operations_are_chosen_by_patterns(shop: Shop) -> None:
    assert tools_of(shop, include=["GET /pets*", "add*"], exclude=["listPets"]).keys() == {"getPet", "addPet"}
    with pytest.raises(ConfigurationError, match="include= and exclude= choose none"):
        tools_of(shop, include=["nothing"])


def test_schemas_that_refer_to_each_other_stand_for_themselves(shop: Shop) -> None:
    parameters = tools_of(shop)["addPet"].spec.parameters
    assert parameters["properties"]["body"] == {"$ref": "#/$defs/Pet"}
    assert parameters["$defs"].keys() == {"Pet", "Person"}  # a pet has an owner, who has pets
    assert parameters["$defs"]["Pet"]["properties"]["name"] == {
        "type": "string",
        "description": "what it is called",
    }
    assert parameters["required"] == ["body"]


def test_words_of_openapi_3_0_become_words_of_json_schema() -> None:
    schema = {
        "type": "object",
        "required": ["id", "size"],
        "properties": {
            "id": {"type": "integer", "readOnly": True},
            "size": {
                "type": "number",
                "minimum": 0,
                "exclusiveMinimum": True,
                "nullable": True,
                "example": 3,
            },
            "kind": {"type": "string", "enum": ["a"], "nullable": True, "x-order": 1},
            "other": {"allOf": [{"type": "string"}], "nullable": True},
        },
    }
    (tool,) = made({"/a": {"post": {"requestBody": {"content": {"application/json": {"schema": schema}}}}}})
    assert tool.spec.name == "x__post_a"
    assert tool.spec.parameters["properties"]["body"] == {
        "type": "object",
        "required": ["size"],
        "properties": {
            "size": {"type": ["number", "null"], "exclusiveMinimum": 0},
            "kind": {"type": ["string", "null"], "enum": ["a", None]},
            "other": {"anyOf": [{"allOf": [{"type": "string"}]}, {"type": "null"}]},
        },
    }


def test_names_are_valid_and_differ() -> None:
    paths = {
        "/a/{b}": {
            "get": {"operationId": "a b/ä!"},
            "parameters": [{"name": "b", "in": "path", "required": True}],
        },
        "/c": {"get": {"operationId": "same"}, "put": {"operationId": "same"}, "post": {}},
        "/d": {"get": {"operationId": "long" * 30}},
    }
    names = [each.spec.name for each in made(paths)]
    assert names[:4] == ["x__a_b", "x__same", "x__post_c", "x__same_2"]
    assert len(names[4]) == 64
    assert names[4].startswith("x__longlong")


def test_parameters_of_the_same_name_in_other_places_stay_apart() -> None:
    parameters = [
        {"name": "id", "in": place, "required": True, "schema": {"type": "string"}}
        for place in ("path", "query", "header")
    ]
    (tool,) = made({"/a/{id}": {"get": {"parameters": parameters}}})
    assert tool.spec.parameters["required"] == ["id", "query_id", "header_id"]


def test_hidden_characters_of_a_document_reach_no_model() -> None:
    (tool,) = made(
        get(
            summary="Read\u200b \u202eit",
            parameters=[{"name": "q", "in": "query", "description": "a\u2066b"}],
        )
    )
    assert tool.spec.description == "Read it"
    assert tool.spec.parameters["properties"]["q"]["description"] == "ab"


# ----------------------------------------------------------------------------- documents not to be used


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"swagger": "2.0"}, "must be OpenAPI 3, and is Swagger 2"),
        ({"openapi": "4.0"}, "must be OpenAPI 3, and is openapi '4.0'"),
        ([], "must be an object, its path or its URL, got a list"),
        ("/nowhere/at/all.json", "/nowhere/at/all.json cannot be read: No such file"),
        ({"openapi": "3.1.0", "paths": []}, "its paths are not an object"),
        ({"openapi": "3.1.0", "paths": {}}, "choose none"),
        (
            {"openapi": "3.1.0", "paths": {"/a": {"$ref": "https://evil.example/a.json"}}},
            "the path /a: it refers to 'https://evil",
        ),
    ],
)
def test_what_is_no_document_is_refused(broken: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        openapi_tools(broken, name="x", base_url="https://api.example.org")


KEY = {"components": {"securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "k"}}}}
CIRCLE = {
    "components": {
        "schemas": {"A": {"$ref": "#/components/schemas/B"}, "B": {"$ref": "#/components/schemas/A"}},
        "parameters": {"P": {"$ref": "#/components/parameters/P"}},
    }
}
DEEP: Any = {}
for _ in range(100):
    DEEP = {"items": DEEP}


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        (
            {"parameters": [{"$ref": "https://evil.example/p"}]},
            "refers to 'https://evil.example/p', which is not in the document",
        ),
        ({"parameters": [{"$ref": "other.yaml#/p"}]}, "refers to 'other.yaml#/p'"),
        ({"parameters": [{"$ref": "file:///etc/passwd"}]}, "refers to 'file:///etc/passwd'"),
        ({"parameters": [{"$ref": "#/nowhere"}]}, "refers to '#/nowhere', which is not in the document"),
        ({"parameters": [{"$ref": "#/components/parameters/P"}]}, "its references go round in circles"),
        (
            {"parameters": [{"name": "q", "in": "query", "schema": DEEP}]},
            "larger, or deeper, than a model could read",
        ),
        (
            {"parameters": [{"name": "q", "in": "query", "schema": {"enum": ["x" * 300_000]}}]},
            "more than 200,000 characters",
        ),
        ({"parameters": [{"name": "q", "in": "query", "schema": []}]}, "one of its schemas is not an object"),
        ({"parameters": [{"name": "c", "in": "cookie", "required": True}]}, "it needs the cookie c"),
        ({"parameters": [{"name": "q", "in": "matrix"}]}, "its parameter q is in 'matrix'"),
        ({"parameters": [{"name": "q", "in": "query", "style": "matrix"}]}, "is written in the style matrix"),
        ({"parameters": [{"name": "X\r\nEvil", "in": "header"}]}, "cannot be the name of one"),
        ({"servers": [{"url": "https://evil.example"}]}, "it has servers of its own"),
        ({"requestBody": {"content": {"multipart/form-data": {}}}}, "its body is multipart/form-data"),
        ({"security": [{"key": []}]}, "it needs key: name the secret in auth="),
    ],
)
def test_an_operation_that_cannot_be_called_is_named(facts: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as refused:
        made(get(**facts), **CIRCLE)
    assert "operations cannot be called, and may be left out by exclude=: " in str(refused.value)
    assert str(refused.value).endswith(" (a)")


@pytest.mark.parametrize(
    "path",
    [
        "@evil.example/a",
        ".evil.example/a",
        "a",
        "",
        "/a b",
        "/a\\b",
        "/a#b",
        "/../a",
        "/%2e%2e/a",
        "/a/./b",
        "/a\n",
    ],
)
def test_a_path_that_would_lead_elsewhere_is_refused(path: str) -> None:
    with pytest.raises(
        ConfigurationError,
        match="its path does not begin with '/', or holds characters that no path may hold",
    ):
        made({path: {"get": {}}})


def test_a_problem_of_many_operations_is_said_once() -> None:
    paths = {
        f"/a{number}": {"get": {"operationId": f"a{number}", "security": [{"key": []}]}}
        for number in range(9)
    }
    with pytest.raises(
        ConfigurationError, match=r"name the secret in auth= \(a0, a1, a2, a3, a4 and 4 more\)$"
    ):
        made(paths)


def test_a_query_in_a_path_is_kept() -> None:
    (tool,) = made({"/a?beta=true": {"get": {"parameters": [{"name": "q", "in": "query"}]}}})
    request = tool.validate({"q": "x"})
    assert (request.path, request.query) == ("/a", ("beta=true", "q=x"))


def test_a_schema_that_refers_to_itself_ends() -> None:
    (tool,) = made(
        get(parameters=[{"name": "q", "in": "query", "schema": {"$ref": "#/components/schemas/A"}}]), **CIRCLE
    )
    assert tool.spec.parameters["$defs"] == {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}


def test_schemas_that_multiply_are_bounded() -> None:
    schemas: dict[str, Any] = {"s0": {"type": "string"}}
    for level in range(1, 40):
        inner = {"$ref": f"#/components/schemas/s{level - 1}"}
        schemas[f"s{level}"] = {"type": "object", "properties": dict.fromkeys("abcdefgh", inner)}
    (tool,) = made(
        get(parameters=[{"name": "q", "in": "query", "schema": {"$ref": "#/components/schemas/s39"}}]),
        components={"schemas": schemas},
    )
    assert len(tool.spec.parameters["$defs"]) == 40
    shared: Any = {"type": "string"}
    for _ in range(30):  # as aliases of YAML make it: one object in many places
        shared = {"type": "object", "properties": dict.fromkeys("abcdefgh", shared)}
    with pytest.raises(ConfigurationError, match="larger, or deeper, than a model could read"):
        made(get(parameters=[{"name": "q", "in": "query", "schema": shared}]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"base_url": "ftp://example.org"}, "base_url must be like"),
        ({"base_url": "https://user:pw@example.org"}, "base_url must have no user, query or fragment"),
        ({"base_url": "https://example.org/?key=1"}, "base_url must have no user, query or fragment"),
        ({"name": "a__b"}, "name must be at most 32"),
        ({"auth": {"other": "s"}}, "auth names the scheme 'other'; those of the document are key"),
        ({"auth": {"key": "my key"}}, r"auth\['key'\] must be the name of a secret"),
        ({"headers": {"x": "a\r\nb: c"}}, r"headers\['x'\]: may hold printable ASCII"),
        ({"max_bytes": 0}, "max_bytes must be a whole number"),
        ({"timeout": 0}, "timeout must be seconds"),
        ({"networks": ["nonsense"]}, "networks"),
    ],
)
def test_arguments_that_are_not_valid_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        made(get(), options, **KEY)


def test_a_document_is_read_from_json_and_yaml_where_words_stay_words(tmp_path: Path, shop: Shop) -> None:
    (tmp_path / "shop.json").write_text(json.dumps(shop.app.openapi()))
    assert "getPet" in tools_of(shop, tmp_path / "shop.json")
    (tmp_path / "a.yaml").write_text(
        "openapi: 3.0.0\npaths:\n  /a:\n    get:\n      operationId: 2020-01-01\n      parameters:\n"
        "        - name: q\n          in: query\n          schema:\n            type: object\n"
        "            default: 2021-02-03\n"
        "            properties: {on: {type: string}, no: {type: boolean}}\n"
        "      responses: {200: {description: ok}}\n"
    )
    (tool,) = openapi_tools(tmp_path / "a.yaml", name="x", base_url="https://api.example.org")
    assert tool.spec.name == "x__2020-01-01"
    assert tool.spec.parameters["properties"]["q"]["properties"].keys() == {"on", "no"}
    (tmp_path / "b.yaml").write_text("a: !!python/object/apply:os.system ['touch /tmp/no']")
    with pytest.raises(ConfigurationError, match=r"b.yaml cannot be read: could not determine a constructor"):
        openapi_tools(tmp_path / "b.yaml", name="x", base_url="https://api.example.org")


def test_a_document_is_fetched_from_the_url_that_the_caller_names(shop: Shop) -> None:
    assert "getPet" in tools_of(shop, f"{shop.url}/openapi.json")
    with pytest.raises(
        ConfigurationError, match=r"openapi.json cannot be read: .*which is not part of the internet"
    ):
        tools_of(shop, f"{shop.url}/openapi.json", networks=[])
    with pytest.raises(ConfigurationError, match=r"nowhere.json cannot be read: .*404"):
        tools_of(shop, f"{shop.url}/nowhere.json")


# -------------------------------------------------------------------------------------------- requests


async def test_arguments_reach_the_server_where_the_document_says(shop: Shop, ctx: Ctx) -> None:
    tools = tools_of(shop)
    assert (await run(tools["getPet"], ctx, pet_id="Zoë 1?&#%2F", **{"x-lang": "de"})).output == {
        "id": "Zoë 1?&#%2F",
        "lang": "de",
    }
    assert (await run(tools["listPets"], ctx, tag=["a b", "c&d"], best=3)).output == {
        "tags": ["a b", "c&d"],
        "best": 3,
    }
    added = await run(tools["addPet"], ctx, body={"name": "Ö", "owner": {"name": "Ada"}}, dry=True)
    assert (added.output["added"]["name"], added.output["added"]["owner"]["name"], added.output["dry"]) == (
        "Ö",
        "Ada",
        True,
    )
    assert (await run(tools["login"], ctx, body={"user": "a&b=c", "scopes": ["x", "y"]})).output == {
        "user": "a&b=c",
        "scopes": ["x", "y"],
    }
    assert (await run(tools["note"], ctx, body="grüße")).output == "grüße"
    dropped = await run(tools["dropPet"], ctx, pet_id="1")
    assert (dropped.output, dropped.observation) == (None, "204 No Content")
    counted = await run(tools["countPets"], ctx)
    assert (counted.output["status"], counted.output["headers"]["x-count"]) == (200, "3")


@pytest.mark.parametrize(
    "value", ["../admin", "a/b", "x/secret", "..", ".", "", "a\\b", "a\nb", "/", "..\\.."]
)
async def test_no_argument_leaves_its_segment_of_the_path(shop: Shop, value: str) -> None:
    with pytest.raises(ToolArgumentsInvalid, match=r"pet_id: may not .* part of a path"):
        tools_of(shop)["getPet"].validate({"pet_id": value})


@pytest.mark.parametrize(
    "value", ["%2e%2e", "%2F", "a;b=c", "a?b", "a#b", "%00", "a b", "..%2f..", "@evil.example", "a:b", "…"]
)
async def test_what_looks_encoded_arrives_as_it_was_written(shop: Shop, ctx: Ctx, value: str) -> None:
    assert (await run(tools_of(shop)["getPet"], ctx, pet_id=value)).output["id"] == value
    (request,) = shop.requests
    assert request["path"].count("/") == 2
    assert request["headers"]["host"] == f"127.0.0.1:{shop.port}"


NASTY = st.text(st.sampled_from("./\\%2eEfF5cC?#;:@&= \r\n\0aä\u2028\u202e"), max_size=8)


@given(NASTY, NASTY, NASTY)
def test_no_text_changes_the_path_the_host_or_a_header(path: str, query: str, header: str) -> None:
    parameters = [
        {"name": place, "in": place, "schema": {"type": "string"}} for place in ("path", "query", "header")
    ]
    (tool,) = made({"/a/{path}/b/.{path}": {"get": {"parameters": parameters}}})
    try:
        request = tool.validate({"path": path, "query": query, "header": header})
    except ToolArgumentsInvalid:
        assert (
            path in ("", ".", "..")
            or re.search(r"[/\\\x00-\x1f]", path)
            or re.search(r"[^\x20-\x7e\t]", header)
        )
        return
    url = httpx2.URL(f"https://api.example.org/v1{request.path}?{'&'.join(request.query)}")
    assert (url.scheme, url.host, url.port, url.fragment) == ("https", "api.example.org", None, "")
    raw = url.raw_path.decode().partition("?")[0]
    assert [unquote(each) for each in raw.split("/")] == ["", "v1", "a", path, "b", f".{path}"]
    assert unquote(raw).split("/") == ["", "v1", "a", path, "b", f".{path}"]  # of a server that decodes first
    assert parse_qsl(url.query.decode(), keep_blank_values=True) == [("query", query)]
    assert request.headers == {"header": header}


@pytest.mark.parametrize("value", ["a\r\nx-admin: 1", "a\nb", "a\0b", "ä"])
def test_no_argument_begins_another_header(shop: Shop, value: str) -> None:
    with pytest.raises(ToolArgumentsInvalid, match="x-lang: may hold printable ASCII characters only"):
        tools_of(shop)["getPet"].validate({"pet_id": "1", "x-lang": value})


@pytest.mark.parametrize("key", ["api_key", "API_KEY", "api_key[]", "api.key", "limit", "version"])
def test_an_object_in_a_query_sets_no_other_parameter_and_no_key(key: str) -> None:
    schemes = {"key": {"type": "apiKey", "in": "query", "name": "api_key"}}
    limit = {"name": "limit", "in": "query", "schema": {"type": "integer", "maximum": 5}}
    filters = {"name": "filter", "in": "query", "schema": {"type": "object"}}
    operation = {"security": [{"key": []}], "parameters": [limit, filters], "operationId": "a"}
    (tool,) = made(
        {"/a?version=1": {"get": operation}},
        {"auth": {"key": "k"}},
        components={"securitySchemes": schemes},
    )
    assert tool.validate({"filter": {"color": "red", "filter": 1}}).query == (
        "version=1",
        "color=red",
        "filter=1",
    )
    with pytest.raises(ToolArgumentsInvalid, match=r"filter: may not hold .* it sets another parameter"):
        tool.validate({"filter": {key: "evil"}})


def test_headers_that_say_who_asks_are_no_arguments() -> None:
    parameters = [
        {"name": name, "in": "header", "required": True}
        for name in ("Authorization", "Host", "Cookie", "Content-Length", "X-Ok")
    ]
    (tool,) = made(get(parameters=parameters))
    assert tool.spec.parameters["properties"].keys() == {"X-Ok"}


async def test_a_model_cannot_replace_a_header_of_the_caller(shop: Shop, ctx: Ctx) -> None:
    tool = tools_of(shop, headers={"X-LANG": "de"})["getPet"]
    assert tool.spec.parameters["properties"].keys() == {"pet_id"}
    assert (await run(tool, ctx, pet_id="1")).output["lang"] == "de"
    with pytest.raises(ToolArgumentsInvalid, match="x-lang: there is no such argument"):
        tool.validate({"pet_id": "1", "x-lang": "fr"})


def test_wrong_arguments_are_found_before_anything_is_sent(shop: Shop) -> None:
    tools = tools_of(shop)
    for name, arguments, problem in (
        ("getPet", {}, "pet_id: missing"),
        (
            "getPet",
            {"pet_id": "1", "extra": 1},
            "extra: there is no such argument; the arguments are pet_id, x-lang",
        ),
        ("listPets", {"best": "many"}, "best: must be of type integer"),
        ("addPet", {"body": {"tags": "x"}}, "body.name: missing; body.tags: must be of type array"),
    ):
        with pytest.raises(ToolArgumentsInvalid) as invalid:
            tools[name].validate(arguments)
        assert str(invalid.value) == problem
    assert shop.requests == []


@pytest.mark.parametrize(
    ("schema", "body", "problem"),
    [
        (REFERENCE, '{"name":"x"}', "body: must be of type object"),
        (REFERENCE, 3, "body: must be of type object"),
        (REFERENCE, {"name": 1}, "body.name: must be of type string"),
        (REFERENCE, {"name": "x", "kind": 1}, "body.kind: must be of type string"),
        (REFERENCE, {"name": "x", "kind": "cat"}, None),
        ({"anyOf": [REFERENCE, {"type": "null"}]}, 3, "body: must be of type object"),
        ({"anyOf": [REFERENCE, {"type": "null"}]}, {}, "body.name: missing"),
        ({"anyOf": [REFERENCE, {"type": "null"}]}, None, None),
        ({"allOf": [REFERENCE]}, {}, "body.name: missing"),
        ({"allOf": [{"$ref": "#/components/schemas/Endless"}]}, {}, None),
    ],
)
def test_a_body_that_the_document_defines_elsewhere_went_out_unchecked(
    schema: Any, body: Any, problem: str | None
) -> None:
    content = {"application/json": {"schema": schema}}
    pet = {
        "type": "object",
        "required": ["name"],
        "properties": {"name": {"type": "string"}, "kind": {"$ref": "#/components/schemas/Kind"}},
    }
    endless = {"allOf": [{"$ref": "#/components/schemas/Endless"}]}
    (tool,) = made(
        {"/a": {"post": {"operationId": "a", "requestBody": {"required": True, "content": content}}}},
        components={"schemas": {"Pet": pet, "Kind": {"type": "string"}, "Endless": endless}},
    )
    if problem is None:
        tool.validate({"body": body})
        return
    with pytest.raises(ToolArgumentsInvalid) as invalid:
        tool.validate({"body": body})
    assert str(invalid.value) == problem


def test_arguments_that_adapters_lack_were_a_bare_type_error() -> None:
    unfit: Any = openapi_tools
    with pytest.raises(WrongArguments, match="openapi_tools needs base_url"):
        unfit(document({}), name="x")
    for adapter in (unfit, langchain_tools, llamaindex_tools):
        with pytest.raises(WrongArguments, match=r"_tools has no argument 'needs_approval': a policy asks: "):
            adapter(needs_approval=True)
    (made_tool,) = made(get())
    with pytest.raises(ToolDefinitionError, match="which is a tool already: list it as it is"):
        tool(made_tool, needs_approval=True)
    with pytest.raises(ConfigurationError, match=r"tools\[0\] is a list of tools; write \* before it"):
        Agent(ScriptedModel(["ok"]), tools=cast("Any", [[made_tool]]))


def test_a_field_given_beside_an_optional_body_is_told_where_it_belongs() -> None:
    content = {"application/json": {"schema": {"type": "object"}}}
    (tool,) = made({"/a": {"post": {"operationId": "a", "requestBody": {"content": content}}}})
    with pytest.raises(ToolArgumentsInvalid, match="name: there is no such argument; the arguments are body"):
        tool.validate({"name": "x"})


@pytest.mark.parametrize(
    ("facts", "value", "query"),
    [
        ({"schema": {"type": "array"}}, ["a", "b,c"], "q=a&q=b%2Cc"),
        ({"explode": False}, ["a", "b,c"], "q=a,b%2Cc"),
        ({"style": "spaceDelimited"}, ["a", "b"], "q=a%20b"),
        ({"style": "pipeDelimited"}, ["a", "b"], "q=a%7Cb"),
        ({"style": "deepObject"}, {"k&": 1, "l": "x"}, "q%5Bk%26%5D=1&q%5Bl%5D=x"),
        ({}, {"k": 1.5, "l": True}, "k=1.5&l=true"),
        ({"explode": False}, {"k": 1}, "q=k,1"),
        ({"content": {"application/json": {}}}, {"k": [1]}, "q=%7B%22k%22%3A%5B1%5D%7D"),
        ({}, "a=b&c", "q=a%3Db%26c"),
        ({}, False, "q=false"),
        ({}, None, ""),
    ],
)
def test_lists_and_objects_are_written_in_the_style_of_the_document(
    facts: dict[str, Any], value: Any, query: str
) -> None:
    (tool,) = made(get(parameters=[{"name": "q", "in": "query", **facts}]))
    assert "&".join(tool.validate({"q": value}).query) == query


# --------------------------------------------------------------------------------------------- secrets


SECRETS = {"token": "tok-12345678", "login": "ada:pass-9876", "shop_key": "key-abcdefgh"}


async def test_secrets_are_sent_as_their_schemes_say_and_stand_in_no_argument(shop: Shop, ctx: Ctx) -> None:
    auth = {"bearer": "token", "basic": "login", "key": "shop_key", "query": "shop_key"}
    tools = tools_of(shop, include=SECURED, exclude=[], auth=auth)
    knowing = dataclasses.replace(ctx, open_secret=SECRETS.__getitem__)
    for each in tools.values():
        assert each.spec.parameters["properties"] == {}
        await run(each, knowing)
    sent = {each["path"]: each for each in shop.requests}
    assert sent["/me/bearer"]["headers"]["authorization"] == "Bearer tok-12345678"
    assert (
        sent["/me/basic"]["headers"]["authorization"]
        == f"Basic {base64.b64encode(b'ada:pass-9876').decode()}"
    )
    assert sent["/me/key"]["headers"]["x-key"] == "key-abcdefgh"
    assert sent["/me/query"]["query"] == "key=key-abcdefgh"
    assert tools["whoBearer"].spec.secrets == ("token",)
    assert "authorization" not in sent["/me/key"]["headers"]


async def test_a_secret_that_would_begin_another_header_is_not_sent(shop: Shop, ctx: Ctx) -> None:
    tool = tools_of(shop, include=["whoKey"], exclude=[], auth={"key": "k"})["whoKey"]
    with pytest.raises(ToolError, match="the secret 'k' holds a character that no header may have"):
        await run(tool, dataclasses.replace(ctx, open_secret={"k": "a\r\nb: c"}.__getitem__))
    assert shop.requests == []


async def test_a_secret_is_in_no_journal_also_when_the_server_says_it_back(
    shop: Shop, tmp_path: Path
) -> None:
    made_tools = tools_of(
        shop, include=["whoKey", "whoQuery"], exclude=[], auth={"key": "shop_key", "query": "shop_key"}
    )
    script = [[call("shop__whoKey"), call("shop__whoQuery")], text("Done.")]
    agent = Agent(ScriptedModel(script), tools=list(made_tools.values()))
    store = tmp_path / "journal.db"
    async with Runner(store, agents=[agent], secrets={"shop_key": lambda: SECRETS["shop_key"]}) as runner:
        result = await runner.run(agent, "Who am I?")
    assert [done.output for done in result.tool_executions] == ["your key is [secret]", "you"]
    assert b"key-abcdefgh" not in store.read_bytes()


@pytest.mark.parametrize("length", [1_980, 1_990, 15_990])
async def test_an_error_that_is_cut_in_the_middle_of_a_secret_tells_no_part_of_it(
    shop: Shop, ctx: Ctx, length: int
) -> None:
    tool = tools_of(shop, include=[REFUSED], exclude=[], auth={"key": "shop_key"})[REFUSED]
    secret = "TOPSECRET-ABCDEFGH-42"
    with pytest.raises(ToolError, match="403 Forbidden") as error:
        await run(tool, dataclasses.replace(ctx, open_secret={"shop_key": secret}.__getitem__), length=length)
    assert len(str(error.value)) > 1_000
    assert "TOP" not in str(error.value)


# ------------------------------------------------------------------------------------------- responses


@pytest.mark.parametrize("status", [400, 401, 404, 409, 422, 429, 500, 503])
async def test_a_status_that_is_no_success_is_an_error(shop: Shop, ctx: Ctx, status: int) -> None:
    for name in ("readFault", "writeFault"):
        with pytest.raises(
            ToolError, match=rf"/fault/{{kind}} was answered {status} .*it is {status}"
        ) as error:
            await run(tools_of(shop)[name], ctx, kind=str(status))
        assert not isinstance(error.value, ToolOutcomeUnknown)


@pytest.mark.parametrize("kind", ["502", "504", "gzip", "long"])
async def test_an_answer_that_says_nothing_about_the_call_leaves_its_outcome_unknown(
    shop: Shop, ctx: Ctx, kind: str
) -> None:
    with pytest.raises(ToolOutcomeUnknown):
        await run(tools_of(shop, max_bytes=4_000)["writeFault"], ctx, kind=kind)


async def test_responses_become_what_they_are(shop: Shop, ctx: Ctx) -> None:
    read = tools_of(shop)["readFault"]
    image = await run(read, ctx, kind="image")
    assert image.observation == [Image(data=b"\x89PNG", media_type="image/png")]
    file = await run(read, ctx, kind="file")
    assert (file.output, file.artifacts[0].data, file.artifacts[0].name) == (
        {"media_type": "application/pdf", "bytes": 4},
        b"%PDF",
        "file",
    )
    assert (await run(read, ctx, kind="no-json")).output == '{"a": NaN, '
    assert (await run(read, ctx, kind="deep")).output == "[" * 100_000
    assert (await run(read, ctx, kind="charset")).output == "caf\ufffd"


@pytest.mark.parametrize("kind", ["303", "307", "loop", "elsewhere"])
async def test_a_write_that_is_answered_with_a_redirect_is_sent_once_and_never_called_unsent(
    shop: Shop, ctx: Ctx, kind: str
) -> None:
    tools = tools_of(shop, headers={"X-Own": "1"})
    with pytest.raises(ToolError, match=r"POST /fault/{kind} was answered .*may have been") as error:
        await run(tools["writeFault"], ctx, kind=kind)
    assert "not sent" not in str(error.value)
    assert [each["path"] for each in shop.requests] == [f"/fault/{kind}"]
    with pytest.raises(ToolError, match=r"GET /fault/{kind} was answered .* which is not followed") as error:
        await run(tools["readFault"], ctx, kind=kind)
    assert "carried out" not in str(error.value)
    assert len(shop.requests) == 2


async def test_a_redirect_says_where_it_leads(shop: Shop, ctx: Ctx) -> None:
    with pytest.raises(
        ToolError, match="307 Temporary Redirect to http://localhost:1/, which is not followed"
    ):
        await run(tools_of(shop)["readFault"], ctx, kind="elsewhere")


async def test_an_address_inside_the_network_is_not_reached(shop: Shop, ctx: Ctx) -> None:
    with pytest.raises(ToolError, match=r"GET /pets/{pet_id} was not sent: .*not part of the internet"):
        await run(tools_of(shop, networks=[])["getPet"], ctx, pet_id="1")
    assert shop.requests == []


async def test_a_server_that_is_not_there_has_not_been_asked(ctx: Ctx, shop: Shop) -> None:
    tool = tools_of(shop, base_url="http://127.0.0.1:1")["addPet"]
    with pytest.raises(ToolError, match="POST /pets was not sent") as error:
        await run(tool, ctx, body={"name": "x"})
    assert not isinstance(error.value, ToolOutcomeUnknown)


def test_an_approval_holds_for_the_service_that_it_was_asked_for(shop: Shop) -> None:
    here, there = tools_of(shop)["addPet"], tools_of(shop, base_url=f"{shop.url}/v2")["addPet"]
    assert here.spec == there.spec
    assert here.code != there.code


async def test_a_key_for_all_attempts_of_a_call_is_sent_and_no_argument(shop: Shop, ctx: Ctx) -> None:
    tools = tools_of(shop, idempotency_header="X-Lang", effects={"getPet": ["idempotent"]})
    assert tools["getPet"].spec.parameters["properties"].keys() == {"pet_id"}
    assert (await run(tools["getPet"], ctx, pet_id="1")).output["lang"] == ctx.idempotency_key


async def test_an_agent_reads_an_error_writes_and_waits_where_the_outcome_is_unknown(shop: Shop) -> None:
    slow = tools_of(shop, include=["writeFault"], timeout=0.3)
    made_tools = {**tools_of(shop, exclude=[*SECURED, REFUSED, "writeFault"]), **slow}
    script = [
        [
            call("shop__readFault", kind="404"),
            call("shop__addPet", body={"name": "Rex"}),
            call("shop__getPet", pet_id="../x"),
        ],
        [call("shop__writeFault", kind="slow")],
        text("Done."),
    ]
    agent = Agent(ScriptedModel(script), tools=list(made_tools.values()))
    async with Runner("memory:", agents=[agent]) as runner:
        result = await runner.run(agent, "Go.")
        assert [done.outcome for done in result.tool_executions[:3]] == ["error", "ok", "invalid"]
        results = [
            part for message in result.messages for part in message.parts if isinstance(part, ToolResult)
        ]
        labels = [each.label and (each.label.origin, each.label.integrity) for each in results]
        assert labels[:2] == [("web:127.0.0.1", "untrusted")] * 2  # of an error, too
        assert (result.state, result.pending[0].tool) == ("waiting", "shop__writeFault")
    assert [each["path"] for each in shop.requests].count("/fault/slow") == 1


def test_calls_of_several_event_loops_share_no_connection(shop: Shop, ctx: Ctx) -> None:
    tool = tools_of(shop)["getPet"]
    for number in range(3):
        assert asyncio.run(run(tool, ctx, pet_id=str(number))).output["id"] == str(number)
