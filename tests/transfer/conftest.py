"""Fixtures for tests of exports and imports."""

from pathlib import Path

import pytest

from tests.transfer.exports import filled
from treadle.stores.memory import MemoryStore


@pytest.fixture
async def export(tmp_path: Path) -> Path:
    """Return an export file of a store with threads and forks."""
    async with filled(MemoryStore()) as runner:
        await runner.export_tasks(tmp_path / "all.jsonl")
    return tmp_path / "all.jsonl"
