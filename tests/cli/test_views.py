"""`show` and `diff`: commands that only read."""

import re
from typing import Any

import pytest

from treadle import Agent, File, Runner, ScriptedModel, ToolContext, ToolOutput, tool
from treadle.events import from_json
from treadle.llm.scripted import call, text


def test_a_task_that_no_process_drives_is_between_steps_in_every_view(treadle):
    stepped = treadle("step", "steppy", "hi")
    assert "● between steps" in stepped.out
    listed = treadle("tasks").out
    assert listed.split("\t")[1] == "between steps"
    shown = treadle("show", "last").out
    assert "between steps  steppy" in shown
    assert "● between steps" in shown
    document = treadle("show", "last", "--json").document
    for part in ("task", "result"):
        assert (document[part]["state"], document[part]["driven"]) == ("running", False)
    listed = treadle("tasks", "--json").document
    assert [(item["state"], item["driven"]) for item in listed["items"]] == [("running", False)]
    assert (listed["totals"]["states"], listed["totals"]["driven"]) == ({"running": 1}, 0)


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
        artifacts = [File(data=b"secret bytes", name="r.pdf"), File(url="https://e.org/b.png")]
        return ToolOutput("done", sources=[source], artifacts=artifacts)

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
    shown = treadle("show", "t", "--store", store, "--json")
    result = shown.document["result"]
    assert result["sources"] == [{"title": "Atlas", "url": "https://e.org/atlas"}]
    assert [
        (artifact["artifact_id"], artifact["name"], artifact["size"]) for artifact in result["artifacts"]
    ] == [
        ("s1-0-a1", "r.pdf", 12),
        ("s1-0-a2", "b.png", None),
    ]
    assert not any(bytes_ in shown.out for bytes_ in ("secret bytes", "c2VjcmV0IGJ5dGVz"))


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
    assert [event["tool"] for event in document["events"] if event["kind"] == "tool_ended"] == ["add"]
    assert all(from_json(event).task_id == "sum" for event in document["events"])
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


def test_a_very_long_input_is_cut(treadle, project, monkeypatch):
    with (project / "book").open("w+") as book:
        book.write("once upon a time " * 1_000_000)
        book.seek(0)
        monkeypatch.setattr("sys.stdin", book)
        out = treadle("run", "math", "-").out
    assert "17,000,000 characters" in out
    assert len(out) < 20_000


def test_show_prints_the_tools_offered(treadle):
    treadle("run", "chooser", "1 + 2?")
    assert "  offered: add\n" in treadle("show", "last").out
    treadle("run", "math", "1 + 2?")
    assert "offered" not in treadle("show", "last").out


# ----------------------------------------------------------------------------------------- pure parts


def test_show_draws_the_graph_of_steps_while_some_wait_and_after_all_have_ended(treadle, project):
    ended = treadle("run", "trip", "to Rome")
    assert ended.code == 1
    assert "step 2: book  after seats" in ended.out
    half = treadle("show", "last")
    assert half.code == 0
    for line in (
        "step 1: seats  ",
        "\n  two\n  scripted · ",
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
    resumed = treadle("resume", "last")
    assert re.search(
        r"step 5, attempt 2: tell  after seats, book, weather  [\d:]{8}\n  = 12A for two\n", resumed.out
    )
    shown = treadle("show", "last")
    assert "        ✓ mail        after tell\n" in shown.out
    assert (
        "  ✓ seats" not in treadle("show", treadle("run", "math", "1 + 2?", "--json").document["task_id"]).out
    )


def test_a_call_of_an_answer_is_shown_once(treadle):
    ran = treadle("run", "planned", "1 + 2?")
    assert (ran.code, ran.out.count("→ add(a=1, b=2)")) == (0, 1)
    shown = treadle("show", "last").out
    assert shown.count("→ add(a=1, b=2)") == 1
    assert "  ✓ plan\n  ✓ 1.sum\n" in shown


def test_show_tells_the_state_of_a_task_and_diff_what_a_fork_changed_otherwise(treadle, project):
    @tool(read_only=True)
    def put(item: str, ctx: ToolContext) -> str:
        """Put an item into the cart."""
        ctx.state["cart"] = [*ctx.state.get("cart", []), f"{item} for {ctx.context}"]
        return "put"

    store = str(project / "carts.db")
    agent = Agent(
        ScriptedModel([call("put", item="tea"), call("put", item="milk"), text("Two.")]), tools=[put]
    )
    with Runner(store).sync as runner:
        runner.run(agent, "Shop.", task_id="shop", context="Ada", extra_state={"plan": "free"})
        fork = runner.fork("shop", at="s1")
        runner.resume(fork, agent=agent, context="Bob")
    shown = treadle("show", "shop", "--store", store).out.splitlines()
    assert '    ctx.state: cart=["tea for Ada"]' in shown
    assert 'ctx.state: {"plan":"free","cart":["tea for Ada","milk for Ada"]}' in shown
    document = treadle("show", "shop", "--store", store, "--json").document
    assert document["task"]["extra_state"] == {"plan": "free", "cart": ["tea for Ada", "milk for Ada"]}
    told = treadle("diff", "shop", fork.task_id, "--store", store).out
    assert "changes of s2-0" in told
    assert "milk for Bob" in told


def test_the_further_lines_of_an_input_stand_below_its_first_one(treadle):
    treadle("run", "math", "first\nsecond\n\nfourth")
    assert "› first\n  second\n  \n  fourth\n" in treadle("show", "last").out


def test_show_tells_how_a_task_stood_after_an_event(treadle):
    treadle("run", "math", "1 + 2?", "--task-id", "job")
    whole = treadle("show", "job", "--json", "--events").document
    end_of_first = next(event["seq"] for event in whole["events"] if event["kind"] == "step_completed")
    past = treadle("show", "job", "--at", str(end_of_first), "--json", "--events").document
    assert [event["seq"] for event in past["events"]] == [*range(1, end_of_first + 1)]
    assert (past["task"]["steps"], past["result"]["final_text"]) == (1, "")
    assert (whole["task"]["steps"], whole["result"]["final_text"]) == (2, "It is 3.")
    shown = treadle("show", "job", "--at", str(end_of_first)).out
    assert f"its state after event {end_of_first} of {whole['task']['head']}" in shown
    assert "add(" in shown
    assert "It is 3." not in shown
    beyond = treadle("show", "job", "--at", "999")
    assert (beyond.code, "events 1 to 12, not 999" in beyond.err) == (2, True), beyond.err


# ------------------------------------------------------------------------------------- `usage` and `agents`


def test_usage_sums_up_what_tasks_spent(treadle: Any) -> None:
    for number in range(2):
        treadle("run", "math", f"{number}")
    treadle("step", "steppy", "hi")
    report = treadle("usage", "--json").document
    assert (report["by"], {line["key"]: line["tasks"] for line in report["lines"]}) == (
        "agent",
        {"math": 2, "steppy": 1},
    )
    lines = [line.split("\t") for line in treadle("usage").out.splitlines()]
    assert [line[:2] for line in lines] == [["math", "2"], ["steppy", "1"], ["total", "3"]]
    assert treadle("usage", "--agent", "math", "--json").document["total"]["tasks"] == 2
    assert treadle("usage", "--until", "1h", "--json").document["total"]["tasks"] == 0
    assert treadle("usage", "--label", "team=blue", "--json").document["lines"] == []
    (day,) = treadle("usage", "--by", "day", "--json").document["lines"]
    assert day["key"].startswith("20")
    (rest,) = treadle("usage", "--by", "label:team", "--json").document["lines"]
    assert rest["key"] is None


@pytest.mark.parametrize(
    ("options", "sentence"),
    [(("--by", "month"), "by must be"), (("--since", "soon"), "--since takes a time")],
)
def test_a_wrong_option_of_usage_is_named(treadle: Any, options: tuple[str, ...], sentence: str) -> None:
    treadle("run", "math", "1")
    ended = treadle("usage", *options)
    assert (ended.code, sentence in ended.err) == (2, True), ended.err


def test_agents_lists_what_the_project_lists_without_a_store(treadle: Any, project: Any) -> None:
    items = {item["name"]: item for item in treadle("agents", "--json").document["items"]}
    assert [tool["name"] for tool in items["math"]["tools"]] == ["add"]
    assert list(items) == sorted(items)
    rows = {line.split("\t")[0]: line.split("\t")[1:] for line in treadle("agents").out.splitlines()}
    assert rows["math"][1] == "add"
    assert not (project / ".treadle").exists(), "nothing was created"
    unknown = treadle("agents", "maths")
    assert unknown.code == 2
    assert "there is no agent 'maths'; the agents are: " in unknown.err


def test_a_place_of_agents_that_cannot_be_imported_is_named_beside_the_others(
    treadle: Any, project: Any
) -> None:
    (project / "pyproject.toml").write_text('[tool.treadle]\nagents = ["team:math", "absent:agent"]\n')
    listed = treadle("agents", "--json")
    assert [item["name"] for item in listed.document["items"]] == ["math"]
    assert "absent:agent" in listed.err
