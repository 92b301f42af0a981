"""`complete`, `fail` and `progress`, and what `show` and `tasks` tell of calls in the background."""

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

AGENTS = """
from pathlib import Path

from treadle import Agent, ScriptedModel, ToolContext, tool
from treadle.models import call, text


@tool(background=True)
def render(title: str, ctx: ToolContext):
    \"\"\"Render a film.\"\"\"
    Path(f"ticket-{title}").write_text(ctx.ticket)
    return ctx.background({"job": title})


two = [call("render", title="a"), call("render", title="b")]
films = Agent(ScriptedModel([two, text("Started."), text("Both are there.")]), name="films", tools=[render])
"""


@pytest.fixture
def ticket(project: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (project / "farm.py").write_text(AGENTS)
    (project / "pyproject.toml").write_text('[tool.treadle]\nagents = ["farm:films"]\n')
    monkeypatch.delitem(sys.modules, "farm", raising=False)
    return lambda title: (project / f"ticket-{title}").read_text()


def test_calls_in_the_background_are_shown_until_their_tickets_are_completed(
    treadle: Any, ticket: Any
) -> None:
    assert treadle("run", "films", "go", "--task-id", "film-17").code == 4
    assert treadle("progress", ticket("a"), '{"percent": 40}', "--by", "farm").code == 0
    out = treadle("show", "film-17").out
    assert "render goes on in the background until" in out
    assert 'about it:        {"job":"a"}' in out
    assert 'progress:        {"percent":40}' in out
    ended = treadle("complete", ticket("a"), '"film a"', "--by", "farm", "--json")
    assert (ended.code, ended.document["state"], len(ended.document["pending"])) == (0, "waiting", 1)
    assert treadle("fail", ticket("b"), "no light").code == 0
    ended = treadle("resume", "film-17", "--json")
    assert (ended.code, ended.document["final_text"]) == (0, "Both are there.")
    assert [each["outcome"] for each in ended.document["tool_executions"]] == ["ok", "error"]
    out = treadle("show", "film-17").out
    assert "render (s1-0) completed by its ticket" in out
    assert "render (s1-1) failed by its ticket" in out


def test_a_ticket_is_read_from_standard_input(
    treadle: Any, ticket: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from io import StringIO

    treadle("run", "films", "go", "--task-id", "film-17")
    monkeypatch.setattr("sys.stdin", StringIO(f"{ticket('a')}\n"))
    assert treadle("complete", "-", '"film a"').code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("complete", "forged.film-17"), 2, "the ticket belongs to no call of task film-17"),
        (("complete", "forged"), 2, "this is no ticket"),
        (("complete", "TICKET", "film a"), 2, "is not JSON"),
        (("fail", "TICKET", ""), 2, "error must be a text"),
    ],
)
def test_what_is_no_ticket_or_no_result_is_refused(
    treadle: Any, ticket: Any, arguments: tuple[str, ...], code: int, words: str
) -> None:
    treadle("run", "films", "go", "--task-id", "film-17")
    ended = treadle(*[ticket("a") if each == "TICKET" else each for each in arguments])
    assert ended.code == code
    assert words in ended.err


def test_a_late_ticket_is_refused(treadle: Any, ticket: Any) -> None:
    treadle("run", "films", "go", "--task-id", "film-17")
    treadle("cancel", "film-17")
    ended = treadle("complete", ticket("a"), '"film a"')
    assert ended.code != 0
    assert "can no longer be completed" in ended.err


CALLER = """
import asyncio

from treadle import Agent, CallerTool, Runner, RunOptions, ScriptedModel
from treadle.models import call, text

guide = Agent(ScriptedModel([call("place"), text("You are in Bonn.")]), name="guide")


async def begin(store: str) -> None:
    async with Runner(store) as runner:
        options = RunOptions(caller_tools=[CallerTool("place", "Tell where the user is.")])
        await runner.run(guide, "Where am I?", task_id="where-1", options=options)
"""


def test_the_result_of_a_tool_of_the_caller_is_brought_by_the_id_of_its_call(
    treadle: Any, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import asyncio

    (project / "place.py").write_text(CALLER)
    (project / "pyproject.toml").write_text('[tool.treadle]\nagents = ["place:guide"]\n')
    monkeypatch.delitem(sys.modules, "place", raising=False)
    monkeypatch.syspath_prepend(str(project))
    from place import begin  # type: ignore[import-not-found]  # pyright: ignore[reportMissingImports, reportUnknownVariableType]

    asyncio.run(begin(str(project / ".treadle" / "journal.db")))
    pending = treadle("pending").out
    assert "the caller of the task is to run place" in pending
    assert treadle("complete", "s1-7", "1", "--task", "where-1").code == 2
    hint = next(line for line in pending.splitlines() if "give its result:" in line)
    printed = shlex.split(hint.partition("treadle ")[2].replace("<JSON of its result>", '"Bonn"'))
    assert treadle(*printed, "--by", "page").code == 0
    ended = treadle("resume", "where-1", "--json")
    assert (ended.code, ended.document["final_text"]) == (0, "You are in Bonn.")
