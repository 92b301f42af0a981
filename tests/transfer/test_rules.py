"""What an import refuses and `verify` finds."""

import pytest

from treadle.ports import ThreadMember
from treadle.transfer.rules import missing_end


@pytest.mark.parametrize(
    ("seq", "head", "is_here"), [(1, 1, True), (4, 9, True), (9, 9, True), (10, 9, False), (0, 9, False)]
)
def test_a_thread_ends_a_task_at_an_event_that_its_journal_has(seq, head, is_here):
    text = missing_end(ThreadMember(1, "two", seq), head)
    assert (text is None) is is_here
    assert is_here or f"task two at event {seq}" in text
