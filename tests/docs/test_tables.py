"""The parts of the docs that are made from the code say what the code says."""

import re
from dataclasses import fields

import pytest

from tests.docs.tables import DOCS, MADE, SCHEMA, schema_of_events, with_made_part
from treadle import Limits, RunOptions, errors, events
from treadle.cli.main import app
from treadle.core import events as core_events
from treadle.llm.providers import PROVIDERS


@pytest.mark.parametrize("name", MADE)
def test_pages_made_from_the_code_are_not_stale(name: str):
    page = (DOCS / name).read_text(encoding="utf-8")
    assert page == with_made_part(page, MADE[name]()), "run `python -m tests.docs.tables`"


def test_the_published_schema_of_events_is_not_stale():
    assert SCHEMA.read_text(encoding="utf-8") == schema_of_events(), "run `python -m tests.docs.tables`"


def test_every_error_is_in_the_tree():
    tree = MADE["errors.md"]()
    public = [
        n for n, v in vars(errors).items() if isinstance(v, type) and issubclass(v, errors.TreadleError)
    ]
    assert [name for name in public if f"`{name}`" not in tree] == []
    assert [name for name in public if name not in str(errors.__doc__)] == []


def test_every_event_has_a_public_name():
    missing = [cls.__name__ for cls in core_events.EVENTS.values() if not hasattr(events, cls.__name__)]
    assert missing == []
    assert len(events.__all__) == len(set(events.__all__))
    assert [name for name in events.__all__ if not hasattr(events, name)] == []


@pytest.mark.parametrize(("page", "cls"), [("options", RunOptions), ("limits-and-failures", Limits)])
def test_pages_about_options_have_a_row_for_every_field(page: str, cls: type):
    text = (DOCS / "guide" / f"{page}.md").read_text(encoding="utf-8")
    assert [field.name for field in fields(cls) if f"| `{field.name}` |" not in text] == []


def test_the_page_about_models_has_a_row_for_every_provider():
    text = (DOCS / "guide" / "models.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert [name for name in PROVIDERS if not any(f"`{name}:" in row for row in rows)] == []


def test_the_page_about_the_command_line_names_every_command():
    text = (DOCS / "guide" / "cli.md").read_text(encoding="utf-8")
    names = [command.name or command.callback.__name__ for command in app().registered_commands]
    assert [name for name in names if f"`{name}`" not in text and f"treadle {name}" not in text] == []


def test_the_architecture_names_only_files_that_are_there():
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    root = DOCS.parent
    homes = (
        root,
        root / "src",
        root / "src" / "treadle",
        *(path for path in (root / "src" / "treadle").iterdir() if path.is_dir()),
    )
    named = re.findall(r"`([\w/]+\.(?:py|toml|md))`", text)
    assert [name for name in named if not any((home / name).exists() for home in homes)] == []


def test_the_architecture_names_every_module_or_its_folder():
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w/]+(?:/|\.py))`", text))
    root = DOCS.parent / "src" / "treadle"
    modules = [path.relative_to(root) for path in root.rglob("*.py") if not path.name.startswith("__")]
    assert [
        str(path)
        for path in sorted(modules)
        if str(path) not in named and not any(f"{folder}/" in named for folder in path.parents)
    ] == []
