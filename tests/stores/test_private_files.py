import os
import stat
from pathlib import Path

import pytest

from treadle.stores.private_files import make_folder


@pytest.mark.skipif(os.name != "posix", reason="modes are those of POSIX")
def test_a_folder_that_is_made_is_entered_by_its_owner_alone(tmp_path: Path) -> None:
    make_folder(tmp_path / "a" / ".treadle")
    assert stat.S_IMODE((tmp_path / "a" / ".treadle").stat().st_mode) == 0o700
    assert (tmp_path / "a" / ".treadle" / ".gitignore").read_text() == "*\n"


def test_a_folder_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    before = tmp_path.stat().st_mode
    make_folder(tmp_path)
    assert (tmp_path.stat().st_mode, [*tmp_path.iterdir()]) == (before, [])
