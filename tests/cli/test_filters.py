"""Commands that act on several tasks: which they mean, and that they ask."""

import pytest

from tests.cli.terminal import Terminal


@pytest.fixture
def night(treadle):
    """Four tasks: two paused by a limit, one completed, one between its steps."""
    for name in ("one", "two"):
        treadle("run", "steppy", f"add {name}", "--task-id", name, "--max-steps", "1", "--on-limit", "pause")
    treadle("run", "math", "1 + 2?", "--task-id", "three")
    treadle("step", "steppy", "slowly")
    return treadle


def states(treadle) -> dict[str, str]:
    items = treadle("tasks", "--json").document["items"]
    return {item["input"]: item["state"] for item in items}


def test_a_command_on_several_tasks_asks_and_does_nothing_without_an_answer(night):
    ended = night("cancel", "--state", "paused")
    assert ended.code == 2
    assert "to cancel 2 tasks without being asked, add --yes" in ended.err
    assert list(states(night).values()).count("paused") == 2


def test_all_that_match_are_cancelled_and_those_that_ended_are_left_alone(night):
    ended = night("cancel", "--since", "1h", "--yes", "--reason", "the night is over", "--by", "ann")
    assert ended.code == 0
    assert "3 of 3 tasks" in ended.err
    assert states(night) == {
        "add one": "cancelled",
        "add two": "cancelled",
        "1 + 2?": "completed",
        "slowly": "cancelled",
    }
    assert "by ann: the night is over" in night("show", "one").out
    assert "no task that this command could act on matches" in night("cancel", "--since", "1h", "--yes").err


def test_all_that_match_are_resumed_with_a_higher_limit(night):
    ended = night("resume", "--state", "paused", "--max-steps", "9", "--yes", "--json")
    assert ended.code == 0
    assert {item["task_id"]: item["state"] for item in ended.document["items"]} == {
        "one": "completed",
        "two": "completed",
    }


def test_a_task_that_cannot_go_on_is_named_and_the_others_go_on(night, project):
    night("run", "failing", "try", "--task-id", "five")
    text = (project / "pyproject.toml").read_text()
    (project / "pyproject.toml").write_text(text.replace('"team:failing", ', ""))
    ended = night("resume", "--search", "slowly", "--yes")
    assert ended.code == 0
    ended = night("resume", "--state", "failed", "--state", "paused", "--yes", "--max-steps", "9")
    assert ended.code == 1
    assert "refused  five" in ended.out
    assert "2 of 3 tasks" in ended.err


def test_tasks_are_named_one_way_only(night):
    assert "not both" in night("cancel", "one", "--state", "paused").err
    assert "which tasks? Name one" in night("pause").err


@pytest.mark.parametrize(("key", "state"), [("y", "cancelled"), ("n", "paused")])
def test_on_a_terminal_a_person_is_asked(night, project, key, state):
    with Terminal(project, "cancel", "--state", "paused", columns=80) as terminal:
        terminal.wait_for("cancel 2 tasks? [y/N]:")
        terminal.press(f"{key}\r")
        screen = terminal.finished()
    assert states(night)["add one"] == state
    assert ("2 of 2 tasks" in screen) == (key == "y")


def test_tasks_are_named_by_the_state_that_the_list_prints(night):
    listed = night("tasks", "--state", "between steps", "--json").document
    assert [item["input"] for item in listed["items"]] == ["slowly"]
    assert listed["totals"]["tasks"] == 1
    assert {line.split("\t")[1] for line in night("tasks", "--state", "between steps").out.splitlines()} == {
        "between steps"
    }
    assert "between steps" in night("tasks", "--state", "resting").err
    assert night("cancel", "--state", "between steps", "--yes").code == 0
    assert list(states(night).values()).count("cancelled") == 1


# ------------------------------------------------------------------ how a task is named on the command line


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


def test_a_name_that_fits_no_task_exits_2_and_a_thread_is_named_as_one(treadle):
    treadle("run", "math", "hi", "--thread", "talk")
    assert "no task 'nothing'" in treadle("show", "nothing").err
    ended = treadle("show", "talk", "--json")
    assert ended.code == 2
    assert "is a thread" in ended.document["error"]["detail"]


def test_an_empty_name_means_no_task_even_if_there_is_only_one(treadle):
    treadle("run", "math", "hi")
    assert treadle("show", "").code == 2
    assert treadle("run", "math", "hi", "--task-id", "").code == 2
    assert len(treadle("tasks", "--json").document["items"]) == 1
