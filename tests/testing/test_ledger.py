"""The ledger of effects: whole lines, also after a crash cut one off."""

from treadle.testing.ledger import Ledger, append_line


def test_a_line_that_a_crash_cut_off_is_skipped_and_the_next_one_is_whole(tmp_path):
    path = tmp_path / "effects.jsonl"
    Ledger(path).note("first")
    path.write_text(path.read_text() + '{"kind": "no')
    ledger = Ledger(path)
    ledger.note("second")
    assert [line.tool for line in ledger.entries()] == ["first", "second"]


def test_a_line_after_a_whole_one_begins_no_empty_line(tmp_path):
    path = tmp_path / "lines.txt"
    append_line(path, "first")
    append_line(path, "second")
    assert path.read_text() == "first\nsecond\n"


def test_a_ledger_without_a_file_has_no_entries(tmp_path):
    assert Ledger(tmp_path / "none.jsonl").entries() == []
