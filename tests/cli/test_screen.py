"""What is printed on a terminal."""

import pytest

from treadle.cli.screen import short_ids
from treadle.core.display import clean


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


def test_ids_of_one_batch_are_told_apart_by_their_random_ends():
    batch = [f"01a20275-803b-7{number:03x}-8000-0000000{number:05x}" for number in range(3)]
    twins = ["01a20275-803b-7000-8000-aaaaabcdefff", "01a20275-803b-7000-8000-bbbbabcdefff"]
    assert short_ids(batch) == dict(zip(batch, ["0000000", "0000001", "0000002"], strict=True))
    assert short_ids(twins) == dict(zip(twins, ["aabcdefff", "babcdefff"], strict=True))


def test_an_id_that_a_caller_chose_and_the_call_of_a_child_stay_readable():
    chosen, child = "order-4711", "01a20275-803b-7000-8000-00000000000f.s1-0"
    assert short_ids([chosen, child]) == {chosen: "order-4711", child: "000000f.s1-0"}
