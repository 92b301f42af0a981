"""`run`, `resume` and `step`, as a person types them."""

import json
import signal

import typer

from tests.cli.conftest import wait_for


def test_run_shows_the_steps_and_the_answer_and_exits_0(treadle):
    ended = treadle("run", "math", "1 + 2?")
    assert ended.code == 0
    assert "→ add(a=1, b=2)" in ended.out
    assert "← add: 3" in ended.out
    assert ended.out.count("It is 3.") == 1
    assert "completed" in ended.out


def test_run_with_json_prints_one_document_and_nothing_else_on_stdout(treadle):
    ended = treadle("run", "math", "1 + 2?", "--json")
    assert ended.code == 0
    assert ended.document["state"] == "completed"
    assert ended.document["final_text"] == "It is 3."
    assert ended.document["tool_executions"][0]["arguments"] == {"a": 1, "b": 2}
    assert "noise of a tool" in ended.err


def test_a_typed_answer_is_printed_as_json(treadle, project):
    ended = treadle("run", "typed", "Which city?")
    assert (ended.code, ended.out.count('{"name":"Rome","founded":"0001-04-21"}')) == (0, 1)
    rome = {"name": "Rome", "founded": "0001-04-21"}
    assert treadle("run", "typed", "Which city?", "--json").document["output"] == rome
    (project / "pyproject.toml").unlink()
    task = treadle("tasks", "--json").document["items"][0]["task_id"]
    assert treadle("show", task, "--json").document["result"]["output"] == rome


def test_an_agent_is_found_by_module_and_name(treadle, project):
    (project / "pyproject.toml").unlink()
    assert treadle("run", "team:math", "1 + 2?").code == 0
    assert treadle("run", "--agent", "team:math", "1 + 2?").code == 0


def test_agents_come_from_the_environment_if_the_project_lists_none(treadle, project, monkeypatch):
    (project / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert treadle("run", "math", "hi").code == 2
    monkeypatch.setenv("TREADLE_AGENTS", "team:steppy, team:math")
    assert treadle("run", "math", "hi").code == 0


def test_an_unknown_agent_is_refused_with_all_ways_to_name_one(treadle):
    ended = treadle("run", "maths", "hi", "--json")
    assert ended.code == 2
    assert ended.document["error"]["type"] == "urn:treadle:error:AgentUnknown"
    for way in ("did you mean 'math'", "--agent", "[tool.treadle]", "TREADLE_AGENTS"):
        assert way in ended.document["error"]["detail"]


def test_a_module_that_cannot_be_imported_is_reported_on_one_line(treadle, project):
    (project / "broken.py").write_text("raise RuntimeError('not today')")
    ended = treadle("run", "broken:agent", "hi")
    assert ended.code == 2
    assert "broken:agent cannot be imported: RuntimeError: not today" in ended.err
    assert "Traceback" not in ended.err


def test_without_agent_and_model_run_names_the_ways_to_choose_one(treadle, monkeypatch):
    monkeypatch.setattr("treadle.cli.agents.local_ollama", list)
    ended = treadle("run", "hello")
    assert ended.code == 2
    for way in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "Ollama", "--model", "treadle demo"):
        assert way in ended.err


def test_a_text_beside_an_agent_is_the_input_of_a_new_task_and_not_the_name_of_one(treadle):
    first = treadle("step", "--agent", "team:steppy", "add a lot", "--json").document
    assert (first["state"], first["step"]["index"]) == ("running", 1)
    unknown = treadle("step", "--agent", "team:steppy", "nobody")
    assert unknown.code != 0
    assert "treadle step AGENT INPUT" in unknown.err


def test_a_task_is_stepped_to_its_answer_and_resume_ends_it(treadle):
    first = treadle("step", "steppy", "add a lot", "--json").document
    assert (first["state"], first["is_last"], first["step"]["index"]) == ("running", False, 1)
    assert treadle("step", "last").code == 0
    third = treadle("step", "last", "--json")
    assert third.code == 0
    assert third.document["is_last"]
    assert third.document["state"] == "answered"
    fourth = treadle("step", "last")
    assert fourth.code == 2
    assert "resume" in fourth.err
    ended = treadle("resume", "last", "--json")
    assert ended.code == 0
    assert ended.document["final_text"] == "It is 6."


def test_the_input_of_a_step_is_added_before_its_model_call(treadle):
    treadle("step", "steppy", "add a lot")
    treadle("step", "last", "--input", "be quick")
    assert "› be quick" in treadle("show", "last").out


def test_a_step_of_an_agent_without_input_names_the_missing_argument(treadle):
    treadle("run", "math", "1 + 2?")
    ended = treadle("step", "math")
    assert ended.code == 2
    assert "AGENT and INPUT" in ended.err


def test_a_failed_model_exits_1_and_resume_goes_on(treadle):
    ended = treadle("run", "failing", "hi")
    assert ended.code == 1
    assert "no such thing" in ended.out
    assert "treadle resume" in ended.out
    resumed = treadle("resume", "last", "--json")
    assert resumed.code == 0
    assert resumed.document["final_text"] == "fine now"


def test_a_failed_step_exits_1_with_the_error_in_json(treadle):
    ended = treadle("step", "failing", "hi", "--json")
    assert ended.code == 1
    assert ended.document["error"]["type"] == "urn:treadle:error:StepFailed"


def test_a_limit_degrades_and_exits_3_and_a_raised_one_completes(treadle):
    ended = treadle("run", "steppy", "hi", "--max-steps", "1")
    assert ended.code == 3
    assert "degraded" in ended.out
    assert treadle("resume", "last").code == 3
    assert treadle("resume", "last", "--max-steps", "9").code == 0


def test_a_request_too_large_for_a_limit_is_not_sent_and_the_reason_is_told(treadle):
    ended = treadle("run", "math", "word " * 3_000, "--max-tokens", "500")
    assert ended.code == 3
    assert "tokens would be sent, by an estimate, and 500 are left for it" in " ".join(ended.out.split())


def test_a_limit_may_pause_and_exits_5(treadle):
    ended = treadle("run", "steppy", "hi", "--max-steps", "1", "--on-limit", "pause")
    assert ended.code == 5
    assert treadle("step", "last", "--json").code == 5


def test_a_limit_may_fail_and_exits_1(treadle):
    assert treadle("run", "steppy", "hi", "--max-tool-calls", "1", "--on-limit", "fail").code == 1


def test_the_same_task_id_runs_only_once(treadle):
    assert treadle("run", "math", "1 + 2?", "--task-id", "mine").code == 0
    assert treadle("run", "math", "1 + 2?", "--task-id", "mine").code == 0
    assert treadle("run", "math", "another", "--task-id", "mine").code == 2
    assert len(treadle("tasks", "--json").document["items"]) == 1


def test_a_run_continues_a_thread(treadle):
    treadle("run", "math", "first", "--thread", "talk")
    ended = treadle("run", "math", "second", "--thread", "talk", "--json")
    assert ended.document["thread_id"] == "talk"


def test_control_characters_and_markup_of_a_model_are_printed_as_text(treadle):
    ended = treadle("run", "loud", "hi")
    assert "\x1b" not in ended.out
    assert "\x07" not in ended.out
    assert "\\x1b[31mred\\x1b[0m [bold]word[/bold] \\x07" in ended.out


def test_ctrl_c_interrupts_durably_and_exits_6_and_the_task_can_be_resumed(
    begin, ended_process, treadle, project
):
    process = begin("run", "slow", "count")
    wait_for((project / "ledger").exists)
    process.send_signal(signal.SIGINT)
    ended = ended_process(process)
    assert ended.code == 6, ended.err
    assert "interrupted" in ended.out
    assert "treadle resume" in ended.out
    assert "Traceback" not in ended.err
    listed = treadle("tasks", "--json").document["items"]
    assert [task["state"] for task in listed] == ["interrupted"]
    resumed = treadle("resume", "last", "--json")
    assert resumed.code == 0
    assert resumed.document["final_text"] == "one two three four five six"


def test_the_events_of_the_stop_were_left_out_after_ctrl_c(begin, ended_process, project):
    process = begin("run", "slow", "count", "--task-id", "count-1")
    wait_for((project / "ledger").exists)
    process.send_signal(signal.SIGINT)
    ended = ended_process(process)
    assert ended.code == 6, ended.err
    assert "■ interrupted  by caller" in ended.out
    assert "← nap: rested" in ended.out or "nap was stopped" in ended.out


def test_ctrl_c_with_json_still_prints_one_document(begin, ended_process, project):
    process = begin("run", "slow", "count", "--json")
    wait_for((project / "ledger").exists)
    process.send_signal(signal.SIGINT)
    ended = ended_process(process)
    assert ended.code == 6
    assert ended.document["state"] == "interrupted"


def test_a_killed_run_is_resumed_and_its_unknown_payment_is_settled(begin, ended_process, treadle, project):
    assert ended_process(begin("run", "crasher", "pay", "--task-id", "invoice")).code == 9
    waiting = treadle("resume", "invoice")
    assert waiting.code == 4
    assert "treadle settle invoice s1-0 --happened" in waiting.out
    assert (project / "ledger").read_text() == "pay 5\n"


def test_ctrl_c_while_agents_are_imported_exits_6(treadle, project):
    (project / "heavy.py").write_text("raise KeyboardInterrupt")
    ended = treadle("run", "heavy:agent", "hi", "--json")
    assert (ended.code, ended.document["error"]["type"]) == (6, "urn:treadle:error:KeyboardInterrupt")


def test_a_bug_of_ours_exits_70_with_a_short_text(treadle, monkeypatch):
    broken = typer.Typer()
    broken.command("tasks")({}.popitem)
    broken.command("show")(lambda: None)
    monkeypatch.setattr("treadle.cli.main.app", lambda command: broken)
    ended = treadle("tasks")
    assert ended.code == 70
    assert "KeyError" in ended.err
    assert "TREADLE_DEBUG=1" in ended.err
    assert "Traceback" not in ended.err


def test_an_error_in_user_code_is_reported_with_its_line_and_not_as_our_bug(treadle, project):
    source = "from treadle import Agent, ScriptedModel\ndef told(ctx):\n    raise KeyError('mine')\n"
    (project / "own.py").write_text(source + "agent = Agent(ScriptedModel(['x']), instructions=told)\n")
    ended = treadle("run", "own:agent", "hi", "--json")
    assert ended.code == 1
    error = ended.document["error"]
    assert (error["kind"], error["message"]) == (
        "instructions",
        "the instructions function of agent failed: KeyError: 'mine'",
    )
    assert 'own.py", line 3, in told' in error["traceback"]
    shown = treadle("show", "last")
    assert 'own.py", line 3, in told' in shown.out
    assert shown.out.count("KeyError: 'mine'\n") == 2  # the end of the traceback, and the state


def test_an_error_at_the_import_of_an_agent_prints_no_secret_of_the_environment(
    treadle, project, monkeypatch
):
    monkeypatch.setenv("SHOP_API_KEY", "sk-9f8e7d6c5b4a32100123")
    (project / "secretive.py").write_text(
        "import os\nraise ValueError('bad key ' + os.environ['SHOP_API_KEY'])\n"
    )
    (project / "leaves.py").write_text("import os, sys\nsys.exit('bad key ' + os.environ['SHOP_API_KEY'])\n")
    for name, says in (("secretive", "ValueError"), ("leaves", "SystemExit")):
        ended = treadle("run", f"{name}:agent", "hi", "--json")
        assert f"{name}:agent cannot be imported: {says}: bad key [secret]" in ended.err
        assert f"({name}.py, line 2)" in ended.err
        assert "9f8e7d6c5b4a" not in ended.out + ended.err


def test_a_closed_output_pipe_causes_no_traceback(begin, treadle):
    treadle("run", "math", "hi")
    for arguments in (["tasks"], ["show", "last", "--json"]):
        process = begin(*arguments)
        process.stdout.close()
        assert process.wait(timeout=30) == 1
        assert process.stderr.read() == ""


def test_usage_errors_exit_2_and_are_one_document_too(treadle):
    for arguments in ([], ["--nonsense"], ["last", "--limit", "many"], ["a", "b", "c"]):
        ended = treadle("run", *arguments, "--json")
        assert ended.code == 2
        assert set(ended.document["error"]) == {"type", "title", "detail"}
    assert treadle("nonsense").code == 2


def test_a_task_id_of_another_agent_is_refused_on_one_line(treadle):
    treadle("run", "math", "hi", "--task-id", "mine")
    ended = treadle("run", "steppy", "hi", "--task-id", "mine")
    assert ended.code == 2
    assert ended.err.count("\n") == 1


def test_text_after_two_dashes_is_input(treadle):
    ended = treadle("run", "math", "--", "--json")
    assert ended.code == 0
    assert "› --json" in ended.out


def test_trace_writes_for_programs_and_people(treadle, project):
    ended = treadle("run", "math", "1 + 2?", "--json", "--trace", "jsonl:trace.jsonl", "--trace", "console")
    assert ended.code == 0
    assert ended.document["state"] == "completed"
    lines = [json.loads(line) for line in (project / "trace.jsonl").read_text().splitlines()]
    assert [lines[0]["kind"], lines[-1]["kind"]] == ["drive_began", "drive_ended"]
    assert "It is 3." not in (project / "trace.jsonl").read_text()
    assert "wants add" in ended.err
    assert treadle("run", "math", "1 + 2?", "--trace", "jsonl:t", "--trace-content").code == 0
    assert "It is 3." in (project / "t").read_text()
    assert "--trace takes" in treadle("run", "math", "1 + 2?", "--trace", "nowhere").err


def test_steps_are_run_until_one_of_an_index_has_ended(treadle):
    ended = treadle("step", "steppy", "add", "--until", "2", "--json")
    assert ended.code == 0
    assert ended.document["step"]["index"] == 2
    assert treadle("tasks", "--json").document["items"][0]["steps"] == 2
    ended = treadle("step", "last", "--until", "9")
    assert "● answered" in ended.out


def test_a_task_is_driven_until_it_is_about_to_call_a_tool(treadle, project):
    ended = treadle("step", "payer", "pay", "--until", "tool:p*")
    assert ended.code == 5
    assert "before the tool p*" in ended.out
    assert not (project / "ledger").exists()
    assert treadle("edit", "last", "s1-0", '{"amount": 7}', "--by", "ann").code == 0
    assert treadle("resume", "last", "--break", "none").code == 0
    assert (project / "ledger").read_text() == "pay 7\n"


def test_breakpoints_pause_a_run_and_none_takes_them_away(treadle):
    assert treadle("run", "steppy", "add", "--break", "step:1").code == 5
    assert treadle("resume", "last", "--break", "none").code == 0
    assert treadle("run", "math", "add", "--break", "event:tool_ended", "--break", "cost:9").code == 2
    assert treadle("run", "math", "add", "--break", "event:tool_ended", "--break", "step:9").code == 5


def test_a_breakpoint_on_cost_needs_a_known_price(treadle):
    ended = treadle("run", "math", "add", "--break", "cost:0.5")
    assert ended.code == 2
    assert "that of 'scripted' is unknown" in ended.err


def test_a_limit_that_paused_a_task_is_raised_as_the_hint_says(treadle):
    ended = treadle("run", "steppy", "add", "--max-steps", "1", "--on-limit", "pause")
    [hint] = [line for line in ended.out.splitlines() if "go on with" in line]
    assert hint.endswith("--max-steps 2")
    assert hint.split("treadle ")[1] in treadle("show", "last").out
    assert treadle(*hint.split("treadle ")[1].split()).code == 5
    assert "--max-steps 4" in treadle("show", "last").out
    assert treadle("resume", "last", "--max-steps", "4").code == 0


def test_watch_follows_a_task_of_another_process_to_its_stop(begin, treadle, ended_process, project):
    begin("run", "patient", "wait", "--task-id", "patient")
    wait_for((project / "ledger").exists)
    watcher = begin("watch", "patient", "--json")
    treadle("send", "patient", "stop")
    ended = ended_process(watcher)
    assert ended.code == 0
    assert ended.document["final_text"] == "I stop."
    assert "→ nap" in ended.err


def test_ctrl_c_ends_the_watching_and_not_the_task(begin, treadle, project):
    running = begin("run", "patient", "wait", "--task-id", "patient")
    wait_for((project / "ledger").exists)
    watcher = begin("watch", "patient")
    assert watcher.stdout is not None
    watcher.stdout.readline()
    watcher.send_signal(signal.SIGINT)
    assert watcher.wait(20) == 6
    assert running.poll() is None
    assert treadle("send", "patient", "stop").code == 0
    assert running.wait(20) == 0


def test_an_input_that_a_stranger_wrote_is_untrusted(treadle):
    ran = treadle("run", "math", "1 + 2?", "--untrusted", "mail", "--task-id", "sum")
    assert ran.code == 0
    assert "    untrusted, from mail" in treadle("show", "sum").out
    document = treadle("show", "sum", "--json", "--events").document
    assert document["events"][0]["input"][0]["label"] == {"origin": "mail", "integrity": "untrusted"}


def test_the_name_of_the_caller_is_recorded(treadle):
    treadle(
        "run", "math", "1 + 2?", "--task-id", "ran", "--max-steps", "1", "--on-limit", "pause", "--by", "ada"
    )
    treadle("resume", "ran", "--max-steps", "9", "--by", "bob")
    treadle("step", "steppy", "hi", "--by", "cy", "--json")
    treadle("step", "last", "--input", "and now?", "--by", "dan")

    def names(task: str) -> list[str]:
        events = treadle("show", task, "--json", "--events").document["events"]
        return [event["by"] for event in events if event.get("by") is not None]

    assert names("ran")[0] == "ada"
    assert "bob" in names("ran")
    assert names("last")[0] == "cy"
    assert "dan" in names("last")


def test_a_function_that_asks_no_model_was_refused_for_want_of_one(treadle, project):
    (project / "flows.py").write_text(
        "from treadle import Agent, StepResult\n\n\n"
        "async def echo(ctx):\n    return StepResult(ctx.task_text, is_last=True)\n\n\n"
        "flow = Agent(name='flow', worker=echo)\n"
    )
    ended = treadle("run", "flows:flow", "hello", "--json")
    assert (ended.code, ended.document["output"]) == (0, "hello")
