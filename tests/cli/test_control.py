"""`pause`, `interrupt`, `cancel`, `send` and `settle`, also for a task that another process drives."""

import asyncio

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
