"""The golden task is killed at every boundary, wherever its tools run; the whole matrix is `make crash`."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.hosts import AGENTS, repeated
from treadle.testing.boundaries import CrashReport, crash_at_every_boundary
from treadle.testing.postgres import PostgresServer

Crashing = Callable[..., CrashReport]


@pytest.fixture
def crashing(tmp_path: Path) -> Crashing:
    """Crash the golden task, and count what was done to the world twice as broken too."""

    def crash(agent: str, **options: object) -> CrashReport:
        effects = tmp_path / "effects"
        report = crash_at_every_boundary(
            f"tests.crash.hosts:{agent}",
            "go",
            script="tests.crash.hosts:script",
            cwd=Path(__file__).parents[2],
            env={"EFFECTS": str(effects)},
            **options,  # type: ignore[arg-type]
        )
        report.broken += [f"happened twice: {line}" for line in repeated(effects)]
        return report

    return crash


@pytest.mark.full
def test_a_task_survives_a_kill_at_each_boundary_of_its_run_and_recovery(
    crashing: Crashing,
) -> None:
    report = crashing("inline", kills_per_task=25)
    print(report)
    assert not report.broken, report
    assert len(report.missed) < 5, report  # what a recovery passes depends on what was in flight
    assert len(report.places) > 150


def around_calls(point: str) -> bool:
    return " s1-" in point and point.startswith(("enter", "start", "done", "before tool", "after tool"))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("host", ["thread", "subprocess"])
def test_wherever_a_tool_runs_a_kill_around_its_calls_is_survived(crashing: Crashing, host: str) -> None:
    report = crashing(AGENTS[host], kills_per_task=15, recovery=False, only=around_calls)
    assert not report.broken, report
    assert not report.missed, report
    assert len(report.places) > 20


def in_transactions_of_a_call_and_a_claim(point: str) -> bool:
    return point.startswith(("inside", "committing")) and point.endswith(("created", "claim", "s1-2"))


def test_a_kill_within_a_transaction_of_postgresql_leaves_all_of_it_or_nothing(
    crashing: Crashing, postgres: PostgresServer
) -> None:
    report = crashing(
        "inline",
        store=postgres.in_schema("crash_sample"),
        kills_per_task=25,
        recovery=False,
        only=in_transactions_of_a_call_and_a_claim,
    )
    assert not report.broken, report
    assert not report.missed, report
    names = {name.partition(" ")[2] for name in report.places}
    assert {"task_created", "row created", "claim", "tool_started s1-2", "tool_ended s1-2"} <= names


def test_a_tool_that_is_not_idempotent_as_declared_is_found(crashing: Crashing) -> None:
    report = crashing("lying", recovery=False, only=lambda point: point == "done pay s1-2")
    assert [line for line in report.broken if line.startswith("happened twice: pay")]


@pytest.mark.full
@pytest.mark.parametrize("host", AGENTS)
def test_each_boundary_is_killed_at_in_a_task_of_its_own(crashing: Crashing, host: str) -> None:
    report = crashing(AGENTS[host])
    assert not report.broken, report
