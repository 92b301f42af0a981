"""Which agent a task is with, told event by event."""

from treadle.core import events as e
from treadle.core.team import AgentTrack


def moved(step: str, to: str) -> e.AgentChanged:
    return e.AgentChanged(step, f"{step}-0", to, "a")


def agents_after(*events: e.Event) -> list[str]:
    track = AgentTrack()
    return [track.note(event) for event in events]


BEGAN = [e.TaskCreated("a", (), "t"), e.StepStarted("s1", 1)]


def test_a_task_is_with_the_agent_that_it_moved_to_last() -> None:
    assert agents_after(*BEGAN, moved("s1", "b"), e.StepStarted("s2", 2)) == ["a", "a", "b", "b"]


def test_taking_back_the_step_that_handed_over_returns_the_task() -> None:
    there = [*BEGAN, moved("s1", "b"), e.StepStarted("s2", 2), moved("s2", "c")]
    assert agents_after(*there, e.Rewound(1, 1))[-1] == "b"
    assert agents_after(*there, e.Rewound(0, 1))[-1] == "a"


def test_a_fork_goes_on_with_the_same_agent_unless_it_was_given_another() -> None:
    there = [*BEGAN, moved("s1", "b")]
    assert agents_after(*there, e.TaskForked("t", "a", "x"))[-1] == "b"
    assert agents_after(*there, e.TaskForked("t", "c", "x", "version"))[-1] == "c"
