"""Display results and events in a REPL, in rich, and as static HTML in a notebook.

A class derives from `Displayed` and returns a `View` of itself. Its `repr` is one bounded line. `__rich_repr__` gives
the same facts to rich, without importing it. `_repr_html_` returns an HTML fragment: tables whose long values unfold.
The fragment has no script, style sheet or address, except that of a page on a task's own server. Its texts are escaped
and its size is bounded.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any, Final

from treadle.core.data import frozen

LINE: Final = 80
"""The most characters of a value that is shown on a line."""

TEXT: Final = 4_000
"""The most characters of a value that is shown unfolded."""

ROWS: Final = 100
"""The most rows of a table."""

PAGE: Final = 200_000
"""The most characters of values in one HTML fragment. Further values are abbreviated."""


class Word(str):
    """A state or an outcome, shown in its colour."""

    __slots__ = ()


class Link(str):
    """A text that leads to a page."""

    __slots__ = ("address",)

    def __new__(cls, text: str, address: str) -> Link:
        link = super().__new__(cls, text)
        link.address = address
        return link

    address: str


@frozen
class Table:
    """Items as a table. `row` returns the cells of an item, each a value or a nested table."""

    title: str
    columns: tuple[str, ...]
    items: Sequence[Any]
    row: Callable[[Any], tuple[Any, ...]]


@frozen(kw_only=True)
class View:
    """The displayed parts of an object.

    Args:
        title: the name of its class.
        name: its id.
        state: its state or outcome.
        facts: numbers and short texts, by name. None and empty ones are omitted.
        text: the most important text, such as an answer.
        values: longer values and tables, by name, that unfold.
        tables: its parts.
    """

    title: str
    name: str = ""
    state: str | None = None
    facts: tuple[tuple[str, Any], ...] = ()
    text: str = ""
    values: tuple[tuple[str, Any], ...] = ()
    tables: tuple[Table, ...] = ()

    def present_facts(self) -> Iterator[tuple[str, Any]]:
        """Yield the facts that are not empty."""
        return ((name, value) for name, value in self.facts if value not in (None, "", 0, (), {}, False))


class Displayed:
    """An object that is displayed by its `View`."""

    __slots__ = ()

    def _view(self) -> View:
        raise NotImplementedError

    def __repr__(self) -> str:
        view = self._view()
        shown = [repr(view.name)] if view.name else []
        shown += [repr(str(view.state))] if view.state else []
        shown += [repr(cut(view.text))] if view.text else []
        shown += [f"{name.replace(' ', '_')}={_short_repr(value)}" for name, value in view.present_facts()]
        shown += [
            f"{table.title.replace(' ', '_')}={len(table.items)}" for table in view.tables if table.items
        ]
        return _without_secrets(f"{view.title}({', '.join(shown)})")

    def __rich_repr__(self) -> Iterator[Any]:
        view = self._view()
        if view.name:
            yield view.name
        if view.state:
            yield str(view.state)
        if view.text:
            yield cut(view.text, TEXT)
        for name, value in view.present_facts():
            yield name.replace(" ", "_"), value
        for name, value in view.values:
            if _is_nonempty(value) and not isinstance(value, Table):
                yield name.replace(" ", "_"), cut(shown_value(value, indent=None), 5 * LINE)
        for table in view.tables:
            if table.items:
                yield table.title.replace(" ", "_"), list(table.items[:ROWS])

    def _repr_html_(self) -> str:
        return html_of(self._view())


def cut(text: str, most: int = LINE) -> str:
    """Return a text, cut to `most` characters with an ellipsis if it is longer."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def clean(text: str) -> str:
    """Return text with control and direction characters as visible escapes, so that it cannot alter its display."""
    if text.isascii() and text.isprintable():
        return text
    return "".join([_visible(character) for character in text.replace("\r\n", "\n")])


def _visible(character: str) -> str:
    if character in "\n\t":
        return character
    if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") and character != "\u200d":
        return _escape(character)
    return character


_UNSEEN: Final = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"
    + "".join([chr(code) for code in (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))])
)
"""Characters that count as printable but are invisible."""


def exact_text(text: str) -> str:
    """Return text with every invisible character but line ends escaped, joiners and odd blanks too."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        [
            character if character == "\n" or _is_seen(character) else _escape(character)
            for character in text.replace("\r\n", "\n")
        ]
    )


def exact_json(value: Any) -> str:
    """Return JSON on one line with every invisible character escaped. It reads back as the same value."""
    return seen_json(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def seen_json(text: str) -> str:
    """Return JSON text with every invisible character but line ends escaped. It reads back as the same values."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        [
            character
            if character == "\n" or _is_seen(character)
            else json.dumps(character)[1:-1].replace("\x7f", "\\u007f")
            for character in text
        ]
    )


def _is_seen(character: str) -> bool:
    return character.isprintable() and character not in _UNSEEN


def _escape(character: str) -> str:
    if character > "\uffff":  # in JSON's form, so that arguments and texts show it alike
        return json.dumps(character)[1:-1]
    return character.encode("unicode_escape").decode("ascii")


def one_line(text: str, most: int = LINE) -> str:
    """Return a text on one line, cut to `most` characters."""
    return cut(" ".join(text[: 4 * most].split()), most)


def money(cost: Decimal | None) -> str:
    """Return a cost in US dollars, or an empty text if it is not known."""
    return "" if cost is None else f"${cost:.6f}".rstrip("0").rstrip(".")


def seconds(duration: float | None) -> str:
    """Return a duration in seconds as readable text, or an empty text without one."""
    if duration is None:
        return ""
    return f"{duration * 1000:.0f} ms" if duration < 1 else f"{duration:.1f} s"


def _short_repr(value: Any) -> str:
    return value if isinstance(value, str) and value[:1] in "$0123456789" else cut(repr(value))


def shown_value(value: Any, indent: int | None = 1) -> str:
    """Return a value as bounded text: text itself, else JSON. Values after the names of secrets are hidden."""
    text = value
    if not isinstance(value, str):
        try:
            text = json.dumps(value, ensure_ascii=False, indent=indent, default=str)
        except (TypeError, ValueError, RecursionError):
            text = repr(value)
    return _without_secrets(cut(text, TEXT))


def _without_secrets(text: str) -> str:
    """Return a text without the values after the names of secrets."""
    from treadle.core.redaction import hide_named

    return hide_named(text)


# ---------------------------------------------------------------------------------------------- HTML

_COLOURS: Final = {
    **dict.fromkeys(("completed", "ok", "compensated"), "#1a7f37"),
    **dict.fromkeys(("degraded", "paused", "waiting", "unknown", "timeout", "abandoned"), "#9a6700"),
    **dict.fromkeys(("failed", "error", "invalid", "refused", "denied"), "#cf222e"),
    **dict.fromkeys(("cancelled", "interrupted"), "#8250df"),
}
_OTHER_COLOUR: Final = "#0969da"
_LINE_STYLE: Final = "border:1px solid rgba(128,128,128,.35)"
_CELL: Final = f"{_LINE_STYLE};padding:3px 8px;text-align:left;vertical-align:top"
_NARROW: Final = 16
_ID: Final = 40
"""The most characters of a cell without line breaks, so that ids fit."""

_PRE: Final = (
    "margin:4px 0;padding:6px 8px;white-space:pre-wrap;overflow-wrap:anywhere;max-height:24em;overflow:auto;"
    f"font-size:12px;background:rgba(128,128,128,.1);{_LINE_STYLE};border-radius:4px;text-align:left"
)


def html_of(view: View) -> str:
    """Return a view as self-contained HTML."""
    return _Page().view(view)


class _Page:
    """Renders one fragment, and counts the characters of its values."""

    def __init__(self) -> None:
        from html import escape

        self._escape: Callable[[str], str] = lambda text: escape(clean(text))
        self._left = PAGE

    def view(self, view: View) -> str:
        head = [f"<b>{self._text(view.title)}</b>"]
        if view.name:
            head.append(f"<code>{self._text(view.name)}</code>")
        if view.state:
            head.append(self._badge(view.state))
        facts = " · ".join(
            [f"{self._text(name)} {self._fact(value)}" for name, value in view.present_facts()]
        )
        if facts:
            head.append(f'<span style="opacity:.75">{facts}</span>')
        parts = [f"<div>{' '.join(head)}</div>"]
        if view.text:
            parts.append(f'<pre style="{_PRE}">{self._value(view.text)}</pre>')
        parts += [self._table(table) for table in view.tables if table.items]
        for name, value in view.values:
            if isinstance(value, Table):
                parts.append(self._folded(name, self._table(value)) if value.items else "")
            elif value not in (None, "", (), [], {}):
                parts.append(self._folded(name, f'<pre style="{_PRE}">{self._value(value)}</pre>'))
        style = (
            "font-family:system-ui,sans-serif;font-size:13px;line-height:1.5;margin:4px 0;max-width:1100px"
        )
        return f'<div style="{style}">{"".join(parts)}</div>'

    def _text(self, text: str) -> str:
        return self._escape(cut(text, 4 * LINE))

    def _fact(self, value: Any) -> str:
        return self._text(f"{value:,}" if type(value) is int else str(value))

    def _badge(self, state: str) -> str:
        colour = _COLOURS.get(state, _OTHER_COLOUR)
        style = f"background:{colour};color:#fff;border-radius:8px;padding:0 8px;font-size:11px"
        return f'<span style="{style};white-space:nowrap">{self._text(state)}</span>'

    def _value(self, value: Any) -> str:
        text = shown_value(value)
        if len(text) > self._left:
            text = cut(text)
        self._left -= len(text)
        return self._escape(text)

    def _folded(self, summary: str, inside: str) -> str:
        return (
            f'<details style="margin:2px 0"><summary style="cursor:pointer">{self._text(summary)}</summary>'
            f"{inside}</details>"
        )

    def _table(self, table: Table) -> str:
        rows = [table.row(item) for item in table.items[:ROWS]]
        used = [at for at in range(len(table.columns)) if any(_is_nonempty(row[at]) for row in rows)]
        head = "".join([f'<th style="{_CELL}">{self._text(table.columns[at])}</th>' for at in used])
        body = "".join([f"<tr>{''.join([self._cell(row[at]) for at in used])}</tr>" for row in rows])
        more = len(table.items) - ROWS
        rest = f'<div style="opacity:.75">and {more:,} more</div>' if more > 0 else ""
        style = "border-collapse:collapse;margin:4px 0;font-size:inherit"
        return f'<table style="{style}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}'

    def _cell(self, cell: Any) -> str:
        style = _CELL
        if not _is_nonempty(cell):
            inside = ""
        elif isinstance(cell, Word):
            inside = self._badge(cell)
        elif isinstance(cell, Link):
            where = f'href="{self._escape(cell.address)}" target="_blank" rel="noopener noreferrer"'
            inside = f"<a {where}>{self._text(cell)}</a>"
        elif isinstance(cell, Table):
            inside = self._folded(cell.title, self._table(cell))
        else:
            line = shown_value(cell, indent=None)
            if len(line) <= LINE and "\n" not in line:
                self._left -= len(line)
                inside = self._escape(line)
                if len(line) < _NARROW or (" " not in line and len(line) <= _ID):
                    style = f"{_CELL};white-space:nowrap"
            else:
                inside = self._folded(one_line(line), f'<pre style="{_PRE}">{self._value(cell)}</pre>')
        return f'<td style="{style}">{inside}</td>'


def _is_nonempty(cell: Any) -> bool:
    return bool(cell.items) if isinstance(cell, Table) else cell not in (None, "")
