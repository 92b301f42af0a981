"""`tasks`, `show`, `diff`, `verify` and `doctor`: commands that only read."""

import json

import apsw
import pytest

from treadle import Agent, File, Runner, ScriptedModel, ToolOutput, tool
from treadle.cli.json_output import as_document, as_json
from treadle.cli.screen import Screen, clean
from treadle.cli.timeline import Timeline
from treadle.core.events import ModelReturned, ToolEnded
from treadle.core.messages import Image, Message, Text, ToolCall, ToolResult
from treadle.core.model import Usage
from treadle.llm.scripted import call, text


def ids(treadle) -> list[str]:
    return [item["task_id"] for item in treadle("tasks", "--json").document["items"]]


def test_tasks_lists_newest_first_with_state_agent_and_input(treadle):
    treadle("run", "math", "1 + 2?")
    treadle("step", "steppy", "add\nmany numbers")
    newest, oldest = treadle("tasks").out.splitlines()
    assert newest.split("\t")[1:4] == ["running", "steppy", "1"]
    assert newest.endswith("add many numbers")
    assert oldest.split("\t")[1:4] == ["completed", "math", "2"]


def test_tasks_are_filtered_and_paged(treadle):
    for number in range(3):
        treadle("run", "math", f"{number}", "--thread", f"t{number}")
    treadle("step", "steppy", "hi")
    assert len(treadle("tasks", "--agent", "math", "--json").document["items"]) == 3
    assert len(treadle("tasks", "--state", "running", "--json").document["items"]) == 1
    assert len(treadle("tasks", "--thread", "t1", "--json").document["items"]) == 1
    first = treadle("tasks", "--limit", "3", "--json").document
    second = treadle("tasks", "--limit", "3", "--cursor", first["cursor"], "--json").document
    assert len(second["items"]) == 1
    assert second["cursor"] is None


def test_a_task_is_named_by_a_unique_beginning_or_end_of_its_id(treadle):
    for name in ("alpha-one", "alpha-two"):
        treadle("run", "math", "hi", "--task-id", name)
    assert treadle("show", "alpha-o").code == 0
    assert "alpha-two" in treadle("show", "two").out
    several = treadle("show", "alpha-")
    assert several.code == 2
    assert "fits 2 tasks" in several.err
    assert treadle("show", "alpha").code == 2
    assert treadle("show", "last", "--json").document["task"]["task_id"] == "alpha-two"


def test_show_draws_child_tasks_and_a_shared_beginning_means_the_parent(treadle, project):
    store = str(project / "family.db")
    leaf = Agent(ScriptedModel(["a rose"]), name="leaf")
    middle = Agent(ScriptedModel([call("leaf", input="go"), "two lines"]), name="middle", subagents=[leaf])
    root = Agent(ScriptedModel([call("middle", input="go"), "a poem"]), name="root", subagents=[middle])
    with Runner(store).sync as runner:
        runner.run(root, "Write.", task_id="the-job")
    shown = treadle("show", "the-jo", "--store", store)
    assert shown.code == 0, (shown.out, shown.err)
    lines = [line for line in shown.out.splitlines() if "└─" in line]
    assert lines == ["└─ middle completed  two lines", "   └─ leaf completed  a rose"]
    assert "the-job.s1-0.s1-0 · 1 model call" in shown.out
    [child] = treadle("show", "last", "--store", store, "--json").document["children"]
    assert (child["task_id"], child["children"][0]["agent"]) == ("the-job.s1-0", "leaf")
    [item] = treadle("tasks", "--parent", "the-job", "--store", store, "--json").document["items"]
    assert (item["task_id"], item["parent"]) == ("the-job.s1-0", "the-job")


def test_a_name_that_fits_no_task_exits_2_and_a_thread_is_named_as_one(treadle):
    treadle("run", "math", "hi", "--thread", "talk")
    assert "no task 'nothing'" in treadle("show", "nothing").err
    ended = treadle("show", "talk", "--json")
    assert ended.code == 2
    assert "is a thread" in ended.document["error"]["message"]


def test_reading_does_not_create_a_missing_store(treadle, project):
    ended = treadle("tasks", "--store", "other.db")
    assert ended.code == 2
    assert "there is no store at" in ended.err
    assert not (project / "other.db").exists()


def test_show_names_sources_and_artifacts_and_prints_no_bytes(treadle, project):
    @tool(read_only=True)
    def report() -> ToolOutput:
        """Write a report."""
        source = {"title": "Atlas", "url": "https://e.org/atlas"}
        made = [File(data=b"secret bytes", name="r.pdf"), File(url="https://e.org/b.png")]
        return ToolOutput("done", sources=[source], artifacts=made)

    store = str(project / "reports.db")
    agent = Agent(ScriptedModel([call("report"), text("Here.")]), tools=[report])
    with Runner(store).sync as runner:
        runner.run(agent, "Report.", task_id="t")
    shown = treadle("show", "t", "--store", store)
    for line in (
        "source: Atlas https://e.org/atlas",
        "made: r.pdf (application/pdf, 12 bytes)  s1-0-a1",
        "made: b.png (image/png, https://e.org/b.png)  s1-0-a2",
    ):
        assert line in shown.out
    told = treadle("show", "t", "--store", store, "--json")
    result = told.document["result"]
    assert result["sources"] == [{"title": "Atlas", "url": "https://e.org/atlas"}]
    assert [(made["artifact_id"], made["name"], made["size"]) for made in result["artifacts"]] == [
        ("s1-0-a1", "r.pdf", 12),
        ("s1-0-a2", "b.png", None),
    ]
    assert not any(bytes_ in told.out for bytes_ in ("secret bytes", "c2VjcmV0IGJ5dGVz"))


def test_show_needs_no_code_of_the_agent(treadle, project, monkeypatch):
    treadle("run", "math", "1 + 2?", "--task-id", "sum")
    (project / "team.py").write_text("raise RuntimeError")
    shown = treadle("show", "sum").out
    for piece in (
        "sum",
        "completed",
        "math",
        "› 1 + 2?",
        "step 1",
        "→ add(a=1, b=2)  s1-0",
        "← add: 3  s1-0",
        "It is 3.",
    ):
        assert piece in shown
    document = treadle("show", "sum", "--json", "--events").document
    assert [step["step"]["index"] for step in document["steps"]] == [1, 2]
    assert document["events"][0]["kind"] == "task_created"
    assert document["events"][-1]["kind"] == "task_ended"
    assert "events" not in treadle("show", "sum", "--json").document


def test_show_prints_reasoning_and_unparsable_calls(treadle):
    treadle("run", "thinker", "1 + 2?", "--task-id", "sum")
    shown = treadle("show", "sum").out
    for piece in (
        "I add.",
        "→ unreadable()",
        "not run: after",
        "it wrote: Action: add numbers Action Input: {",
        "← add: 3  s2-0",
        "It is 3.",
    ):
        assert piece in shown


def test_show_marks_an_undone_step(treadle):
    treadle("run", "math", "1 + 2?")
    treadle("undo", "last")
    shown = treadle("show", "last").out
    assert "undo of s2" in shown
    assert "It is 3." not in shown


def test_diff_names_the_first_step_that_differs_with_both_values(treadle):
    treadle("run", "math", "1 + 2?", "--task-id", "one")
    treadle("run", "math", "3 + 4?", "--task-id", "two")
    ended = treadle("diff", "one", "two")
    assert ended.code == 0
    assert "step 1: input" in ended.out
    assert "1 + 2?" in ended.out
    assert "3 + 4?" in ended.out
    assert treadle("diff", "one", "two", "--json").document["field"] == "input"
    assert "nothing differs" in treadle("diff", "one", "one").out


def test_verify_names_the_damaged_task_and_exits_1(treadle, project):
    treadle("run", "math", "1 + 2?", "--task-id", "good")
    treadle("run", "math", "1 + 2?", "--task-id", "bad")
    assert treadle("verify").code == 0
    connection = apsw.Connection(str(project / ".treadle" / "journal.db"))
    (task,) = connection.execute("SELECT id FROM tasks WHERE key = 'bad'").fetchone()
    changed = "CAST(replace(data, 'It is', 'It was') AS BLOB)"
    sql = f"UPDATE records SET data = {changed} WHERE task = ? AND instr(data, 'It is')"
    try:
        connection.execute(sql, (task,))
    finally:
        connection.close()
    ended = treadle("verify")
    assert ended.code == 1
    assert "bad at event" in ended.out
    assert "1 of 2 tasks whole" in ended.out
    assert treadle("verify", "good").code == 0
    items = treadle("verify", "--json").document["items"]
    assert {item["task_id"]: not item["findings"] for item in items} == {"good": True, "bad": False}
    assert treadle("tasks").code == 0


def test_doctor_names_keys_without_values_and_hints_at_undeclared_tools(treadle, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    treadle("run", "math", "hi")
    ended = treadle("doctor")
    assert ended.code == 0
    assert "OPENAI_API_KEY" in ended.out
    assert "sk-very-secret" not in ended.out
    assert "agent payer: tool pay does not declare its effects" in ended.out
    assert "tool book does not declare" not in ended.out, "undo= says that it writes"
    assert "read_only=True" in ended.out
    document = treadle("doctor", "--json").document
    assert document["store"]["mode"] == "0600"
    assert document["store"]["journal_mode"] == "wal"
    assert document["store"]["integrity"] == "ok"
    assert document["versions"]["sqlite"] == apsw.sqlite_lib_version()
    assert document["agents"][0]["name"] == "math"


def test_doctor_reports_a_store_of_a_newer_version(treadle, project):
    treadle("run", "math", "hi", "--store", "newer.db")
    connection = apsw.Connection(str(project / "newer.db"))
    connection.pragma("user_version", 999)
    connection.execute("UPDATE compatible SET opens = 999")
    connection.close()
    ended = treadle("doctor", "--store", "newer.db")
    assert (ended.code, "format 999" in ended.out) == (1, True)


def test_doctor_does_not_advise_to_change_the_mode_of_a_device(treadle):
    ended = treadle("doctor", "--store", "/dev/null")
    assert (ended.code, "chmod" in ended.out, "is not a file" in ended.out) == (1, False, True)


def test_an_empty_name_means_no_task_even_if_there_is_only_one(treadle):
    treadle("run", "math", "hi")
    assert treadle("show", "").code == 2
    assert treadle("run", "math", "hi", "--task-id", "").code == 2
    assert len(ids(treadle)) == 1


def test_a_very_long_input_is_cut(treadle, project, monkeypatch):
    with (project / "book").open("w+") as book:
        book.write("once upon a time " * 1_000_000)
        book.seek(0)
        monkeypatch.setattr("sys.stdin", book)
        out = treadle("run", "math", "-").out
    assert "17,000,000 characters" in out
    assert len(out) < 20_000


def test_doctor_names_agents_with_a_tool_selection(treadle):
    assert "chooser on scripted: add, nap (offered by offer_add)" in treadle("doctor").out
    agents = {each["name"]: each["offer"] for each in treadle("doctor", "--json").document["agents"]}
    assert (agents["chooser"], agents["math"]) == ("offer_add", None)


def test_show_prints_the_tools_offered(treadle):
    treadle("run", "chooser", "1 + 2?")
    assert "  offered: add\n" in treadle("show", "last").out
    treadle("run", "math", "1 + 2?")
    assert "offered" not in treadle("show", "last").out


def test_doctor_reports_a_file_that_is_not_a_store_and_agents_that_cannot_be_imported(treadle, project):
    (project / "no.db").write_text("not a database, but long enough to be looked at as one " * 40)
    (project / "no.db").chmod(0o644)
    (project / "team.py").write_text("raise RuntimeError('broken')")
    ended = treadle("doctor", "--store", "no.db")
    assert ended.code == 1
    assert "chmod 600" in ended.out
    assert "team:math cannot be imported" in ended.out


# ----------------------------------------------------------------------------------------- pure parts


def test_messages_and_bytes_become_json_that_names_its_parts():
    message = Message(
        "assistant",
        (Text("a"), Image(data=b"\x00\xff", media_type="image/png"), ToolCall("s1-0", "f", {"x": 1})),
    )
    document = as_json(message)
    assert [part["type"] for part in document["parts"]] == ["text", "image", "tool_call"]
    assert document["parts"][1]["data"] == "AP8="
    assert as_json(ToolResult("s1-0", "f", (Text("ok"),)))["type"] == "tool_result"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", {"k": (1, {2})}, object(), b"x"])
def test_every_result_is_one_line_of_json(value):
    document = as_document({"value": value})
    assert "\n" not in document
    assert document.isascii()
    json.loads(document)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("a\x1b[2Jb", "a\\x1b[2Jb"),
        ("c1 \x9b31m", "c1 \\x9b31m"),
        ("right\u202eleft", "right\\u202eleft"),
        ("one\r\ntwo\rthree", "one\ntwo\\rthree"),
        ("grün 漢字 👩\u200d👧\tx", "grün 漢字 👩\u200d👧\tx"),
    ],
)
def test_text_from_outside_cannot_control_a_terminal(given, shown):
    assert clean(given) == shown


def test_show_draws_the_graph_of_steps_while_some_wait_and_after_all_have_ended(treadle, project):
    ended = treadle("run", "trip", "to Rome")
    assert ended.code == 1
    assert "step 2: book  after seats" in ended.out
    half = treadle("show", "last")
    assert half.code == 0
    for line in (
        "step 1: seats\n  two\n",
        "  → book(seat=12A)  s2-c1",
        "  skipped: its condition is false",
        "  skipped: it failed: OSError: no weather today",
        "  ✓ seats\n    ✓ book            after seats\n",
        "    - weather         after seats  (skipped: OSError: no weather today)\n",
        "    - refund          after seats  (skipped)\n",
        "      ✗ tell          after seats, book, weather  (failed: ValueError: not ready)\n",
        "        · mail        after tell  (blocked)",
    ):
        assert line in half.out, half.out
    document = treadle("show", "last", "--json").document
    assert [info["name"] for info in document["upcoming"]] == ["tell", "mail", "(answer)"]
    (project / "ready").touch()
    again = treadle("resume", "last")
    assert "step 5, attempt 2: tell  after seats, book, weather\n  = 12A for two\n" in again.out
    whole = treadle("show", "last")
    assert "        ✓ mail        after tell\n" in whole.out
    assert (
        "  ✓ seats" not in treadle("show", treadle("run", "math", "1 + 2?", "--json").document["task_id"]).out
    )


def test_a_call_of_an_answer_is_shown_once(treadle):
    ran = treadle("run", "planned", "1 + 2?")
    assert (ran.code, ran.out.count("→ add(a=1, b=2)")) == (0, 1)
    told = treadle("show", "last").out
    assert told.count("→ add(a=1, b=2)") == 1
    assert "  ✓ plan\n  ✓ 1.sum\n" in told


def test_the_result_of_an_earlier_call_is_shown_with_the_name_of_its_tool(capsys):
    timeline = Timeline(Screen(json=False))
    asked = Message("assistant", (ToolCall("s1-0", "add", {"a": 1, "b": 2}),))
    timeline.learn_calls([ModelReturned("s1", asked, "tool_calls", Usage())])
    timeline.show(ToolEnded("s1", "s1-0", "ok", 3))
    assert "add: 3" in capsys.readouterr().out
