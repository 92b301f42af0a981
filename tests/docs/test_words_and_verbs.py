"""The pages about words and verbs name what is there, and all of it."""

import re

import pytest
import typer

from tests.docs.tables import DOCS
from treadle import RunHandle, Runner
from treadle.cli.main import app
from treadle.verbs.table import ELSEWHERE, OPERATIONS, operation_of

GROUPS = ("policy", "mcp", "threads")
LIBRARIES = ["Temporal", "LangGraph", "Celery", "DBOS", "OpenAI Agents", "Pydantic AI"]


def rows(page: str) -> list[list[str]]:
    """Return the cells of each row in the tables of a page, without their heads."""
    text = (DOCS / "guide" / f"{page}.md").read_text(encoding="utf-8")
    tables = re.findall(r"^\|(?:---\|)+\n((?:\|.*\n)+)", text, re.MULTILINE)
    return [
        [cell.strip() for cell in line[1:-1].split(" | ")] for table in tables for line in table.splitlines()
    ]


def first_words(cell: str) -> list[str]:
    """Return the first word of each piece of code in a cell."""
    return re.findall(r"`(\w+)[^`]*`", cell)


def public(cls: type) -> set[str]:
    return {name for name in dir(cls) if not name.startswith("_")}


VERBS = rows("which-verb")


def test_each_verb_is_named_for_a_goal():
    assert len(VERBS) > 70
    assert {name for row in VERBS for name in first_words(row[1])} == public(Runner)
    assert {name for row in VERBS for name in first_words(row[2])} == public(RunHandle)


@pytest.mark.parametrize("row", VERBS, ids=lambda row: row[0])
def test_a_goal_has_one_verb_on_all_surfaces(row: list[str]):
    _, of_runner, of_handle, _, over_http = row
    names = {*first_words(of_runner), *first_words(of_handle)}
    assert len(names) <= 1, "a handle has the verb of the runner"
    paths = {f"{row.method} {row.path.removeprefix('/v1/')}" for row in OPERATIONS.values()}
    named = re.findall(r"`((?:GET|POST|DELETE) [^`]+)`", over_http)
    assert [path for path in named if path not in paths] == []
    for name in names & {row.verb for row in OPERATIONS.values()} - set(ELSEWHERE):
        operation = operation_of(name, {"task": "t"} if "(task" in of_runner or of_handle else {})
        assert named[:1] == [f"{operation.method} {operation.path.removeprefix('/v1/')}"]


def test_each_command_is_named_for_a_goal_and_takes_the_options_that_are_shown():
    root = typer.main.get_command(app())
    shown = [code for row in VERBS for code in re.findall(r"`([^`]+)`", row[3])]
    commands = {words[0] for code in shown if (words := code.split())[0] != "..."}
    assert commands == set(root.commands)
    for code in shown:
        words = code.split()
        command = root.commands[words[0] if words[0] != "..." else "run"]
        command = command.commands[words[1]] if words[0] in GROUPS else command
        options = {option for parameter in command.params for option in parameter.opts}
        assert [word for word in words if word.startswith("--") and word not in options] == [], code


def test_the_glossary_begins_with_the_words_of_the_concepts():
    concepts = (DOCS / "guide" / "concepts.md").read_text(encoding="utf-8")
    words = [word.lower() for word in re.findall(r"^## (.*)$", concepts, re.MULTILINE)]
    glossary = rows("glossary")
    assert len(words) == 14
    assert sorted(words) == sorted(re.findall(r"\w+", row[0])[0] for row in glossary[:14])
    assert [row for row in glossary if len(row) not in (2, 2 + len(LIBRARIES))] == []
