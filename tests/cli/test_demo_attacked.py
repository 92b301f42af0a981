"""The demonstration under attack: killed from outside at any instant, it goes on and ends right."""

import contextlib
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.demonstration import WITHOUT_KEYS, check, demo, run
from tests.forked import Forked

pytestmark = pytest.mark.sampled(1)

LINES = 75
"""About how many lines a demonstration prints. Instants are counted in its lines: time depends on the machine."""


def killed(path: Path, *options: str, chance: random.Random, group: bool = True) -> None:
    """Start a demonstration and kill it, or only its first process, at some instant."""
    lines, delay = chance.randrange(LINES), chance.uniform(0, 0.3)
    print(f"killed {delay:.3f} s after line {lines}")
    with Forked(
        demo(*options),
        cwd=path,
        env={**WITHOUT_KEYS, "PYTHONUNBUFFERED": "1"},
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        for _ in range(lines):
            process.stdout.readline()
        time.sleep(delay)
        if group:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        process.kill()


def until_it_ends_right(path: Path) -> None:
    done = run(path, "--resume")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert "BROKEN" not in done.stdout
    for folder in (path / ".treadle").glob("demo-*"):
        if (folder / "effects.log").exists():
            check(path, folder)


def attack(path: Path, seed: int, kills: int = 1, *, group: bool = True) -> None:
    """Kill the demonstration at random instants, let it go on after each, and at last to its end."""
    print(f"seed {seed}")
    chance = random.Random(seed)
    for number in range(kills):
        killed(path, *(["--resume"] if number else []), chance=chance, group=group)
    until_it_ends_right(path)


@pytest.mark.parametrize(
    "number", [0, *(pytest.param(number, marks=pytest.mark.full) for number in range(1, 5))]
)
def test_killed_at_a_random_instant_it_goes_on_and_ends_right(tmp_path, number):
    attack(tmp_path, random.randrange(2**32))


@pytest.mark.full
@pytest.mark.parametrize("number", range(20))
def test_killed_three_times_at_random_instants_it_goes_on_and_ends_right(tmp_path, number):
    attack(tmp_path, random.randrange(2**32), kills=3)


def test_when_only_the_parent_is_killed_it_goes_on_beside_the_orphan_and_ends_right(tmp_path):
    attack(tmp_path, random.randrange(2**32), group=False)


@pytest.mark.full
@pytest.mark.parametrize("number", range(10))
def test_when_only_parents_are_killed_it_goes_on_beside_the_orphans_and_ends_right(tmp_path, number):
    attack(tmp_path, random.randrange(2**32), kills=2, group=False)
