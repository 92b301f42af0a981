"""The golden task is killed at every boundary, wherever its tools run; the whole matrix is `make crash`."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.hosts import AGENTS, KILLS_PER_TASK, repeated
from tests.crash.random_kills import HOSTS, kill_at_random
from treadle.testing.boundaries import CrashReport, crash_at_every_boundary
from treadle.testing.postgres import PostgresServer

Crashing = Callable[..., CrashReport]


@pytest.fixture
def crashing(tmp_path: Path) -> Crashing:
    """Crash the golden task, and count what was done to the world twice as broken too."""

    def crash(agent: str, **options: object) -> CrashReport:
        effects = tmp_path / "effects"
        report = crash_at_every_boundary(
            agent,
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
    report = crashing(AGENTS["inline"], kills_per_task=25)
    print(report)
    assert not report.broken, report
    assert len(report.missed) < 5, report  # what a recovery passes depends on what was in flight
    assert len(report.places) > 150


def around_calls(point: str) -> bool:
    return " s1-" in point and point.startswith(("enter", "start", "done", "before tool", "after tool"))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("host", ["thread", "program"])
def test_wherever_a_tool_runs_a_kill_around_its_calls_is_survived(crashing: Crashing, host: str) -> None:
    report = crashing(AGENTS[host], kills_per_task=15, recovery=False, only=around_calls)
    assert not report.broken, report
    assert not report.missed, report
    assert len(report.places) > 20


def around_a_writing_call(point: str) -> bool:
    return "pay s1-2" in point and "undo" not in point


@pytest.mark.sampled(1)
@pytest.mark.parametrize("host", HOSTS)
def test_a_kill_around_a_writing_call_in_another_process_or_at_a_server_is_survived(
    crashing: Crashing, host: str
) -> None:
    report = crashing(AGENTS[host], kills_per_task=15, recovery=False, only=around_a_writing_call)
    assert not report.broken, report
    assert not report.missed, report
    assert len(report.places) == 3, report


@pytest.mark.full
@pytest.mark.parametrize("host", HOSTS)
def test_a_kill_at_any_moment_is_survived_where_a_tool_runs_elsewhere(tmp_path: Path, host: str) -> None:
    figures = kill_at_random(host, tmp_path, tasks=12, seed=random.randrange(2**31))
    print(host, figures)
    assert not figures.broken, figures.broken
    assert figures.kills > 5
    assert figures.stopped["write"] == figures.settled > 0, figures


@pytest.mark.full
@pytest.mark.parametrize("host", HOSTS)
def test_a_kill_at_any_moment_is_survived_on_postgresql_too(
    tmp_path: Path, postgres: PostgresServer, host: str
) -> None:
    figures = kill_at_random(host, tmp_path, tasks=6, seed=1813, url=postgres.in_schema(f"random_{host}"))
    assert not figures.broken, figures.broken


def in_transactions_of_a_call_and_a_claim(point: str) -> bool:
    return point.startswith(("inside", "committing")) and point.endswith(("created", "claim", "s1-2"))


def test_a_kill_within_a_transaction_of_postgresql_leaves_all_of_it_or_nothing(
    crashing: Crashing, postgres: PostgresServer
) -> None:
    report = crashing(
        AGENTS["inline"],
        store=postgres.in_schema("crash_sample"),
        kills_per_task=25,
        recovery=False,
        only=in_transactions_of_a_call_and_a_claim,
    )
    assert not report.broken, "\n".join(report.broken)
    assert not report.missed, report
    names = {name.partition(" ")[2] for name in report.places}
    assert {"task_created", "row created", "claim", "tool_started s1-2", "tool_ended s1-2"} <= names


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("agent", "tool"), [("tests.crash.hosts:lying", "pay"), ("tests.crash.served:lying", "bank__pay")]
)
def test_a_tool_that_is_not_idempotent_as_declared_is_found(
    crashing: Crashing, agent: str, tool: str
) -> None:
    report = crashing(agent, recovery=False, only=lambda point: point == f"done {tool} s1-2")
    assert [line for line in report.broken if line.startswith("happened twice: pay")]


@pytest.mark.full
@pytest.mark.parametrize("host", AGENTS)
def test_each_boundary_is_killed_at_wherever_tools_run(crashing: Crashing, host: str) -> None:
    report = crashing(AGENTS[host], kills_per_task=KILLS_PER_TASK.get(host, 1))
    assert not report.broken, report
