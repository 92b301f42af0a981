"""How a task is named on the command line."""


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
