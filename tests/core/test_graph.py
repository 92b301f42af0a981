"""A graph of steps: how many each needs, which came before it, and which depend on it."""

import pytest

from treadle.core.events import Join, NextStep
from treadle.core.graph import Graph, StepNode


def node(name: str, *after: str, join: Join = "all", by: str | None = None) -> StepNode:
    index = int(name[1:])
    return StepNode(name, index, (index,), NextStep(name, after=after, join=join), after, by)


def graph(*nodes: StepNode) -> Graph:
    made = Graph({each.id: each for each in nodes})
    for each in nodes:
        for other in each.after:
            made.nodes[other].needed_by.append(each.id)
    return made


@pytest.mark.parametrize(
    ("join", "need", "early"), [("all", 2, False), ("any", 1, True), ("optional", 0, False), (2, 2, True)]
)
def test_how_many_steps_a_step_needs(join: Join, need: int, early: bool) -> None:
    waiting = node("s3", "s1", "s2", join=join)
    assert (waiting.need, waiting.starts_early) == (need, early)


def test_a_step_is_possible_while_enough_can_still_end_well() -> None:
    waiting = node("s3", "s1", "s2")
    waiting.waits, waiting.won = 1, 1
    assert waiting.possible
    waiting.waits = 0
    assert not waiting.possible
    waiting.passed = 1
    assert waiting.possible, "a step that gave itself up is not waited for"


def test_the_nearest_steps_before_come_first() -> None:
    steps = graph(node("s1"), node("s2", "s1"), node("s3", "s2"), node("s4", by="s3"))
    assert [above.id for above in steps.above(steps.nodes["s4"])] == ["s3", "s2", "s1"]


def test_dependents_are_steps_that_waited_were_planned_or_were_given_up() -> None:
    steps = graph(node("s1"), node("s2", "s1"), node("s3"), node("s4", by="s2"), node("s5"))
    steps.nodes["s5"].status, steps.nodes["s5"].unneeded_for = "skipped", "s2"
    assert steps.dependents({"s1"}) == {"s1", "s2", "s4", "s5"}
    assert steps.dependents({"s3"}) == {"s3"}


def test_only_merged_steps_are_no_ancestors() -> None:
    steps = graph(node("s1"), node("s2", "s1"), node("s3", "s2"))
    steps.unmerged = [steps.nodes["s2"]]
    assert steps.ancestors(steps.nodes["s3"]) == {"s2"}


def test_steps_are_planned_beside_one_unless_all_wait_for_it() -> None:
    steps = graph(node("s1"), node("s2", "s1"), node("s3", "s2"), node("s4"))
    steps.planned = 3
    assert steps.planned_beside(steps.nodes["s1"])
    steps.planned, steps.nodes["s4"].status = 2, "running"
    assert not steps.planned_beside(steps.nodes["s1"])
