"""Each story writes the recorded bytes when its clock and its ids are fixed."""

import sys
from pathlib import Path

import pytest

from tests import forked
from tests.journals.fixed import RECORDED, SUFFIX
from tests.journals.stories import STORIES

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the journals that the present code writes; a process of its own fixes its clock."""
    folder = tmp_path_factory.mktemp("fixed")
    forked.completed([sys.executable, "-m", "tests.journals.fixed", folder], cwd=ROOT, check=True)
    return folder


@pytest.mark.parametrize("name", [story.__name__ for story in STORIES])
def test_a_story_with_a_fixed_clock_writes_the_recorded_journal(written: Path, name: str) -> None:
    """If the change is meant: `python -m tests.journals.fixed` records the journals again."""
    wanted = RECORDED / f"{name}{SUFFIX}"
    assert (written / wanted.name).read_bytes() == wanted.read_bytes()


def test_each_story_has_a_recorded_journal() -> None:
    assert {file.stem for file in RECORDED.iterdir()} == {story.__name__ for story in STORIES}
