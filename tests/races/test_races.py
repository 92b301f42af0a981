"""A sample of `make races`: two callers on one task within a millisecond, and each gets a true answer."""

import random
from pathlib import Path
from typing import Any

import pytest

from tests.races.acts import AGENTS, HANGS
from tests.races.pairs import Races
from tests.races.rules import race
from treadle import Runner
from treadle.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio


async def raced(store: Any, pairs: int, second: str | None = None) -> None:
    seed = random.randrange(1_000_000)
    async with Runner(store, agents=list(AGENTS.values())) as runner:
        report = await Races(runner, seed, second, soon=HANGS).run(pairs)
    assert report.good, f"seed {seed}\n{report}"
    assert report.pairs == pairs


@pytest.mark.parametrize("store", ["memory", "sqlite", pytest.param("postgresql", marks=pytest.mark.full)])
async def test_a_stop_beside_another_verb_returns_the_state_that_is_reached(
    store: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if store == "postgresql":
        await raced(request.getfixturevalue("postgres").in_schema("races_here"), 180)
    else:
        await raced(MemoryStore() if store == "memory" else tmp_path / "journal.db", 18)


@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgresql", marks=pytest.mark.full)])
async def test_a_stop_beside_a_verb_of_another_process_returns_the_state_that_is_reached(
    store: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if store == "postgresql":
        url = request.getfixturevalue("postgres").in_schema("races_there")
        await raced(url, 180, url)
    else:
        await raced(tmp_path / "journal.db", 12, f"sqlite:///{tmp_path}/journal.db")


@pytest.mark.parametrize(
    ("store", "times"),
    [
        ("memory", 1),
        ("sqlite", 2),
        pytest.param("memory", 30, marks=pytest.mark.full),
        pytest.param("sqlite", 30, marks=pytest.mark.full),
        pytest.param("postgresql", 30, marks=pytest.mark.full),
    ],
)
async def test_of_two_processes_that_act_on_one_task_at_once_each_is_told_what_became_of_it(
    store: str, times: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = "memory:" if store == "memory" else f"sqlite:///{tmp_path}/journal.db"
    if store == "postgresql":
        url = request.getfixturevalue("postgres").in_schema("races_of_rules")
    seed = random.randrange(1_000_000)
    async with Runner(url, agents=list(AGENTS.values())) as runner:
        wrong = await race(runner, times, seed, None if store == "memory" else url)
    assert wrong == [], f"seed {seed}"
