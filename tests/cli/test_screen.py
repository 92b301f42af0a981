"""What is printed on a terminal."""

import pytest

from treadle.cli.screen import clean


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("a\x1b[2Jb", "a\\x1b[2Jb"),
        ("c1 \x9b31m", "c1 \\x9b31m"),
        ("right\u202eleft", "right\\u202eleft"),
        ("one\r\ntwo\rthree", "one\ntwo\\rthree"),
        ("grün 漢字 👩\u200d👧\tx", "grün 漢字 👩\u200d👧\tx"),
    ],
)
def test_text_from_outside_cannot_control_a_terminal(given, shown):
    assert clean(given) == shown
