"""A sample of `python -m tests.property.thread_algebra`, and that it finds defects that are planted."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.property.thread_algebra import Ground
from treadle.drivers.thread_history import ThreadHistory
from treadle.stores import rules


@pytest.mark.parametrize(("kind", "runs"), [("memory", 20), ("sqlite", 4)])
def test_a_thread_and_its_tasks_agree_with_a_model_of_lists(kind: str, runs: int) -> None:
    first = random.randrange(2**31)
    print(f"python -m tests.property.thread_algebra --store {kind} --seed {first} --runs {runs}")
    with Ground(kind) as ground:
        for seed in range(first, first + runs):
            differences, _ = ground.run(seed)
            assert differences is None, f"--store {kind} --seed {seed} --runs 1\n  {differences}"


def differences_found() -> Iterator[str]:
    """What is different, run by run."""
    with Ground("memory") as ground:
        for seed in range(40, 400):
            differences, _ = ground.run(seed)
            if differences is not None:
                yield differences


def test_a_deletion_that_drops_messages_of_other_tasks_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "read_below", lambda first_versions: 0)
    assert any("are missing" in difference or "should be" in difference for difference in differences_found())


def test_a_cache_that_misses_changes_of_other_processes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real: Any = ThreadHistory._list

    async def blind(self: ThreadHistory, thread_id: str, version: int | None, kept: Any) -> Any:
        listed = await real(self, thread_id, version, kept)
        if kept.at and listed.shared < len(kept.turns) and not listed.rest:
            listed = type(listed)(kept.at, len(kept.turns), [], kept.summaries)
        return listed

    monkeypatch.setattr(ThreadHistory, "_list", blind)
    assert any("should be" in difference for difference in differences_found())
