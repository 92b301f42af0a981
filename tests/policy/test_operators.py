"""Each operator as a table: a value, what it is compared with, and true, false or unknown."""

from typing import Any

import pytest

from treadle.policy.operators import OPERATORS, Known, Mistake

LONG_PATH = "/srv/" + "a/" * 2_000 + "../" * 2_001 + "etc"


@pytest.mark.parametrize(
    ("value", "operator", "operand", "outcome"),
    [
        ("a", "is", "a", True),
        ("A", "is", "a", False),
        (5.0, "is", 5, True),
        ("5", "is", 5, None),  # a tool may read the text as a number
        (True, "is", 1, None),
        (False, "is", False, True),
        (["a"], "is", ["a"], True),
        ("a", "is_not", "b", True),
        ("5", "is_not", 5, None),
        ("a", "in", ["a", "b"], True),
        ("c", "in", ["a", "b"], False),
        (5, "in", ["a", "b"], None),
        (5, "in", ["a", 5], True),
        ("c", "not_in", ["a", "b"], True),
        ("a", "not_in", ["a", "b"], False),
        (5, "not_in", ["a", "b"], None),
        (101, "above", 100, True),
        (100, "above", 100, False),
        ("101", "above", 100, None),
        (True, "above", 0, None),
        (10**400, "above", 1e300, True),
        (100, "at_least", 100, True),
        (99.9, "at_least", 100, False),
        (99, "below", 100, True),
        (100, "below", 100, False),
        (100, "at_most", 100, True),
        ("send", "matches", "s*", True),
        ("send", "matches", ["a*", "s*"], True),
        (5, "matches", "*", None),
        ("send", "not_matches", "s*", False),
        ("rm -rf /", "contains", "rm ", True),
        ("rm -rf /", "contains", ["sudo", "rm "], True),
        ("ls", "contains", ["sudo", "rm "], False),
        ("ls", "contains", 5, None),
        (5, "contains", "5", None),
        (["a", "b"], "contains", "b", True),
        (["a", "b"], "contains", ["x", "b"], True),
        ([True], "contains", 1, None),
        ([5, None], "contains", 666, False),
        ([5, "666"], "contains", 5, True),
        (["666"], "is", [666], None),
        (["a", "666"], "is", ["b", 666], False),
        ([1, 2], "is", [1, 2], True),
        ([1], "is", [1, 2], False),
        (["a"], "not_contains", "b", True),
        ("https://api.example.com/x", "host", "api.example.com", True),
        ("https://API.Example.COM./x", "host", "*.example.com", True),
        ("https://api.example.com.evil.io", "host", "*.example.com", False),
        ("https://api.example.com@evil.io/", "host", "api.example.com", False),
        ("https://evil.io#api.example.com", "host", "api.example.com", False),
        ("https://[::1]/", "host", "::1", True),
        ("https://a_b.example-1.com/", "host", "*.example-1.com", True),
        ("https://evil.io,x.example.com/", "host", "*.example.com", None),
        ("https://evil.io;x.example.com/", "host", "*.example.com", None),
        ("https://evil.io'.example.com/", "host", "*.example.com", None),
        ("https://example.com../", "host", "example.com", None),
        ("https://0x7f.1/", "host", "*", None),
        ("https://[::1", "host", "::1", None),
        ("https://evil.io\\@api.example.com", "host", "api.example.com", None),
        ("https://evil.io /", "host", "evil.io", None),
        ("https://ev\til.io/", "host", "evil.io", None),
        ("https://ｅvil.io/", "host", "evil.io", None),  # clients fold it to the plain letter
        ("https://ev%69l.io/", "host", "evil.io", None),
        ("api.example.com", "host", "api.example.com", None),  # what a client makes of it is not known
        ("", "host", "x", None),
        ("https://a..example.com/", "host", "*.example.com", None),  # no name of DNS
        ("https://-a.example.com/", "host", "*.example.com", None),
        (f"https://{'a' * 64}.example.com/", "host", "*.example.com", None),
        (f"https://{'a.' * 130}example.com/", "host", "*.example.com", None),
        ("https://*.example.com/", "host", "*.example.com", None),
        ("https://a!b.example.com/", "host", "*.example.com", None),
        ("https://example.com../", "host", "*", None),
        ("https://2130706433/", "host", "*", None),
        ("https://127.1/", "host", "*", None),
        ("https://0x7f.0x1/", "host", "*", None),
        ("https://127.0.0.1/", "host", "127.0.0.1", True),
        ("https://_dmarc.example.com/", "host", "*.example.com", True),
        ("https://xn--bcher-kva.example/", "host", "*.example", True),
        ("ann@example.com", "recipients", "*@example.com", True),
        ("Ann@Example.COM", "recipients", "*@example.com", True),
        ("Ann Lee <ann@example.com>", "recipients", "*@example.com", True),
        ("ann@example.com, bea@example.com;", "recipients", "*@example.com", True),
        ("eve@evil,x@example.com", "recipients", "*@example.com", None),
        ("eve@evil;x@example.com", "recipients", "*@example.com", None),
        ("eve@evil.com x@example.com", "recipients", "*@example.com", None),
        ("eve@evil.com\nx@example.com", "recipients", "*@example.com", None),
        ("eve@evil.com", "recipients", "*@example.com", False),
        ("eve@evil.com, bob@evil.com", "recipients", "*@example.com", False),
        ("eve@evil.com", "not_recipients", "*@example.com", True),
        ("eve@evil.com, x@example.com", "not_recipients", "*@evil.com", None),
        ("ann@example.com", "not_recipients", "*@example.com", False),
        ('"x@example.com" <eve@evil.com>', "recipients", "*@example.com", None),
        ("x@example.com <eve@evil.com>", "recipients", "*@example.com", None),
        ("eve@evil.com(x@example.com)", "recipients", "*@example.com", None),
        ("g: eve@evil.com, x@example.com;", "recipients", "*@example.com", None),
        ("ann@example.com.evil.com", "recipients", "*@example.com", False),
        ("eve%evil.com@example.com", "recipients", "*@example.com", None),  # mail servers pass it on
        ("Eve <eve%evil@example.com>", "recipients", "*@example.com", None),
        ("evil.com!eve@example.com", "recipients", "*@example.com", None),
        ("*@example.com", "recipients", "*@example.com", None),  # a pattern is no address
        ("ann, *@example.com", "not_recipients", "*@evil.com", None),
        ("ann", "recipients", "*", None),
        ("", "recipients", "*", None),
        (",", "recipients", "*", None),
        (["ann@example.com"], "recipients", "*@example.com", None),  # a list is compared item by item
        ("wss://api.example.com/", "host", "api.example.com", True),
        ("HTTP://api.example.com/", "host", "api.example.com", True),
        ("file://api.example.com/etc/passwd", "host", "api.example.com", None),
        ("file://anywhere/etc/passwd", "not_host", "evil.io", None),
        ("javascript://api.example.com/%0aalert(1)", "host", "api.example.com", None),
        ("javascript://api.example.com/%0aalert(1)", "not_host", "evil.io", None),
        ("gopher://api.example.com/", "host", "api.example.com", None),
        ("https://evil.io", "not_host", "example.com", True),
        ("/srv/a.txt", "within", "/srv", True),
        ("/srv", "within", "/srv/", True),
        ("/workshop/a", "within", "/srv", False),
        ("/srv/../etc/passwd", "within", "/srv", False),
        ("/srv/./x/../y", "within", "/srv", True),
        (LONG_PATH, "within", "/srv", False),
        ("//srv/a", "within", "/srv", False),
        ("/etc", "within", ["/srv", "/etc"], True),
        ("/etc/x", "within", "/", True),
        ("a.txt", "within", "/srv", None),
        ("a/b.txt", "within", "a", True),
        ("a/../../b", "within", "a", False),
        ("b.txt", "within", ".", True),
        ("../b.txt", "within", ".", False),
        ("~/x", "within", "/srv", None),
        ("C:\\x", "within", "/srv", None),
        ("", "within", "/srv", None),
        ("/etc/passwd", "not_within", "/srv", True),
        (5, "within", "/srv", None),
    ],
)
def test_an_operator_tells_true_false_or_unknown(value: Any, operator: str, operand: Any, outcome: Known):
    assert OPERATORS[operator].outcome(value, operand) is outcome


@pytest.mark.parametrize("operator", [name for name in OPERATORS if name != "exists"])
def test_null_is_no_value_and_so_only_differs(operator: str):
    operand = {"in": ["a"], "not_in": ["a"]}.get(operator, "a")
    assert OPERATORS[operator].outcome(None, operand) is (operator.startswith(("not_", "is_not")))


@pytest.mark.parametrize(
    ("operator", "operand", "says"),
    [
        ("above", "5", "takes a number"),
        ("above", True, "takes a number"),
        ("below", float("nan"), "takes a number"),
        ("at_most", float("inf"), "takes a number"),
        ("in", "a", "takes a list"),
        ("in", [], "takes a list that is not empty"),
        ("not_in", [{"a": 1}], "takes a text, a number"),
        ("is", {"a": 1}, "takes a text, a number"),
        ("is", None, "takes a text, a number"),
        ("matches", 5, "takes a text or a list of texts"),
        ("host", [], "takes a text or a list of texts"),
        ("within", [""], "takes a text or a list of texts"),
        ("exists", "yes", "takes true or false"),
    ],
)
def test_an_operand_that_an_operator_does_not_take_is_a_mistake(operator: str, operand: Any, says: str):
    with pytest.raises(Mistake, match=says):
        OPERATORS[operator].check(operand)


@pytest.mark.parametrize("accounts", [["666"], ["6_66"], [5, "666"], [True], [[666]], [{"id": 666}]])
def test_an_item_of_another_type_does_not_evade_a_list(accounts: list[Any]) -> None:
    assert OPERATORS["contains"].outcome(accounts, 666) is None
    assert OPERATORS["not_contains"].outcome(accounts, 666) is None
