"""A task is killed around the events of a feature, and at every boundary: all is done, and nothing happens twice."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from treadle.testing.boundaries import CrashReport, crash_at_every_boundary

ROOT = Path(__file__).parents[2]


@dataclass
class Feature:
    """A task with a feature, and the events at which every run kills it.

    Args:
        agent: a module of `tests.crash.features`, and an agent in it.
        message: what the task begins with.
        points: words that name the points of the sample; none if only `make full` kills this task.
        fewest: how many points these are at least.
        answer: how the task ends; None if its report alone says whether that is right.
        may_miss: an event that may not come again, as it is a matter of time.
    """

    agent: str
    message: str
    points: tuple[str, ...] = ()
    fewest: int = 1
    answer: str | None = None
    may_miss: str | None = None

    def __str__(self) -> str:
        return self.agent

    def killed(self, *points: str) -> CrashReport:
        return crash_at_every_boundary(
            f"tests.crash.features.{self.agent}",
            self.message,
            cwd=ROOT,
            kills_per_task=4,
            recovery=not points,
            only=lambda point: not points or any(each in point for each in points),
        )

    def check(self, report: CrashReport) -> None:
        missed = [p for p in report.missed if self.may_miss is None or self.may_miss not in p]
        assert (report.broken, missed) == ([], [])
        if self.answer is not None:
            assert report.answer == ("completed", self.answer)


AROUND_APPROVALS = ("before approval_given", "after approval_given", "after tool_started s2-0")
AROUND_TICKETS = (
    "after ticket_issued",
    "before call_deferred",
    "after call_deferred",
    "before ticket_completed",
)
AROUND_ANSWERS = ("before model_returned", "inside model_returned", "after model_returned")

FEATURES = [
    Feature("approvals:agent", "Pay.", AROUND_APPROVALS),
    Feature("background:films", "Go.", AROUND_TICKETS),
    Feature("background:steps", "Go."),
    Feature(
        "guardrails:waiting",
        "Pay with 4111.",
        ("after answer_held", "before guardrail_judged"),
        answer="Done with [card].",
    ),
    Feature("guardrails:beside", "Pay with 4111."),
    Feature("handoffs:desk", "Pay.", ("agent_changed",), answer="Paid."),
    Feature("handoffs:routed", "Pay.", answer="Paid."),
    Feature("judging:agent", "Pay.", ("request_judged", "pause_requested"), answer="Done."),
    Feature("middleware:agent", "Pay.", ("before arguments_rewritten", "after arguments_rewritten")),
    # Whether a failure stops the request of its sibling, or comes after its answer, is a matter of time.
    Feature("plans:agent", "Pay.", ("after step_completed s5",), answer="Paid.", may_miss="model_stopped"),
    Feature("typed_answers:tool_agent", "Where?", AROUND_ANSWERS, fewest=9),
    Feature("typed_answers:prompt_agent", "Where?"),
]


@pytest.mark.parametrize("feature", [each for each in FEATURES if each.points], ids=str)
def test_a_task_survives_a_crash_around_the_events_of_a_feature(feature: Feature) -> None:
    report = feature.killed(*feature.points)
    feature.check(report)
    assert len(report.places) >= feature.fewest, report.places
    event = feature.points[0].removeprefix("before ").removeprefix("after ")
    assert any(event in place for place in report.places), report.places


@pytest.mark.full
@pytest.mark.parametrize("feature", FEATURES, ids=str)
def test_a_task_with_a_feature_survives_a_crash_at_every_boundary(feature: Feature) -> None:
    report = feature.killed()
    print(report.head)
    feature.check(report)
