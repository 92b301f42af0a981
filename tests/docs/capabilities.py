"""The comparisons of docs/coming-from/: made from docs/capabilities.toml, and looked up in the code.

`python -m tests.docs.tables` writes them into their pages, each between two comments.
"""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from tests.docs.claims import problems_of
from tests.docs.tables import DOCS, END

FILE = DOCS / "capabilities.toml"
DENIAL = re.compile(r"\bnone\b|(^|[;,] |and )(there are )?no \w")
"""What the second text of a row says when something is missing."""


@dataclass(frozen=True)
class Missing:
    """Something that users of other libraries look for, and that is not there."""

    name: str
    lacks: tuple[str, ...]
    instead: str = ""


@dataclass(frozen=True)
class Row:
    """What something is called there, and what it is here; `missing` are names below [missing]."""

    there: str
    here: str
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    header: tuple[str, str]
    rows: tuple[Row, ...]


@cache
def capabilities() -> tuple[dict[str, Missing], dict[tuple[str, str], Table]]:
    """Return what is missing, by its short name, and the tables, by page and name."""
    data: dict[str, Any] = tomllib.loads(FILE.read_text(encoding="utf-8"))
    missing = {
        short: Missing(each["name"], tuple(each["lacks"]), each.get("instead", ""))
        for short, each in data.pop("missing").items()
    }
    tables = {
        (page, name): Table(
            tuple(table["header"]),
            tuple(Row(there, here, tuple(rest)) for there, here, *rest in table["rows"]),
        )
        for page, of_page in data.items()
        for name, table in of_page.items()
    }
    return missing, tables


def stale_rows() -> Iterator[str]:
    """Yield the rows that name what is not there, or that say of something there that it is missing."""
    missing, tables = capabilities()
    for (page, _), table in tables.items():
        for row in table.rows:
            at = f"{page}: {row.there}"
            for code in re.findall(r"`([^`]+)`", row.here):
                yield from (f"{at}: {problem}" for problem in problems_of(code))
            yield from (
                f"{at}: {short} is not below [missing]" for short in row.missing if short not in missing
            )
            prose = re.sub(r"`[^`]+`", "", row.here)
            if bool(DENIAL.search(prose)) != bool(row.missing):
                yield f"{at}: {row.here!r} and missing={list(row.missing)} do not agree"
    used = {short for table in tables.values() for row in table.rows for short in row.missing}
    yield from (f"[missing.{short}] is used by no row" for short in missing if short not in used)


def found_after_all() -> Iterator[str]:
    """Yield what is said to be missing and is there."""
    for short, each in capabilities()[0].items():
        for claim in each.lacks:
            if not problems_of(claim):
                yield f"{claim} is there: take [missing.{short}] out of {FILE.name}, and correct the rows that name it"


def made_parts() -> dict[str, dict[str, str]]:
    """Return the parts of pages that are made from the data, by page and name."""
    missing, tables = capabilities()
    parts: dict[str, dict[str, str]] = {}
    for (page, name), table in tables.items():
        of_page = parts.setdefault(f"coming-from/{page}.md", {})
        cells = [table.header, ("---", "---"), *((row.there, row.here) for row in table.rows)]
        of_page[name] = "\n".join(
            "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells
        )
    for page, of_page in parts.items():
        of_tables = [table for (other, _), table in tables.items() if page == f"coming-from/{other}.md"]
        shorts = [short for table in of_tables for row in table.rows for short in row.missing]
        of_page["missing"] = f"Missing: {'; '.join(missing[short].name for short in dict.fromkeys(shorts))}."
    lines = [f"- {each.name}{f': {each.instead}' if each.instead else ''}" for each in missing.values()]
    parts["coming-from/index.md"] = {"missing": "\n".join(lines)}
    return parts


def with_made_parts(text: str, parts: dict[str, str]) -> str:
    """Return a page with each part between its two comments made anew."""
    for name, part in parts.items():
        start = f"<!-- made from capabilities.toml: {name} -->"
        before, found, rest = text.partition(start)
        if not found:
            raise ValueError(f"the page has no line {start}")
        text = f"{before}{start}\n{part}\n{END}{rest.partition(END)[2]}"
    return text


def write() -> None:
    """Write every made part into its page."""
    for name, parts in made_parts().items():
        path = DOCS / name
        path.write_text(with_made_parts(path.read_text(encoding="utf-8"), parts), encoding="utf-8")
