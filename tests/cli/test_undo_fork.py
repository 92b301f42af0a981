"""`undo` and `fork`."""

from treadle import Agent, Runner, ScriptedModel, tool
from treadle.models import call


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
    assert refused.document["error"]["type"] == "urn:treadle:error:IrreversibleStep"
    forced = treadle("undo", "last", "--step", "1", "--force", "--json")
    assert forced.code == 0
    assert forced.document["calls"][0]["verdict"] == "not_compensated"


def test_a_dry_run_of_an_undo_reports_and_changes_nothing(treadle, project):
    treadle("run", "booker", "a seat")
    told = treadle("undo", "last", "--to", "0", "--dry-run")
    assert told.code == 0
    assert "nothing is changed; an undo would go back to the beginning" in told.out
    assert "book (s1-0) would be compensated" in told.out
    assert (project / "ledger").read_text() == "book 12A\n"
    treadle("run", "payer", "pay")
    told = treadle("undo", "last", "--to", "0", "--dry-run")
    assert "the undo to the beginning would stop" in told.out
    assert "pay (s1-0) would not be compensated" in told.out


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
    difference = treadle("diff", "sum", ended.document["task_id"], "--json").document
    assert (difference["value_a"], difference["value_b"]) == (3, 42)
    assert "forked from sum" in treadle("show", ended.document["task_id"]).out


def test_a_fork_is_made_at_a_step_or_an_event_and_run_later(treadle):
    treadle("run", "steppy", "add", "--task-id", "sum")
    fork = treadle("fork", "sum", "--at", "s1", "--input", "go on", "--thread", "aside", "--json").document
    assert (fork["state"], fork["forked_from"], fork["thread_id"]) == ("created", "sum", "aside")
    assert treadle("resume", fork["task_id"]).code == 0
    assert treadle("fork", "sum", "--at", "1").code == 0
    assert treadle("fork", "sum", "--at", "s9").code == 2
    assert treadle("fork", "sum", "--replace", "s1-0").code == 2


def test_a_fork_may_have_instructions_and_a_model_of_its_own(treadle):
    treadle("run", "math", "hi", "--task-id", "sum")
    fork = treadle("fork", "sum", "--instructions", "Be polite.", "--by", "ada", "--json").document
    assert treadle("resume", fork["task_id"]).code == 0
    told = treadle("show", fork["task_id"]).out
    assert "forked from sum" in told
    assert treadle("fork", "sum", "--model", "nonsense").code == 2


def test_a_fork_may_use_another_agent(treadle):
    treadle("run", "math", "hi", "--task-id", "sum")
    fork = treadle("fork", "sum", "--agent", "booker", "--json").document
    assert fork["agent"] == "booker"


def test_a_stopped_undo_hid_its_reason_and_its_hint_named_resume(treadle, project):
    def broken(booked, ctx):
        raise ConnectionError("no answer")

    @tool(undo=broken)
    def reserve(seat: str) -> str:
        """Reserve a seat."""
        return seat

    agent = Agent(ScriptedModel([call("reserve", seat="12A"), "Booked."]), name="clerk", tools=[reserve])
    with Runner(str(project / "seats.db")).sync as runner:
        runner.run(agent, "A seat.", task_id="stuck")
        assert not runner.undo_step("stuck", to=0).complete
        result = runner.result("stuck")
        assert [(item.kind, item.request_id) for item in result.pending] == [("undo", "s1-0-undo")]
        assert "undo_step" in result._next_verbs()
    why = "the undo has stopped: the compensation of reserve failed: ConnectionError: no answer"
    at = ("--store", "seats.db")
    shown = treadle("show", "stuck", *at).out.replace(".venv/bin/", "")
    assert why in shown
    assert "go on with: treadle undo stuck" in shown
    assert why in treadle("pending", *at).out
    assert treadle("tasks", *at, "--json").document["items"][0]["waits_for"] == ["undo of reserve"]
