"""What servers list, as tools: names, texts, effects, digests, arguments."""

import pytest

from treadle.tools.definitions import MAX_DESCRIPTION, MAX_SCHEMA, clean, cleaned, problems_of
from treadle.tools.mcp.definitions import (
    MAX_TOOLS,
    ToolDefinition,
    WrongDefinition,
    check_names,
    checked_definitions,
    chosen,
    declared_effects,
    spec_of,
    tool_name,
)


def defined(name="add", **facts):
    return ToolDefinition(name, {"name": name, "inputSchema": {"type": "object"}, **facts})


def spec(definition, **options):
    return spec_of(
        "desk", definition, **{"trusted": False, "effects": {}, "timeout": 5.0, "changed": False, **options}
    )


@pytest.mark.parametrize(
    ("name", "called"),
    [
        ("add", "desk__add"),
        ("files/read", "desk__files_read"),
        ("a.b c", "desk__a_b_c"),
        ("ä" * 100, f"desk__{'_' * 49}_fb9a0e82"),
    ],
)
def test_a_tool_is_called_by_its_server_and_its_name_in_letters_that_providers_take(name, called):
    assert tool_name("desk", name)[:55] == called[:55]
    assert len(tool_name("desk", name)) <= 64


def test_long_names_that_begin_alike_stay_apart():
    assert tool_name("desk", "x" * 100 + "a") != tool_name("desk", "x" * 100 + "b")


def test_two_tools_that_would_have_one_name_are_refused():
    with pytest.raises(WrongDefinition, match=r"lists 'a\.b' and 'a/b', which are both desk__a_b"):
        check_names("desk", [defined("a.b"), defined("a/b")])
    with pytest.raises(WrongDefinition, match="lists two tools named 'add'"):
        checked_definitions([{"name": "add"}, {"name": "add"}])


def test_listings_are_bounded():
    with pytest.raises(WrongDefinition, match="more than 200,000 characters"):
        checked_definitions([{"name": "add", "description": "x" * MAX_SCHEMA}])
    many = [defined(f"t{n}") for n in range(MAX_TOOLS + 1)]
    with pytest.raises(WrongDefinition, match="choose with only="):
        chosen(many, [])
    assert [each.name for each in chosen(many, ["t1?", "t999"])] == [*(f"t1{n}" for n in range(10)), "t999"]


def test_a_digest_changes_with_anything_that_a_server_says_of_a_tool():
    same = defined(description="Adds.", inputSchema={"type": "object", "properties": {"a": {}, "b": {}}})
    reordered = defined(inputSchema={"properties": {"b": {}, "a": {}}, "type": "object"}, description="Adds.")
    assert same.digest == reordered.digest
    others = [
        defined(description="Adds!"),
        defined(title="Adds"),
        defined(annotations={"readOnlyHint": True}),
        defined(inputSchema={"type": "object", "properties": {"a": {}}}),
        defined(outputSchema={"type": "object"}),
    ]
    assert len({each.digest for each in [same, *others]}) == 6


HIDDEN = "Adds.\u200b\u202e\U000e0041\x1b[2J\x00\ufeff"


def test_models_see_no_character_that_people_do_not_see():
    assert clean(HIDDEN) == "Adds.[2J"
    described = spec(
        defined(
            description=HIDDEN, inputSchema={"type": "object", "properties": {"a": {"description": HIDDEN}}}
        )
    )
    assert described.description == "Adds.[2J"
    assert described.parameters == {"type": "object", "properties": {"a": {"description": "Adds.[2J"}}}
    deep = current = {}
    for _ in range(1_000):
        current["a"] = current = {}
    assert cleaned(deep) != deep


def test_a_long_description_is_cut_and_says_so():
    description = spec(defined(description="x" * 10_000)).description
    assert description == "x" * MAX_DESCRIPTION + " [cut after 8,000 characters]"


@pytest.mark.parametrize("schema", [None, "text", [], {"type": "string"}, {"type": "array"}])
def test_a_schema_that_is_no_object_becomes_one_without_arguments(schema):
    assert spec(defined(inputSchema=schema)).parameters == {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    ("annotations", "flags"),
    [
        (None, None),
        ({}, None),
        ({"title": "Add"}, None),
        ({"readOnlyHint": True}, {"read_only", "open_world"}),
        ({"readOnlyHint": True, "openWorldHint": False}, {"read_only"}),
        ({"readOnlyHint": "yes"}, {"open_world", "destructive"}),
        ({"readOnlyHint": False}, {"open_world", "destructive"}),
        ({"idempotentHint": True, "destructiveHint": False}, {"open_world", "idempotent"}),
        ({"destructiveHint": True, "openWorldHint": False}, {"destructive"}),
        ("readOnlyHint", None),
    ],
)
def test_what_a_server_says_of_effects_counts_only_if_it_is_trusted(annotations, flags):
    definition = defined(annotations=annotations)
    assert declared_effects(definition, trusted=True, effects={}) == flags
    assert declared_effects(definition, trusted=False, effects={}) is None
    assert spec(definition).effect == "write"
    assert not spec(definition).declared


def test_what_the_user_declares_goes_before_what_the_server_says():
    definition = defined("get_it", annotations={"readOnlyHint": False})
    effects = {"get_*": ["read_only", "private"], "*": ["sends"]}
    declared = spec(definition, trusted=True, effects=effects)
    assert (declared.read_only, declared.private, declared.sends, declared.declared) == (
        True,
        True,
        False,
        True,
    )
    assert spec(defined("put"), effects=effects).sends


SCHEMA = {
    "type": "object",
    "properties": {
        "n": {"type": "integer"},
        "s": {"type": ["string", "null"]},
        "k": {"enum": ["a", "b"]},
        "p": {"type": "string", "pattern": "(a+)+$"},
    },
    "required": ["n"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("arguments", "problems"),
    [
        ({"n": 1}, []),
        ({"n": 1.0, "s": None, "k": "a"}, []),
        ({}, ["n: missing"]),
        ({"n": True}, ["n: must be of type integer"]),
        ({"n": "1"}, ["n: must be of type integer"]),
        ({"n": 1, "s": 2}, ["s: must be of type string or null"]),
        ({"n": 1, "k": "c"}, ["k: must be one of 'a', 'b'"]),
        ({"n": 1, "x": 1}, ["x: there is no such argument; the arguments are n, s, k, p"]),
        ({"n": 1, "p": "a" * 40 + "!"}, []),
    ],
)
def test_arguments_are_checked_at_the_top_of_their_schema_alone(arguments, problems):
    assert problems_of(arguments, SCHEMA) == problems


@pytest.mark.parametrize(
    "schema", [{"required": 3}, {"properties": []}, {"properties": {"n": 1}}, {"required": [{}]}]
)
def test_a_schema_that_is_none_refuses_nothing(schema):
    assert problems_of({"n": 1}, schema) == []
