"""The pure modules of the page: numbers, hidden characters, the scale of time, copies of states, forms, verbs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.server.inspector.pages import NODE, command


@pytest.mark.skipif(NODE is None, reason="node is not installed: the page's modules run in it")
@pytest.mark.parametrize(
    "check",
    ["check_modules.mjs", "check_rows.mjs", "check_schema.mjs", "check_task.mjs", "check_views.mjs"],
)
def test_the_pure_modules_of_the_page(check: str, tmp_path: Path) -> None:
    ended = subprocess.run(command(check, tmp_path), capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
