"""Drivers that are stopped, continued and killed at random lose nothing, repeat nothing and strand nothing."""

import asyncio
import os

import pytest

from tests.chaos.storm import SCAN, Plan, Storm, share
from treadle.testing.postgres import PostgresServer


def judged(report, most, refused):
    """Judge a storm.

    Args:
        report: its results.
        most: how many seconds an orphan may wait while one driver is awake all along.
        refused: how many stale commits must have been refused; the fewer, the more the machine does beside it.
    """
    assert report.violations == [], str(report)
    assert report.unended == [], str(report)
    assert not any(report.exits), str(report)
    assert report.refused >= refused, str(report)
    assert share(report.left, 0.99) <= most, str(report)


def longest(report):
    """Two scans and a margin, as far as the machine has time for them.

    A storm alone keeps two cores busy, and these tests run beside others. `python -m tests.chaos.storm` has the machine
    to itself and judges by one scan.
    """
    return 2.5 * SCAN * max(1.0, report.load / (os.cpu_count() or 1))


def test_a_short_storm_on_sqlite(tmp_path):
    plan = Plan(tmp_path, f"sqlite:///{tmp_path}/journal.db", 2.5, tasks=8, drivers=2, steps=4, seed=3)
    plan.lease, plan.work = 0.5, 0.6
    judged(asyncio.run(Storm(plan).run()), SCAN + 3.0, refused=0)  # processes start late on a busy machine


@pytest.mark.full
def test_a_minute_of_storm_on_sqlite(tmp_path):
    plan = Plan(tmp_path, f"sqlite:///{tmp_path}/journal.db", 60, tasks=200, drivers=3, seed=7)
    report = asyncio.run(Storm(plan).run())
    judged(report, longest(report), refused=10)


@pytest.mark.full
def test_a_minute_of_storm_on_postgresql_whose_server_restarts(tmp_path):
    with PostgresServer() as server:

        def restart():
            server.stop(immediate=True)
            server.start()

        plan = Plan(tmp_path, server.url, 60, tasks=200, drivers=3, seed=7, restart=restart)
        report = asyncio.run(Storm(plan).run())
        judged(report, longest(report), refused=10)
