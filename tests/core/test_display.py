"""A view is one short line in a REPL, fields for rich, and static, escaped, bounded HTML in a notebook."""

import io
from decimal import Decimal
from html.parser import HTMLParser
from typing import Any

import pytest
from rich.console import Console

from treadle.core.display import PAGE, ROWS, Displayed, Link, Table, View, Word, cut, html_of, money, seconds

HOSTILE = "</pre><script>alert('x')</script><img src=x onerror=alert(1)>&amp;\"'"


class Shown(Displayed):
    """Shows the view it is given."""

    def __init__(self, **view: Any) -> None:
        self.view = View(title="Shown", **view)

    def _view(self) -> View:
        return self.view


class Tags(HTMLParser):
    """Collects the tags and attributes of HTML, and whether each was closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def everywhere(text: str) -> dict[str, Any]:
    """Return a view that has a text in each of its places."""
    row = Table("inner", (text,), [text], lambda item: (item, Word(item), {item: [item]}))
    return {
        "name": text,
        "state": text,
        "facts": ((text, text),),
        "text": text,
        "values": ((text, {text: text}),),
        "tables": (Table(text, (text, "b", "c"), [text], lambda item: (item, Word(item), row)),),
    }


def test_html_holds_no_tag_but_ours_whatever_the_texts_are() -> None:
    html = Shown(**everywhere(HOSTILE))._repr_html_()
    tags = Tags(html)
    assert tags.open == []
    assert tags.seen <= {
        *(
            "div",
            "b",
            "code",
            "span",
            "pre",
            "table",
            "thead",
            "tbody",
            "tr",
            "th",
            "td",
            "details",
            "summary",
        )
    }
    assert tags.attributes == {"style"}
    assert "<script" not in html
    assert "url(" not in html


def test_html_links_only_to_the_page_of_a_cell_and_escapes_its_address() -> None:
    address = f"http://127.0.0.1/#/t/{HOSTILE}"
    links = Table("tasks", ("task",), [HOSTILE], lambda item: (Link(item, address),))
    tags = Tags(Shown(tables=(links,))._repr_html_())
    assert tags.open == []
    assert tags.attributes == {"style", "href", "target", "rel"}
    assert tags.seen <= {"div", "b", "table", "thead", "tbody", "tr", "th", "td", "a"}


def test_html_shows_control_and_direction_characters_as_escapes() -> None:
    html = Shown(**everywhere("right\u202eleft \x1b[2J"))._repr_html_()
    assert "\u202e" not in html
    assert "\x1b" not in html
    assert "right\\u202eleft" in html


def test_html_and_lines_are_bounded_however_long_the_values_are() -> None:
    text = "<" * 210_000
    many = Table(
        "rows", ("a", "b"), ["<" * 4_000, "x" * 4_000, "a b\n" * 1_000] * ROWS, lambda item: (item, [item])
    )
    shown = Shown(text=text, values=(("all", text),), tables=(many,))
    html = shown._repr_html_()
    assert len(html) < 8 * PAGE, "escaping makes up to five characters of one"
    assert f"and {2 * ROWS:,} more" in html
    assert len(repr(shown)) < 200


def test_a_long_value_unfolds_and_a_short_one_does_not() -> None:
    short = html_of(View(title="T", tables=(Table("t", ("a",), ["short"], lambda item: (item,)),)))
    long = html_of(View(title="T", tables=(Table("t", ("a",), ["long " * 50], lambda item: (item,)),)))
    assert "<details" not in short
    assert long.count("<details") == 1


@pytest.mark.parametrize("text", ["api_key=sk-1234567890abcdef", '{"password": "correct horse battery"}'])
def test_values_after_the_names_of_secrets_are_hidden(text: str) -> None:
    shown = Shown(text=text, values=(("arguments", {"password": "correct horse battery"}),))
    for made in (repr(shown), shown._repr_html_()):
        assert "correct horse" not in made
        assert "1234567890" not in made


def test_facts_that_say_nothing_are_left_out() -> None:
    shown = Shown(
        name="t", state="failed", facts=(("steps", 0), ("thread", ""), ("cost", "$0.5"), ("calls", 2))
    )
    assert repr(shown) == "Shown('t', 'failed', cost=$0.5, calls=2)"
    assert "thread" not in shown._repr_html_()


def test_rich_prints_the_same_facts() -> None:
    out = io.StringIO()
    table = Table("rows", ("a",), [1, 2], lambda item: (item,))
    Console(file=out, width=80).print(
        Shown(
            name="t",
            state="completed",
            facts=(("calls", 2),),
            text="hi",
            values=(("more", [1]),),
            tables=(table,),
        )
    )
    printed = ["Shown('t',", "'completed',", "'hi',", "calls=2,", "more='[1]',", "rows=[1,", "2])"]
    assert out.getvalue().split() == printed


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (money(Decimal("0.001200")), "$0.0012"),
        (money(Decimal(3)), "$3"),
        (money(None), ""),
        (seconds(0.0123), "12 ms"),
        (seconds(2.34), "2.3 s"),
        (seconds(None), ""),
        (cut("abcdef", 4), "abc…"),
        (cut("abcd", 4), "abcd"),
    ],
)
def test_amounts_read_as_people_write_them(made: str, expected: str) -> None:
    assert made == expected
