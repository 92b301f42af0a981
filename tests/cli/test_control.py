"""`pause`, `interrupt`, `cancel`, `send` and `settle`, also for a task that another process drives."""

import asyncio
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import wait_for
from treadle import Agent, Runner, ScriptedModel, tool
from treadle.models import call


@pytest.fixture
def patient(begin, project):
    """A process that runs the task `patient` until it is stopped."""
    process = begin("run", "patient", "wait", "--task-id", "patient", "--json")
    wait_for((project / "ledger").exists)
    return process


def test_a_task_of_another_process_is_paused_and_resumed_here(patient, treadle, ended_process):
    ended = treadle("pause", "patient", "--reason", "lunch", "--by", "ann")
    assert ended.code == 0
    assert "paused" in ended.out
    process = ended_process(patient)
    assert process.code == 5
    assert process.document["state"] == "paused"
    assert "pause requested  by ann: lunch" in treadle("show", "patient").out
    assert treadle("send", "patient", "stop").code == 0
    assert treadle("resume", "patient", "--json").document["final_text"] == "I stop."


def test_a_task_of_another_process_is_interrupted_and_resumed_here(patient, treadle, ended_process):
    ended = treadle("interrupt", "patient", "--reason", "lunch", "--by", "ann")
    assert (ended.code, "interrupted" in ended.out) == (0, True)
    assert ended_process(patient).code == 6
    assert "by ann: lunch" in treadle("show", "patient").out
    treadle("send", "patient", "be kind", "--role", "system")
    treadle("send", "patient", "stop")
    resumed = treadle("resume", "patient", "--json").document
    assert resumed["final_text"] == "I stop."
    assert "system" in [message["role"] for message in resumed["messages"]]


def test_a_task_of_another_process_is_cancelled_for_good(patient, treadle, ended_process):
    assert treadle("cancel", "patient").code == 0
    assert ended_process(patient).code == 7
    assert treadle("resume", "patient").code == 7
    assert treadle("pause", "patient").code == 7
    assert treadle("undo", "patient").code == 2


def test_a_run_does_not_exit_with_0_when_another_process_undoes_its_step(patient, treadle, ended_process):
    assert treadle("undo", "patient").code == 0
    process = ended_process(patient)
    assert (process.code, process.document["state"]) == (6, "running")


def test_a_message_reaches_a_task_of_another_process(patient, treadle, ended_process):
    ended = treadle("send", "patient", "stop")
    assert ended.code == 0
    assert "recorded" in ended.out
    assert "treadle resume" not in ended.out  # a process is at work on it, or it is over
    process = ended_process(patient)
    assert process.code == 0
    assert process.document["final_text"] == "I stop."


def test_resume_attaches_to_a_task_of_another_process(patient, begin, treadle, ended_process):
    attached = begin("resume", "patient", "--json")
    assert treadle("send", "patient", "stop").code == 0
    assert ended_process(attached).document["final_text"] == "I stop."
    assert ended_process(patient).code == 0


@pytest.mark.parametrize("verb", ["pause", "interrupt", "cancel"])
def test_a_stop_of_a_completed_task_changes_nothing_and_exits_with_a_sentence(treadle, verb):
    treadle("run", "math", "hi", "--task-id", "sum")
    ended = treadle(verb, "sum", "--json")
    assert ended.code == 2
    assert ended.document["state"] == "completed"
    assert "error: task sum has ended (completed): it cannot be" in ended.err
    assert treadle("send", "last", "more").code == 2


def test_an_unknown_payment_is_shown_and_settled_as_happened(begin, ended_process, treadle, project):
    ended_process(begin("run", "crasher", "pay", "--task-id", "invoice"))
    assert treadle("resume", "invoice", "--json").code == 4
    shown = treadle("show", "invoice").out
    assert "treadle settle invoice s1-0 --happened" in shown
    assert treadle("settle", "invoice", "s1-0").code == 2
    assert treadle("settle", "invoice", "s1-0", "--happened", "{broken").code == 2
    assert treadle("settle", "invoice", "nothing", "--happened").code == 2
    assert treadle("settle", "invoice", "s1-0", "--happened", '"paid"', "--by", "ann").code == 0
    assert "by ann" in treadle("show", "invoice").out
    assert treadle("settle", "invoice", "s1-0", "--not-happened").code == 2
    ended = treadle("resume", "invoice", "--json")
    assert ended.code == 0
    assert ended.document["tool_executions"][0]["output"] == "paid"
    assert (project / "ledger").read_text() == "pay 5\n"


def test_a_paused_child_is_resumed_through_its_topmost_ancestor(treadle, project):
    @tool(read_only=True)
    async def rest() -> str:
        """Rest."""
        await asyncio.sleep(0.2)
        return "rested"

    leaf = Agent(ScriptedModel([call("rest"), "a rose"]), name="leaf", tools=[rest])
    middle = Agent(ScriptedModel([call("leaf", input="go"), "two lines"]), name="middle", subagents=[leaf])
    root = Agent(ScriptedModel([call("middle", input="go"), "a poem"]), name="root", subagents=[middle])
    with Runner(str(project / "family.db")).sync as runner:
        runner.start(root, "Write.", task_id="job")
        wait_for(lambda: any(task.task_id == "job.s1-0.s1-0" for task in runner.list_tasks().items))
        paused = treadle("pause", "job.s1-0.s1-0", "--store", "family.db")
        assert "go on with: treadle resume job --store family.db" in paused.out.replace(".venv/bin/", "")
        assert runner.resume("job", agent=root).state == "completed"


def test_edited_arguments_that_do_not_fit_the_tool_are_refused_if_the_agent_is_found(treadle, project):
    treadle("step", "payer", "pay", "--until", "tool:pay")
    for arguments, problem in (('{"amount": "much"}', "amount"), ('{"sum": 7}', "sum")):
        ended = treadle("edit", "last", "s1-0", arguments)
        assert ended.code == 2
        assert "arguments do not fit the tool pay of call s1-0" in ended.err
        assert problem in ended.err
    (project / "pyproject.toml").unlink()
    assert treadle("edit", "last", "s1-0", '{"sum": 7}', "--agent", "team:payer").code == 2
    assert treadle("edit", "last", "s1-0", '{"sum": 7}').code == 0, "without the agent it cannot be told"


# ----------- `complete`, `fail` and `progress`, and what `show` and `tasks` tell of calls in the background


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
