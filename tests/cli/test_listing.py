"""`tasks`: lists, their filters and totals, on a screen and in a pipe."""

import re
import signal

import pytest

from tests.cli.conftest import wait_for
from tests.cli.terminal import Terminal
from tests.drivers.agent_trees import calling
from treadle import Agent, Runner, RunOptions, ScriptedModel, ToolContext, tool
from treadle.llm.scripted import call, fail


def test_tasks_lists_newest_first_with_state_agent_and_input(treadle):
    treadle("run", "math", "1 + 2?")
    treadle("step", "steppy", "add\nmany numbers")
    newest, oldest = treadle("tasks").out.splitlines()
    assert newest.split("\t")[1:4] == ["between steps", "steppy", "1"]
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


@pytest.fixture
def shop(project):
    """A store with tasks of one batch, whose ids begin alike."""
    path = str(project / "shop.db")
    agent = Agent(ScriptedModel(["done"]), name="a-very-long-agent-name")
    failing = Agent(ScriptedModel([fail(400, message="no such thing")]), name="failing")
    with Runner(path).sync as runner:
        for number in range(12):
            task_id = f"01a20275-803b-7{number:03x}-8000-00000000{number * 7:04x}"
            labels = RunOptions(labels={"team": "red" if number % 3 else "blue"})
            runner.run(
                failing if number == 5 else agent,
                f"refund of order {number}",
                task_id=task_id,
                options=labels,
            )
    return path


def test_a_list_at_80_columns_tells_tasks_of_one_batch_apart_by_ids_that_are_accepted(shop, project, treadle):
    with Terminal(project, "tasks", "--store", shop, columns=80) as terminal:
        screen = terminal.finished()
    header, *rows = screen.splitlines()
    assert header.split() == ["task", "state", "agent", "cost", "age", "input"]
    assert all(len(row) <= 80 for row in rows)
    ids = [row.split()[0] for row in rows[:12]]
    assert len(set(ids)) == 12
    assert "a-very-lo…" in rows[0]
    assert rows[0].endswith("refund of order 11")
    assert rows[12].startswith("12 tasks · 11 completed · 1 failed")
    for short in (ids[0], ids[11]):
        assert treadle("show", short, "--store", shop).code == 0


def test_filters_choose_by_label_time_state_and_text(shop, treadle):
    def found(*options: str) -> int:
        return len(treadle("tasks", "--store", shop, "--json", *options).document["items"])

    assert found("--label", "team=blue") == 4
    assert found("--label", "team=blue", "--state", "failed") == 0
    assert found("--state", "failed", "--state", "completed") == 12
    assert found("--search", "ORDER 7") == 1
    assert found("--search", "no such thing") == 1
    assert found("--since", "1h") == 12
    assert found("--until", "1h") == 0
    assert found("--agent", "failing") == 1
    assert found("--roots", "--updated-since", "1h") == 12
    assert found("--updated-since", "2099-01-01") == 0
    assert treadle("fork", "01a20275-803b-7003-8000-000000000015", "--store", shop).code == 0
    assert found("--forked-from", "01a20275-803b-7003-8000-000000000015") == 1
    document = treadle("tasks", "--store", shop, "--json", "--limit", "2", "--until", "2098-01-01").document
    assert document["totals"]["tasks"] == 13
    assert (document["totals"]["states"]["completed"], document["totals"]["states"]["failed"]) == (11, 1)


WRONG_FILTERS = [
    (("--until", "9999999999999999"), "--until takes a time between 1970 and 9999"),
    (("--updated-since", "soon"), "--updated-since takes a time between 1970 and 9999"),
    (("--since", "soon"), "--since takes a time between 1970 and 9999"),
    (("--label", "blue"), "--label takes KEY=TEXT, not 'blue'"),
    (("--state", "done"), "state must be one of created, running"),
    (("--cursor", "x"), "cursor must be the cursor of the previous page"),
]


def test_a_wrong_filter_is_a_sentence_that_names_it(shop, treadle):
    for options, sentence in WRONG_FILTERS:
        ended = treadle("tasks", "--store", shop, *options)
        assert (ended.code, sentence in ended.err) == (2, True), (options, ended.err)


def test_a_driven_task_is_listed_with_its_driver_and_what_it_has_done(begin, treadle, project):
    process = begin("run", "patient", "wait", "--task-id", "patient")
    wait_for(lambda: (project / "ledger").exists() and (project / "ledger").read_text().count("nap") > 2)
    [item] = treadle("tasks", "--json").document["items"]
    assert (item["state"], item["driver"]["pid"], item["driver"]["alive"]) == ("running", process.pid, True)
    assert item["steps"] >= 1
    columns = treadle("tasks").out.split("\t")
    assert columns[6].endswith(f":{process.pid}")
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert treadle("tasks").out.split("\t")[6].endswith(f":{process.pid} dead")


def test_watch_in_a_pipe_prints_a_line_for_each_change_of_state(begin, treadle, project):
    treadle("run", "math", "1 + 2?", "--task-id", "first")
    process = begin("tasks", "--watch", PYTHONUNBUFFERED="1")
    assert process.stdout is not None
    assert process.stdout.readline().split("\t")[:2] == ["first", "completed"]
    treadle("run", "math", "2 + 2?", "--task-id", "second")
    line = process.stdout.readline().split("\t")
    assert line[0] == "second"
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 6


def test_watch_on_a_terminal_redraws_the_list_in_place(treadle, project):
    treadle("run", "math", "1 + 2?", "--task-id", "first")
    with Terminal(project, "tasks", "--watch", columns=80) as terminal:
        terminal.wait_for("first")
        treadle("run", "math", "2 + 2?", "--task-id", "second")
        terminal.wait_for("second")
        terminal.press("\x03")
        screen = terminal.finished()
    assert "2 tasks · 2 completed" in screen
    assert len(re.findall("^first", screen, re.MULTILINE)) == 1


@pytest.fixture
def team(project):
    """A store with two trees of three levels, and a task without subagents between them."""
    path = str(project / "team.db")
    leaf = Agent(ScriptedModel(lambda request: "leaf"), name="leaf")
    middle = calling("middle", leaf)
    root = calling("root", middle, leaf)
    with Runner(path).sync as runner:
        for agent, task_id in ((root, "first"), (leaf, "alone"), (root, "second")):
            runner.run(agent, f"the {task_id} task", task_id=task_id)
    return path


BELOW = [".s1-0", ".s1-0.s1-0", ".s1-1"]


def test_trees_are_listed_by_their_roots_each_with_all_below_it(team, treadle):
    lines = treadle("tasks", "--tree", "--store", team).out.splitlines()
    ids = [line.split("\t")[0] for line in lines]
    assert ids == [
        *(f"second{end}" for end in ["", *BELOW]),
        "alone",
        *(f"first{end}" for end in ["", *BELOW]),
    ]
    items = treadle("tasks", "--tree", "--store", team, "--json").document["items"]
    assert [item["task_id"] for item in items] == ["second", "alone", "first"]
    middle, leaf = items[0]["children"]
    assert [child["task_id"] for child in middle["children"]] == ["second.s1-0.s1-0"]
    assert (leaf["agent"], leaf["children"], items[1]["children"]) == ("leaf", [], [])
    below = treadle("tasks", "--tree", "--parent", "first", "--store", team, "--json").document["items"]
    assert [item["task_id"] for item in below] == ["first.s1-1", "first.s1-0"]


def test_a_page_of_trees_has_as_many_roots_as_asked_for_and_none_is_lost(team, treadle):
    pages, cursor = [], ()
    while True:
        page = treadle("tasks", "--tree", "--limit", "1", *cursor, "--store", team, "--json").document
        pages.append([item["task_id"] for item in page["items"]])
        if page["cursor"] is None:
            break
        cursor = ("--cursor", page["cursor"])
    assert pages == [["second"], ["alone"], ["first"]]


def test_a_tree_on_a_terminal_is_indented_and_refuses_to_be_watched(team, project, treadle):
    with Terminal(project, "tasks", "--tree", "--store", team, columns=100) as terminal:
        rows = terminal.finished().splitlines()
    assert [row.split("  completed")[0].rstrip() for row in rows[1:5]] == [
        "second",
        "├─ second.s1-0",
        "│  └─ second.s1-0.s1-0",
        "└─ second.s1-1",
    ]
    assert treadle("tasks", "--tree", "--watch", "--store", team).code == 2


def test_a_sleeping_task_waited_for_nothing_and_was_to_be_resumed(treadle, project):
    @tool(read_only=True)
    async def rest(ctx: ToolContext) -> str:
        """Rest for an hour."""
        await ctx.sleep(3_600)
        return "rested"

    agent = Agent(ScriptedModel([call("rest"), "Rested."]), name="clerk", tools=[rest])
    with Runner(str(project / "naps.db")).sync as runner:
        assert runner.run(agent, "Rest.", task_id="nap").state == "waiting"
    at = ("--store", "naps.db")
    assert treadle("tasks", *at).out.rstrip("\n").split("\t")[9:] == ["timer of rest"]
    assert treadle("tasks", *at, "--json").document["items"][0]["waits_for"] == ["timer of rest"]
    assert "nothing is pending; rest sleeps until" in treadle("pending", "nap", *at).err
    shown = treadle("show", "nap", *at).out
    assert "a driver (treadle drive) wakes it then; without one, after that time: " in shown
    assert "go on with" not in shown
