"""Every code block of the README and the guide runs, in a scratch folder, as a reader would run it."""

import ast
import json
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.docs.blocks import Block, blocks

ROOT = Path(__file__).parents[2]
DRIVER = Path(__file__).with_name("blocks.py")
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = [block for document in DOCUMENTS for block in blocks(document)]

REASONS = {
    "another library's code",
    "make foreign runs it",
    "make local-model installs them",
    "make local-model runs it",
    "make protocols runs it",
    "needs Claude Code",
    "needs a Langfuse project",
    "needs a fresh clone",
    "needs a provider key",
    "serves until stopped",
    "the test command itself",
    "waits for a person",
}
LANGUAGES = {
    "",
    "bash",  # shown only: the second `sh` block of the README is the command that CI runs
    "dockerfile",
    "http",
    "ini",
    "js",
    "json",
    "jsonl",
    "mermaid",
    "nginx",
    "python",
    "sh",
    "sql",
    "text",
    "toml",
    "yaml",
}


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def place(block: Block) -> str:
    return f"{name(block.path)}:{block.line}"


@pytest.fixture(scope="session")
def provider_addresses() -> Iterator[dict[str, str]]:
    """Where `openai:` and `anthropic:` models are found: a scripted server that answers any request."""
    if find_spec("treadle.testing.provider") is None:
        yield {}
        return
    from tests.docs.answers import answer
    from treadle.testing.provider import ProviderServer

    with ProviderServer(answer) as server:
        yield {
            "OPENAI_BASE_URL": server.openai_base_url,
            "OPENAI_API_KEY": "made-up",
            "ANTHROPIC_BASE_URL": server.anthropic_base_url,
            "ANTHROPIC_API_KEY": "made-up",
        }


@pytest.fixture(scope="module")
def pages(provider_addresses: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Return a process that runs pages in forks: starting Python anew would cost more than most pages."""
    command = [sys.executable, "-W", "default", str(DRIVER)]
    environment = {"LANG": "C.UTF-8", "PATH": os.environ["PATH"]}
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.stdin.close()


def run_page(document: Path, tmp_path: Path, environment: dict[str, str], pages) -> None:
    folder, output = tmp_path / "folder", tmp_path / "output"
    folder.mkdir()
    environment = {
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "PATH": os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]]),
        **environment,
    }
    request = {
        "document": str(document),
        "folder": str(folder),
        "output": str(output),
        "environment": environment,
    }
    pages.stdin.write(json.dumps(request) + "\n")
    pages.stdin.flush()
    status = pages.stdout.readline()
    assert status == "0\n", output.read_text()


@pytest.mark.sampled(10)
@pytest.mark.parametrize("document", [d for d in DOCUMENTS if any(b.is_run for b in blocks(d))], ids=name)
def test_code_blocks_run(document: Path, tmp_path: Path, provider_addresses: dict[str, str], pages):
    run_page(document, tmp_path, provider_addresses, pages)


def test_treadle_in_a_shell_block_ends_as_a_process_of_its_own_does(tmp_path: Path, pages):
    document = tmp_path / "page.md"
    document.write_text("""
```sh
mkdir here && cd here
code=0; treadle show last > out.txt 2> error.txt || code=$?
test $code = 2 && test ! -s out.txt && grep "no store at $PWD/.treadle" error.txt
treadle drive --store j.db --json --agent shift:AGENT > driver.jsonl 2> error.txt || code=$?
grep "shift:AGENT cannot be imported" error.txt
echo 'import os; os.kill(os.getpid(), 9)' > shift.py
treadle run shift:AGENT hello || code=$?
test $code = 137
```
""")
    run_page(document, tmp_path, {}, pages)


def test_a_block_is_left_out_only_for_a_known_reason():
    unknown = [f"{place(b)}: {b.detail!r}" for b in BLOCKS if b.mark == "not run" and b.detail not in REASONS]
    assert unknown == []


def test_code_of_other_libraries_is_at_least_python():
    foreign = [b for b in BLOCKS if b.detail == "another library's code"]
    assert foreign
    for block in foreign:
        compile(block.code, place(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_blocks_are_labelled_with_a_language_that_decides_whether_they_run():
    assert [f"{place(b)}: {b.language!r}" for b in BLOCKS if b.language not in LANGUAGES] == []


def test_the_readme_begins_with_the_demo_and_the_tests():
    first, second = [
        block.code for block in BLOCKS if block.path.name == "README.md" and block.language == "sh"
    ][:2]
    assert "\n" not in first + second
    assert first.endswith("treadle demo")
    assert "pytest" in second


def without_code(page: str) -> str:
    return re.sub(r"^( *)```.*?^\1```$", "", page, flags=re.DOTALL | re.MULTILINE)


def test_links_between_documents_lead_somewhere():
    broken = [
        f"{name(document)}: {target}"
        for document in [*DOCUMENTS, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", without_code(document.read_text()))
        if not (document.parent / target).exists()
    ]
    assert broken == []


def test_blocks_of_one_document_share_names_and_files_and_may_await(tmp_path: Path):
    document = tmp_path / "page.md"
    document.write_text(
        """
```python
import asyncio
async def one() -> int:
    await asyncio.sleep(0)
    return 1
```
<!-- file: three.txt -->
```text
3
```
- in a list:
    ```sh
    grep 3 three.txt
    ```
<!-- not run: waits for a person -->
```python
raise SystemExit("not me")
```
```python
assert await one() == 1
raise RuntimeError("the end")
```
"""
    )
    run = [sys.executable, str(DRIVER), str(document)]
    completed = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert completed.returncode == 1
    assert completed.stdout == "3\n"
    assert 'page.md", line 22' in completed.stderr
    assert completed.stderr.endswith("RuntimeError: the end\n")


def test_what_a_page_shows_as_printed_is_what_its_block_prints(tmp_path: Path):
    document = tmp_path / "page.md"
    document.write_text("""
```python
print("task", 7, "completed")
# > task ... completed
```
```python
print("four")
# > five
```
""")
    run = [sys.executable, str(DRIVER), str(document)]
    completed = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert completed.stdout == "task 7 completed\nfour\n"
    assert "page.md:7: printed ['four'], the page shows ['five']" in completed.stderr
