"""A sample of the journals that are changed and chained anew; all of them: `make imports`."""

from pathlib import Path

import pytest

from tests.attack.mutated_imports import Export, attack, corpus

pytestmark = pytest.mark.anyio

RUNS = 30
_CORPUS: list[Export] = []


@pytest.mark.sampled(10)
@pytest.mark.parametrize("seed", [367, 1347, 1460, *range(10_000, 10_000 + RUNS)])
async def test_a_changed_journal_is_read_or_reported_as_damaged_and_harms_its_own_task_alone(
    seed: int, tmp_path: Path
) -> None:
    if not _CORPUS:
        _CORPUS.extend(await corpus())
    findings, _ = await attack(seed, _CORPUS, tmp_path)
    assert not findings, "\n".join(map(str, findings))


@pytest.mark.full
async def test_many_changed_journals_are_read_or_reported_as_damaged(tmp_path: Path) -> None:
    exports = await corpus()
    findings = [finding for seed in range(2_000) for finding in (await attack(seed, exports, tmp_path))[0]]
    assert not findings, "\n".join(map(str, findings))
