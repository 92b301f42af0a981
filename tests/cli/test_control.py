"""`pause`, `cancel`, `send`, `settle`, `undo` and `fork`, also of a task that another process drives."""

import asyncio

import pytest

from tests.cli.conftest import wait_for
from treadle import Agent, Runner, ScriptedModel, tool
from treadle.models import call


@pytest.fixture
def patient(begin, project):
    """A process that runs the task `patient`, until somebody stops it."""
    process = begin("run", "patient", "wait", "--task-id", "patient", "--json")
    wait_for((project / "ledger").exists)
    return process


def test_a_task_of_another_process_is_paused_and_resumed_here(patient, treadle, ended_process):
    ended = treadle("pause", "patient", "--reason", "lunch", "--by", "ann")
    assert ended.code == 0
    assert "paused" in ended.out
    there = ended_process(patient)
    assert there.code == 5
    assert there.document["state"] == "paused"
    assert "pause asked for  by ann: lunch" in treadle("show", "patient").out
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


def test_a_run_whose_step_another_process_undoes_does_not_exit_with_0(patient, treadle, ended_process):
    assert treadle("undo", "patient").code == 0
    there = ended_process(patient)
    assert (there.code, there.document["state"]) == (6, "running")


def test_a_message_reaches_a_task_of_another_process(patient, treadle, ended_process):
    ended = treadle("send", "patient", "stop")
    assert ended.code == 0
    assert "recorded" in ended.out
    assert "treadle resume" not in ended.out  # a process is at work on it, or it is over
    there = ended_process(patient)
    assert there.code == 0
    assert there.document["final_text"] == "I stop."


def test_resume_attaches_to_a_task_of_another_process(patient, begin, treadle, ended_process):
    attached = begin("resume", "patient", "--json")
    assert treadle("send", "patient", "stop").code == 0
    assert ended_process(attached).document["final_text"] == "I stop."
    assert ended_process(patient).code == 0


def test_pause_of_a_completed_task_leaves_it_and_says_so(treadle):
    treadle("run", "math", "hi")
    ended = treadle("pause", "last", "--json")
    assert ended.code == 0
    assert ended.document["state"] == "completed"
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


def test_undo_compensates_and_reports_each_call(treadle, project):
    treadle("run", "booker", "a seat")
    ended = treadle("undo", "last", "--to", "0")
    assert ended.code == 0
    assert "book (s1-0) compensated" in ended.out
    assert (project / "ledger").read_text() == "book 12A\ncancel 12A\n"


def test_undo_of_a_call_without_compensation_needs_force_and_reports_it(treadle):
    treadle("run", "payer", "pay")
    refused = treadle("undo", "last", "--to", "0", "--json")
    assert refused.code == 2
    assert refused.document["error"]["type"] == "IrreversibleStep"
    forced = treadle("undo", "last", "--step", "1", "--force", "--json")
    assert forced.code == 0
    assert forced.document["calls"][0]["verdict"] == "not_compensated"


def test_undo_without_calls_to_compensate_needs_no_agent(treadle, project):
    treadle("run", "math", "hi")
    (project / "pyproject.toml").unlink()
    assert treadle("undo", "last").code == 0
    assert treadle("resume", "last").code == 2
    assert treadle("resume", "last", "--agent", "team:math").code == 0


def test_a_fork_with_another_result_of_a_call_has_another_answer(treadle):
    treadle("run", "math", "1 + 2?", "--task-id", "sum")
    ended = treadle("fork", "sum", "--replace", "s1-0=42", "--run", "--json")
    assert ended.code == 0
    assert ended.document["tool_executions"][0]["output"] == 42
    found = treadle("diff", "sum", ended.document["task_id"], "--json").document
    assert (found["value_a"], found["value_b"]) == (3, 42)
    assert "forked from sum" in treadle("show", ended.document["task_id"]).out


def test_a_fork_is_made_at_a_step_or_an_event_and_run_later(treadle):
    treadle("run", "steppy", "add", "--task-id", "sum")
    made = treadle("fork", "sum", "--at", "s1", "--input", "go on", "--thread", "aside", "--json").document
    assert (made["state"], made["forked_from"], made["thread_id"]) == ("created", "sum", "aside")
    assert treadle("resume", made["task_id"]).code == 0
    assert treadle("fork", "sum", "--at", "1").code == 0
    assert treadle("fork", "sum", "--at", "s9").code == 2
    assert treadle("fork", "sum", "--replace", "s1-0").code == 2


def test_a_fork_may_use_another_agent(treadle):
    treadle("run", "math", "hi", "--task-id", "sum")
    made = treadle("fork", "sum", "--agent", "booker", "--json").document
    assert made["agent"] == "booker"


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
