"""Every page of the guide and every example runs against a client too: only the line that makes the runner differs."""

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.answers import answer
from tests.docs.blocks import blocks
from treadle.testing.provider import ProviderServer

ROOT = Path(__file__).parents[2]
PAGES = [
    path
    for path in sorted((ROOT / "docs").rglob("*.md"))
    if any(block.is_run and block.language == "python" and "unner" in block.code for block in blocks(path))
]

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))

EXCUSED = {
    "examples/code_fixer.py": "context= belongs to the process that drives",
    "examples/support_desk.py": "context= belongs to the process that drives",
    "examples/research_team.py": "context= belongs to the process that drives",
    "coming-from/openai-agents.md": "context= belongs to the process that drives",
    "coming-from/pydantic-ai.md": "context= belongs to the process that drives",
    "errors.md": "no task 'nobody' in this store",  # a server does not tell where its store is
    "guide/agents.md": "context= belongs to the process that drives",
    "guide/approvals.md": "refund needs_approval desk local",  # who decided is who holds the token
    "guide/background.md": "",  # virtual time stands still while a server in another thread is waited for
    "guide/cli.md": "exit status",  # what a shell starts has a runner of its own
    "guide/client.md": "",  # has a server of its own
    "guide/control.md": "StoredTraceback",  # a traceback of another process is text
    "guide/drivers.md": "a client has no drain",
    "guide/durability.md": "the page shows ['interrupted',",  # a server adopts what a killed process left, at once
    "guide/events.md": "7 task_ended completed",  # one event `resumed` more
    "guide/inspector.md": "has no attribute '_driver'",  # an application is of a runner
    "guide/integrity.md": "a server verifies one task",
    "guide/limits-and-failures.md": "printed []",  # a price is looked for by the process that drives
    "guide/middleware.md": "a client has no middleware_of",
    "guide/model-layers.md": "overloaded open",  # the models of a runner and of a server are in two event loops
    "guide/options.md": "client.scoped: a client acts for the principal of its token",
    "guide/telemetry.md": "shop drive_ended",  # the task is created in a drive of its own
    "guide/tenants.md": "no task 'order-17' in this store",  # a server does not tell where its store is
    "guide/testing.md": "a client has no store",
    "guide/threads.md": "printed ['I have read 5 messages.']",  # a busy thread is met by the process that drives
    "guide/tools-of-other-libraries.md": "context= belongs to the process that drives",
    "how-to/evaluate.md": "a client has no store",
    "reference/testing.md": "a client has no store",
    "how-to/long-jobs.md": "exit status",
    "how-to/tests-without-a-model.md": "exit status",
}
"""The pages that do not run so, with what stops them."""

AT_TIMES = {"guide/model-layers.md"}
"""Those of them that run where each request takes less time than the page allows for."""


def _name(page: Path) -> str:
    folder = ROOT if page.suffix == ".py" else ROOT / "docs"
    return str(page.relative_to(folder))


@pytest.fixture(scope="module")
def addresses() -> Iterator[dict[str, str]]:
    with ProviderServer(answer) as server:
        yield {
            "OPENAI_BASE_URL": server.openai_base_url,
            "OPENAI_API_KEY": "made-up",
            "ANTHROPIC_BASE_URL": server.anthropic_base_url,
            "ANTHROPIC_API_KEY": "made-up",
        }


@pytest.mark.full
@pytest.mark.parametrize("page", [*PAGES, *EXAMPLES], ids=_name)
def test_a_page_or_an_example_runs_against_a_client(
    page: Path, tmp_path: Path, addresses: dict[str, str]
) -> None:
    environment = {
        "HOME": str(tmp_path),
        "LANG": "C.UTF-8",
        "PATH": os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]]),
        "PYTHONPATH": str(ROOT),
        **addresses,
    }
    name = _name(page)
    command = [sys.executable, "-m", "tests.client.pages", str(page)]
    excused = EXCUSED.get(name)
    try:
        ended = subprocess.run(
            command,
            cwd=tmp_path,
            env=environment,
            timeout=60,
            capture_output=True,
            text=True,
            check=False,
            input="My order is late\ny\n\n" if page.suffix == ".py" else "",
        )
        output, code = ended.stdout + ended.stderr, ended.returncode
    except subprocess.TimeoutExpired:
        assert excused == "", "the page hangs"
        return
    if excused is None:
        assert code == 0, output
    elif code or name not in AT_TIMES:
        assert code != 0, f"{name} runs: it needs no excuse any more"
        assert excused in output, output
