"""The crash matrix: the golden task is killed at every place it passes, resumed by the command line, and audited."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.forks import ForkServer
from tests.crash.golden import VARIANTS
from tests.crash.trials import Trial


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    server = ForkServer()
    yield server
    server.close()


class Trials:
    """Makes trials of one variant, each in a folder of its own."""

    def __init__(self, root: Path, variant: str, server: ForkServer) -> None:
        self.root, self.variant, self.server = root, variant, server
        self.count = 0

    def new(self) -> Trial:
        self.count += 1
        place = self.root / str(self.count)
        place.mkdir()
        return Trial(place, self.variant, self.server)

    def places(self) -> list[str]:
        """Return the places that the golden task passes when nothing kills it."""
        trial = self.new()
        assert trial.job("script", trial.store, trial.variant) == 0, trial.trouble
        return trial.places


@pytest.fixture
def trials(request: pytest.FixtureRequest, tmp_path: Path, server: ForkServer) -> Trials:
    return Trials(tmp_path, request.param, server)


def survives(trials: Trials, places: list[str]) -> None:
    """Kill a fresh golden task at each place; name every promise that broke, and where."""
    broken: dict[str, list[str]] = {}
    for place in places:
        trial = trials.new()
        trial.dies("script", place)
        found = trial.broken()
        if found:
            broken[f"{trials.variant}: {place} ({trial.place}: {trial.commands})"] = found
    assert not broken, broken


@pytest.mark.parametrize("trials", VARIANTS, indirect=True)
def test_each_place_is_killed_at_in_one_variant_of_the_task(trials: Trials) -> None:
    places = sorted(trials.places())
    quarter = list(VARIANTS).index(trials.variant)
    survives(trials, places[quarter :: len(VARIANTS)])


@pytest.mark.parametrize("trials", ["inline", "threads"], indirect=True)
@pytest.mark.parametrize("call", ["book s1-1", "pay s1-2"])
def test_a_call_that_may_write_starts_only_once_its_begin_is_durable(trials: Trials, call: str) -> None:
    death = trials.new().dies("script", f"start {call}")
    assert call.split()[1] in death.journal.open_calls()


@pytest.mark.full
@pytest.mark.parametrize("trials", VARIANTS, indirect=True)
def test_each_variant_is_killed_at_each_place(trials: Trials) -> None:
    survives(trials, trials.places())
