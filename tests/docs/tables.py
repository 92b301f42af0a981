"""Writes the parts of the docs that are made from code: tables of events, providers, comparisons; the tree of errors.

    python -m tests.docs.tables

Each part of a page lies between two comments of its page, and a test compares it with what would be written.
"""

import inspect
import json
import re
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import get_args

from tests.docs import reference
from treadle import errors
from treadle.core import events
from treadle.llm.finish_words import MEANINGS
from treadle.llm.other_providers import OTHER_PROVIDERS
from treadle.results.wire_schema import json_schema
from treadle.verbs.table import OPERATIONS

DOCS = Path(__file__).parents[2] / "docs"
START, END = "<!-- made by tests/docs/tables.py -->", "<!-- end of what is made -->"


def table_of_events() -> str:
    """Every event, as a table: tag, meaning, fields, durable or not."""
    rows = ["| event | says | fields | durable |", "|---|---|---|---|"]
    for cls in (*get_args(events.TaskEvent), *get_args(events.Ephemeral)):
        envelope = {"seq", "time", "after"}
        names = ", ".join(f"`{field.name}`" for field in fields(cls) if field.name not in envelope)
        stored = issubclass(cls, events.Event)
        tag = f"`{cls.kind}`<br>" if stored else ""
        rows.append(f"| {tag}`{cls.__name__}` | {says(cls)} | {names} | {'yes' if stored else '**no**'} |")
    return "\n".join(rows)


def tree_of_errors(cls: type[BaseException] = errors.TreadleError, depth: int = 0) -> str:
    """Every error below a class, as a nested list of one sentence each."""
    foreign = [
        base.__name__ for base in cls.__bases__ if base.__module__ == "builtins" and base is not Exception
    ]
    also = f" Also a `{foreign[0]}`." if foreign else ""
    children = [
        var
        for var in vars(errors).values()
        if isinstance(var, type) and cls in var.__bases__ and var.__bases__[0] is cls
    ]
    line = f"{'  ' * depth}- `{cls.__name__}`: {says(cls)}{also}"
    return "\n".join([line, *(tree_of_errors(child, depth + 1) for child in children)])


def tables_of_providers() -> str:
    """The other providers with what each needs, and the words of servers with what each means."""
    rows = ["| name | install | key |", "|---|---|---|"]
    for name, needs in sorted(OTHER_PROVIDERS.items()):
        keys = " or ".join(f"`{key}`" for key in needs.keys) or "see above"
        install = f"`pip install '/path/to/treadle[{needs.extra}]'`"
        address = f"; the server: `{needs.url}`" if needs.url else ""
        rows.append(f"| `{name}:NAME` | {install} | {keys}{address} |")
    rows += ["", "## The words that end an answer", "", "| means | words |", "|---|---|"]
    for finish in dict.fromkeys(MEANINGS.values()):
        words = [word for word in MEANINGS if MEANINGS[word] == finish]
        shown = [f"`{word}`" if word else "none, with the end of the answer" for word in words]
        rows.append(f"| `{finish}` | {', '.join(shown)} |")
    return "\n".join(rows)


def table_of_operations() -> str:
    """Every operation of the server, as a table: method and path, scope, arguments, what it does."""
    rows = ["| operation | scope | arguments | does |", "|---|---|---|---|"]
    for row in OPERATIONS.values():
        places = (("query", row.query), ("body", row.body or ()))
        arguments = [
            f"{place}: {', '.join(f'**`{name}`**' if row.is_required(name) else f'`{name}`' for name in names)}"
            for place, names in places
            if names
        ]
        headers = {"`Prefer`": row.waits is not None, "`If-Match`": row.checks_head}
        headers["`Idempotency-Key`"] = row.repeats is not None
        if taken := [header for header, takes in headers.items() if takes]:
            arguments.append(f"headers: {', '.join(taken)}")
        what = f"`{row.method} {row.path}`<br>`{row.name}`"
        rows.append(f"| {what} | {row.access} | {'<br>'.join(arguments)} | {row.summary} |")
    return "\n".join(rows)


def says(cls: type) -> str:
    """The first paragraph of a docstring, on one line."""
    text = inspect.getdoc(cls) or ""
    return re.sub(r"\s+", " ", text.split("\n\n")[0]).replace("|", "\\|")


MADE: dict[str, Callable[[], str]] = {
    "guide/events.md": table_of_events,
    "guide/providers.md": tables_of_providers,
    "errors.md": tree_of_errors,
    "reference/http.md": table_of_operations,
    "reference/runner.md": reference.overview,
    **{f"reference/runner/{page}.md": partial(reference.entries, page) for page in reference.GROUPS},
}


SCHEMA = DOCS / "events.schema.json"


def schema_of_events() -> str:
    """The JSON schema of events, as it is published."""
    return json.dumps(json_schema(), indent=1) + "\n"


def with_made_part(page: str, part: str) -> str:
    """A page with the part between its two comments made anew."""
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n{part}\n{END}{after}"


if __name__ == "__main__":
    for name, make in MADE.items():
        path = DOCS / name
        path.write_text(with_made_part(path.read_text(encoding="utf-8"), make()), encoding="utf-8")
    SCHEMA.write_text(schema_of_events(), encoding="utf-8")
    from tests.docs import capabilities  # it imports this module

    capabilities.write()
