"""Plans of sub-tasks, as models write them."""

from json import dumps
from typing import Any

import pytest

from treadle.agents.workers.plans import Answer, Plan, SubTask, UnusablePlan, describe_ended_plan, read

MOST = 20


def sub(name: str, *after: str, task: str = "") -> dict[str, Any]:
    return {"id": name, "task": task or f"do {name}", "after": list(after)}


def plan(*sub_tasks: Any, earlier: tuple[SubTask, ...] = (), number: int = 1) -> Plan:
    written = read(dumps({"thought": "so", "sub_tasks": list(sub_tasks)}), number, earlier, MOST)
    assert isinstance(written, Plan)
    return written


def waits(made: Plan) -> dict[str, tuple[str, ...]]:
    return {sub_task.id: sub_task.after for sub_task in made.added}


DONE = SubTask("1.a", "do a", (), result="A")
DONE_AGAIN = SubTask("2.a", "do another a", (), result="AA")
FAILED = SubTask("1.b", "do b", ("1.a",), failure="no luck")


def test_the_id_of_a_sub_task_begins_with_the_number_of_its_plan() -> None:
    made = plan(sub("a"), sub("b", "a"), sub("c", "a", "b", "a"))
    assert waits(made) == {"1.a": (), "1.b": ("1.a",), "1.c": ("1.a", "1.b")}
    assert (made.kept, made.dropped) == ((), ())


def test_the_same_id_in_a_refined_plan_is_another_sub_task() -> None:
    made = plan(sub("a", task="something else"), number=2, earlier=(DONE,))
    assert [(sub_task.id, sub_task.task) for sub_task in made.added] == [("2.a", "something else")]


def test_a_refined_plan_tells_what_it_keeps_adds_and_drops() -> None:
    facts = plan(sub("c", "1.a"), number=2, earlier=(DONE, FAILED)).facts()
    assert facts == {
        "plan": 2,
        "sub_tasks": [{"id": "2.c", "task": "do c", "after": ["1.a"]}],
        "added": ["2.c"],
        "kept": ["1.a"],
        "dropped": ["1.b"],
    }


def test_a_sub_task_that_an_earlier_refinement_dropped_is_not_dropped_again() -> None:
    other = SubTask("2.c", "do c", failure="no luck either")
    assert plan(sub("d"), number=3, earlier=(DONE, FAILED, other)).dropped == ("2.c",)


@pytest.mark.parametrize("again", [sub("1.a"), sub("a"), sub("1.a", task="described otherwise")])
def test_a_repeated_sub_task_that_succeeded_keeps_its_result_and_does_not_run_again(again: Any) -> None:
    made = plan(again, sub("c", again["id"]), number=2, earlier=(DONE, FAILED))
    assert waits(made) == {"2.c": ("1.a",)}
    assert made.kept == ("1.a",)


@pytest.mark.parametrize("again", [sub("1.b"), sub("b"), sub("b", task="b, but better")])
def test_a_failed_sub_task_that_is_planned_again_is_a_new_one(again: Any) -> None:
    made = plan(again, sub("c", again["id"]), number=2, earlier=(DONE, FAILED))
    assert waits(made) == {"2.b": (), "2.c": ("2.b",)}
    assert made.dropped == ("1.b",)


@pytest.mark.parametrize(("name", "meant"), [("a", "2.a"), ("1.a", "1.a"), ("2.a", "2.a")])
def test_an_earlier_sub_task_is_meant_by_either_id_and_the_newest_by_the_short_one(
    name: str, meant: str
) -> None:
    assert waits(plan(sub("c", name), number=3, earlier=(DONE, DONE_AGAIN))) == {"3.c": (meant,)}


def test_a_sub_task_of_the_same_plan_is_meant_before_an_earlier_one() -> None:
    made = plan(sub("a", task="a, anew"), sub("c", "a", "1.a"), number=2, earlier=(DONE,))
    assert waits(made)["2.c"] == ("2.a", "1.a")


@pytest.mark.parametrize("value", ["Paris", "", 0, False, None, [], {"a": 1}])
def test_any_json_value_may_be_the_answer(value: Any) -> None:
    assert read(dumps({"thought": "so", "answer": value}), 1, (), MOST) == Answer(value)


@pytest.mark.parametrize(
    "text",
    [
        'Here it is:\n```json\n{"sub_tasks": [{"id": "a", "task": "do a"}]}\n```\nGood?',
        "{'sub_tasks': [{'id': 'a', 'task': 'do a', 'after': [],},],}",
        '<think>{"answer": 1}</think>{"sub_tasks": [{"id": " a ", "task": "do a\\n", "after": []}]}',
    ],
)
def test_a_plan_is_read_with_any_text_and_quotes_around_it(text: str) -> None:
    assert read(text, 1, (), MOST) == Plan(1, (SubTask("1.a", "do a"),))


WRONG = {
    "nothing": ("", "you wrote nothing"),
    "prose": ("I would first look.", "there is no JSON object"),
    "not closed": ('{"sub_tasks": [{"id": "a"', "not closed"),
    "two objects": ('{"answer": 1} {"answer": 2}', "two JSON objects"),
    "a list": ('[{"id": "a", "task": "x"}]', "a list where one JSON object"),
    "neither": ('{"thought": "hm"}', 'neither "sub_tasks" and "answer"'),
    "both": ('{"answer": 1, "sub_tasks": [{"id": "a", "task": "x"}]}', 'both "sub_tasks" and "answer"'),
    "another key": ('{"answer": 1, "plan": 2}', "has a key 'plan'"),
    "no list": ('{"sub_tasks": "do it"}', "must be a list of at least one"),
    "no sub-task": ('{"sub_tasks": []}', "must be a list of at least one"),
    "text for a sub-task": ('{"sub_tasks": ["do it"]}', "must be a JSON object with the keys"),
    "no id": ('{"sub_tasks": [{"task": "x"}]}', 'no "id"'),
    "an empty id": ('{"sub_tasks": [{"id": " ", "task": "x"}]}', 'no "id"'),
    "a number as id": ('{"sub_tasks": [{"id": 1, "task": "x"}]}', 'no "id" that is text'),
    "a long id": (dumps({"sub_tasks": [sub("a" * 65)]}), "one line of at most 64"),
    "an id of two lines": (dumps({"sub_tasks": [sub("a\nb")]}), "one line of at most 64"),
    "no task": ('{"sub_tasks": [{"id": "a"}]}', "'a' has no \"task\""),
    "an empty task": ('{"sub_tasks": [{"id": "a", "task": " "}]}', "'a' has no \"task\""),
    "another key of a sub-task": ('{"sub_tasks": [{"id": "a", "task": "x", "tool": "y"}]}', "a key 'tool'"),
    "text for after": ('{"sub_tasks": [{"id": "a", "task": "x", "after": "b"}]}', "must be a list of ids"),
    "numbers in after": ('{"sub_tasks": [{"id": "a", "task": "x", "after": [1]}]}', "must be a list of ids"),
    "the same id twice": (dumps({"sub_tasks": [sub("a"), sub("a")]}), "two sub-tasks have the id 'a'"),
    "an unknown one": (dumps({"sub_tasks": [sub("a", "b")]}), "'a' waits for 'b', and there is no such"),
    "itself": (dumps({"sub_tasks": [sub("a", "a")]}), "the sub-tasks a wait for itself"),
    "a circle": (dumps({"sub_tasks": [sub("a", "b"), sub("b", "a"), sub("c")]}), "wait for each other"),
    "too many": (dumps({"sub_tasks": [sub(f"a{n}") for n in range(21)]}), "has 21 sub-tasks, and 20 are"),
}


@pytest.mark.parametrize(("text", "why"), WRONG.values(), ids=WRONG)
def test_a_plan_that_cannot_be_carried_out_has_a_reason(text: str, why: str) -> None:
    with pytest.raises(UnusablePlan) as caught:
        read(text, 1, (), MOST)
    assert why in str(caught.value)


WRONG_REFINED = {
    "nothing new": ([sub("1.a")], "every sub-task of this plan has ended already"),
    "after a failed one": ([sub("c", "1.b")], "waits for '1.b', which did not end well"),
    "after a failed one by its short id": ([sub("c", "b")], "waits for 'b', which did not end well"),
    "one failed sub-task twice": ([sub("b"), sub("1.b")], "two sub-tasks have the id"),
    "one ended sub-task twice": ([sub("a"), sub("1.a"), sub("c")], "two sub-tasks have the id"),
}


@pytest.mark.parametrize(("sub_tasks", "why"), WRONG_REFINED.values(), ids=WRONG_REFINED)
def test_a_refined_plan_that_cannot_be_carried_out_has_a_reason(sub_tasks: Any, why: str) -> None:
    with pytest.raises(UnusablePlan) as caught:
        plan(*sub_tasks, number=2, earlier=(DONE, FAILED))
    assert why in str(caught.value)


def test_the_message_about_a_plan_has_the_result_of_each_sub_task() -> None:
    message = describe_ended_plan(1, (DONE, FAILED), last=False, label=None).text
    assert "1.a: do a\nResult: A" in message
    assert "1.b: do b\nIt did not end well: no luck" in message
    assert "No further plan is possible" not in message
    assert "No further plan is possible" in describe_ended_plan(1, (DONE,), last=True, label=None).text
