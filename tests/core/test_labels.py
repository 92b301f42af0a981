"""Labels: the rule by role, and that no part is more trusted than the whole it is in."""

from typing import Any

import pytest

from treadle.core import codec
from treadle.core.labels import (
    DEVELOPER,
    MODEL,
    TAINTED_MODEL,
    USER,
    Label,
    inside,
    label_of,
    untrusted_origin,
)
from treadle.core.messages import File, Image, Reasoning, Text, ToolCall, ToolResult, untrusted

MAIL = Label("mail", "untrusted")
CLOCK = Label("tool:clock", "trusted")


@pytest.mark.parametrize(
    ("role", "part", "tainted", "label"),
    [
        ("system", Text("rules"), False, DEVELOPER),
        ("user", Text("hello"), False, USER),
        ("user", Text("hello"), True, USER),
        ("user", Text("dear friend", label=MAIL), False, MAIL),
        ("user", File(data=b"x", label=MAIL), False, MAIL),
        ("assistant", Text("done"), False, MODEL),
        ("assistant", Text("done"), True, TAINTED_MODEL),
        ("assistant", Reasoning("hm"), True, TAINTED_MODEL),
        ("assistant", ToolCall("s1-0", "look", {}), False, MODEL),
        ("tool", ToolResult("s1-0", "look", (Text("4"),)), False, Label("tool:look", "untrusted")),
        ("tool", ToolResult("s1-0", "clock", (Text("noon"),), label=CLOCK), True, CLOCK),
    ],
)
def test_a_part_has_its_own_label_or_that_of_its_role(role: str, part: object, tainted: bool, label: Label):
    assert label_of(role, part, tainted=tainted) == label


def test_nothing_in_an_untrusted_whole_is_trusted():
    assert inside(MAIL, None) == MAIL
    assert inside(MAIL, CLOCK) == MAIL
    assert inside(CLOCK, MAIL) == MAIL
    assert inside(MAIL, Label("web:example.org", "untrusted")).origin == "web:example.org"
    assert inside(CLOCK, USER) == USER


def test_only_untrusted_content_has_an_untrusted_origin():
    assert untrusted_origin(MAIL) == "mail"
    assert untrusted_origin(CLOCK) is None
    assert untrusted_origin(None) is None


@pytest.mark.parametrize(
    "part",
    [
        Text("dear friend", label=MAIL),
        Text("signed", {"signature": "s"}, Label("web:example.org", "untrusted", "n0nce")),
        Image(url="https://example.org/a.png", label=MAIL),
        File(data=b"%PDF", media_type="application/pdf", label=MAIL),
        ToolResult("s1-0", "clock", (Text("noon", label=MAIL),), label=CLOCK),
    ],
)
def test_labels_come_back_from_the_journal(part: object):
    assert codec.decode_part(codec.encode_part(part)) == part


def test_a_part_without_a_label_is_written_as_before():
    assert codec.encode_part(Text("hello")) == "hello"
    assert codec.encode_part(ToolResult("s1-0", "look", (Text("4"),))) == {
        "p": "result",
        "call_id": "s1-0",
        "name": "look",
        "parts": ["4"],
    }


@pytest.mark.parametrize(
    "label", [{"origin": "mail"}, {"origin": "mail", "integrity": "yes"}, {"integrity": "trusted"}]
)
def test_a_label_that_is_none_is_refused(label: dict[str, str]):
    with pytest.raises((TypeError, ValueError)):
        codec.decode_part({"p": "text", "text": "x", "label": label})


def test_untrusted_without_an_origin_by_name_is_told_how_it_is_written():
    wrong: Any = untrusted
    for arguments in (("x",), ("x", "mail")):
        with pytest.raises(TypeError, match=r"write untrusted\(text, origin='mail'\)"):
            wrong(*arguments)
