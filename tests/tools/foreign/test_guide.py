"""The page about tools of other libraries, with the blocks that need these libraries."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.foreign.libraries import needs

needs("langchain_core.tools")
needs("llama_index.core.tools")

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("page", ["guide/tools-of-other-libraries.md", "how-to/retrieval.md"])
def test_blocks_that_need_other_libraries_run(page: str, tmp_path: Path) -> None:
    text = (ROOT / "docs" / page).read_text()
    whole, count = re.subn(r"<!-- not run: make foreign runs it -->\n", "", text)
    assert count
    copy = tmp_path / "page.md"
    copy.write_text(whole)
    command = [sys.executable, str(ROOT / "tests" / "docs" / "blocks.py"), str(copy)]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100)
    assert run.returncode == 0, run.stdout + run.stderr
