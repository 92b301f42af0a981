"""What is typed as a filter or a key of a list is data: it selects what it names, and changes no query."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from treadle import Agent, Runner, RunOptions, ScriptedModel
from treadle.cli.main import main
from treadle.errors import TreadleError

AGENT = Agent(ScriptedModel(["done"]), name="agent")
BLUE = RunOptions(labels={"team": "blue"})

STRINGS = [
    "' OR '1'='1",
    "' OR 1=1 --",
    '" OR ""="',
    "') OR ('1'='1",
    "x'; DROP TABLE tasks; --",
    "x'); DELETE FROM tasks; --",
    "'; ATTACH DATABASE '/tmp/evil.db' AS evil; --",
    "' UNION SELECT sql FROM sqlite_master --",
    "' UNION SELECT usename, passwd FROM pg_shadow --",
    "$.a') = 1 OR json_extract(labels, '$",
    "a') OR 1=1) --",
    'a" OR 1=1 --',
    "a' || (SELECT head FROM tasks) || '",
    "a->>'b' = 'c' OR 'x",
    "labels) FROM tasks; --",
    "created DESC, (SELECT 1)",
    "1; SELECT pg_sleep(10)",
    "%",
    "_",
    "%' ESCAPE '",
    "\\",
    "\\'",
    "a\\' OR 1=1 --",
    "$1",
    ":name",
    "?",
    "{0.__class__}",
    "${7*7}",
    "%(state)s",
    "\u02bc OR \u02bc1\u02bc=\u02bc1",
]
"""Thirty strings that change a query that they are written into, in some dialect."""

OPTIONS: dict[str, Callable[[str], list[str]]] = {
    "--state": lambda text: ["--state", text],
    "--agent": lambda text: ["--agent", text],
    "--thread": lambda text: ["--thread", text],
    "--label": lambda text: ["--label", f"team={text}"],
    "the key of --label": lambda text: ["--label", f"{text}=blue"],
    "--search": lambda text: ["--search", text],
    "--parent": lambda text: ["--parent", text],
    "--since": lambda text: ["--since", text],
    "--until": lambda text: ["--until", text],
    "--cursor": lambda text: ["--cursor", text],
}


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tasks") / "journal.db"
    runner = Runner(path)
    for name in ("one", "two", "three"):
        runner.run_sync(AGENT, f"go {name}", task_id=name, options=BLUE)
    runner.sync.close()
    return path


@pytest.mark.sampled(4)
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("first", range(5))
def test_no_option_of_the_command_line_selects_more_than_it_names(
    tasks: Path, first: int, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tasks.read_bytes()
    for text in STRINGS[first::5]:
        code = main(["tasks", "--json", "--store", str(tasks), *OPTIONS[option](text)])
        out, errors = capsys.readouterr()
        assert code in (0, 2), (text, errors)
        assert "Traceback" not in errors
        assert '"task_id"' not in out, f"{text} selected tasks"
    assert main(["tasks", "--json", "--store", str(tasks)]) == 0
    assert capsys.readouterr().out.count('"task_id"') == 3
    assert tasks.read_bytes() == before


@pytest.mark.anyio
async def test_no_argument_of_a_list_selects_more_than_it_names(store: Any) -> None:
    async with Runner(store) as runner:
        for name in ("one", "two"):
            await runner.run(AGENT, f"go {name}", task_id=name, options=BLUE)
        for text in STRINGS:
            for filters in (
                *({"state": text}, {"agent": text}, {"thread_id": text}, {"parent": text}, {"search": text}),
                *({"labels": {text: "blue"}}, {"labels": {"team": text}}, {"cursor": text}),
            ):
                with suppress(TreadleError):
                    page = await runner.list_tasks(**filters)
                    assert list(page.items) == [], (filters, page)
        assert len((await runner.list_tasks()).items) == 2
        assert not (await runner.verify()).findings
