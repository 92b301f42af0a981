"""Drivers that are stopped, woken and killed at random lose nothing, do nothing twice and strand nothing."""

import asyncio

import pytest

from tests.chaos.storm import SCAN, Plan, Storm, share
from treadle.testing.postgres import PostgresServer


def judged(report, plan, refused):
    assert report.violations == [], str(report)
    assert report.unended == [], str(report)
    assert not any(report.exits), str(report)
    assert report.refused >= refused, str(report)
    # A machine under load starts processes late; what the storm prints is what counts.
    assert share(report.left, 0.99) <= SCAN + 3.0, str(report)


def test_a_short_storm_on_sqlite(tmp_path):
    plan = Plan(tmp_path, f"sqlite:///{tmp_path}/journal.db", 2.5, tasks=8, drivers=2, steps=4, seed=3)
    plan.lease, plan.work = 0.5, 0.6
    judged(asyncio.run(Storm(plan).run()), plan, refused=0)


@pytest.mark.full
def test_a_minute_of_storm_on_sqlite(tmp_path):
    plan = Plan(tmp_path, f"sqlite:///{tmp_path}/journal.db", 60, tasks=200, drivers=3, seed=7)
    judged(asyncio.run(Storm(plan).run()), plan, refused=50)


@pytest.mark.full
def test_a_minute_of_storm_on_postgresql_whose_server_restarts(tmp_path):
    with PostgresServer() as server:

        def restart():
            server.stop(immediate=True)
            server.start()

        plan = Plan(tmp_path, server.url, 60, tasks=200, drivers=3, seed=7, restart=restart)
        judged(asyncio.run(Storm(plan).run()), plan, refused=50)
